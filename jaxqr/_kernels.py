"""The compiled CUDA kernels: what each can factor, and how long it takes: the cost model behind ``jaxqr.schedule``.

The kernels' constants are data, in ``_costs.py``. Only the comparison of plans matters, not the absolute times.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from jaxqr import _native
from jaxqr._costs import COSTS, Chain, Costs, Turns

Variant = tuple[int, ...]
"""The numbers that name a kernel within its regime."""

MAX_FUSED_WIDTH = 64
"""The widest block reflector of the fused update kernel, and the widest panel with one."""

MAX_NARROW_WIDTH = 4
"""The most columns of matrices that narrow kernels factor."""

MAX_TALL_WIDTH = 64
"""The widest tall panel."""

MIN_PAIR_WIDTH = 33
"""The narrowest block reflectors that the fused update applies two at a time."""

COUPLING_FLOATS = 3 * 64**2 + 4
"""What couples two block reflectors of one matrix, as ``block_reflector.h`` says."""

TALL_UPDATE_LAUNCHES = 3
"""The kernels of a tall panel's fused update, which takes its reflectors as they are."""

_MAX_TURNS_WIDTH = 64  # of panels whose columns the warps of a thread block take in turns
_NARROW_REFLECTORS = 8  # columns of the panels that leave T to a kernel in float64, rather than to the CTA kernel
_SHARES = (1, 2, 4, 8, 16)  # thread blocks that may share the rows of V, and but for 16 those of a strip
_CLUSTER_SIZES = (2, 4, 8, 16)  # thread blocks that may share a panel
_LAUNCH = 1500.0  # nanoseconds
_FORK = 1000.0  # of a stream, and their joining
_REGISTERS = 16384  # of each of a multiprocessor's four parts, among which a thread block's warps are spread


@dataclass(frozen=True)
class Device:
    """What planning knows of a GPU. Rates are what kernels reach, not data-sheet peaks.

    Attributes:
      kind: JAX's ``device_kind``, or the part of it that names the model.
      multiprocessors: streaming multiprocessors.
      shared_bytes: shared memory that one thread block, and one multiprocessor, can use.
      bandwidth: device memory, bytes a second.
      flops: float32 operations a second.
      clusters: of how many thread blocks, at most; every device that has clusters takes 8.
      hopper: whether it is of compute capability 9.0, for which there are updates by warpgroups, and by two block
        reflectors at once.
      costs: of its kernels.
    """

    kind: str
    multiprocessors: int
    shared_bytes: int
    bandwidth: float
    flops: float
    clusters: int = 0
    hopper: bool = False
    costs: Costs = field(default=COSTS, hash=False, repr=False)


class Panel(NamedTuple):
    """What a panel kernel is asked for: ``with_reflectors`` with what the fused update takes, ``whole`` matrices."""

    rows: int
    width: int
    with_reflectors: bool
    whole: bool


@dataclass(frozen=True)
class NarrowKernel:
    """A row of ``narrow_variants.h``: whole matrices of up to four columns by part of a warp, a warp, or a few."""

    lanes: int
    warps: int
    rows_per_lane: int

    regime = "narrow"

    @property
    def variant(self) -> Variant:
        return self.lanes, self.warps, self.rows_per_lane

    def fits(self, panel: Panel, device: Device) -> bool:
        del device
        return (
            panel.whole
            and not panel.with_reflectors
            and panel.width <= min(MAX_NARROW_WIDTH, panel.rows)
            and panel.rows <= self.lanes * self.warps * self.rows_per_lane
        )

    def seconds(self, panel: Panel, batch: int, device: Device) -> float:
        """A chain of reflectors, and beside that memory traffic, or the instructions of all warps."""
        costs, n = device.costs.narrow, panel.width
        latency = costs.latency + n * (costs.latency_column + costs.latency_warp * self.warps)
        issue = costs.issue + n * costs.issue_column + n * self.rows_per_lane * costs.issue_element
        shared = self.warps * math.ceil(batch * self.lanes / 32) * issue / (4 * device.multiprocessors)
        traffic = 8e9 * batch * panel.rows * n / device.bandwidth
        return 1e-9 * (costs.launch + latency + max(shared, traffic))


@dataclass(frozen=True)
class TinyKernel:
    """A row of ``tiny_variants.h``: whole matrices by parts of a warp, a warp, or a few."""

    column_lanes: int
    cols_per_lane: int
    row_lanes: int
    warps: int
    rows_per_lane: int

    regime = "tiny"

    @property
    def variant(self) -> Variant:
        return self.column_lanes, self.cols_per_lane, self.row_lanes, self.warps, self.rows_per_lane

    def fits(self, panel: Panel, device: Device) -> bool:
        del device
        return (
            panel.whole
            and not panel.with_reflectors
            and panel.rows <= self.row_lanes * self.warps * self.rows_per_lane
            and panel.width <= self.column_lanes * self.cols_per_lane
        )

    def seconds(self, panel: Panel, batch: int, device: Device) -> float:
        warps = self.warps * math.ceil(batch * self.column_lanes * self.row_lanes / 32)
        return _tiny_seconds(panel, self.rows_per_lane * self.cols_per_lane, warps, device)


@dataclass(frozen=True)
class WideKernel:
    """A row of ``wide_variants.h``: matrices of few rows by chunks of columns, for each of which parts of a warp make
    all reflectors. Of more rows than a warp has lanes these come from a panel of the first columns."""

    rows: int
    cols_per_lane: int

    regime = "wide"

    @property
    def variant(self) -> Variant:
        return self.rows, self.cols_per_lane

    @property
    def has_panel(self) -> bool:
        return self.rows > 32

    def fits(self, panel: Panel, device: Device) -> bool:
        del device
        return panel.whole and not panel.with_reflectors and panel.rows <= self.rows and panel.rows < panel.width

    def seconds(self, panel: Panel, batch: int, device: Device) -> float:
        if self.has_panel:
            first = Panel(panel.rows, panel.rows, False, False)
            warps = batch * math.ceil((panel.width - panel.rows) / (32 * self.cols_per_lane))
            elements = 3 * self.rows * self.cols_per_lane // 4  # reflectors are applied, and not made
            return WIDE_PANEL.seconds(first, batch, device) + _tiny_seconds(panel, elements, warps, device)
        chunks = max(1, math.ceil((panel.width - self.rows) / (self.rows * (self.cols_per_lane - 1))))
        warps = math.ceil(batch * chunks * self.rows / 32)
        return _tiny_seconds(panel, self.rows * self.cols_per_lane, warps, device)


def _tiny_seconds(panel: Panel, elements: int, warps: int, device: Device) -> float:
    """A chain of reflectors, or the instructions of all warps, of which each lane holds so many elements."""
    costs, reflectors = device.costs.tiny, min(panel.rows, panel.width)
    latency = costs.latency + reflectors * (costs.latency_column + costs.latency_element * elements)
    issue = costs.issue_load * elements + reflectors * (costs.issue_column + costs.issue_element * elements)
    shared = warps * issue / (4 * device.multiprocessors) + costs.exposed * latency
    return 1e-9 * (costs.launch + max(latency, shared))


@dataclass(frozen=True)
class CtaKernel:
    """A row of ``panel_variants.h``: a panel by one thread block, whose warps share the columns, in turns if there are
    more than they hold."""

    cols_per_warp: int
    rows_per_lane: int
    max_warps: int

    regime = "cta"

    @property
    def variant(self) -> Variant:
        return self.cols_per_warp, self.rows_per_lane

    @property
    def rows(self) -> int:
        """The most that it holds."""
        return 32 * self.rows_per_lane

    @property
    def columns(self) -> int:
        """The most that it takes."""
        return max(self._one_turn, _MAX_TURNS_WIDTH)

    @property
    def _one_turn(self) -> int:
        """Columns that its warps hold."""
        return self.cols_per_warp * self.max_warps

    def makes_t(self, width: int) -> bool:
        return _NARROW_REFLECTORS < width <= min(self._one_turn, MAX_FUSED_WIDTH)

    def _shared_bytes(self, panel: Panel) -> int:
        """Scalars and barriers of the widest panel, whole warps' reflectors at full height, and for T a square. In
        turns at least the reflectors of one turn, and of those before the last."""
        columns, one_turn = self.cols_per_warp * math.ceil(panel.width / self.cols_per_warp), self._one_turn
        if panel.width > one_turn:
            return 16 * _MAX_TURNS_WIDTH + 16 + 4 * self.rows * max(one_turn, columns - one_turn)
        products = 4 * MAX_FUSED_WIDTH**2 if panel.with_reflectors and self.makes_t(panel.width) else 0
        return self.max_warps * (16 * self.cols_per_warp + 8) + 4 * self.rows * columns + products

    def fits(self, panel: Panel, device: Device) -> bool:
        return (
            panel.rows <= self.rows
            and panel.width <= self.columns
            and not (panel.with_reflectors and panel.width > MAX_FUSED_WIDTH)
            and self._shared_bytes(panel) <= device.shared_bytes
        )

    def seconds(self, panel: Panel, batch: int, device: Device) -> float:
        """A chain of reflectors, in which the warps are in each other's way, or the instructions of all warps."""
        costs, elements = device.costs.cta, self.cols_per_warp * self.rows_per_lane
        sets = math.ceil(panel.width / self.cols_per_warp)
        warps, columns = min(sets, self.max_warps), sets * self.cols_per_warp
        registers = 64 if elements <= 32 else min(232, 256 // self.max_warps * 8)
        by_shared_memory = device.shared_bytes // self._shared_bytes(panel)
        resident = max(1, min(by_shared_memory, _resident_by_registers(registers, warps), 64 // warps, 32))
        crowd, step = costs.crowd_base + elements, costs.step_base + elements
        column = costs.latency_column + costs.latency_element * elements + costs.crowd * warps * crowd
        latency = costs.latency + columns * column
        issue = costs.issue + costs.issue_load * elements * sets
        issue += columns * (costs.issue_element * elements + costs.step * sets * step)
        if not panel.with_reflectors:
            return _waves(batch, resident, latency, issue, device)
        if not self.makes_t(panel.width):
            return _waves(batch, resident, latency, issue, device) + reflectors_seconds(panel, batch, device)
        latency += costs.t_latency + columns * (costs.t_latency_column + costs.t_crowd * warps * crowd)
        issue += columns * (costs.t_issue_column + costs.t_step * warps * step)
        return _waves(batch, resident, latency, issue, device)


WIDE_PANEL = CtaKernel(4, 4, 32)
"""Of the first columns of matrices with more rows than a warp has lanes in regime ``"wide"``, as ``wide.cu`` says."""


@dataclass(frozen=True)
class ClusterKernel:
    """A row of ``cluster_variants.h`` and a number of thread blocks: a panel by a cluster of them."""

    rows_per_lane: int
    cols_per_lane: int
    max_warps: int
    blocks: int

    regime = "cluster"

    @property
    def variant(self) -> Variant:
        return self.rows_per_lane, self.cols_per_lane, self.blocks

    def _shared_bytes(self, panel: Panel) -> int:
        """Scalars, barriers and exchanges of the widest panel, and the columns' rows of a block."""
        widest = self.cols_per_lane * self.max_warps
        rows = 32 * (self.rows_per_lane + math.ceil(widest / 32)) + 4
        return 332 * widest + 16 * self.max_warps + 4 * rows * panel.width

    def fits(self, panel: Panel, device: Device) -> bool:
        return (
            self.blocks <= device.clusters
            and panel.rows - panel.width <= 32 * self.rows_per_lane * self.blocks
            and panel.width <= self.cols_per_lane * self.max_warps
            and self._shared_bytes(panel) <= device.shared_bytes
        )

    def seconds(self, panel: Panel, batch: int, device: Device) -> float:
        """A chain of reflectors, which several blocks on a multiprocessor slow down."""
        costs, width, warps = device.costs.cluster, panel.width, math.ceil(panel.width / self.cols_per_lane)
        elements = self.rows_per_lane * self.cols_per_lane
        registers = min(255, 40 + 8 * self.cols_per_lane + math.ceil(1.5 * elements))
        by_shared_memory = device.shared_bytes // self._shared_bytes(panel)
        resident = max(1, min(by_shared_memory, _resident_by_registers(registers, warps)))
        exchange = costs.exchange * self.blocks if self.blocks <= 8 else costs.exchange_of_16
        column = costs.latency_column + costs.latency_element * elements
        latency = costs.latency + width * (column + exchange + costs.latency_width * width)
        share = costs.issue_share + costs.issue_share_element * elements
        seconds = _waves(batch, resident, latency, share * latency, device, self.blocks)
        return seconds + reflectors_seconds(panel, batch, device)


Kernel = NarrowKernel | TinyKernel | WideKernel | CtaKernel | ClusterKernel


@functools.cache
def kernels() -> tuple[Kernel, ...]:
    """All compiled panel kernels."""
    variants = _native.kernels()
    return (
        *(NarrowKernel(*variant) for variant in variants["narrow"]),
        *(TinyKernel(*variant) for variant in variants["tiny"]),
        *(WideKernel(*variant) for variant in variants["wide"]),
        *(CtaKernel(*variant) for variant in variants["cta"]),
        *(
            ClusterKernel(rows_per_lane, cols_per_lane, max_warps, blocks)
            for rows_per_lane, cols_per_lane, max_warps in variants["cluster"]
            for blocks in _CLUSTER_SIZES
            if blocks <= 8 or cols_per_lane == 8  # sixteen of four columns a lane take longer
        ),
    )


def makes_t(regime: str, variant: Variant | None, width: int) -> bool:
    """Whether T, and V as halves, of a panel are made by the panel's own kernel rather than by another."""
    ctas = (kernel for kernel in kernels() if isinstance(kernel, CtaKernel))
    return any((cta.regime, cta.variant) == (regime, variant) and cta.makes_t(width) for cta in ctas)


def reflectors_seconds(panel: Panel, batch: int, device: Device) -> float:
    """Time of the kernel that makes what the fused update takes, where a panel's own kernel does not."""
    if not panel.with_reflectors:
        return 0.0
    wide, turns, costs = panel.width > 32, math.ceil(panel.rows / 64), device.costs.reflectors

    def by_shares(count: int, exchange: float) -> float:
        latency, issue = _turns(costs.wide if wide else costs.narrow, math.ceil(turns / count))
        return _waves(batch, 2 if wide else 3, exchange + latency, exchange + issue, device, count)

    shared = device.clusters > 0 and panel.width > 8
    most = 1 if not shared else 16 if device.clusters == 16 and panel.rows > 4160 and batch <= 4 else 8
    shares = zip(_SHARES, (0.0, *costs.exchange), strict=True)
    return min(by_shares(*share) for share in shares if share[0] <= min(turns, most))


@dataclass(frozen=True)
class Leaves:
    """The rows of a tall panel below its first ``width``, in as few blocks as one kernel factors.

    Blocks have multiples of ``width`` rows, but for the last one, which has the rest as well.
    """

    rows: int
    width: int
    kernel: CtaKernel

    @property
    def count(self) -> int:
        """Of the blocks."""
        return math.ceil((self.rows - self.width) / (self.kernel.rows // self.width * self.width))

    @property
    def _highest(self) -> int:
        """Rows of the highest block."""
        units, rest = divmod(self.rows - self.width, self.width)
        height, higher = divmod(units, self.count)
        return max((height + (higher > 0)) * self.width, height * self.width + rest)

    def fits(self, device: Device) -> bool:
        """Whether there are several blocks of two units and more, and all kernels take them."""
        return (
            self.kernel.rows >= 2 * self.width
            and self.count > 1
            and self.width <= MAX_TALL_WIDTH
            and self.kernel.fits(Panel(self._highest, self.width, False, False), device)
            and _lift_shared_bytes(self._highest, self.width) <= device.shared_bytes
        )

    def seconds(self, batch: int, device: Device) -> float:
        """Time of the leaves' factorization, the stack of their triangles, and the lift."""
        units = batch * self.count
        factorization = self.kernel.seconds(Panel(self._highest, self.width, False, False), units, device)
        stack = 2e-9 * _LAUNCH + 12 * units * self.width**2 / device.bandwidth
        traffic = 8 * units * self._highest * self.width / device.bandwidth
        lift = lift_seconds(self._highest, self.width, units, device)
        return max(factorization, traffic) + stack + max(lift, traffic)


def lift_seconds(rows: int, width: int, leaves: int, device: Device) -> float:
    """Time of the lift of blocks of at most ``rows`` rows, memory traffic apart.

    Two products of half the full size at least, and between them a triangular solve by a thread a column.
    """
    side, costs = _tall_side(width), device.costs.lift
    issue = costs.issue + costs.issue_side * side + costs.issue_element * rows * side
    latency = costs.latency + costs.latency_side * side + costs.issue_share * issue
    resident = min(128 // side, device.shared_bytes // _lift_shared_bytes(rows, width))
    return _waves(leaves, max(1, resident), latency, issue, device)


def _lift_shared_bytes(rows: int, width: int) -> int:
    """A leaf in whole strips of 16 rows, two squares and tau."""
    side = _tall_side(width)
    return 4 * ((2 * side + 16 * math.ceil(rows / 16)) * (side + 4) + side)


def jax_seconds(m: int, n: int, batch: int, device: Device) -> float:
    """Time of JAX's geqrf, an estimate from below: a launch or more a reflector, memory traffic and arithmetic."""
    k = min(m, n)
    operations = 4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3
    one_by_one = batch * (k * (3e-6 + 560 * m / device.bandwidth) + operations / (0.35 * device.flops))
    if batch > 1 and max(m, n) // batch <= 128:
        return min(one_by_one, batch * operations / (0.02 * device.flops))
    return one_by_one


def fused_update_seconds(rows: int, width: int, columns: int, batch: int, device: Device) -> float:
    """Time of the update of ``columns`` columns by the block-reflector kernel."""
    tiles, strips, costs = math.ceil(rows / 64), batch * math.ceil(columns / 64), device.costs.update
    clusters, aligned = device.clusters > 0, columns % 4 == 0

    def by_shares(count: int, exchange: float) -> float:
        turns = math.ceil(tiles / count)
        if not device.hopper:
            latency, issue = _turns(costs.wide if width > 32 else costs.narrow, turns)
            return _waves(strips, 1, exchange + latency, exchange + issue, device, count)
        if width > 32:
            latency, issue = _turns(costs.wide_copies if aligned else costs.wide_elements, turns)
        else:
            latency, issue = _turns(costs.narrow_copies if aligned else costs.narrow_elements, turns)
        if count > 2 and 4 * strips * count > 3 * device.multiprocessors:
            latency = 2 * issue  # some come two to a multiprocessor
        return _waves(strips, 2, exchange + latency, exchange + issue, device, count)

    shares = zip(_SHARES[:-1], (0.0, *costs.exchange), strict=True)
    return min(by_shares(*share) for share in shares if share[0] == 1 or (clusters and share[0] <= tiles))


def two_update_seconds(rows: int, columns: int, batch: int, device: Device) -> float:
    """Time of the update of ``columns`` columns by two wide block reflectors at once."""
    costs = device.costs.update
    return _shared_seconds(costs.two, costs.two_exchange, rows, batch * math.ceil(columns / 64), 1, device)


def coupling_seconds(rows: int, batch: int, device: Device) -> float:
    """Time of what couples two block reflectors, of which the second has ``rows`` rows."""
    costs = device.costs.update
    return _shared_seconds(costs.coupling, costs.exchange, rows, batch, 2, device)


def _shared_seconds(
    costs: Chain | Turns, exchange: tuple[float, ...], rows: int, strips: int, resident: int, device: Device
) -> float:
    """Time of a launch for strips whose rows as many thread blocks share as take the least time."""
    tiles = math.ceil(rows / 64)

    def by_shares(count: int, exchange: float) -> float:
        latency, issue = _turns(costs, math.ceil(tiles / count))
        return _waves(strips, resident, exchange + latency, exchange + issue, device, count)

    most = min(tiles, resident * device.multiprocessors // strips)  # where they do not fit at once they do not pay
    shares = zip(_SHARES, (0.0, *exchange), strict=False)
    return min(by_shares(*share) for share in shares if share[0] <= max(1, most))


def step_slots(pairs: bool, look_ahead: bool) -> tuple[int, int]:
    """How many slots of memory the steps of one call take turns in, as ``step_slots.h`` says: of reflectors, and of
    what couples two of them. That depends on whether any steps pair, and any look ahead."""
    return (1 + pairs) * (1 + look_ahead), pairs * (1 + look_ahead)


def early_matrices(columns: int, batch: int, device: Device) -> int:
    """Of how many matrices an update with look-ahead takes the last ``columns`` beside the first ones.

    Those take a place on each multiprocessor at most, and by warpgroups there are two. But what is left for the next
    panel's time should fill as many.
    """
    strips = math.ceil(columns / 64)
    if not (strips and device.hopper):
        return 0
    early = device.multiprocessors // strips
    return early if (batch - early) * strips >= device.multiprocessors else 0


def look_ahead_seconds(
    rows: int, width: int, columns: int, panel: Panel, kernel: Kernel, batch: int, device: Device
) -> float:
    """Time of a fused update of ``columns`` columns, of which the first are the next ``panel``, with look-ahead.

    The panel's thread blocks come first and keep their multiprocessors; the update's have the others, and where they
    do not fit there, all of them after the panel.
    """
    rest = columns - panel.width
    first = fused_update_seconds(rows, width, panel.width, batch, device)
    panel_seconds = kernel.seconds(panel, batch, device)
    blocks = batch * (kernel.blocks if isinstance(kernel, ClusterKernel) else 1)
    left = device.multiprocessors - blocks
    if left > 0 and batch * math.ceil(rest / 64) <= 2 * left:
        beside = fused_update_seconds(rows, width, rest, batch, replace(device, multiprocessors=left))
        return first + _FORK * 1e-9 + max(panel_seconds, beside)
    update = fused_update_seconds(rows, width, rest, batch, device)
    shared = panel_seconds * min(1.0, blocks / device.multiprocessors) + update
    last = fused_update_seconds(rows, width, 64, device.multiprocessors, device)  # a thread block each, at the end
    return first + _FORK * 1e-9 + max(panel_seconds + min(last, update), shared)


def matmul_update_seconds(rows: int, width: int, columns: int, batch: int, device: Device) -> float:
    """Time of the same by matrix products: a dozen launches, and arithmetic or memory traffic."""
    arithmetic = 4 * batch * rows * width * columns / (0.5 * device.flops)
    traffic = 4 * batch * rows * (6 * columns + width) / device.bandwidth
    return 12e-9 * _LAUNCH + max(arithmetic, traffic)


def tall_update_floats(rows: int, width: int, columns: int) -> int:
    """The workspace of a tall panel's fused update for one matrix, as ``tall_update_shape.h`` says."""
    side, chunks = _tall_side(width), math.ceil(rows / 256)
    return (chunks + 1) * (side + 1) * (side + 32 * math.ceil(columns / 32))


def tall_update_seconds(rows: int, width: int, columns: int, batch: int, device: Device) -> float:
    """Time of a tall panel's fused update: three launches, and arithmetic or memory traffic."""
    side = _tall_side(width)
    arithmetic = 2 * batch * rows * side * (64 * math.ceil(columns / 32) + side) / (0.35 * device.flops)
    traffic = 4 * batch * rows * 3 * (columns + width) / device.bandwidth
    return TALL_UPDATE_LAUNCHES * 1e-9 * (_LAUNCH + 2500) + max(arithmetic, traffic)


def _tall_side(width: int) -> int:
    return 32 if width <= 32 else 64


def tall_update_parts(rows: int) -> int:
    """The parts in which the matrix products of a tall panel's update sum over its rows."""
    return max(8, math.ceil(rows / 64))


def tall_matmul_update_seconds(rows: int, width: int, columns: int, batch: int, device: Device) -> float:
    """Time of a tall panel's update by matrix products, whose sums over rows are made in many parts."""
    parts = 8 * batch * tall_update_parts(rows) * width * (columns + 2 * width)
    return matmul_update_seconds(rows, width, columns + 2 * width, batch, device) + parts / device.bandwidth


def _resident_by_registers(registers: int, warps: int) -> int:
    """Thread blocks whose registers a multiprocessor has: a lane's come in eights."""
    return 4 * (_REGISTERS // (32 * 8 * math.ceil(registers / 8))) // warps


def _turns(costs: Chain | Turns, count: int) -> tuple[float, float]:
    """Latency and issue of a thread block with ``count`` turns."""
    latency = costs.latency + costs.latency_turn * count
    return latency, costs.issue + costs.issue_turn * count if isinstance(costs, Turns) else latency


def _waves(units: int, resident: int, latency: float, issue: float, device: Device, blocks: int = 1) -> float:
    """Seconds of a launch of ``units`` clusters of ``blocks`` thread blocks, ``resident`` blocks on a multiprocessor.

    One alone takes ``latency`` nanoseconds; several on a multiprocessor take at least ``issue`` nanoseconds each.
    """
    places = device.multiprocessors // blocks
    if blocks > 2:  # the parts of a device that clusters do not span are no multiples of them
        places = device.multiprocessors * 10 // 11 // blocks
    if places == 0:
        return math.inf
    busiest = math.ceil(units / places)  # the units of one place
    turns = math.ceil(busiest / min(resident, busiest))
    return 1e-9 * (_LAUNCH + max(turns * latency, busiest * issue))
