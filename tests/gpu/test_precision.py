"""Every named precision on the GPU: its products keep the bound that it states, and Q stays orthogonal."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import DotAlgorithmPreset, Precision

import jaxqr
from jaxqr import wy
from jaxqr.precision import policy_for
from jaxqr.verify import Measures, contest_gate, fp32_grade, measures
from tests import matrices

pytestmark = pytest.mark.gpu
NAMES = [None, Precision.HIGHEST, Precision.HIGH, Precision.DEFAULT] + [
    preset for preset in DotAlgorithmPreset if preset.name in {"F32_F32_F32", "TF32_TF32_F32_X3", "TF32_TF32_F32"}
]
FP32 = 2.0**-17


@pytest.mark.parametrize("precision", NAMES, ids=str)
def test_products_keep_the_stated_bound(precision):
    policy, rng, size = policy_for(precision), np.random.default_rng(0), 1024
    kinds = {
        "normal": rng.standard_normal((2, 96, size)),
        "positive": rng.random((2, 96, size)),
        "constant": np.broadcast_to(rng.random((2, 96, 1)), (2, 96, size)),  # rounding has a bias
    }
    x, y = np.stack(list(kinds.values()), axis=1, dtype=np.float32)
    y = y.mT
    exact = x.astype(np.float64) @ y.astype(np.float64)
    norms = np.linalg.norm(x.astype(np.float64), axis=-1)[..., :, None] * np.linalg.norm(
        y.astype(np.float64), axis=-2, keepdims=True
    )
    product = jax.jit(functools.partial(wy.product, precision=policy.products("cuda")))
    errors = (np.abs(np.asarray(product(x, y)) - exact) / norms).max((-2, -1))
    assert (errors <= policy.error_bound).all(), dict(zip(kinds, np.log2(errors), strict=True))


@pytest.mark.parametrize("precision", NAMES, ids=str)
def test_factorization(precision):
    """Panels and T are float32 under every name, so Q is orthogonal; R is as good as the products are."""
    policy = policy_for(precision)
    a = jnp.asarray(matrices.batch(257, 129, ("dense", "graded_columns", "near_rank", "clustered", "zero_column")))
    found = measures(a, *jax.jit(functools.partial(jaxqr.geqrf, precision=precision))(a))
    assert (found.scaled_orthogonality <= 2).all()
    if policy.error_bound <= FP32:
        assert contest_gate(found).all()
        assert fp32_grade(found, Measures(*np.zeros((3, len(a))))).all(), found.worst()


def test_lower_precisions_are_lower():
    """Otherwise the names would promise a speed that is not there; and what a name costs shows in this test first."""
    a = jnp.asarray(matrices.batch(257, 129, ("dense",)))
    errors = [
        float(measures(a, *jaxqr.geqrf(a, precision=precision)).columnwise[0])
        for precision in ("highest", "high", "default")
    ]
    assert errors[2] > 10 * max(errors[:2]), errors
