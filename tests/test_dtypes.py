"""Dtypes and the flags that change them: x64 mode, strict promotion, NaN checks, weak types, numpy input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr

RNG = np.random.default_rng(3)
MATRICES = RNG.standard_normal((2, 6, 4))
INTEGERS = RNG.integers(0, 100, (6, 4))


def assert_like_jax(a, **options):
    h, tau = jaxqr.geqrf(a, **options)
    expected_h, expected_tau = jnp.linalg.qr(a, mode="raw")
    assert h.dtype == expected_h.dtype
    assert tau.dtype == expected_tau.dtype
    tolerance = 1e-13 if h.dtype in (np.float64, np.complex128) else 1e-5
    np.testing.assert_allclose(h, expected_h.mT, rtol=tolerance, atol=100 * tolerance)
    np.testing.assert_allclose(tau, expected_tau, rtol=tolerance, atol=100 * tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("x64", [False, True])
def test_inexact(dtype, x64):
    with jax.enable_x64(x64):
        a = MATRICES.astype(dtype)
        if np.issubdtype(dtype, np.complexfloating):
            a += 1j * MATRICES[::-1]
        assert_like_jax(a)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint32, np.bool_])
@pytest.mark.parametrize("x64", [False, True])
def test_integers_and_booleans_promote_as_in_jnp(dtype, x64):
    with jax.enable_x64(x64), jax.numpy_dtype_promotion("strict"):
        assert_like_jax(INTEGERS.astype(dtype))


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("precision", [None, "highest"])
def test_blocked_in_x64_mode(x64, precision):
    with jax.enable_x64(x64):
        a = RNG.standard_normal((70, 70)).astype(np.float32)
        assert_like_jax(a, implementation="blocked", precision=precision)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float8_e4m3fn])
@pytest.mark.parametrize("implementation", [None, "blocked", "jax"])
def test_low_precision_names_the_cast(dtype, implementation):
    name = np.dtype(dtype).name
    with pytest.raises(TypeError, match=rf"{name}\[3, 2\]: cast with a.astype\(jnp.float32\)"):
        jaxqr.geqrf(jnp.zeros((3, 2), dtype), implementation=implementation)


def test_random_keys_are_no_numbers():
    with pytest.raises(TypeError, match=r"key<fry>\[2, 2\]"):
        jaxqr.geqrf(jax.random.split(jax.random.key(0), (2, 2)))


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_blocked_takes_float32_only(dtype):
    with (
        jax.enable_x64(True),
        pytest.raises(TypeError, match=rf'"blocked"\) takes float32, got {np.dtype(dtype).name}\[2, 6, 4\]: cast with'),
    ):
        jaxqr.geqrf(MATRICES.astype(dtype), implementation="blocked")


def test_blocked_takes_integers_by_promotion():
    assert_like_jax(INTEGERS, implementation="blocked")


@pytest.mark.parametrize(
    "options", [{}, {"implementation": "blocked"}, {"implementation": "blocked", "precision": "high"}]
)
def test_strict_promotion(options):
    with jax.numpy_dtype_promotion("strict"):
        assert_like_jax(RNG.standard_normal((70, 70)).astype(np.float32), **options)


@pytest.mark.parametrize(
    "options", [{}, {"implementation": "blocked"}, {"implementation": "blocked", "precision": "high"}]
)
@pytest.mark.parametrize("kind", ["normal", "zero", "wide"])
def test_nan_checks_find_none(options, kind):
    a = RNG.standard_normal((70, 90 if kind == "wide" else 70)).astype(np.float32) * (kind != "zero")
    with jax.debug_nans(True):
        assert_like_jax(a, **options)
        assert_like_jax(a[:0], **options)


def test_nan_checks_find_those_there_are():
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        jaxqr.geqrf(np.full((3, 3), np.nan, np.float32), implementation="blocked")[0].block_until_ready()


def test_weak_types_become_strong():
    weak = jnp.asarray(1.0) * jnp.ones((3, 2), jnp.int32).astype(float)
    weak = jax.lax.broadcast(jnp.asarray(2.0), (3, 2)) if not weak.weak_type else weak
    assert weak.weak_type
    for factor in jaxqr.geqrf(weak):
        assert not factor.weak_type


def test_an_object_with_a_jax_array_inside():
    class Wrapped:
        def __jax_array__(self):
            return jnp.asarray(MATRICES, jnp.float32)

    for x, y in zip(jaxqr.geqrf(Wrapped()), jaxqr.geqrf(MATRICES.astype(np.float32)), strict=True):
        np.testing.assert_array_equal(x, y)


def test_numpy_scalars_of_other_kinds_are_refused():
    with pytest.raises(TypeError):
        jaxqr.geqrf(np.array([["a", "b"]]))


def test_disabled_jit():
    a = RNG.standard_normal((20, 12)).astype(np.float32)
    with jax.disable_jit():
        found = functools.partial(jaxqr.geqrf, implementation="blocked")(a)
    np.testing.assert_allclose(found[0], jaxqr.geqrf(a)[0], rtol=1e-4, atol=1e-5)
