"""Test matrices: the classes on which jaxqr promises FP32-grade results, and the scales at which it does.

Every class is a function `(rng, m, n) -> float64 [m, n]`; `matrix` names one and returns it as float32, `batch` stacks
several. Classes that are defined for square matrices only (Kahan, Hilbert, covariances, …) are the leading m×n block of
the larger square one. Every scale is a function `(m, n) -> exponents of two`, broadcastable to [m, n]; `scaled_batch`
stacks matrices at all of them.
"""

import zlib
from collections.abc import Callable, Iterable

import numpy as np

Rng = np.random.Generator
EPS = 2.0**-23


def normal(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    """Standard normal entries, of real and imaginary parts too."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(shape)
    return (a + 1j * rng.standard_normal(shape) if np.issubdtype(dtype, np.complexfloating) else a).astype(dtype)


def _offsets(m: int, n: int) -> np.ndarray:
    """Column index minus row index, [m, n]."""
    return np.arange(n)[None, :] - np.arange(m)[:, None]


def dense(rng: Rng, m: int, n: int) -> np.ndarray:
    return rng.standard_normal((m, n))


def graded_columns(rng: Rng, m: int, n: int) -> np.ndarray:
    return dense(rng, m, n) * np.logspace(0, -4, n)


def rank_deficient(rng: Rng, m: int, n: int) -> np.ndarray:
    a = dense(rng, m, n)
    a[:, 3 * n // 4 :] = 0
    return a


def duplicate_columns(rng: Rng, m: int, n: int) -> np.ndarray:
    return dense(rng, m, n)[:, np.arange(n) % max(1, (n + 1) // 2)]


def near_rank(rng: Rng, m: int, n: int) -> np.ndarray:
    a = dense(rng, m, n)
    copies = n - 3 * n // 4
    a[:, n - copies :] = a[:, :copies] + 1e-5 * dense(rng, m, copies)
    return a


def clustered(rng: Rng, m: int, n: int) -> np.ndarray:
    a = dense(rng, m, n)
    middle = n // 2
    a[:, middle:] *= 4 * EPS
    around = slice(max(middle - 2, 0), middle + 2)
    a[:, around] = dense(rng, m, a[:, around].shape[1]) * np.sqrt(EPS)
    return a


def banded(rng: Rng, m: int, n: int) -> np.ndarray:
    half_width = max(2, min(32, n // 32))
    a = np.where(np.abs(_offsets(m, n)) <= half_width, dense(rng, m, n), 0.0)
    np.einsum("ii->i", a[: min(m, n), : min(m, n)])[:] += np.linspace(1, 0.5, min(m, n))
    return a


def row_graded(rng: Rng, m: int, n: int) -> np.ndarray:
    return dense(rng, m, n) * np.logspace(0, -4, m)[:, None]


def near_collinear(rng: Rng, m: int, n: int) -> np.ndarray:
    return rng.standard_normal((m, 1)) + 1e-4 * dense(rng, m, n)


def upper_triangular(rng: Rng, m: int, n: int) -> np.ndarray:
    a = np.triu(dense(rng, m, n))
    np.einsum("ii->i", a[: min(m, n), : min(m, n)])[:] += np.linspace(1, 0.25, min(m, n))
    return a


def diagonal(rng: Rng, m: int, n: int) -> np.ndarray:
    return np.eye(m, n) * rng.standard_normal(n)


def zeros(rng: Rng, m: int, n: int) -> np.ndarray:
    return np.zeros((m, n))


def identity(rng: Rng, m: int, n: int) -> np.ndarray:
    return np.eye(m, n)


def zero_column(rng: Rng, m: int, n: int) -> np.ndarray:
    a = dense(rng, m, n)
    a[:, n // 3 : n // 3 + 1] = 0
    return a


def kahan(rng: Rng, m: int, n: int) -> np.ndarray:
    sine, cosine = np.sin(1.2), np.cos(1.2)
    return sine ** np.arange(m)[:, None] * (np.eye(m, n) - cosine * (_offsets(m, n) > 0))


def hilbert(rng: Rng, m: int, n: int) -> np.ndarray:
    return 1.0 / (np.arange(m)[:, None] + np.arange(n)[None, :] + 1)


def lauchli(rng: Rng, m: int, n: int) -> np.ndarray:
    a = np.sqrt(EPS) / 4 * (_offsets(m, n) == -1)
    a[:1] = 1
    return a


def vandermonde(rng: Rng, m: int, n: int) -> np.ndarray:
    return np.vander(np.linspace(-1, 1, m), n, increasing=True)


def grcar(rng: Rng, m: int, n: int) -> np.ndarray:
    d = _offsets(m, n)
    return ((d >= 0) & (d <= 3)) * 1.0 - (d == -1)


def wilkinson(rng: Rng, m: int, n: int) -> np.ndarray:
    return np.eye(m, n) * np.abs(np.arange(n) - (n - 1) / 2) + (np.abs(_offsets(m, n)) == 1)


def min_index(rng: Rng, m: int, n: int) -> np.ndarray:
    """The covariance of Brownian motion: min(i, j), counted from 1."""
    return 1.0 + np.minimum(np.arange(m)[:, None], np.arange(n)[None, :])


def exponential(rng: Rng, m: int, n: int) -> np.ndarray:
    """The covariance of an Ornstein–Uhlenbeck process: exp(-|i - j|/50)."""
    return np.exp(-np.abs(_offsets(m, n)) / 50)


def lower_ones(rng: Rng, m: int, n: int) -> np.ndarray:
    return np.tri(m, n)


def squared_exponential(rng: Rng, m: int, n: int) -> np.ndarray:
    return np.exp(-0.5 * (_offsets(m, n) / (0.1 * max(m, n, 1))) ** 2)


def low_rank_gram(rng: Rng, m: int, n: int) -> np.ndarray:
    """What second-order optimizers send: a Gram matrix of low rank, damped."""
    size, rank = max(m, n), max(1, min(m, n) // 4)
    factor = rng.standard_normal((size, rank)) / np.sqrt(rank)
    return (factor @ factor.T + 1e-4 * np.eye(size))[:m, :n]


CLASSES: dict[str, Callable[[Rng, int, int], np.ndarray]] = {
    generator.__name__: generator
    for generator in (
        dense, graded_columns, rank_deficient, duplicate_columns, near_rank, clustered, banded, row_graded,
        near_collinear, upper_triangular, diagonal, zeros, identity, zero_column, kahan, hilbert, lauchli, vandermonde,
        grcar, wilkinson, min_index, exponential, lower_ones, squared_exponential, low_rank_gram,
    )
}  # fmt: skip


def matrix(name: str, m: int, n: int, seed: int = 0) -> np.ndarray:
    """The named class as float32 [m, n]; the same bits for the same arguments, whatever else is drawn."""
    rng = np.random.default_rng([seed, m, n, zlib.crc32(name.encode())])
    return CLASSES[name](rng, m, n).astype(np.float32)


def batch(m: int, n: int, names: Iterable[str] = tuple(CLASSES), seed: int = 0) -> np.ndarray:
    """A heterogeneous batch, float32 [len(names), m, n]: one matrix a name, in order."""
    return np.stack([matrix(name, m, n, seed) for name in names])


def _alternating(n: int, even: float, odd: float) -> np.ndarray:
    return np.where(np.arange(n) % 2, odd, even)


UNIFORM_EXPONENTS = (-140, -126, -110, -90, -75, -64, -50, -20, 0, 20, 50, 63, 64, 80, 110, 126, 127)
SCALES: dict[str, Callable[[int, int], np.ndarray]] = {
    **{f"2^{exponent}": lambda m, n, exponent=exponent: np.array(exponent) for exponent in UNIFORM_EXPONENTS},
    "columns rising": lambda m, n: np.linspace(-140, 127, n),
    "columns falling": lambda m, n: np.linspace(127, -140, n),
    "columns alternating": lambda m, n: _alternating(n, 127, -140),
    "products of two columns flush": lambda m, n: _alternating(n, np.log2(1e-30), np.log2(1e-12)),
    "products of two columns overflow": lambda m, n: _alternating(n, np.log2(1e25), np.log2(1e18)),
    "tiny columns first": lambda m, n: np.where(np.arange(n) < n // 3, -130, 0),
    "huge columns first": lambda m, n: np.where(np.arange(n) < n // 3, 127, 0),
    "rows rising": lambda m, n: np.linspace(-60, 60, m)[:, None],
    "rows falling": lambda m, n: np.linspace(60, -60, m)[:, None],
    "rows falling from 1": lambda m, n: np.linspace(0, -120, m)[:, None],
    "rows rising to 1": lambda m, n: np.linspace(-120, 0, m)[:, None],
}


def unit_columns(seed: int, *shape: int) -> np.ndarray:
    """Dense float64 [..., m, n] whose columns have norm 1."""
    a = np.random.default_rng(seed).standard_normal(shape)
    return a / np.linalg.norm(a, axis=-2, keepdims=True)


def scaled_batch(m: int, n: int) -> np.ndarray:
    """One float32 matrix a scale, [len(SCALES), m, n]: columns of norm 1.9 times the scale, finite even at 2^127."""
    a = 1.9 * unit_columns(m + n, len(SCALES), m, n)
    return np.stack([x * np.exp2(scale(m, n)) for x, scale in zip(a, SCALES.values(), strict=True)]).astype(np.float32)
