"""The names of precisions: which there are, what they mean on each platform, and the bounds that they promise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import DotAlgorithmPreset, Precision

import jaxqr
from jaxqr import wy
from jaxqr.precision import _POLICIES, policy_for

blocked = functools.partial(jaxqr.geqrf, implementation="blocked")
NAMES = list(_POLICIES)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(8).standard_normal(shape, dtype=np.float32)


def test_the_names_that_are_promised():
    strings = {"highest": Precision.HIGHEST, "high": Precision.HIGH, "default": Precision.DEFAULT}
    assert {None, *strings, *strings.values()} <= set(NAMES)
    for name, precision in strings.items():
        assert policy_for(name) is policy_for(precision)


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_every_name_runs_on_every_implementation(name):
    a = normal(2, 40, 60)
    expected, _ = jaxqr.geqrf(a)
    for implementation in (None, "blocked", "jax"):
        h, _ = jaxqr.geqrf(a, precision=name, implementation=implementation)
        np.testing.assert_allclose(h, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("implementation", [None, "blocked", "jax"])
@pytest.mark.parametrize("name", ["best", "float32", "HIGHEST", "", 1, True, ("high", "high"), ["high"], np.float32])
def test_unknown_names_are_refused_with_those_there_are(name, implementation):
    with pytest.raises(
        ValueError, match=r"is not one of None, 'highest', 'high', 'default', Precision.HIGHEST, .*TF32"
    ):
        jaxqr.geqrf(normal(3, 3), precision=name, implementation=implementation)


@pytest.mark.parametrize("name", ["BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9"])
def test_presets_that_are_not_what_they_say_are_refused(name):
    with pytest.raises(ValueError, match=rf"precision=DotAlgorithmPreset.{name} is not one of .*: XLA"):
        jaxqr.geqrf(normal(3, 3), precision=DotAlgorithmPreset[name])


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_other_platforms_multiply_in_float32(name):
    for platform in ("cpu", "tpu", "rocm"):
        assert policy_for(name).products(platform) == Precision.HIGHEST


@pytest.mark.parametrize("kind", ["normal", "positive", "constant"])
@pytest.mark.parametrize("name", NAMES, ids=str)
def test_products_keep_the_stated_bound(name, kind):
    """Both products of an update, at their longest: over 2048 rows and over 128 columns. Constants are the worst."""
    policy, rng = policy_for(name), np.random.default_rng(9)
    precision = policy.products(jax.default_backend())
    vectors = {
        "normal": rng.standard_normal,
        "positive": rng.random,
        "constant": lambda shape: np.broadcast_to(rng.random(shape[-1]), shape),
    }[kind]
    for length, product in [(2048, wy.tall_product), (128, lambda x, y, p: wy.product(x.mT, y, p))]:
        x, y = (vectors((2, length, columns)).astype(np.float32) for columns in (16, 24))
        found = jax.jit(product, static_argnums=2)(jnp.asarray(x), jnp.asarray(y), precision)
        x, y = x.astype(np.float64), y.astype(np.float64)
        norms = np.linalg.norm(x, axis=1)[:, :, None] * np.linalg.norm(y, axis=1)[:, None, :]
        assert (np.abs(found - x.mT @ y) <= policy.error_bound * norms).all()


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_bounds_are_ordered(name):
    assert policy_for(None).error_bound <= policy_for(name).error_bound <= policy_for("default").error_bound


def test_only_the_default_is_fused():
    assert [name for name in NAMES if policy_for(name).fused] == [None]


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_residual_within_the_bound(name):
    """‖R − QᵀA‖ over ‖A‖, with Q from (H, tau) in float64, is a few product errors."""
    a = normal(3, 120, 100)
    h, tau = (np.asarray(x, np.float64) for x in blocked(a, precision=name))
    r = a.astype(np.float64)
    for k in range(100):
        v = h[:, :, k].copy()
        v[:, :k], v[:, k] = 0, 1
        r -= tau[:, k, None, None] * v[:, :, None] * (v[:, None, :] @ r)
    error = np.linalg.norm(r - np.triu(h), axis=(1, 2)) / np.linalg.norm(a, axis=(1, 2))
    assert (error <= 4 * policy_for(name).error_bound).all()
