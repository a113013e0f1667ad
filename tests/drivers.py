"""The blocked driver on a schedule that the test chooses rather than the cost model."""

import functools

import jax
import numpy as np

from jaxqr import _blocked, _native
from jaxqr.precision import PrecisionLike, policy_for
from jaxqr.schedule import Schedule, Step

_SHARED_BYTES = 99 * 1024  # what every supported GPU gives one block


def shared_bytes(row_capacity: int, width: int) -> int:
    """Shared memory of a panel kernel, at most: columns four rows apart, a barrier and five scalars each."""
    return 4 * ((row_capacity + 4) * width + 8 * width + 8)


def covering_variant(rows: int, width: int) -> tuple[int, int, int]:
    """The first compiled one-block variant that takes a panel of this size on every supported GPU."""
    for row_lanes, rows_per_lane, cols_per_lane, max_warps in _native.kernels()["cta"]:
        capacity, widest = row_lanes * rows_per_lane, 32 // row_lanes * cols_per_lane * max_warps
        if rows <= capacity and width <= widest and shared_bytes(capacity, width) <= _SHARED_BYTES:
            return row_lanes, rows_per_lane, cols_per_lane
    raise ValueError(f"no panel variant takes {rows} rows and {width} columns")


def schedule_of_width(m: int, n: int, batch: int, width: int, precision: PrecisionLike = None) -> Schedule:
    """Panels of `width` columns (the last one narrower), each followed by the update that `precision` asks for."""
    policy, k, steps = policy_for(precision), min(m, n), []
    for offset in range(0, k, width):
        w = min(width, k - offset)
        update = ("fused" if policy.fused else "matmul") if offset + w < n else None
        steps.append(Step(offset, w, m - offset, "cta", covering_variant(m - offset, w), update))
    return Schedule(m, n, batch, "as the test says", policy.name, tuple(steps))


@functools.partial(jax.jit, static_argnames=("width", "precision"))
def _factor(a: jax.Array, width: int, precision: PrecisionLike) -> tuple[jax.Array, jax.Array]:
    batch, m, n = a.shape
    products = policy_for(precision).products("cuda" if jax.default_backend() == "gpu" else "cpu")
    schedule = schedule_of_width(m, n, batch, width, precision)
    return _blocked.factor(a, schedule, precision=products, overwrite_a=False)


def factor_by_panels(a: np.ndarray, width: int, precision: PrecisionLike = None) -> tuple[np.ndarray, np.ndarray]:
    """`(h, tau)` of `a` [batch, m, n] by panels of `width` columns."""
    h, tau = _factor(np.asarray(a, np.float32), width, precision)
    return np.asarray(h), np.asarray(tau)
