"""Range on the GPU: uniform scales 2⁻¹⁴⁰ … 2¹²⁷ and graded ones; NaN or Inf in one matrix of a batch."""

import jax
import numpy as np
import pytest

import jaxqr
from tests import matrices
from tests.drivers import factor_by_panels
from tests.reference import DENORMAL, EPS, FLT_MAX, assert_good_at_any_scale, assert_same_bits

pytestmark = pytest.mark.gpu
geqrf = jax.jit(jaxqr.geqrf)


def factor(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h, tau = geqrf(np.asarray(a, np.float32))
    return np.asarray(h), np.asarray(tau)


@pytest.mark.parametrize("shape", [(32, 32), (150, 200), (300, 160), (1100, 80)], ids=str)
def test_every_scale(shape):
    a = matrices.scaled_batch(*shape)
    assert_good_at_any_scale(a, *factor(a), panels=len(jaxqr.schedule_for(*shape, batch=len(a)).steps))


@pytest.mark.parametrize("precision", [None, "highest"], ids=["fused", "matmul"])
def test_every_scale_by_several_panels(precision):
    a = matrices.scaled_batch(150, 200)
    assert_good_at_any_scale(a, *factor_by_panels(a, 40, precision), panels=4)


def test_a_tail_far_below_its_head():
    h, tau = factor([[1], [1e-30]])
    np.testing.assert_allclose(h[:, 0], [-1, 5e-31], rtol=4 * EPS)
    assert tau == 2


def test_denormal_and_largest_columns():
    h, tau = factor(np.array([3, 4, 0, 12])[:, None] * DENORMAL)
    np.testing.assert_allclose(h[:, 0], [-13 * DENORMAL, 4 / 16, 0, 12 / 16], rtol=4 * EPS)
    np.testing.assert_allclose(tau, [16 / 13], rtol=4 * EPS)
    h, tau = factor(np.full((4, 1), FLT_MAX / 2 * (1 - 4 * EPS)))
    np.testing.assert_allclose(h[:, 0], [-FLT_MAX * (1 - 4 * EPS), 1 / 3, 1 / 3, 1 / 3], rtol=4 * EPS)
    np.testing.assert_allclose(tau, [1.5], rtol=4 * EPS)


@pytest.mark.parametrize("size", [1, 30, 170, 600])
def test_triangles_are_kept_to_the_bit(size):
    """Zero tails give tau = 0 and keep R, whatever its columns' magnitudes."""
    magnitudes = np.resize([FLT_MAX, 1.0, 3.0, 2.0**-126, DENORMAL, 5 * DENORMAL], size).astype(np.float32)
    signs = np.random.default_rng(23).choice(np.array([-1, 1], np.float32), (size, size))
    a = np.triu(signs * magnitudes)
    h, tau = factor(a)
    assert (tau == 0).all()
    np.testing.assert_array_equal(h, a)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (5, 1), (30, 30)], ids=str)
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_signed_zeros_are_kept(shape, zero):
    a = np.where(np.eye(*shape, dtype=bool), np.float32(zero), np.float32(0))
    h, tau = factor(a)
    assert (tau == 0).all()
    assert_same_bits([h], [a])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize(
    "shape", [(7, 7), (33, 32), (256, 32), (180, 176), (512, 512), (300, 500), (2048, 64)], ids=str
)
def test_bad_values_stay_in_their_matrix_and_right_of_their_column(shape, bad):
    m, n = shape
    k = min(m, n)
    good = np.random.default_rng(17).standard_normal((9, m, n), dtype=np.float32)
    a = good.copy()
    places = {1: (0, 0), 3: (m - 1, 0), 4: (k // 2, k // 2), 7: (0, n - 1)}
    for matrix, place in places.items():
        a[(matrix, *place)] = bad
    (h, tau), (good_h, good_tau) = factor(a), factor(good)
    others = [0, 2, 5, 6, 8]
    assert_same_bits([h[others], tau[others]], [good_h[others], good_tau[others]])
    for matrix, (_, column) in places.items():
        assert_same_bits(
            [h[matrix, :, :column], tau[matrix, :column]], [good_h[matrix, :, :column], good_tau[matrix, :column]]
        )
        assert np.isnan(tau[matrix, column : min(k, m - 1)]).all()
        assert not np.isfinite(np.diagonal(h[matrix])[column:]).any()


def test_a_bad_matrix_is_bad_throughout_and_no_kernel_hangs():
    a = np.random.default_rng(19).standard_normal((4, 512, 512), dtype=np.float32)
    a[1], a[2] = np.nan, np.inf
    h, tau = factor(a)
    assert np.isnan(tau[1:3, :-1]).all()
    assert np.isnan(h[1]).all()
    assert np.isfinite(h[[0, 3]]).all()
