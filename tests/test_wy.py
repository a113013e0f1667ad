"""The compact WY form against float64: V, T where careless ones lose thousands of eps, and the update at any scale."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxqr import wy

EPS = 2.0**-23
HIGHEST = jax.lax.Precision.HIGHEST
t_factor = jax.jit(wy.t_factor)


def smooth(name: str, m: int, n: int) -> np.ndarray:
    i, j = np.arange(m)[:, None], np.arange(n)
    return {
        "min": np.minimum(i, j) + 1.0,
        "ones": (i >= j) + 0.0,
        "exponential": np.exp(-np.abs(i - j) / 50),
        "normal": np.random.default_rng(7).standard_normal((m, n)),
    }[name].astype(np.float32)


def panel(name: str, m: int, n: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(h, V, tau) of a panel, factored by LAPACK."""
    h, tau = jnp.linalg.qr(smooth(name, m, n)[None], mode="raw")
    return h.mT, wy.unit_lower(h.mT), tau


def exact_t(v: np.ndarray, tau: np.ndarray) -> np.ndarray:
    v, tau = v.astype(np.float64), tau.astype(np.float64)
    return np.linalg.inv(np.eye(len(tau)) + tau[:, None] * np.triu(v.T @ v, 1)) * tau


def test_unit_lower():
    h = np.arange(1, 25, dtype=np.float32).reshape(2, 4, 3)
    v = np.asarray(wy.unit_lower(h))
    np.testing.assert_array_equal(v, np.tril(h, -1) + np.eye(4, 3))


@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 24, 33])
def test_t_of_any_width(width):
    _, v, tau = panel("normal", 40, width)
    t = np.asarray(t_factor(v, tau))[0]
    np.testing.assert_array_equal(np.tril(t, -1), 0)
    np.testing.assert_allclose(t, exact_t(np.asarray(v[0]), np.asarray(tau[0])), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["min", "ones", "exponential"])
@pytest.mark.parametrize(("m", "width"), [(128, 64), (512, 128)])
def test_t_of_smooth_matrices_is_right_to_a_few_eps(name, m, width):
    """A plain float32 VᵀV loses hundreds of eps here, substitution on blocks of 16 thousands."""
    _, v, tau = panel(name, m, width)
    t = np.asarray(t_factor(v, tau), np.float64)[0]
    expected = exact_t(np.asarray(v[0]), np.asarray(tau[0]))
    assert np.abs(t - expected).max() <= 8 * EPS * np.abs(expected).max()


@pytest.mark.parametrize("name", ["min", "ones", "exponential"])
@pytest.mark.parametrize(("m", "width"), [(128, 64), (512, 128)])
def test_q_formed_from_v_and_t(name, m, width):
    """Errors of T show in a Q formed from V and T: R = QᵀA, column by column, and QᵀQ = I."""
    h, v, tau = panel(name, m, width)
    a, h, v, t = (np.asarray(x, np.float64) for x in (smooth(name, m, width), h[0], v[0], t_factor(v, tau)[0]))
    q = np.eye(m) - v @ t @ v.T
    columnwise = np.linalg.norm(q.T @ a - np.triu(h), axis=0) / (EPS * np.linalg.norm(a, axis=0))
    # The panel is LAPACK's, whose own error is in R.
    own = np.linalg.norm(exact_q(v, tau).T @ a - np.triu(h), axis=0) / (EPS * np.linalg.norm(a, axis=0))
    assert columnwise.max() <= 10 + own.max()
    assert np.abs(q.T @ q - np.eye(m)).sum(0).max() <= 4 * width * EPS


def exact_q(v: np.ndarray, tau: jax.Array) -> np.ndarray:
    return np.eye(len(v)) - v @ exact_t(v, np.asarray(tau[0])) @ v.T


def test_tau_of_zero_needs_no_care():
    _, v, tau = panel("normal", 40, 16)
    zero = np.asarray(tau).copy()
    zero[0, [0, 5, 15]] = 0
    v = np.asarray(v).copy()
    v[0, :, [0, 5, 15]] = np.eye(40)[[0, 5, 15]]
    t = np.asarray(t_factor(v, zero))[0]
    assert np.isfinite(t).all()
    np.testing.assert_array_equal(t[[0, 5, 15]], 0)
    np.testing.assert_allclose(t, exact_t(v[0], zero[0]), rtol=1e-5, atol=1e-6)


def update(c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(I − V T Vᵀ)ᵀ C in float32 and float64."""
    _, v, tau = panel("normal", c.shape[0], 16)
    t = t_factor(v, tau)
    found = jax.jit(wy.apply_transpose, static_argnums=3)(v, t, c[None], HIGHEST)
    v, t = (np.asarray(x, np.float64)[0] for x in (v, t))
    with np.errstate(invalid="ignore"):
        return np.asarray(found)[0], c - v @ (t.T @ (v.T @ c.astype(np.float64)))


@pytest.mark.parametrize("rows", [16, 50, 129])
def test_update(rows):
    found, expected = update(smooth("normal", rows, 30))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_update_of_columns_of_any_scale():
    """Within a column everything is as good as at unit scale, wherever results are representable."""
    exponents = np.array([-126, -120, -60, -30, 0, 30, 60, 120, 124])
    c = smooth("normal", 50, len(exponents))
    c = np.ldexp(np.clip(c, -3.9, 3.9), exponents).astype(np.float32)
    found, expected = update(c)
    error = np.linalg.norm((found - expected) * np.ldexp(1.0, -exponents), axis=0)
    smallest = 2.0**-126 * np.ldexp(1.0, -exponents)  # a CPU flushes what is below
    assert (error <= 20 * EPS * np.linalg.norm(smooth("normal", 50, len(exponents)), axis=0) + 8 * smallest).all()


def test_update_of_zeros():
    found, _ = update(np.zeros((50, 3), np.float32))
    np.testing.assert_array_equal(found, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_stays_in_its_column_of_c(bad):
    c = smooth("normal", 50, 5)
    c[20, 3] = bad
    found, expected = update(c)
    assert not np.isfinite(found[:, 3]).any()
    others = [0, 1, 2, 4]
    np.testing.assert_allclose(found[:, others], expected[:, others], atol=1e-5)


def test_scales_are_powers_of_two_and_exact():
    magnitude = np.array([0, 2.0**-149, 2.0**-126, 1e-20, 1, 1.99, 2, 1e20, 3e38, np.inf, np.nan], np.float32)
    scale, unscale = (np.asarray(x) for x in wy.power_of_two_scales(magnitude))
    mantissa, _ = np.frexp(scale)
    np.testing.assert_array_equal(mantissa, 0.5)
    np.testing.assert_array_equal(scale * unscale, 1)
    scaled = (magnitude * scale)[3:8]
    assert ((scaled >= 1) & (scaled < 2)).all()
    np.testing.assert_array_equal(scale[[0, -2, -1]], 1)
