"""What JAX's own test suite (linalg_test.py) asks of these functions, asked again with `jaxqr.install()` active.

`tests/gpu/test_jax_suite.py` asks it again on a GPU.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxqr
from tests import matrices

normal = functools.partial(matrices.normal, seed=6)


@pytest.fixture
def everywhere():
    jaxqr.install()
    yield
    jaxqr.install(False)


suite = pytest.mark.usefixtures("everywhere")
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])


@contextlib.contextmanager
def room_for(dtype):
    with jax.enable_x64(np.finfo(dtype).eps < 1e-10):
        yield


def in_units(x, shape, dtype):
    """Norms of the matrices x, in units of the rounding errors to expect for this shape."""
    return np.linalg.norm(x, axis=(-2, -1)) / (max(shape[-2:]) * np.finfo(dtype).eps)


QR_CASES = [
    *((np.float32, shape) for shape in [(1, 1), (3, 3), (3, 4), (2, 10, 5), (2, 200, 100), (64, 16, 5), (33, 7, 3)]),
    *((dtype, (2, 10, 5)) for dtype in (np.float64, np.complex64, np.complex128)),
]


@suite
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize(("dtype", "shape"), QR_CASES, ids=str)
def test_suite_qr(shape, dtype, mode):
    m, n = shape[-2:]
    k = m if mode == "complete" else min(m, n)
    a = normal(*shape, dtype=dtype)
    with room_for(dtype):
        q, r = jax.jit(functools.partial(jnp.linalg.qr, mode=mode))(a)
        assert q.shape == (*shape[:-2], m, k)
        assert r.shape == (*shape[:-2], k, n)
        assert q.dtype == r.dtype == dtype
        assert (in_units(a - np.matmul(q, r), shape, dtype) < 40).all()
        assert (in_units(np.eye(k) - np.matmul(np.conj(q.mT), q), shape, dtype) < 10).all()
        expected, _ = np.linalg.qr(a)
        q = q[..., : min(m, n)]
        phases = np.sum(expected.conj() * q, axis=-2, keepdims=True)
        assert (in_units(expected * phases / np.abs(phases) - q, shape, dtype) < 80).all()


@suite
@pytest.mark.parametrize(
    ("mode", "shape"), [("reduced", (3, 4)), ("reduced", (2, 10, 5)), ("complete", (6, 4))], ids=str
)
def test_suite_qr_jvp(shape, mode):
    """Of A = QR, which is the identity."""

    def identity(a):
        q, r = jnp.linalg.qr(a, mode=mode)
        return jnp.matmul(q, r, precision="highest")

    a, da = normal(2, *shape)
    _, product = jax.jit(functools.partial(jax.jvp, identity))((a,), (da,))
    np.testing.assert_allclose(product, da, rtol=3e-3, atol=3e-3)


@suite
@pytest.mark.parametrize("mode", ["r", "raw", "full", "reduced", "complete"])
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 4), (0, 3, 2)], ids=str)
def test_suite_qr_of_nothing(shape, mode):
    found = jnp.linalg.qr(normal(*shape), mode=mode)
    with jaxqr.installed(False):
        expected = jnp.linalg.qr(normal(*shape), mode=mode)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(x, y)


@suite
@pytest.mark.parametrize("shape", [(10, 4, 5), (5, 3, 3), (7, 6, 4)], ids=str)
def test_suite_qr_batching(shape):
    a = normal(*shape)
    q, r = jax.vmap(jax.scipy.linalg.qr)(a)
    assert (np.linalg.norm(a - np.matmul(q, r), axis=(-2, -1)) < 1e-3).all()


@suite
@pytest.mark.parametrize("mode", ["full", "r", "economic"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (4, 3), (10, 10)], ids=str)
def test_suite_scipy_qr(shape, mode):
    a = normal(*shape)
    found, expected = jax.jit(functools.partial(jax.scipy.linalg.qr, mode=mode))(a), scipy.linalg.qr(a, mode=mode)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@suite
@pytest.mark.parametrize("mode", ["left", "right"])
@pytest.mark.parametrize("shape", [(4, 4), (6, 4)], ids=str)
def test_suite_scipy_qr_multiply(shape, mode):
    a = normal(*shape)
    c = normal(shape[1], 3) if mode == "left" else normal(3, shape[0])
    found = jax.jit(functools.partial(jax.scipy.linalg.qr_multiply, mode=mode))(a, c)
    for x, y in zip(found, scipy.linalg.qr_multiply(a, c, mode=mode), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@suite
def test_suite_qr_refuses_half_precision():
    with pytest.raises(Exception, match="float16"):
        jax.block_until_ready(jnp.linalg.qr(normal(5, 6).astype(np.float16)))


@suite
@pytest.mark.parametrize("shape", [(1, 1), (3, 4, 4), (10, 5)], ids=str)
@every_dtype
def test_suite_householder_product(shape, dtype):
    lapack = scipy.linalg.lapack.get_lapack_funcs(
        "ungqr" if np.issubdtype(dtype, np.complexfloating) else "orgqr", dtype=dtype
    )
    for k in range(1, shape[-1] + 1):
        h, tau = normal(*shape, dtype=dtype), normal(*shape[:-2], k, dtype=dtype)
        expected = np.empty_like(h)
        for index in np.ndindex(*shape[:-2]):
            expected[index], _, info = lapack(h[index], tau[index])
            assert info == 0
        with room_for(dtype):
            found = jax.jit(jax.lax.linalg.householder_product)(h, tau)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=200 * np.finfo(dtype).eps, atol=200 * np.finfo(dtype).eps)


ORMQR_CASES = [
    *((np.float32, *case) for case in [
        ((4, 3), (4, 2), True), ((4, 4), (4, 3), True), ((6, 4), (6, 5), True), ((4, 6), (4, 2), True),
        ((4, 3), (2, 4), False), ((4, 4), (3, 4), False), ((3, 6, 4), (3, 6, 5), True),
    ]),
    *((dtype, (4, 3), (4, 2), True) for dtype in (np.float64, np.complex64, np.complex128)),
]  # fmt: skip


@suite
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("dtype", "shape", "c_shape", "left"), ORMQR_CASES, ids=str)
def test_suite_ormqr(shape, c_shape, left, transpose, dtype):
    a, c = normal(*shape, dtype=dtype), normal(*c_shape, dtype=dtype)
    with room_for(dtype):
        h_transposed, tau = jnp.linalg.qr(a, mode="raw")
        q = np.asarray(jnp.linalg.qr(a, mode="complete").Q)
        multiply = functools.partial(jax.lax.linalg.ormqr, left=left, transpose=transpose)
        found = jax.jit(multiply)(h_transposed.mT, tau, c)
    q = q.conj().mT if transpose else q
    tolerance = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, q @ c if left else c @ q, rtol=tolerance, atol=tolerance)


def message(call) -> tuple[type, str]:
    with pytest.raises(Exception) as error:  # noqa: PT011 - which one is what is compared
        call()
    return error.type, str(error.value)


@suite
def test_suite_wrong_arguments():
    """Errors are JAX's to the letter."""
    a, tau, c = normal(2, 5, 4), normal(2, 4), normal(2, 5, 6)
    calls = [
        lambda: jnp.linalg.qr(a[0, 0]),
        lambda: jnp.linalg.qr(a, mode="economic"),
        lambda: jax.lax.linalg.qr(a[0, 0]),
        lambda: jax.lax.linalg.householder_product(a.mT, tau),
        lambda: jax.lax.linalg.householder_product(a, normal(2, 5)),
        lambda: jax.lax.linalg.householder_product(a, tau[0]),
        lambda: jax.lax.linalg.ormqr(a, tau, c[:, :4]),
        lambda: jax.lax.linalg.ormqr(a, tau, c, left=False),
        lambda: jax.lax.linalg.ormqr(a, tau, c.astype(np.complex64)),
    ]
    for call in calls:
        found = message(call)
        with jaxqr.installed(False):
            assert found == message(call)
