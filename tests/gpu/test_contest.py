"""The contest's 34 cases on the GPU: through the contest's gate, and FP32-grade."""

import jax
import jax.numpy as jnp
import pytest

import jaxqr
from benchmarks.cases import Case, contest
from tests.gpu.tools import assert_fp32_grade

pytestmark = pytest.mark.gpu
CASES = contest()
factor = jax.jit(jaxqr.geqrf)


def test_there_are_34():
    assert len(CASES) == 34
    assert sum(case.timed for case in CASES) == 12


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gate_and_fp32_grade(case: Case):
    a = case.inputs(0)
    on_device = jnp.asarray(a)
    h, tau = factor(on_device)
    measured = assert_fp32_grade(on_device, h, tau)
    # Ours are compared with LAPACK's order of magnitude too: 20 is the gate, LAPACK is at 0.01 to 0.11.
    assert measured.scaled_factor.max() <= 0.5
