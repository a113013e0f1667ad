"""Range: from denormals to FLT_MAX, uniform and graded, as good as at unit scale; NaN and Inf stay put."""

import jax
import numpy as np
import pytest

import jaxqr
from tests import matrices
from tests.drivers import factor_by_panels
from tests.reference import DENORMAL, EPS, FLT_MAX, FLT_MIN, assert_good_at_any_scale

M, N, WIDTH = 150, 200, 40
PANELS = -(-M // WIDTH)
both_updates = pytest.mark.parametrize("precision", [None, "highest"], ids=["fused", "matmul"])


def factor(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h, tau = jaxqr.geqrf(np.asarray(a, np.float32), implementation="blocked")
    return np.asarray(h), np.asarray(tau)


def flushes_denormals(precision: str | None) -> bool:
    """XLA's own operations do, on a CPU; the reference handlers do not."""
    return precision is not None and jax.default_backend() == "cpu"


@both_updates
def test_every_scale(precision):
    a = matrices.scaled_batch(M, N)
    h, tau = factor_by_panels(a, WIDTH, precision)
    assert_good_at_any_scale(a, h, tau, PANELS, FLT_MIN if flushes_denormals(precision) else DENORMAL)


def test_a_tail_far_below_its_head():
    h, tau = factor([[1], [1e-30]])
    np.testing.assert_allclose(h[:, 0], [-1, 5e-31], rtol=2 * EPS)
    assert tau == 2


@pytest.mark.parametrize("ratio", [1e-10, 1e-19, 1e-22, 1e-30, 1e-38, 1e-44])
def test_tails_far_below_the_heads_of_their_columns(ratio):
    """The reflector is that of the tail alone, to full relative accuracy: the tail is not taken for zero."""
    a = (np.eye(40, 20) + ratio * np.tril(matrices.unit_columns(13, 40, 20), -1)).astype(np.float32)
    h, tau = factor(a[None])
    tails = np.tril(a, -1).astype(np.float64)
    assert (tau == 2).all()
    np.testing.assert_allclose(np.tril(h[0], -1), tails / 2, rtol=4 * EPS + ratio, atol=DENORMAL)
    assert_good_at_any_scale(a[None], h, tau, panels=1)


def test_denormal_columns():
    column = np.array([3, 4, 0, 12]) * DENORMAL  # norm 13
    h, tau = factor(column[:, None])
    np.testing.assert_allclose(h[:, 0], [-13 * DENORMAL, 4 / 16, 0, 12 / 16], rtol=4 * EPS)
    np.testing.assert_allclose(tau, [16 / 13], rtol=4 * EPS)


def test_largest_columns():
    column = np.full((4, 1), FLT_MAX / 2.0 * (1 - 4 * EPS))  # norm just below FLT_MAX: alpha - beta overflows
    h, tau = factor(column)
    np.testing.assert_allclose(h[:, 0], [-2 * column[0, 0], 1 / 3, 1 / 3, 1 / 3], rtol=4 * EPS)
    np.testing.assert_allclose(tau, [1.5], rtol=4 * EPS)


@both_updates
def test_triangles_are_kept(precision):
    """Zero tails give tau = 0 and keep R's bits, whatever its columns' magnitudes."""
    magnitudes = [FLT_MAX, 1.0, 3.0, FLT_MIN]
    if not flushes_denormals(precision):
        magnitudes += [DENORMAL, 5 * DENORMAL]
    signs = np.random.default_rng(23).choice(np.array([-1, 1], np.float32), (1, 150, 150))
    a = np.triu(signs * np.resize(magnitudes, 150).astype(np.float32))
    h, tau = factor_by_panels(a, WIDTH, precision)
    assert (tau == 0).all()
    np.testing.assert_array_equal(h, a)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (5, 1), (5, 3), (3, 3)], ids=str)
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_signed_zeros_are_kept(shape, zero):
    a = np.where(np.eye(*shape, dtype=bool), np.float32(zero), np.float32(0))
    h, tau = factor(a)
    assert (tau == 0).all()
    np.testing.assert_array_equal(h.view(np.int32), a.view(np.int32))


def test_the_last_entry_of_a_square_keeps_its_sign():
    for last in (2.0, -2.0, -0.0):
        h, tau = factor(np.diag([1.0, last]))
        assert (tau == 0).all()
        assert h[1, 1] == last
        assert np.signbit(h[1, 1]) == np.signbit(last)


BAD = {"NaN": np.nan, "Inf": np.inf, "-Inf": -np.inf}


@pytest.mark.parametrize("where", [(0, 0), (149, 0), (75, 30), (0, 69), (149, 110)], ids=str)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
@both_updates
def test_bad_values_stay_in_their_matrix_and_right_of_their_column(precision, bad, where):
    good = np.random.default_rng(17).standard_normal((3, 150, 120), dtype=np.float32)
    a = good.copy()
    a[(1, *where)] = bad
    h, tau = factor_by_panels(a, WIDTH, precision)
    of_good_h, of_good_tau = factor_by_panels(good, WIDTH, precision)
    for others in (0, 2):
        np.testing.assert_array_equal(h[others], of_good_h[others])
        np.testing.assert_array_equal(tau[others], of_good_tau[others])
    column = where[1]
    np.testing.assert_array_equal(h[1, :, :column], of_good_h[1, :, :column])
    np.testing.assert_array_equal(tau[1, :column], of_good_tau[1, :column])
    assert np.isnan(tau[1, column:]).all()
    assert not np.isfinite(np.diagonal(h[1])[column:]).any()


@both_updates
def test_a_bad_matrix_is_bad_throughout(precision):
    a = np.random.default_rng(19).standard_normal((2, 150, 120), dtype=np.float32)
    a[1] = np.nan
    h, tau = factor_by_panels(a, WIDTH, precision)
    assert np.isnan(h[1]).all()
    assert np.isnan(tau[1]).all()
    np.testing.assert_array_equal(h[0], factor_by_panels(a[[0, 0]], WIDTH, precision)[0][0])
