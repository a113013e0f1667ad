"""The family suite: every operation runs and is checked, and a wrong result has no time."""

import dataclasses

import jax
import pytest

from benchmarks import cases, family
from benchmarks.cases import Case
from benchmarks.implementations import JAX
from benchmarks.protocol import Protocol

PROTOCOL = Protocol(max_calls=1, repeats=2)


def small(operation: str) -> Case:
    # A gradient is checked to the condition of its matrices.
    kind = "dense" if operation == "gradient" else "statistics"
    return Case(f"{operation}-small", 3, 12, 12, kind, operation=operation)


@pytest.fixture(autouse=True)
def few_calls(monkeypatch):
    monkeypatch.setattr(Protocol, "calls", lambda self, case: self.max_calls)


@pytest.mark.parametrize("operation", family.OPERATIONS)
def test_every_operation_is_timed_and_right(operation):
    entry = family.run_case(small(operation), [JAX], PROTOCOL)
    assert set(entry["results"]) == {"jaxqr", "jax"}
    for result in entry["results"].values():
        assert result["milliseconds"] > 0
        assert result["check"]["gate"]
        assert result["check"]["fp32_grade"]
        assert result["check"]["matrices"] == 3


@pytest.mark.parametrize("operation", family.OPERATIONS)
def test_a_wrong_result_has_no_time(operation, monkeypatch):
    right = family.OPERATIONS[operation]
    wrong = dataclasses.replace(right, ours=lambda x: jax.tree.map(lambda y: 1.001 * y, right.ours(x)))
    monkeypatch.setitem(family.OPERATIONS, operation, wrong)
    entry = family.run_case(small(operation), [], PROTOCOL)
    assert entry["results"]["jaxqr"]["milliseconds"] is None


def test_the_suite_names_only_operations_that_there_are():
    assert {case.operation for case in cases.family()} == set(family.OPERATIONS)
