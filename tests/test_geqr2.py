"""Matrices of one row, and of one or two columns, by XLA's loops: LAPACK's form at any scale, bad values stay put."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from jaxqr._geqr2 import geqr2
from jaxqr.verify import as_good_as_lapack, lapack_geqrf, measures
from tests import matrices
from tests.reference import EPS, FLT_MAX, FLT_MIN, assert_good_at_any_scale, assert_same_bits

SHAPES = [(2, 1), (7, 1), (100, 1), (5000, 1), (2, 2), (7, 2), (66, 2), (1000, 2), (9000, 2)]
factor = jax.jit(geqr2)


def factored(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h, tau = factor(np.asarray(a, np.float32))
    return np.asarray(h), np.asarray(tau)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_class_is_fp32_grade(shape):
    a = matrices.batch(*shape)
    good = as_good_as_lapack(a, measures(a, *factored(a)))
    assert good.all(), [name for name, one in zip(matrices.CLASSES, good, strict=True) if not one]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_signs_and_taus_are_lapacks(shape):
    a = np.random.default_rng(4).standard_normal((50, *shape), dtype=np.float32)
    h, tau = factored(a)
    expected_h, expected_tau = lapack_geqrf(a)
    scale = np.maximum(1, np.linalg.norm(a, axis=1, keepdims=True))
    assert (abs(h - expected_h) <= 100 * EPS * scale).all()
    np.testing.assert_allclose(tau, expected_tau, rtol=50 * EPS, atol=50 * EPS)


@pytest.mark.parametrize("shape", [(2, 1), (100, 2), (3, 2)], ids=str)
def test_every_scale(shape):
    a = matrices.scaled_batch(*shape)
    assert_good_at_any_scale(a, *factored(a), panels=1, spacing=FLT_MIN)  # XLA flushes denormals on a CPU


@pytest.mark.parametrize("ratio", [1e-10, 1e-25, 1e-30])
def test_columns_that_become_tiny_are_eliminated_to_full_accuracy(ratio):
    """Squares of what is left of the second column would underflow beside its first element."""
    a = np.array([[1, 1], [0, ratio], [0, 2 * ratio]], np.float32)
    h, tau = factored(a[None])
    np.testing.assert_allclose(h[0, 1:, 1], [-np.sqrt(5) * ratio, 2 / (1 + np.sqrt(5))], rtol=4 * EPS)
    np.testing.assert_allclose(tau, [[0, 1 + 1 / np.sqrt(5)]], rtol=4 * EPS)
    assert as_good_as_lapack(a[None], measures(a[None], h, tau)).all()


def test_zero_tails_keep_what_is_there():
    a = np.array([[-3, 2], [0, -FLT_MAX], [-0.0, 0]], np.float32)[None]
    h, tau = factored(a)
    assert (tau == 0).all()
    assert_same_bits([h], [a])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (6, 0), (0, 1), (3, 1)])
def test_bad_values_stay_in_their_matrix_and_right_of_their_column(bad, place):
    good = np.random.default_rng(5).standard_normal((3, 7, 2), dtype=np.float32)
    a = good.copy()
    a[(1, *place)] = bad
    (h, tau), (good_h, good_tau) = factored(a), factored(good)
    column = place[1]
    assert_same_bits([h[::2], tau[::2]], [good_h[::2], good_tau[::2]])
    assert_same_bits([h[1, :, :column], tau[1, :column]], [good_h[1, :, :column], good_tau[1, :column]])
    assert np.isnan(tau[1, column:]).all()
    assert not np.isfinite(np.diagonal(h[1])[column:]).any()


@pytest.mark.parametrize("shape", [(1, 1), (1, 9)], ids=str)
def test_a_row_is_its_own_factor(shape):
    values = [1.5, -0.0, np.nan, FLT_MAX, 2.0**-149, np.inf, 0.0, -FLT_MIN]
    a = np.resize(np.array(values, np.float32), (8, *shape))
    h, tau = factored(a)
    assert_same_bits([h, tau], [a, np.zeros((8, 1), np.float32)])


@pytest.mark.parametrize(
    ("batch", "m", "n"),
    [
        (50_000, 1, 3),
        (3000, 1, 50),
        (64, 20_000, 1),
        (1, 1_000_000, 2),
    ],
)
def test_one_row_and_very_tall_columns_go_by_loops(batch, m, n):
    schedule = jaxqr.schedule_for(m, n, batch, "H200")
    [step] = schedule.steps
    assert (step.regime, step.width, step.variant, step.update) == ("loops", min(m, n), None, None)
    assert schedule.launches == schedule.workspace_bytes == 0


def test_the_driver_goes_by_loops():
    blocked = jax.jit(lambda a: jaxqr.geqrf(a, implementation="blocked", overwrite_a=True))
    for shape in ((40_000, 1, 12), (3, 9000, 2)):
        a = np.random.default_rng(7).standard_normal(shape, dtype=np.float32)
        assert "jaxqr_panel" not in blocked.lower(a).as_text()
        assert as_good_as_lapack(a, measures(a, *map(np.asarray, blocked(a)))).all()
        q, r = jaxqr.qr(jnp.asarray(a), implementation="blocked")
        np.testing.assert_allclose(q @ r, a, atol=1e-5)
