"""`lstsq`: least-squares and least-norm solutions, one or several right sides, any batch and dtype; its errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from tests import matrices

blocked = functools.partial(jaxqr.lstsq, implementation="blocked")
each = pytest.mark.parametrize("lstsq", [jaxqr.lstsq, blocked], ids=["default", "blocked"])


normal = functools.partial(matrices.normal, seed=11)


def solution(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """In double precision, by singular values, for `b [..., m, p]`."""
    return np.linalg.pinv(a.astype(np.result_type(a, np.float64))) @ b


@each
@pytest.mark.parametrize("right_sides", [None, 1, 3])
@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (2, 3, 90, 70), (1, 1)], ids=str)
def test_solutions(lstsq, shape, right_sides):
    a, b = normal(*shape), normal(*shape[:-1], right_sides or 1)
    x = lstsq(a, b[..., 0] if right_sides is None else b)
    expected = solution(a, b)
    np.testing.assert_allclose(x, expected[..., 0] if right_sides is None else expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(7, 3), (3, 7)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.complex64, np.complex128])
def test_dtypes(dtype, shape):
    with jax.enable_x64(True):
        a, b = normal(*shape, dtype=dtype), normal(shape[0], 2, dtype=dtype)
        x = jaxqr.lstsq(a, b)
        assert x.dtype == dtype
        np.testing.assert_allclose(x, solution(a, b), atol=1000 * np.finfo(dtype).eps)


def test_promotion_to_one_dtype():
    a, b = normal(5, 3), normal(5, dtype=np.complex64)
    assert jaxqr.lstsq(a, b).dtype == np.complex64
    assert jaxqr.lstsq(a, np.arange(5)).dtype == np.float32
    assert jaxqr.lstsq(np.arange(15).reshape(5, 3) ** 2, np.arange(5)).dtype == np.float32


def test_columns_of_any_scale():
    """Least squares by QR does not feel a scaling of the columns."""
    scale = np.exp2(np.linspace(-40, 40, 6).round()).astype(np.float32)
    a, b = normal(20, 6), normal(20)
    np.testing.assert_allclose(jaxqr.lstsq(a * scale, b) * scale, jaxqr.lstsq(a, b), rtol=1e-4)


def test_a_large_residual_and_a_large_condition():
    """Unlike the normal equations, which square the condition number of 1e3, and with it lose all digits."""
    u, _ = np.linalg.qr(normal(60, 8, dtype=np.float64))
    v, _ = np.linalg.qr(normal(8, 8, dtype=np.float64))
    a = ((u * np.logspace(0, -3, 8)) @ v).astype(np.float32)
    b = (a @ np.ones(8)).astype(np.float32)
    np.testing.assert_allclose(jaxqr.lstsq(a, b), 1, atol=2e-3)


@each
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0, 4, 3), (2, 3, 0)], ids=str)
def test_empty(lstsq, shape):
    for right_sides in (0, 2):
        x = lstsq(np.zeros(shape, np.float32), np.ones((*shape[:-1], right_sides), np.float32))
        np.testing.assert_array_equal(x, np.zeros((*shape[:-2], shape[-1], right_sides)))


def test_vmap():
    a, b = normal(4, 9, 5), normal(4, 9, 2)
    expected = solution(a, b)
    np.testing.assert_allclose(jax.vmap(jaxqr.lstsq)(a, b), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(jaxqr.lstsq)(a, b[..., 0]), expected[..., 0], rtol=1e-4, atol=1e-5)
    one = jax.vmap(jaxqr.lstsq, in_axes=(None, 0))(a[0], b)
    np.testing.assert_allclose(one, solution(a[:1], b), rtol=1e-4, atol=1e-5)


def test_arguments_are_checked():
    a = normal(2, 5, 3)
    for shape in [(5,), (2, 3), (3, 5), (2, 5, 1, 1), (2, 4, 1), ()]:
        with pytest.raises(ValueError, match=r"takes a \[..., m, n\] and b \[..., m\]"):
            jaxqr.lstsq(a, jnp.zeros(shape))
    with pytest.raises(TypeError, match=r"float16\[2, 5\]: cast with"):
        jaxqr.lstsq(a, jnp.zeros((2, 5), jnp.float16))
    with pytest.raises(TypeError, match=r"bfloat16\[5, 3\]: cast with"):
        jaxqr.lstsq(jnp.zeros((5, 3), jnp.bfloat16), jnp.zeros(5))
    with pytest.raises(TypeError, match='"blocked"'):
        blocked(a.astype(complex), a[..., 0])
    with pytest.raises(TypeError, match="takes an array b, got list"):
        jaxqr.lstsq(normal(1, 1), [1.0])
