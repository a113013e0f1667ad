"""The QR family on the GPU: FP32 grade of Q on every class and at large sizes, gradients, range, no loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from benchmarks.explicit import product_errors
from jaxqr.verify import jit_reference
from tests import matrices
from tests.gpu.tools import assert_explicit_fp32_grade, on_cpu, same_bits

pytestmark = pytest.mark.gpu
EPS = 2.0**-23


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


@pytest.mark.parametrize(("m", "n"), [(32, 32), (176, 176), (300, 64), (64, 300), (200, 290), (512, 512)])
def test_fp32_grade_of_every_class(m, n):
    """Smooth covariances included. cuBLAS sums in another order than a CPU."""
    a = matrices.batch(m, n)
    assert_explicit_fp32_grade(a, *jax.jit(jaxqr.qr)(a), matrices.CLASSES)


@pytest.mark.parametrize("name", ["min_index", "lower_ones", "exponential", "dense"])
def test_fp32_grade_of_large_matrices(name):
    a = matrices.batch(1024, 1024, [name])
    assert_explicit_fp32_grade(a, *jax.jit(jaxqr.qr)(a), [name])


@pytest.mark.parametrize("shape", [(7, 300, 200), (3, 129, 129)], ids=str)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_equals_the_cpu(shape, mode):
    a = normal(*shape)
    found = jax.tree.leaves(jax.jit(functools.partial(jaxqr.qr, mode=mode))(a))
    expected = jax.tree.leaves(on_cpu(functools.partial(jnp.linalg.qr, mode=mode), a))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=2e-3)


def test_of_tall_panels_and_others():
    a = normal(2, 8300, 200)
    for x, y in zip(jax.jit(jaxqr.qr)(a), on_cpu(jnp.linalg.qr, a), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-3)


@pytest.mark.parametrize(("left", "transpose"), [(True, False), (True, True), (False, False), (False, True)])
@pytest.mark.parametrize("shape", [(5, 300, 200), (3, 70, 64)], ids=str)
def test_ormqr(shape, left, transpose):
    h, tau = jaxqr.geqrf(normal(*shape))
    c = normal(shape[0], *((shape[1], 64) if left else (64, shape[1])), seed=1)
    multiply = functools.partial(jaxqr.ormqr, left=left, transpose=transpose)
    expected = on_cpu(functools.partial(jax.lax.linalg.ormqr, left=left, transpose=transpose), h, tau, c)
    np.testing.assert_allclose(jax.jit(multiply)(h, tau, c), expected, atol=2e-4)


@pytest.mark.parametrize("name", ["dense", "min_index", "lower_ones", "graded_columns"])
def test_ormqr_is_of_float32_precision(name):
    h, tau = jaxqr.geqrf(jnp.asarray(matrices.batch(777, 500, [name])))
    c = normal(1, 777, 33)
    found = product_errors(h, tau, c, jax.jit(functools.partial(jaxqr.ormqr, transpose=True))(h, tau, c))
    by_lapack = on_cpu(functools.partial(jax.lax.linalg.ormqr, transpose=True), h, tau, c)
    assert (found <= np.maximum(10, 5 * product_errors(h, tau, c, jnp.asarray(by_lapack)))).all()


def test_products_by_reflectors_that_are_not_orthogonal():
    """Columns grow, and are scaled anew for each block."""
    h, tau = jaxqr.geqrf(normal(2, 200, 150))
    tau = 1.5 * tau
    found = jax.jit(jaxqr.householder_product)(h, tau)
    expected = on_cpu(jax.lax.linalg.householder_product, h, tau)
    scale = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-4)


def test_ormqr_of_columns_of_any_scale():
    """From the smallest normal numbers to the largest, as good as at unit scale."""
    h, tau = jaxqr.geqrf(normal(90, 70))
    scale = jnp.exp2(jnp.array([-118.0, -80, -20, 0, 20, 80, 118]))
    c = normal(90, 7, seed=1)
    multiply = jax.jit(functools.partial(jaxqr.ormqr, transpose=True))
    found, expected = np.asarray(multiply(h, tau, c * scale) / scale), np.asarray(multiply(h, tau, c))
    assert (np.linalg.norm(found - expected, axis=0) <= 20 * EPS * np.linalg.norm(c, axis=0)).all()


@pytest.mark.parametrize("shape", [(64, 64), (96, 64), (64, 96)], ids=str)
def test_gradients_are_finite_and_of_float32_precision(shape):
    """Whatever the default precision of products, which on this device is TensorFloat-32."""

    def gradient(qr, a, jit=jit_reference):
        return jit(jax.grad(lambda a: sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(qr(a)))))(a)

    of_classes = matrices.batch(*shape)
    a = normal(len(of_classes), *shape)
    own = jax.jit(functools.partial(gradient, jaxqr.qr, jit=jax.jit))
    found = np.asarray(own(a), np.float64)
    with jax.enable_x64(True):
        expected = np.asarray(gradient(jnp.linalg.qr, jnp.asarray(a, jnp.float64)))
    by_jax = on_cpu(functools.partial(gradient, jnp.linalg.qr), a)
    error, allowed = (np.linalg.norm(x - expected, axis=(1, 2)) for x in (found, by_jax.astype(np.float64)))
    assert (error <= 5 * allowed).all()
    assert np.isfinite(own(jnp.asarray(of_classes))).all()


@pytest.mark.parametrize("shape", [(9, 200, 120), (9, 120, 200)], ids=str)
def test_lstsq(shape):
    a, b = normal(*shape), normal(*shape[:2], 3, seed=1)
    expected = np.linalg.pinv(np.asarray(a, np.float64)) @ np.asarray(b, np.float64)
    np.testing.assert_allclose(jax.jit(jaxqr.lstsq)(a, b), expected, rtol=1e-3, atol=1e-3)


def test_no_loop_over_the_batch():
    a, c = normal(640, 200, 200), normal(640, 200, 64, seed=1)
    text = (
        jax.jit(jax.vmap(lambda a, c: (jaxqr.qr(a), jaxqr.ormqr(*jaxqr.geqrf(a), c)))).lower(a, c).compile().as_text()
    )
    assert "while(" not in text
    assert "cusolver" not in text


def test_the_same_bits_on_every_run():
    a = normal(16, 300, 300)
    program = jax.jit(jax.value_and_grad(lambda a: jnp.sum(jnp.sin(jaxqr.qr(a)[0]))))
    first = program(a)
    for _ in range(10):
        assert same_bits(program(a), first)
