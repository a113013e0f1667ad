"""LAPACK's own acceptance test of a QR factorization: TESTING/LIN's sqrt01 over slatb4's matrix types, threshold 30."""

import numpy as np
import pytest

import jaxqr
from tests.reference import apply_qt, orthogonality

SIZES = (0, 1, 2, 3, 5, 10, 50)
EPS = 2.0**-24  # slamch('Epsilon')
THRESHOLD = 30
SMALL, LARGE = 2.0**-126 / EPS / 4, EPS * 4 / 2.0**-126  # slatb4 stays a little inside the range
TYPES = {  # name -> (condition number, norm)
    "diagonal": (2, 1),
    "upper triangular": (2, 1),
    "lower triangular": (2, 1),
    "well-conditioned": (2, 1),
    "condition sqrt(0.1/eps)": (np.sqrt(0.1 / EPS), 1),
    "condition 0.1/eps": (0.1 / EPS, 1),
    "near underflow": (2, SMALL),
    "near overflow": (2, LARGE),
}


def lapack_matrix(kind: str, m: int, n: int) -> np.ndarray:
    """slatms, mode 3: geometric singular values, random singular vectors; triangles by orthogonal reduction."""
    rng = np.random.default_rng([m, n, list(TYPES).index(kind)])
    condition, norm = TYPES[kind]
    k = min(m, n)
    values = norm * np.geomspace(1, 1 / condition, k)
    if kind == "diagonal":
        a = np.zeros((m, n))
        a[range(k), range(k)] = values
        return a.astype(np.float32)
    left, right = (np.linalg.qr(rng.uniform(-1, 1, (size, size)))[0] for size in (m, n))
    a = left[:, :k] * values @ right[:k]
    if kind == "upper triangular":
        a = np.linalg.qr(a, mode="complete").R
    if kind == "lower triangular":
        a = np.linalg.qr(a.T, mode="complete").R.T
    return a.astype(np.float32)


def ratios(a: np.ndarray, h: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """sqrt01: ‖R - QᵀA‖₁/(max(1, m)·‖A‖₁·eps) and ‖I - QᵀQ‖₁/(m·eps) of every matrix of a batch, [2, batch]."""
    m = a.shape[-2]
    a_norm = np.linalg.norm(a.astype(np.float64), 1, axis=(-2, -1))
    residual = np.linalg.norm(np.triu(h) - apply_qt(h, tau, a), 1, axis=(-2, -1)) / (max(1, m) * a_norm * EPS)
    return np.stack([residual, orthogonality(h, tau) / (m * EPS)])


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", SIZES)
def test_ratios(m, n):
    a = np.stack([lapack_matrix(kind, m, n) for kind in TYPES])
    h, tau = (np.asarray(x) for x in jaxqr.geqrf(a, implementation="blocked"))
    assert h.shape == a.shape
    assert tau.shape == (len(TYPES), min(m, n))
    if min(m, n) == 0:
        return
    assert (ratios(a, h, tau) < THRESHOLD).all()


def test_ratios_can_fail():
    a = np.stack([lapack_matrix(kind, 10, 10) for kind in TYPES])
    h, tau = (np.array(x) for x in jaxqr.geqrf(a, implementation="blocked"))
    h[:, 0, 1] += 1e-3 * np.abs(a).max((-2, -1))
    assert (ratios(a, h, tau)[0] > THRESHOLD).all()
