"""The blocked driver on a schedule that the test chooses rather than the cost model."""

import functools
from dataclasses import replace

import jax
import numpy as np

from jaxqr import _blocked
from jaxqr._kernels import MAX_FUSED_WIDTH, CtaKernel, Device, Panel, kernels
from jaxqr.precision import PrecisionLike, policy_for
from jaxqr.schedule import Schedule, Step

CTA_KERNELS = tuple(kernel for kernel in kernels() if isinstance(kernel, CtaKernel))


def takes(kernel: CtaKernel, rows: int, width: int, shared_kib: int = 99) -> bool:
    """Whether the kernel takes a panel of this size, with its reflectors where the fused update takes any so wide.

    By default with the shared memory that every supported GPU gives one block.
    """
    device = Device("some", multiprocessors=1, shared_bytes=1024 * shared_kib, bandwidth=1.0, flops=1.0)
    return kernel.fits(Panel(rows, width, width <= MAX_FUSED_WIDTH, False), device)


def covering_variant(rows: int, width: int) -> tuple[int, ...]:
    """The first compiled one-block variant that takes a panel of this size on every supported GPU."""
    for kernel in CTA_KERNELS:
        if takes(kernel, rows, width):
            return kernel.variant
    raise ValueError(f"no panel variant takes {rows} rows and {width} columns")


def schedule_of_width(m: int, n: int, batch: int, width: int, precision: PrecisionLike = None) -> Schedule:
    """Panels of `width` columns (the last one narrower), each followed by the update that `precision` asks for."""
    policy, k, steps = policy_for(precision), min(m, n), []
    for offset in range(0, k, width):
        w = min(width, k - offset)
        update = ("fused" if policy.fused else "matmul") if offset + w < n else None
        steps.append(Step(offset, w, m - offset, "cta", covering_variant(m - offset, w), update))
    return Schedule(m, n, batch, "as the test says", policy.name, tuple(steps))


def with_look_ahead(schedule: Schedule) -> Schedule:
    """The same, with look-ahead wherever there are columns right of the next panel."""
    *steps, last = schedule.steps
    ends = [step.offset + step.width for step in schedule.steps[1:]]
    steps = [replace(step, look_ahead=end < schedule.n) for step, end in zip(steps, ends, strict=True)]
    return replace(schedule, steps=(*steps, last))


def with_pairs(schedule: Schedule, first: int = 0) -> Schedule:
    """The same, with pairs of steps from step `first` on, as far as there are columns right of the two. They look ahead
    where the second one did."""
    steps = list(schedule.steps)
    for i in range(first, len(steps) - 1, 2):
        if steps[i + 1].update is not None:
            steps[i] = replace(steps[i], pairs=True, look_ahead=False, early=0)
    return replace(schedule, steps=tuple(steps))


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
