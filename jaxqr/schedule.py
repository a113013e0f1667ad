"""What a factorization runs: panel widths, kernel variants and updates for (m, n, batch, device), from a small cost
model.

The plan never depends on the matrices' values. ``schedule_for`` shows it; the driver follows it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import jax

from jaxqr import _native
from jaxqr.precision import Policy, PrecisionLike, policy_for

Variant = tuple[int, int, int]
"""(row_lanes, rows_per_lane, cols_per_lane) of a panel kernel."""

_WIDTHS = (8, 16, 32, 64, 128)
_MAX_FUSED_WIDTH = 64  # the widest block reflector of the fused update kernel


@dataclass(frozen=True)
class Step:
    """One panel and the update that follows it.

    Attributes:
      offset, width: the panel's columns are ``offset … offset + width``.
      rows: rows of the panel, from its first pivot down.
      regime: ``"cta"``, one thread block a matrix, or ``"jax"``, JAX's own geqrf.
      variant: of the panel kernel; None in regime ``"jax"``.
      update: of the columns right of the panel: ``"fused"``, ``"matmul"`` or None. A last step of regime ``"jax"``
        without an update factors all that is left, also the columns beyond the last pivot.
    """

    offset: int
    width: int
    rows: int
    regime: str
    variant: Variant | None
    update: str | None


@dataclass(frozen=True)
class Schedule:
    """The steps for ``batch`` matrices of m×n on one device. ``str()`` is a table."""

    m: int
    n: int
    batch: int
    device_kind: str
    precision: str
    steps: tuple[Step, ...]

    @property
    def launches(self) -> int:
        """Launches of this package's kernels, panels and fused updates; XLA's and JAX's own are not counted."""
        return sum((step.regime != "jax") + (step.update == "fused") for step in self.steps)

    @property
    def workspace_bytes(self) -> int:
        """Device memory beside A, H and tau: the largest step's T and V (for a matmul update also C and two products),
        scales of the columns, and tau's parts.

        What JAX's own geqrf allocates is not counted.
        """
        reflectors = min(self.m, self.n)
        parts = reflectors if len(self.steps) > 1 else 0
        return 4 * self.batch * (parts + max((self._step_floats(step) for step in self.steps), default=0))

    def _step_floats(self, step: Step) -> int:
        columns = self.n - step.offset - step.width
        if step.update == "fused":
            return _reflector_floats(step.rows, step.width) + self.n
        if step.update == "matmul":
            return step.width**2 + step.rows * step.width + 2 * step.width * columns + 2 * step.rows * columns
        return 0

    def __str__(self) -> str:
        title = (
            f"{self.batch} × ({self.m} × {self.n}), {self.device_kind}, precision {self.precision}: "
            f"{len(self.steps)} steps, {self.launches} launches, workspace {self.workspace_bytes / 2**20:.1f} MiB"
        )
        header = ("step", "columns", "rows", "regime", "variant", "update")
        table = [header]
        for i, step in enumerate(self.steps):
            variant = "×".join(map(str, step.variant)) if step.variant else "-"
            columns = f"{step.offset}:{step.offset + step.width}"
            table.append((str(i), columns, str(step.rows), step.regime, variant, step.update or "-"))
        widths = [max(len(row[i]) for row in table) for i in range(len(header))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join([title, *lines])


@dataclass(frozen=True)
class Device:
    """What planning knows of a GPU. Rates are what kernels reach, not data-sheet peaks.

    Attributes:
      kind: JAX's ``device_kind``, or the part of it that names the model.
      multiprocessors: streaming multiprocessors.
      shared_bytes: shared memory that one thread block, and one multiprocessor, can use.
      bandwidth: device memory, bytes a second.
      flops: float32 operations a second.
    """

    kind: str
    multiprocessors: int
    shared_bytes: int
    bandwidth: float
    flops: float


_KIB = 1024
_DEVICES = (
    Device("H200", 132, 227 * _KIB, 4.3e12, 58e12),
    Device("H100", 132, 227 * _KIB, 2.9e12, 58e12),
    Device("B200", 148, 227 * _KIB, 7.0e12, 70e12),
    Device("A100", 108, 163 * _KIB, 1.6e12, 18e12),
    Device("A10", 72, 99 * _KIB, 0.5e12, 20e12),
    Device("L40S", 142, 99 * _KIB, 0.75e12, 60e12),
    Device("L4", 58, 99 * _KIB, 0.25e12, 20e12),
    Device("RTX 4090", 128, 99 * _KIB, 0.9e12, 60e12),
    Device("RTX 5090", 170, 99 * _KIB, 1.6e12, 80e12),
)
_H200 = _DEVICES[0]
# For a GPU that the table lacks: plans that every supported one can run.
_UNKNOWN = Device("unknown GPU", 64, 99 * _KIB, 0.5e12, 20e12)


def schedule_for(
    m: int, n: int, batch: int = 1, device_kind: str | None = None, precision: PrecisionLike = None
) -> Schedule:
    """The schedule of a float32 factorization by this package's kernels.

    Args:
      m, n: rows and columns of a matrix.
      batch: matrices that one device holds.
      device_kind: a GPU, by JAX's ``device_kind`` or the model in it, such as ``"H200"``. None is JAX's first CUDA
        device, and an H200 where there is none.
      precision: as for ``geqrf``; None updates by the fused kernel, any other by matrix products.

    Returns:
      The schedule: the same for the same arguments and device.

    Raises:
      ValueError: on a negative size, or a device or precision that is not known.
    """
    if min(m, n, batch) < 0:
        raise ValueError(f"schedule_for takes sizes of at least 0, got m={m}, n={n}, batch={batch}")
    return plan(m, n, batch, policy_for(precision), None if device_kind is None else _device(device_kind))


def plan(m: int, n: int, batch: int, policy: Policy, device: Device | None = None) -> Schedule:
    """``schedule_for`` for a known policy and device; None is the local one."""
    device = _local_device() if device is None else device
    return Schedule(m, n, batch, device.kind, policy.name, _cheapest_steps(m, n, batch, device, policy.fused))


def _device(kind: str) -> Device:
    matching = [device for device in _DEVICES if device.kind in kind]
    if not matching:
        raise ValueError(f"device_kind={kind!r} names none of {', '.join(device.kind for device in _DEVICES)}")
    return max(matching, key=lambda device: len(device.kind))


def _local_device() -> Device:
    try:
        kind = jax.local_devices(backend="cuda")[0].device_kind
    except RuntimeError:  # there is no such backend
        return _H200
    try:
        return _device(kind)
    except ValueError:
        return _UNKNOWN


class _Kernel(NamedTuple):
    """A compiled variant of the panel kernel, and what a launch of it needs."""

    row_lanes: int
    rows_per_lane: int
    cols_per_lane: int
    max_warps: int

    @property
    def rows(self) -> int:
        return self.row_lanes * self.rows_per_lane

    @property
    def columns_per_warp(self) -> int:
        return 32 // self.row_lanes * self.cols_per_lane

    def warps(self, width: int) -> int:
        return math.ceil(width / self.columns_per_warp)

    def shared_bytes(self, width: int, with_t: bool) -> int:
        """Scalars of the widest panel, the panel's columns at full height and four rows apart, and for T a square."""
        t_side = (32 if width <= 32 else 64) if with_t else 0
        return 28 * self.max_warps * self.columns_per_warp + 4 * (self.rows + 4) * width + 4 * t_side**2

    def fits(self, rows: int, width: int, with_t: bool, device: Device) -> bool:
        return (
            rows <= self.rows
            and self.warps(width) <= self.max_warps
            and self.shared_bytes(width, with_t) <= device.shared_bytes
        )


@functools.cache
def _kernels() -> tuple[_Kernel, ...]:
    return tuple(_Kernel(*variant) for variant in _native.panel_variants())


@functools.lru_cache(maxsize=1024)
def _cheapest_steps(m: int, n: int, batch: int, device: Device, fused: bool) -> tuple[Step, ...]:
    """The cheapest sequence of panels under the cost model, by dynamic programming from the last column back."""
    reflectors = min(m, n)
    if reflectors == 0 or batch == 0:
        return ()
    if m > max(kernel.rows for kernel in _kernels()):
        return (Step(0, reflectors, m, "jax", None, None),)

    best: dict[int, tuple[float, Step | None]] = {reflectors: (0.0, None)}
    for offset in reversed(range(0, reflectors, _WIDTHS[0])):
        rows, left = m - offset, reflectors - offset
        candidates = []
        for width in sorted({min(width, left) for width in (*_WIDTHS, left)}):
            columns = n - offset - width
            update = ("fused" if fused else "matmul") if columns else None
            if update == "fused" and not _may_fuse(m, n, width):
                continue
            rest = best[offset + width][0] + update_seconds(rows, width, columns, batch, update, device)
            for kernel in _kernels():
                if kernel.fits(rows, width, update == "fused", device):
                    seconds = panel_seconds(width, batch, kernel, update == "fused", device) + rest
                    candidates.append((seconds, Step(offset, width, rows, "cta", kernel[:3], update)))
        best[offset] = min(candidates, key=lambda candidate: candidate[0])

    steps, offset = [], 0
    while (step := best[offset][1]) is not None:
        steps.append(step)
        offset += step.width
    return tuple(steps)


def _may_fuse(m: int, n: int, width: int) -> bool:
    """Whether the fused update takes a panel of this width, and all workspace stays within half the matrix."""
    workspace = _reflector_floats(m, width) + n + min(m, n)
    return width <= _WIDTHS[0] or (width <= _MAX_FUSED_WIDTH and 2 * workspace <= m * n)


def _reflector_floats(rows: int, width: int) -> int:
    """What the fused update takes of a panel: T, and V as pairs of halves in whole words of eight."""
    return width**2 + rows * 8 * math.ceil(width / 8)


# The cost model. Every constant is a fit to measurements on an H200 (`jaxqr_driver sweep`), in nanoseconds; only the
# comparison of plans matters, not the absolute times.
_LAUNCH_SECONDS = 1.5e-6
_REGISTERS = 65536


def panel_seconds(width: int, batch: int, kernel: _Kernel, with_t: bool, device: Device) -> float:
    """Time of one panel launch: a chain of ``width`` reflectors, or the instructions of all resident thread blocks."""
    warps = kernel.warps(width)
    registers = min(128, 8 * math.ceil((52 + kernel.rows_per_lane * kernel.cols_per_lane) / 8))
    by_shared_memory = device.shared_bytes // kernel.shared_bytes(width, with_t)
    resident = max(1, min(by_shared_memory, _REGISTERS // (registers * 32 * warps), 64 // warps, 32))
    multiply_adds = kernel.rows_per_lane * (2 * kernel.cols_per_lane + 1)
    latency = 5100 + 1.06 * kernel.rows + width * (240 + 3.1 * multiply_adds)
    issue = width * (27 + 0.31 * multiply_adds) * (warps + 1) / 2 + 0.6 * kernel.rows * width
    if with_t:
        latency += 193 * width + 0.105 * kernel.rows * width**2 / warps
        issue += 3.2 * width**2
    return _waves(batch, resident, latency, issue, device)


def update_seconds(rows: int, width: int, columns: int, batch: int, update: str | None, device: Device) -> float:
    """Time of one trailing update. Matrix products: arithmetic or memory traffic, whichever is longer."""
    if update is None:
        return 0.0
    if update == "fused":
        wide, tiles = width > 32, math.ceil(rows / 64)
        latency, issue = 4000 + tiles * (2250 + 800 * wide), 2000 + tiles * (2300 + 450 * wide)
        return _waves(batch * math.ceil(columns / 64), 2, latency, issue, device)
    arithmetic = 4 * batch * rows * width * columns / (0.5 * device.flops)
    traffic = 4 * batch * rows * (6 * columns + width) / device.bandwidth
    return 12 * _LAUNCH_SECONDS + max(arithmetic, traffic)


def _waves(blocks: int, resident: int, latency: float, issue: float, device: Device) -> float:
    """Seconds of a launch of ``blocks`` thread blocks, ``resident`` of them at a time on a multiprocessor.

    One alone takes ``latency`` nanoseconds; several on a multiprocessor take at least ``issue`` nanoseconds each.
    """
    resident = min(resident, math.ceil(blocks / device.multiprocessors))
    waves = blocks / (resident * device.multiprocessors)
    waves = waves if waves > 4 else math.ceil(waves)
    return _LAUNCH_SECONDS + 1e-9 * waves * max(latency, resident * issue)
