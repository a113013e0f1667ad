"""JAX's own QR functions on the GPU under `installed`: on this package's kernels, in and out of the context."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from tests import matrices
from tests.gpu.tools import assert_explicit_fp32_grade, launched_kernels, own_kernels

pytestmark = pytest.mark.gpu
SHAPES = [(8, 256, 256), (3, 300, 70), (5, 40, 64)]


def runs_own_kernels(function, *args) -> bool:
    """Whether a compiled function launches this package's kernels."""
    jax.block_until_ready(function(*args))
    return bool(own_kernels(launched_kernels(lambda: function(*args))))


def test_every_program_runs_its_own_kernels():
    """A function that was compiled outside, inside and outside again changes its kernels each time."""
    a = jax.device_put(matrices.batch(256, 256, ["dense"] * 8))
    programs = {
        "vmap of qr": jax.jit(jax.vmap(jnp.linalg.qr)),
        "raw": jax.jit(functools.partial(jnp.linalg.qr, mode="raw")),
        "gradient": jax.jit(jax.grad(lambda a: jnp.linalg.qr(a).R.sum())),
        "lax": jax.jit(functools.partial(jax.lax.linalg.qr, full_matrices=False)),
        "eager": jax.vmap(functools.partial(jnp.linalg.qr, mode="r")),
    }
    for name, program in programs.items():
        for within in (False, True, False, True):
            with jaxqr.installed(within):
                assert runs_own_kernels(program, a) == within, (name, within)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fp32_grade(shape):
    _, m, n = shape
    a = matrices.batch(m, n)
    with jaxqr.installed():
        q, r = jax.jit(jax.vmap(jnp.linalg.qr))(a)
    assert_explicit_fp32_grade(a, q, r, matrices.CLASSES)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_with_q(shape):
    """householder_product and ormqr, called as JAX's, agree with JAX's own."""
    a = matrices.batch(*shape[1:], ["dense"] * shape[0])
    m, n = shape[1:]

    @jax.jit
    def products(a):
        h, tau = jnp.linalg.qr(a, mode="raw")
        h = h.mT[..., : min(m, n)]
        q = jax.lax.linalg.householder_product(h, tau)
        return q, jax.lax.linalg.ormqr(h, tau, a, transpose=True), jax.lax.linalg.ormqr(h, tau, a.mT, left=False)

    expected = products(a)
    with jaxqr.installed():
        found = products(a)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4 * np.sqrt(m))


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_other_dtypes_stay_with_jax(dtype):
    with jax.enable_x64(dtype == np.float64):
        a = jnp.asarray(np.random.default_rng(0).standard_normal((4, 64, 64)).astype(dtype))
        program = jax.jit(jnp.linalg.qr)
        expected = program(a)
        with jaxqr.installed():
            assert not runs_own_kernels(program, a)
            found = program(a)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_array_equal(x, y)
