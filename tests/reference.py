"""Float64 references on the host: factors by reflectors one by one, errors at any scale, and errors of T."""

import numpy as np

from jaxqr.verify import Measures, measures

EPS = 2.0**-23
DENORMAL = 2.0**-149  # the smallest float32
FLT_MIN = 2.0**-126  # the smallest normal float32
FLT_MAX = float(np.finfo(np.float32).max)


def apply_qt(h: np.ndarray, tau: np.ndarray, c: np.ndarray) -> np.ndarray:
    """QᵀC in float64 for H [..., m, n], tau [..., k] and C [..., m, p], with Q = H_0 H_1 … H_{k-1}."""
    h, tau, c = (np.asarray(x, np.float64) for x in (h, tau, c))
    c = c.copy()
    for k in range(tau.shape[-1]):
        v = h[..., k:, k].copy()
        v[..., 0] = 1
        projections = tau[..., k, None, None] * (v[..., None, :] @ c[..., k:, :])
        c[..., k:, :] -= v[..., :, None] * projections
    return c


def column_errors(a: np.ndarray, h: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """‖(R - QᵀA)_j‖₂ of every column, [..., n]; R is the upper triangle of H."""
    return np.linalg.norm(np.triu(np.asarray(h, np.float64)) - apply_qt(h, tau, a), axis=-2)


def orthogonality(h: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """‖QᵀQ - I‖₁ of the full m×m Q, [...]."""
    eye = np.eye(h.shape[-2])
    q_transposed = apply_qt(h, tau, np.broadcast_to(eye, (*h.shape[:-2], *eye.shape)))
    return np.abs(q_transposed @ q_transposed.mT - eye).sum(-2).max(-1)


def assert_good_at_any_scale(a: np.ndarray, h: np.ndarray, tau: np.ndarray, panels: int, spacing: float = DENORMAL):
    """The FP32 grade's absolute limits, column by column, but for what cannot be: R, and the trailing matrix once a
    panel, are rounded to multiples of `spacing`. LAPACK is no yardstick: it fails above |beta| = 1.7e38."""
    m = a.shape[-2]
    assert np.isfinite(h).all()
    assert np.isfinite(tau).all()
    assert (measures(a, h, tau).scaled_orthogonality <= 2).all()
    norms = np.linalg.norm(a.astype(np.float64), axis=-2)
    excess = column_errors(a, h, tau) / (10 * EPS * norms + panels * np.sqrt(m) * spacing)
    assert (excess <= 1).all(), (
        f"matrices {np.nonzero((excess > 1).any(-1))[0]} are up to {excess.max()} times the limit"
    )


def assert_same_bits(found, expected):
    """Both are sequences of float32 arrays, the same to the bit (NaN and −0.0 included)."""
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(x).view(np.int32), np.asarray(y).view(np.int32))


def block_measures(a: np.ndarray, h: np.ndarray, t: np.ndarray) -> Measures:
    """The measures of panels a [..., m, w] with Q formed from V and T, where errors of T show."""
    a, h, t = (x.astype(np.float64) for x in (a, h, t))
    m, w = a.shape[-2:]
    v = np.tril(h, -1) + np.eye(m, w)
    residual = np.triu(h) - a + v @ (t.mT @ (v.mT @ a))
    defect = t.mT @ (v.mT @ v) @ t - t - t.mT  # QᵀQ - I = V·defect·Vᵀ
    columns = np.abs(v @ defect @ v.mT).sum(-2).max(-1)

    def ratio(error: np.ndarray, size: np.ndarray) -> np.ndarray:
        return np.where(error == 0, 0, error / np.where(error == 0, 1, size))

    return Measures(
        scaled_factor=ratio(np.abs(residual).sum(-2).max(-1), w * EPS * np.abs(a).sum(-2).max(-1)),
        scaled_orthogonality=columns / (w * EPS),
        columnwise=ratio(np.linalg.norm(residual, axis=-2), EPS * np.linalg.norm(a, axis=-2)).max(-1),
    )


def larft(h: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """LAPACK's slarft in float32, the yardstick for T: T[:k, k] = -tau_k·T[:k, :k]·(Vᵀv_k)."""
    m, w = h.shape[-2:]
    v = np.tril(h, -1) + np.eye(m, w, dtype=np.float32)
    t = np.zeros((*h.shape[:-2], w, w), np.float32)
    for k in range(w):
        products = v[..., :k].mT @ v[..., k, None]
        t[..., :k, k] = (t[..., :k, :k] @ (-tau[..., k, None, None] * products))[..., 0]
        t[..., k, k] = tau[..., k]
    return t
