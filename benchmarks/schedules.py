"""What the schedules suite compares jaxqr's choice with: panels of one width, each by the kernel that is the fastest as
measured, not as the cost model says."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks.implementations import Implementation, chained
from benchmarks.protocol import Protocol, measure
from jaxqr import _blocked, _targets
from jaxqr._kernels import Kernel, Panel, kernels
from jaxqr.precision import policy_for
from jaxqr.schedule import PANEL_WIDTHS, Schedule, Step, local_device, may_fuse

_POLICY = policy_for(None)
_IN_A_ROW = 16  # panels of a measurement
_PROTOCOL = Protocol(repeats=5, seconds=0.1)
_NEAR = 3.0  # kernels whose time the cost model puts so far above the least are not measured


@functools.cache
def uniform(batch: int, m: int, n: int, width: int) -> Schedule:
    """Panels of ``width`` columns, the last one narrower. A kernel is measured on the tallest that it takes.

    Raises:
      ValueError: there are no such panels, or the fused update does not take them.
    """
    device, reflectors = local_device(), min(m, n)
    measured: dict[tuple[Kernel, int, bool], float] = {}

    def milliseconds(kernel: Kernel, panel: Panel) -> float:
        key = kernel, panel.width, panel.with_reflectors
        if key not in measured:
            measured[key] = _panel_milliseconds(kernel, panel, batch)
        return measured[key]

    steps = []
    for offset in range(0, reflectors, width):
        own, rows = min(width, reflectors - offset), m - offset
        update = "fused" if offset + own < n else None
        panel = Panel(rows, own, update is not None, own == n)
        expected = {kernel: kernel.seconds(panel, batch, device) for kernel in kernels() if kernel.fits(panel, device)}
        if not expected or (update and not may_fuse(m, n, own)):
            raise ValueError(f"no panels of {width} columns for {m}x{n}")
        near = [kernel for kernel, time in expected.items() if time <= _NEAR * min(expected.values())]
        kernel = min(near, key=lambda kernel: milliseconds(kernel, panel))
        steps.append(Step(offset, own, rows, kernel.regime, kernel.variant, update))
    return Schedule(m, n, batch, device.kind, _POLICY.name, tuple(steps))


def _panel_milliseconds(kernel: Kernel, panel: Panel, batch: int) -> float:
    columns = panel.width if panel.whole else panel.width + 8
    a = np.random.default_rng(0).standard_normal((batch, panel.rows, columns), np.float32)

    def factor(a: jax.Array) -> Any:
        return _targets.panel(
            a,
            offset=0,
            width=panel.width,
            regime=kernel.regime,
            variant=kernel.variant,
            with_reflectors=panel.with_reflectors,
            in_place=False,
        )

    compiled = jax.jit(lambda a: chained(factor)(*[a] * _IN_A_ROW))
    panels = Implementation("panels", jax.device_put, lambda a: jax.block_until_ready(compiled(a)), lambda x: x)
    timing, _ = measure(panels, [panels.load(a)], _PROTOCOL)
    return timing.milliseconds / _IN_A_ROW


def _of_width(width: int) -> Implementation:
    """jaxqr with another schedule."""

    @functools.cache
    def program(shape: tuple[int, int, int]) -> Callable[..., Any]:
        schedule = uniform(*shape, width)
        products = _POLICY.products("cuda" if jax.default_backend() == "gpu" else "cpu")
        return jax.jit(chained(lambda a: _blocked.factor(a, schedule, precision=products, overwrite_a=False)))

    def factor_all(*inputs: jax.Array) -> Any:
        return jax.block_until_ready(program(inputs[0].shape)(*inputs))

    return Implementation(f"width {width}", jax.device_put, factor_all, lambda factors: factors)


UNIFORM = [_of_width(width) for width in PANEL_WIDTHS]
