"""Block reflectors of a compact factorization on the GPU, made by their FFI target, against float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxqr import _targets
from tests import matrices
from tests.reference import EPS, apply_qt, assert_same_bits, larft

pytestmark = pytest.mark.gpu
SHAPES = [  # m, n, offset, widths
    (1, 1, 0, [1]),
    (9, 5, 2, [3]),
    (57, 40, 0, [8, 32]),
    (64, 64, 0, [64]),
    (130, 129, 3, [31, 33]),
    (200, 200, 5, [64, 64, 64, 3]),
    (777, 90, 7, [61, 17]),
    (2048, 70, 0, [64]),
]
at_every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
CLASSES = ("dense", "min_index", "near_collinear", "exponential", "lower_ones", "upper_triangular")


@functools.partial(jax.jit, static_argnames=("offset", "widths"))
def make(h, tau, offset, widths):
    return _targets.reflectors(h, tau, offset=offset, widths=widths)


@functools.cache
def factors(m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """LAPACK's, of a matrix of every class."""
    factored = [np.linalg.qr(matrices.matrix(name, m, n), mode="raw") for name in CLASSES]
    h, tau = np.stack([h.T for h, _ in factored]), np.stack([tau for _, tau in factored])
    return h.astype(np.float32), tau.astype(np.float32)


def reflectors(shape, h=None, tau=None):
    """`(V, T, v, tau)` of each block: as made, and as they are in `h`, which is NaN where it must not be read."""
    m, n, offset, widths = shape
    own_h, own_tau = factors(m, n)
    h, tau = own_h if h is None else h, own_tau if tau is None else tau
    poisoned = np.where(np.tri(m, n, -1, dtype=bool), h, np.nan)
    blocks, first = [], offset
    for (t, halves), width in zip(make(poisoned, tau, offset, tuple(widths)), widths, strict=True):
        parts = np.asarray(halves, np.float64).sum(axis=2) / 2.0**14
        assert not parts[..., width:].any()
        v = np.tril(h[:, first:, first : first + width], -1) + np.eye(m - first, width, dtype=np.float32)
        blocks.append((parts[..., :width], np.asarray(t), v, tau[:, first : first + width]))
        first += width
    return blocks


@at_every_shape
def test_v_is_what_lies_below_the_diagonal(shape):
    for v, _, expected, _ in reflectors(shape):
        assert (abs(v - expected) <= 2.0**-22 * abs(expected) + 2.0**-39).all()


@at_every_shape
def test_t_makes_the_block_orthogonal(shape):
    """As well as T by larft in float64, rounded."""
    for _, t, v, tau in reflectors(shape):
        assert_same_bits([np.tril(t, -1)], [np.zeros_like(t)])
        v = v.astype(np.float64)
        gram = v.mT @ v

        def defect(t, gram=gram):
            """Of QᵀQ - I = V (TᵀVᵀV T - T - Tᵀ) Vᵀ, in units of eps."""
            inner = t.mT @ gram @ t - t - t.mT
            return np.sqrt(np.abs(np.einsum("bij,bji->b", gram @ inner, gram @ inner))) / EPS

        assert (defect(t.astype(np.float64)) <= np.maximum(4 * t.shape[-1], 5 * defect(larft(v, tau)))).all()


@at_every_shape
def test_any_reflectors(shape):
    """Entries of V that are no halves are scaled, and T with them."""
    m, n, *_ = shape
    rng = np.random.default_rng(11)
    scales = np.exp2(rng.integers(-8, 40, min(m, n)))
    h = np.tril(rng.standard_normal((2, m, n)), -1)
    h[..., : min(m, n)] *= scales
    h = h.astype(np.float32)
    tau = (2 / (1 + np.sum(h.astype(np.float64)[..., : min(m, n)] ** 2, axis=1))).astype(np.float32)
    for v, t, expected_v, own_tau in reflectors(shape, h, tau):
        assert (abs(v) < 2).all()
        c = rng.standard_normal((2, v.shape[1], 3))
        error = np.linalg.norm(c - v @ (t.mT @ (v.mT @ c)) - apply_qt(expected_v, own_tau, c), axis=1)
        assert (error <= 50 * EPS * np.linalg.norm(c, axis=1)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["NaN", "Inf"])
def test_bad_values_stay_in_their_matrix(bad):
    h, tau = (x.copy() for x in factors(130, 129))
    expected = jax.tree.map(np.asarray, make(h, tau, 0, (64, 64)))
    h[1, 100, 20] = bad
    found = jax.tree.map(np.asarray, make(h, tau, 0, (64, 64)))
    assert not np.isfinite(found[0].t[1]).all()
    others = np.arange(len(h)) != 1
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(x[others], y[others])


def test_the_same_bits_on_every_run():
    h, tau = map(jnp.asarray, factors(777, 90))
    first = make(h, tau, 0, (64, 26))
    for _ in range(20):
        for x, y in zip(jax.tree.leaves(make(h, tau, 0, (64, 26))), jax.tree.leaves(first), strict=True):
            assert bool(jnp.array_equal(x, y))
