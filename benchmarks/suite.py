"""Runs a suite: times and checks every case, and keeps the report, which is what the JSON file holds."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import family
from benchmarks.cases import Case
from benchmarks.environment import environment
from benchmarks.implementations import JAXQR, Factors, Implementation
from benchmarks.protocol import Protocol, measure, measured_ceilings
from jaxqr import verify

Report = dict[str, Any]

# Below this cost NumPy has measured a result before XLA has compiled the same for its shape. A byte of traffic counts
# for fifty operations: on a single thread NumPy passes over the elements some twenty times.
_HOST_CHECK_COST = 2e9


def run(
    suite: str,
    cases: Sequence[Case],
    peers: Sequence[Implementation],
    protocol: Protocol,
    save: Callable[[Report], None],
) -> Iterator[Report]:
    """Runs the cases one by one and yields their entries; `save` gets the report so far at the start and after each."""
    report: Report = {
        "suite": suite,
        "environment": environment(),
        "protocol": dataclasses.asdict(protocol),
        "ceilings": measured_ceilings(),
        "cases": [],
    }
    save(report)
    for case in cases:
        one = run_case if case.operation == "geqrf" else family.run_case
        entry = one(case, peers if case.timed else (), protocol)
        report["cases"].append(entry)
        save(report)
        yield entry


def run_case(case: Case, peers: Sequence[Implementation], protocol: Protocol) -> Report:
    """One case's entry: the case, and for each implementation its time, samples and check, or its error."""
    with ThreadPoolExecutor() as pool:  # NumPy's generators run beside each other
        inputs = list(pool.map(case.inputs, range(protocol.calls(case) if case.timed else 1)))
    results = {one.name: _result(case, one, inputs, protocol) for one in (JAXQR, *peers)}
    return {
        **dataclasses.asdict(case),
        "flops": case.flops,
        "traffic_bytes": case.traffic_bytes,
        "results": results,
    }


def _result(case: Case, implementation: Implementation, inputs: Sequence[np.ndarray], protocol: Protocol) -> Report:
    try:
        loaded = [implementation.load(a) for a in inputs]
        if not case.timed:
            return {"check": _check(case, implementation, inputs, implementation.factor_all(*loaded))}
        timing, outputs = measure(implementation, loaded, protocol)
        del loaded
        check = _check(case, implementation, inputs, outputs)
    except Exception as error:  # a case that cannot be done must not end the run; jaxqr's failure is reported
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    # A peer is judged by the gate alone: its time stays a fair comparison where it misses jaxqr's own promise.
    valid = check["gate"] and (check["fp32_grade"] or implementation is not JAXQR)
    return {
        "milliseconds": timing.milliseconds if valid else None,
        **(dataclasses.asdict(timing) if valid else {}),
        "check": check,
    }


def _check(
    case: Case, implementation: Implementation, inputs: Sequence[np.ndarray], outputs: Sequence[Factors]
) -> Report:
    """Whether all results pass the gate and are FP32-grade, how many matrices they are, and the worst measures."""
    on_host = len(outputs) * (case.flops + 50 * case.traffic_bytes) < _HOST_CHECK_COST
    worst: dict[str, float] = {}
    gate = grade = True
    for a, factors in zip(inputs, outputs, strict=False):  # a slow implementation did not get all inputs
        h, tau = implementation.as_jax(factors)
        measured = verify.measures(a, *((np.asarray(h), np.asarray(tau)) if on_host else (h, tau)))
        gate = gate and bool(verify.contest_gate(measured).all())
        grade = grade and bool(verify.as_good_as_lapack(a, measured).all())
        worst = {name: float(np.maximum(value, worst.get(name, 0.0))) for name, value in measured.worst().items()}
    return {
        "gate": gate,
        "fp32_grade": grade,
        "matrices": case.batch * len(outputs),
        **{name: value if np.isfinite(value) else str(value) for name, value in worst.items()},
    }


def failures(report: Report) -> list[str]:
    """One line for each case that jaxqr got wrong or could not do."""
    lines = []
    for entry in report["cases"]:
        result = entry["results"][JAXQR.name]
        if "error" in result:
            lines.append(f"{entry['name']}: {result['error']}")
        elif not (result["check"]["gate"] and result["check"]["fp32_grade"]):
            lines.append(f"{entry['name']}: {result['check']}")
    return lines


def write_json(report: Report, path: Path) -> None:
    """Replaces the file at once, so that a run that is killed leaves a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
    partial.replace(path)
