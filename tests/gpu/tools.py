"""What the GPU tests share: names of launched kernels, poisoned memory, and the FP32 grade of device arrays."""

import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.explicit import explicit_measures
from jaxqr._kernels import WIDE_PANEL, WideKernel, makes_t
from jaxqr.schedule import Step
from jaxqr.verify import Measures, as_good_as_lapack, contest_gate, fp32_grade, measures

# Demangled (`panel_kernel<4, 8, 16>`, by some `panel_kernel<(int)4, …>`) or not (`panel_kernelILi4ELi8E…`).
_PANEL_KERNEL = re.compile(
    r"(narrow_|tiny_|wide_|cluster_panel_|panel_turns_|panel_)kernel(?:<([^>]*)>|I((?:Li\d+E)+)E)"
)
_REGIMES = {
    "narrow_": "narrow",
    "tiny_": "tiny",
    "wide_": "wide",
    "panel_": "cta",
    "panel_turns_": "cta",
    "cluster_panel_": "cluster",
}

Kernel = tuple[str, tuple[int, ...]]
"""A panel kernel's regime, and the numbers of its variant that its name has: not a cluster's number of blocks."""


def panel_kernel(kernel_name: str) -> Kernel:
    """The kernel of that name."""
    match = _PANEL_KERNEL.search(kernel_name)
    assert match, kernel_name
    regime, numbers = _REGIMES[match[1]], tuple(map(int, re.findall(r"\d+", match[2] or match[3])))
    if regime == "narrow":
        return regime, numbers[1:]  # the first one is the number of columns
    return regime, numbers[: {"tiny": 5, "wide": 2, "cta": 2, "cluster": 2}[regime]]


def scheduled_kernel(step: Step) -> Kernel:
    """The panel kernel of a step; of its leaves in regime "tall", of its first columns if regime "wide" has a panel."""
    assert step.variant is not None
    if step.regime == "wide" and WideKernel(*step.variant).has_panel:
        return WIDE_PANEL.regime, WIDE_PANEL.variant
    regime = "cta" if step.regime == "tall" else step.regime
    return regime, step.variant[:2] if regime == "cluster" else step.variant


def scheduled_kernels(step: Step) -> list[str | Kernel]:
    """This package's kernels that a step launches, as `own_kernels` names them."""
    own: list[str | Kernel] = [] if step.variant is None else [scheduled_kernel(step)]
    own += ["wide_apply"] * (step.regime == "wide" and step.launches == 2)
    if step.root is not None:
        own += ["stack", *scheduled_kernels(step.root), "lift"]
        own += ["tall_project", "tall_sum", "tall_subtract"] if step.update == "fused" else []
    elif step.update == "fused":
        own += [] if makes_t(step.regime, step.variant, step.width) else ["reflectors"]
        own += ["block_reflector"] * (1 + step.look_ahead + (step.early > 0) + step.pairs)
    return own


def launched_kernels(run: Callable[[], object]) -> list[str]:
    """The CUDA kernels that `run` launches, by time of start. Warm up before: compiling launches kernels too."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run())
        (path,) = Path(folder).rglob("*.xplane.pb")
        planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
        events = [
            (event.start_ns, event.name)
            for plane in planes
            if plane.name.startswith("/device:GPU")
            for line in plane.lines
            if line.name.startswith("Stream")
            for event in line.events
        ]
        assert events, f"no kernels in the trace's planes {[plane.name for plane in planes]}: is CUPTI there?"
    return [name for _, name in sorted(events)]


def own_kernels(names: Iterable[str]) -> list[str | Kernel]:
    """This package's kernels among them, in order: a panel's, or the name of another one. What couples two block
    reflectors is an update's kernel too."""
    own: list[str | Kernel] = []
    for name in names:
        if re.search(r"block_reflector(s|_bulk)?_kernel", name):
            own.append("block_reflector")
        elif "reflectors_kernel" in name:
            own.append("reflectors")
        elif match := re.search(r"(stack|lift|tall_project|tall_sum|tall_subtract|wide_apply)_kernel", name):
            own.append(match[1])
        elif _PANEL_KERNEL.search(name):
            own.append(panel_kernel(name))
    return own


_POISONINGS = 10  # to try


class Poison:
    """NaN in device memory that is free again, so that whoever gets it next and does not write it is found out.

    `sizes` are those of the arrays to come, in bytes. `covers` says whether an array lies wholly in memory that was
    poisoned.
    """

    def __init__(self, *sizes: int) -> None:
        # The allocator takes the tightest hole. Every other buffer stays, so that the holes are of just these sizes (of
        # multiples of 256 bytes, as allocations are). The NaN is on the device already: one brought there for each
        # buffer would take such a hole for a while.
        nan = jax.block_until_ready(jnp.asarray(jnp.nan, jnp.float32))
        buffers = [jnp.full(64 * -(-size // 256), nan) for size in sizes for _ in range(128 if size < 2**20 else 16)]
        jax.block_until_ready(buffers)
        self._walls, holes = buffers[::2], buffers[1::2]
        self._ranges = sorted((x.unsafe_buffer_pointer(), x.unsafe_buffer_pointer() + x.nbytes) for x in holes)
        for hole in holes:
            hole.delete()

    def covers(self, array: jax.Array) -> bool:
        start, end = array.unsafe_buffer_pointer(), array.unsafe_buffer_pointer() + array.nbytes
        for first, last in self._ranges:
            if first <= start < last:
                start = last
        return start >= end


def into_poison(run: Callable[[], Sequence[jax.Array]], *sizes: int) -> Sequence[jax.Array]:
    """The results of `run`, which lie wholly in memory that held NaN. `sizes` are of all that it allocates, in bytes.

    Other free memory of the size of a small result, such as what was given back late, may suit the allocator better
    than the poison. Then the next try finds it taken, by the results that lie there.
    """
    elsewhere = []
    for _ in range(_POISONINGS):
        poison = Poison(*sizes)
        found = jax.block_until_ready(run())
        if all(poison.covers(x) for x in found if x.nbytes):
            return found
        elsewhere.append(found)
        del poison  # or else what it keeps would be free once the next one is there, and of the very size
    raise AssertionError("the results lie where no poison was")


@jax.jit
def _same_bits(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.all(jax.lax.bitcast_convert_type(x, jnp.int32) == jax.lax.bitcast_convert_type(y, jnp.int32))


def same_bits(found: Iterable[jax.Array], expected: Iterable[jax.Array]) -> bool:
    """Whether float32 arrays are the same to the bit, compared on the device."""
    return all(bool(_same_bits(x, y)) for x, y in zip(found, expected, strict=True))


def assert_fp32_grade(a: np.ndarray, h: jax.Array, tau: jax.Array, names: Iterable[str] | None = None) -> Measures:
    """The contest's gate and the FP32 grade, in float64, on the device where `h` lies on one.

    LAPACK, on the CPU, is asked about the worst matrices only: the grade's limits are never below the absolute ones,
    which most pass.
    """
    measured = measures(a, h, tau)
    assert contest_gate(measured).all(), measured.worst()
    (above,) = np.nonzero(~fp32_grade(measured, Measures(*np.zeros((3, len(a))))))
    ratio = np.max([measured.scaled_factor / 0.5, measured.scaled_orthogonality / 2, measured.columnwise / 10], axis=0)
    worst = above[np.argsort(-ratio[above])][:8]
    good = as_good_as_lapack(np.asarray(a)[worst], measured[worst])
    labels = list(names) if names is not None else list(map(str, range(len(a))))
    assert good.all(), {labels[i]: measured[i] for i in worst[~good]}
    return measured


def on_cpu(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function` of `arguments`, computed by the CPU, as NumPy arrays."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return jax.tree.map(np.asarray, function(*(np.asarray(x) for x in arguments)))


def assert_explicit_fp32_grade(a: Any, q: jax.Array, r: jax.Array, names: Iterable[str]) -> None:
    """The FP32 grade of an explicit Q and R, beside LAPACK's explicit Q and R."""
    found, lapack = explicit_measures(np.asarray(a), q, r), explicit_measures(np.asarray(a), *on_cpu(jnp.linalg.qr, a))
    good = fp32_grade(found, lapack)
    assert good.all(), {name: (found[i], lapack[i]) for i, name in enumerate(names) if not good[i]}
