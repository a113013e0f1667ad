"""What a factorization runs: panel widths, kernels and updates for (m, n, batch, device), by a cost model.

The plan never depends on the matrices' values. ``schedule_for`` shows it; the driver follows it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import jax

from jaxqr import _geqr2
from jaxqr._kernels import (
    COUPLING_FLOATS,
    MAX_FUSED_WIDTH,
    MAX_TALL_WIDTH,
    MIN_PAIR_WIDTH,
    TALL_UPDATE_LAUNCHES,
    CtaKernel,
    Device,
    Kernel,
    Leaves,
    NarrowKernel,
    Panel,
    TinyKernel,
    Variant,
    WideKernel,
    coupling_seconds,
    early_matrices,
    fused_update_seconds,
    jax_seconds,
    kernels,
    look_ahead_seconds,
    makes_t,
    matmul_update_seconds,
    step_slots,
    tall_matmul_update_seconds,
    tall_update_floats,
    tall_update_parts,
    tall_update_seconds,
    two_update_seconds,
)
from jaxqr.precision import Policy, PrecisionLike, policy_for

PANEL_WIDTHS = (8, 16, 32, 48, 64, 128)

# So many reflectors at most are applied 32 at a time, as the roundings of wide blocks do not average out over so few
# blocks: R of min(i, j), 128 × 300, would have 11 eps in its columns instead of 7.
_FEW_REFLECTORS = 128

# Two halves launch twice as much, and wait for each other: slower at 0.05 ms, faster from 0.4 on, where panels take so
# much of the device (benchmarks/LOG.md).
_LEAST_SECONDS_IN_HALVES = 2e-4
_LEAST_SHARE_IN_HALVES = 0.75

# What the cost model expects of look-ahead where it begins to pay, as a share of the time in turn (benchmarks/LOG.md).
_LOOK_AHEAD_PAYS = 0.96

# Roundings of a few columns do not average out, and a tall panel has more of them than LAPACK: in its leaves' Q too.
_MIN_TALL_COLUMNS = 10


@dataclass(frozen=True)
class Step:
    """One panel and the update that follows it.

    Attributes:
      offset, width: the panel's columns are ``offset … offset + width``.
      rows: rows of the panel, from its first pivot down.
      regime: of the panel: ``"narrow"``, whole matrices of up to four columns; ``"tiny"``, whole ones by a few warps
        each; ``"wide"``, whole ones of few rows by chunks of their columns; ``"cta"``, by a thread block each;
        ``"cluster"``, by a cluster of thread blocks each; ``"tall"``, more rows than that in blocks; ``"loops"``, whole
        matrices of one row, or some of one or two columns, by loops of XLA's; or ``"jax"``, JAX's own geqrf.
      variant: of the regime's kernel, in regime ``"tall"`` of the ``"cta"`` kernel for its blocks; None where there is
        none.
      update: of the columns right of the panel: ``"fused"``, by kernels of this package, others after a tall panel;
        ``"matmul"``; or None. A last step without an update factors all that is left, also the columns beyond the last
        pivot.
      leaves: in regime ``"tall"`` how many blocks there are of the rows below the panel's first ``width``.
      root: in regime ``"tall"`` the step that factors the panel's first rows and the blocks' triangles.
      look_ahead: whether the fused update takes the columns of the next step, and of the one that this pairs with,
        first, and the others beside these panels.
      early: with look-ahead, the matrices of which the other columns are updated beside the first ones already, as far
        as there is place for their thread blocks.
      pairs: whether the fused update takes only the columns of the next step, which does not pair itself. That one's
        update, of all columns right of it, is then by the reflectors of both at once.
    """

    offset: int
    width: int
    rows: int
    regime: str
    variant: Variant | None
    update: str | None
    leaves: int = 0
    root: Step | None = None
    look_ahead: bool = False
    early: int = 0
    pairs: bool = False

    @property
    def launches(self) -> int:
        """Launches of this package's kernels: the panel, in regime ``"wide"`` what may follow it, what makes its
        reflectors for a fused update where the panel's kernel does not, the update, and what couples a pair. XLA's and
        JAX's own are not counted."""
        panel = int(self.variant is not None)
        if self.regime == "wide" and self.variant is not None:
            panel += WideKernel(*self.variant).has_panel
        if self.root is not None:  # the leaves, the stack, and the lift
            panel = 3 + self.root.launches
            return panel + (self.update == "fused") * TALL_UPDATE_LAUNCHES
        apart = not makes_t(self.regime, self.variant, self.width)
        return panel + (self.update == "fused") * (1 + apart + self.look_ahead + (self.early > 0) + self.pairs)

    @property
    def _kernel(self) -> str:
        """The variant, and for a tall panel how its blocks and their triangles are factored."""
        variant = "×".join(map(str, self.variant)) if self.variant else "-"
        if self.root is None:
            return variant
        return f"{self.leaves} by {variant}, {self.root.rows} rows by {self.root.regime} {self.root._kernel}"

    @property
    def _tree_floats(self) -> int:
        """Of a tall panel: the blocks' tau, the stack of triangles with its tau, and what the root takes."""
        if self.root is None:
            return 0
        return (self.leaves + self.root.rows + 1) * self.width + self.root._tree_floats


@dataclass(frozen=True)
class Schedule:
    """The steps for ``batch`` matrices of m×n on one device. ``str()`` is a table.

    Attributes:
      in_halves: whether the steps are those of two halves of the batch, which go beside each other.
    """

    m: int
    n: int
    batch: int
    device_kind: str
    precision: str
    steps: tuple[Step, ...]
    in_halves: bool = False

    @property
    def in_one_call(self) -> bool:
        """Whether one call of an FFI target runs all steps: of halves, and where steps pair."""
        return self.in_halves or any(step.pairs for step in self.steps)

    @property
    def launches(self) -> int:
        """The sum of the steps' launches, of both halves if there are two."""
        return (1 + self.in_halves) * sum(step.launches for step in self.steps)

    @property
    def workspace_bytes(self) -> int:
        """Device memory beside A, H and tau: the largest step's T and V (for a matmul update also C and two products,
        after a tall panel in parts), scales of the columns, a tall panel's triangles and the sums of its fused update,
        and tau's parts. Where one call runs all steps, T and V of as many as are in use at once, and what couples two.

        What JAX's own geqrf and XLA's loops allocate is not counted.
        """
        reflectors = min(self.m, self.n)
        parts = reflectors if len(self.steps) > 1 else 0
        if self.in_one_call:  # the steps take turns in slots of the first one's rows and the widest one's columns
            widest = max(step.width for step in self.steps if step.update)
            slots, couplings = step_slots(
                any(step.pairs for step in self.steps), any(step.look_ahead for step in self.steps)
            )
            floats = slots * _reflector_floats(self.m, widest) + couplings * COUPLING_FLOATS
            return 4 * self.batch * (parts + self.n + floats)
        return 4 * self.batch * (parts + max((self._step_floats(step) for step in self.steps), default=0))

    def _step_floats(self, step: Step) -> int:
        columns, floats = self.n - step.offset - step.width, step._tree_floats
        if step.update == "fused" and step.root is not None:
            floats += tall_update_floats(step.rows, step.width, columns)
        elif step.update == "fused":
            floats += _reflector_floats(step.rows, step.width) + self.n
        if step.update == "matmul":
            floats += step.width**2 + step.rows * step.width + 2 * step.width * columns + 2 * step.rows * columns
            if step.root is not None:
                floats += tall_update_parts(step.rows) * step.width * columns + 2 * step.rows * step.width
        return floats

    def __str__(self) -> str:
        title = (
            f"{self.batch} × ({self.m} × {self.n}), {self.device_kind}, precision {self.precision}: "
            f"{len(self.steps)} steps{' of two halves' if self.in_halves else ''}, {self.launches} launches, "
            f"workspace {self.workspace_bytes / 2**20:.1f} MiB"
        )
        header = ("step", "columns", "rows", "regime", "variant", "update")
        table = [header]
        for i, step in enumerate(self.steps):
            columns = f"{step.offset}:{step.offset + step.width}"
            update = step.update or "-"
            update += ", with the next" if step.pairs else ""
            update += ", look-ahead" if step.look_ahead else ""
            update += f", {step.early} early" if step.early else ""
            table.append((str(i), columns, str(step.rows), step.regime, step._kernel, update))
        widths = [max(len(row[i]) for row in table) for i in range(len(header))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join([title, *lines])


_KIB = 1024
_DEVICES = (
    Device("H200", 132, 227 * _KIB, 4.3e12, 58e12, clusters=16, hopper=True),
    Device("H100", 132, 227 * _KIB, 2.9e12, 58e12, clusters=8, hopper=True),
    Device("B200", 148, 227 * _KIB, 7.0e12, 70e12, clusters=8),
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
      precision: as for ``geqrf``; None updates by fused kernels, any other by matrix products.

    Returns:
      The schedule: the same for the same arguments and device.

    Raises:
      ValueError: on a negative size, or a device or precision that is not known.

    >>> [step] = jaxqr.schedule_for(16, 16, batch=8192, device_kind="H200").steps
    >>> print(step.regime, step.width)
    tiny 16
    """
    if min(m, n, batch) < 0:
        raise ValueError(f"schedule_for takes sizes of at least 0, got m={m}, n={n}, batch={batch}")
    return plan(m, n, batch, policy_for(precision), None if device_kind is None else device_of_kind(device_kind))


def plan(m: int, n: int, batch: int, policy: Policy, device: Device | None = None) -> Schedule:
    """``schedule_for`` for a known policy and device; None is the local one."""
    device = local_device() if device is None else device
    steps, seconds = _cheapest_steps(m, n, batch, device, policy.fused)
    in_halves = seconds >= _LEAST_SECONDS_IN_HALVES and _may_go_in_halves(steps, batch, device)
    return _with_pairs(Schedule(m, n, batch, device.kind, policy.name, steps, in_halves), device)


def device_of_kind(kind: str) -> Device:
    """The device that JAX's ``device_kind`` or a model's name says; ``ValueError`` if it is not known."""
    matching = [device for device in _DEVICES if device.kind in kind]
    if not matching:
        raise ValueError(f"device_kind={kind!r} names none of {', '.join(device.kind for device in _DEVICES)}")
    return max(matching, key=lambda device: len(device.kind))


def local_device() -> Device:
    """That of JAX's first CUDA device, or an H200 where there is none."""
    try:
        kind = jax.local_devices(backend="cuda")[0].device_kind
    except RuntimeError:  # there is no such backend
        return _H200
    try:
        return device_of_kind(kind)
    except ValueError:
        return _UNKNOWN


@functools.lru_cache(maxsize=1024)
def _cheapest_steps(m: int, n: int, batch: int, device: Device, fused: bool) -> tuple[tuple[Step, ...], float]:
    """The cheapest sequence of panels under the cost model, by dynamic programming from the last column back.

    Also its time, without what look-ahead saves.
    """
    reflectors = min(m, n)
    if reflectors == 0 or batch == 0:
        return (), 0.0

    @functools.cache
    def by_cost(width: int, with_reflectors: bool, whole: bool) -> list[Kernel]:
        """Kernels for panels of this width, cheapest first: their order depends on the rows that they hold."""
        panel = Panel(width, width, with_reflectors, whole)
        able = [kernel for kernel in kernels() if kernel.fits(panel, device)]
        return sorted(able, key=lambda kernel: kernel.seconds(panel, batch, device))

    best: dict[int, tuple[float, Step | None]] = {reflectors: (0.0, None)}
    for offset in reversed(range(0, reflectors, PANEL_WIDTHS[0])):
        rows, left = m - offset, reflectors - offset
        candidates = []
        for width in sorted({min(width, left) for width in (*PANEL_WIDTHS, left)}):
            columns = n - offset - width
            update = ("fused" if fused else "matmul") if columns else None
            if update == "fused" and not may_fuse(m, n, width):
                continue
            wanted = Panel(rows, width, update == "fused", width == n)
            for kernel in by_cost(*wanted[1:]):
                if kernel.fits(wanted, device):
                    seconds = kernel.seconds(wanted, batch, device)
                    seconds += best[offset + width][0] + _update_seconds(rows, width, columns, batch, update, device)
                    candidates.append((seconds, Step(offset, width, rows, kernel.regime, kernel.variant, update)))
                    break
        if not candidates:  # no kernel holds the rows
            candidates = [
                (seconds + best[offset + panel.width][0], panel)
                for seconds, panel in _tall_steps(m, n, offset, batch, device, fused)
            ]
        best[offset] = min(candidates, key=lambda candidate: candidate[0])

    steps, offset = [], 0
    while (step := best[offset][1]) is not None:
        steps.append(step)
        offset += step.width
    tall, whole = steps[0].regime == "tall", list(_whole_steps(m, n, batch, device))
    if tall:
        whole.append((jax_seconds(m, n, batch, device), Step(0, reflectors, m, "jax", None, None)))
    whole_seconds, step = min(whole, key=lambda candidate: candidate[0], default=(math.inf, None))
    if step and (whole_seconds < best[0][0] or (tall and n < _MIN_TALL_COLUMNS)):
        return (step,), whole_seconds
    for i in range(len(steps) - 1):
        steps[i : i + 2] = _with_look_ahead(steps[i], steps[i + 1], n, batch, device)
    return tuple(steps), best[0][0]


def _whole_steps(m: int, n: int, batch: int, device: Device) -> Iterator[tuple[float, Step]]:
    """What factors whole matrices at once, also wide ones, and the times."""
    matrix, reflectors = Panel(m, n, False, True), min(m, n)
    if m == 1 or n <= _geqr2.MAX_COLUMNS:
        yield _geqr2.geqr2_seconds(m, n, batch, device), Step(0, reflectors, m, "loops", None, None)
    for kernel in kernels():
        if isinstance(kernel, NarrowKernel | TinyKernel | WideKernel) and kernel.fits(matrix, device):
            yield kernel.seconds(matrix, batch, device), Step(0, reflectors, m, kernel.regime, kernel.variant, None)


def _may_go_in_halves(steps: Sequence[Step], batch: int, device: Device) -> bool:
    """Whether there are updates to go beside panels, and panels that take most multiprocessors.

    Where they leave more free, look-ahead uses those, and halves would have the same chains of reflectors.
    """
    return _may_go_in_one_call(steps) and all(
        not step.look_ahead and batch * _blocks(step) >= _LEAST_SHARE_IN_HALVES * device.multiprocessors
        for step in steps
    )


def _may_go_in_one_call(steps: Sequence[Step]) -> bool:
    """Whether there are several steps, of kernels for panels of one or a few thread blocks and of fused updates."""
    return len(steps) > 1 and all(
        step.regime in ("cta", "cluster") and step.update in ("fused", None) for step in steps
    )


def _with_pairs(schedule: Schedule, device: Device) -> Schedule:
    """The same with pairs of steps where these are faster, if all workspace stays within half the matrix."""
    n, batch = schedule.n, schedule.batch
    if not (device.hopper and _may_go_in_one_call(schedule.steps)):
        return schedule
    groups: list[list[Step]] = []
    left = list(schedule.steps)
    while left:
        step = left.pop(0)
        if left and _pair_pays(step, left[0], n, batch, device):
            groups.append([replace(step, look_ahead=False, early=0, pairs=True), left.pop(0)])
        else:
            groups.append([step])
    for group, next_group in itertools.pairwise(groups):
        if group[-1].early:  # two leave no other thread block a place on their multiprocessor
            rest = n - next_group[-1].offset - next_group[-1].width
            group[-1] = replace(group[-1], early=early_matrices(rest, batch, device) if len(group) == 1 else 0)
    paired = replace(schedule, steps=tuple(step for group in groups for step in group))
    return paired if paired.workspace_bytes <= 2 * batch * schedule.m * n else schedule


def _pair_pays(step: Step, next_step: Step, n: int, batch: int, device: Device) -> bool:
    """Whether the kernel for two block reflectors takes those of the steps, and is faster than one after the other."""
    columns, rest = n - next_step.offset, n - next_step.offset - next_step.width
    if rest == 0 or min(step.width, next_step.width) < MIN_PAIR_WIDTH or (n | step.offset | columns | rest) % 4:
        return False
    in_turn = fused_update_seconds(step.rows, step.width, columns, batch, device)
    in_turn += fused_update_seconds(next_step.rows, next_step.width, rest, batch, device)
    at_once = fused_update_seconds(step.rows, step.width, next_step.width, batch, device)
    at_once += coupling_seconds(next_step.rows, batch, device) + two_update_seconds(step.rows, rest, batch, device)
    return at_once < in_turn


def _blocks(step: Step) -> int:
    """Thread blocks of a panel by one kernel."""
    return step.variant[2] if step.regime == "cluster" and step.variant else 1


def _with_look_ahead(step: Step, next_step: Step, n: int, batch: int, device: Device) -> tuple[Step, Step]:
    """The two with look-ahead, the next panel beside the update, where this is faster than one after the other.

    Then the next panel may be by another kernel than alone: by one that leaves the update more multiprocessors.
    """
    columns = n - next_step.offset
    if step.update != "fused" or columns == next_step.width or {step.regime, next_step.regime} & {"tall", "jax"}:
        return step, next_step
    panel = Panel(next_step.rows, next_step.width, next_step.update == "fused", False)
    able = sorted(
        (kernel for kernel in kernels() if kernel.fits(panel, device)),
        key=lambda kernel: kernel.seconds(panel, batch, device),
    )
    in_turn = able[0].seconds(panel, batch, device)
    in_turn += fused_update_seconds(step.rows, step.width, columns, batch, device)
    ahead = [look_ahead_seconds(step.rows, step.width, columns, panel, kernel, batch, device) for kernel in able]
    if min(ahead) >= _LOOK_AHEAD_PAYS * in_turn:
        return step, next_step
    kernel = next(kernel for kernel, seconds in zip(able, ahead, strict=True) if seconds <= 1.03 * min(ahead))
    early = early_matrices(columns - next_step.width, batch, device)
    return replace(step, look_ahead=True, early=early), replace(next_step, regime=kernel.regime, variant=kernel.variant)


def _tall_steps(m: int, n: int, offset: int, batch: int, device: Device, fused: bool) -> Iterator[tuple[float, Step]]:
    """Tall panels at ``offset`` with the update that follows them, and their times together."""
    rows, left = m - offset, min(m, n) - offset
    narrowest, *wider = sorted({min(width, left) for width in (32, MAX_TALL_WIDTH)})
    for width in (narrowest, *wider):
        seconds, panel = _tall_panel(rows, width, batch, device)
        columns = n - offset - width
        # As for other panels, all workspace stays within half the matrix, as far as there is a choice.
        workspace = panel._tree_floats + (tall_update_floats(rows, width, columns) if columns else 0) + min(m, n)
        if fused and width > narrowest and 2 * workspace > m * n:
            continue
        if not columns:
            yield seconds, replace(panel, offset=offset)
            continue
        update_seconds = tall_update_seconds if fused else tall_matmul_update_seconds
        seconds += update_seconds(rows, width, columns, batch, device)
        yield seconds, replace(panel, offset=offset, update="fused" if fused else "matmul")


@functools.lru_cache(maxsize=4096)
def _tall_panel(rows: int, width: int, batch: int, device: Device) -> tuple[float, Step]:
    """The cheapest tall panel of this size: its time, and it as a step that is all of a matrix."""
    candidates = []
    for kernel in kernels():
        if isinstance(kernel, CtaKernel) and (leaves := Leaves(rows, width, kernel)).fits(device):
            seconds, root = _whole_panel((1 + leaves.count) * width, width, batch, device)
            seconds += leaves.seconds(batch, device)
            candidates.append((seconds, Step(0, width, rows, "tall", kernel.variant, None, leaves.count, root)))
    return min(candidates, key=lambda candidate: candidate[0])


@functools.lru_cache(maxsize=4096)
def _whole_panel(rows: int, width: int, batch: int, device: Device) -> tuple[float, Step]:
    """The cheapest panel of this size that is all of a matrix; tall if no kernel holds the rows."""
    panel = Panel(rows, width, False, True)
    able = [kernel for kernel in kernels() if kernel.fits(panel, device)]
    if not able:
        return _tall_panel(rows, width, batch, device)
    seconds, kernel = min(((kernel.seconds(panel, batch, device), kernel) for kernel in able), key=lambda pair: pair[0])
    return seconds, Step(0, width, rows, kernel.regime, kernel.variant, None)


def may_fuse(m: int, n: int, width: int) -> bool:
    """Whether the fused update takes a panel of this width, and all workspace stays within half the matrix."""
    workspace = _reflector_floats(m, width) + n + min(m, n)
    widest = 32 if min(m, n) <= _FEW_REFLECTORS else MAX_FUSED_WIDTH
    return width <= PANEL_WIDTHS[0] or (width <= widest and 2 * workspace <= m * n)


def _reflector_floats(rows: int, width: int) -> int:
    """What the fused update takes of a panel: T, and V as pairs of halves in whole words of eight."""
    return width**2 + rows * 8 * math.ceil(width / 8)


def _update_seconds(rows: int, width: int, columns: int, batch: int, update: str | None, device: Device) -> float:
    if update is None:
        return 0.0
    seconds = fused_update_seconds if update == "fused" else matmul_update_seconds
    return seconds(rows, width, columns, batch, device)
