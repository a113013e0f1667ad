"""The FFI targets: registered at import, and wrapped one function a target. No numerics here.

Registering only hands function pointers to XLA: it starts no backend and creates no CUDA context.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxqr import _native
from jaxqr._kernels import COUPLING_FLOATS, step_slots, tall_update_floats

PANEL = "jaxqr_panel"
LEAVES = "jaxqr_leaves"
LIFT = "jaxqr_lift"
TALL_UPDATE = "jaxqr_tall_update"
REFLECTORS = "jaxqr_reflectors"
BLOCK_REFLECTOR = "jaxqr_block_reflector"
LOOK_AHEAD = "jaxqr_look_ahead"
STEPS = "jaxqr_steps"

_REGISTRATIONS = _native.registrations()
HAS_CUDA = "CUDA" in _REGISTRATIONS

for _platform, _handlers in _REGISTRATIONS.items():
    for _target, _handler in _handlers.items():
        jax.ffi.register_ffi_target(_target, _handler, platform=_platform)


class Reflectors(NamedTuple):
    """A block of reflectors as the update takes it: their product is ``I − V T Vᵀ``.

    Attributes:
      t: the compact-WY factor, float32 ``[batch, width, width]``.
      halves: V, times 2¹⁴, as pairs of halves: float16 ``[batch, rows, 2, pitch]`` with the high parts of a row before
        the low ones, and ``pitch`` the width rounded up to a multiple of 8.
    """

    t: jax.Array
    halves: jax.Array


def panel(
    a: jax.Array,
    *,
    offset: int,
    width: int,
    regime: str,
    variant: tuple[int, ...],
    with_reflectors: bool,
    in_place: bool,
) -> tuple[jax.Array, jax.Array, Reflectors]:
    """Householder QR of rows ``offset…m``, columns ``offset…offset+width`` of every matrix.

    Args:
      a: float32 ``[batch, m, n]``.
      offset, width: the panel's columns; ``offset + width <= min(m, n)``.
      regime, variant: of the CUDA kernel, as in ``jaxqr.schedule.Step``; the CPU has one for all. Regimes ``"narrow"``,
        ``"tiny"`` and ``"wide"`` factor whole matrices, of which ``width`` is min(m, n), also the columns beyond.
      with_reflectors: also make what the fused update takes.
      in_place: whether the result takes the buffer of ``a``. Otherwise everything outside the panel is left unwritten
        in it, and ``offset`` must be 0.

    Returns:
      ``h [batch, m, n]``, ``tau [batch, width]`` and the reflectors, empty ones without ``with_reflectors``.
    """
    results = _result(a, a.shape), *_panel_results(a, offset, width, with_reflectors)
    h, tau, t, halves = jax.ffi.ffi_call(PANEL, results, input_output_aliases={0: 0} if in_place else None)(
        a,
        offset=np.int64(offset),
        width=np.int64(width),
        regime=regime,
        variant=np.array(variant, np.int64),
        in_place=in_place,
    )
    return h, tau, Reflectors(t, halves)


def leaves(
    a: jax.Array, *, offset: int, width: int, count: int, variant: tuple[int, ...], in_place: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The rows of a tall panel below its first ``width``, factored in blocks, each by itself.

    Args:
      a: float32 ``[batch, m, n]``.
      offset, width: the panel's columns, at most 64 of them.
      count: of the blocks, which are of nearly equal height, multiples of ``width`` but for the last one.
      variant: of the CUDA kernel of regime ``"cta"``, which holds the rows of a block.
      in_place: as for `panel`.

    Returns:
      ``h [batch, m, n]`` with the blocks' reflectors, their ``tau [batch, count, width]``, and the stack ``[batch, (1 +
      count)·width, width]`` of the panel's first rows and the blocks' triangles. Its factorization has the panel's R
      and tau.
    """
    batch = a.shape[0]
    results = _result(a, a.shape), _result(a, (batch, count, width)), _result(a, (batch, (1 + count) * width, width))
    h, tau, stack = jax.ffi.ffi_call(LEAVES, results, input_output_aliases={0: 0} if in_place else None)(
        a, offset=np.int64(offset), variant=np.array(variant, np.int64), in_place=in_place
    )
    return h, tau, stack


def lift(h: jax.Array, tau: jax.Array, stack: jax.Array, *, offset: int) -> jax.Array:
    """A tall panel's compact form from those of its blocks and of its factored stack, in place of ``h``.

    Args:
      h, tau, offset: of `leaves`.
      stack: the compact form of its stack.

    Returns:
      ``h [batch, m, n]``: the panel's first rows are the stack's, the blocks have their parts of the stack's vectors,
      multiplied by the blocks' Q.
    """
    return jax.ffi.ffi_call(LIFT, _result(h, h.shape), input_output_aliases={0: 0})(
        h, tau, stack, offset=np.int64(offset)
    )


def tall_update(h: jax.Array, tau: jax.Array, source: jax.Array | None = None, *, offset: int) -> jax.Array:
    """The update of all columns right of a tall panel by its reflectors, in place of ``h``.

    Args:
      h: float32 ``[batch, m, n]``, with the panel's vectors below its diagonal.
      tau: float32 ``[batch, width]``, of at most 64 reflectors on CUDA.
      source: ``[batch, m, n]`` to read the columns from; None reads them from ``h``.
      offset: the panel's first column.

    Returns:
      ``h`` with the updated columns.
    """
    batch, m, n = h.shape
    width = tau.shape[-1]
    workspace = tall_update_floats(m - offset, width, n - offset - width)
    results = _result(h, h.shape), _result(h, (batch, workspace))
    operands = (h, tau) if source is None else (h, tau, source)
    updated, _ = jax.ffi.ffi_call(TALL_UPDATE, results, input_output_aliases={0: 0})(
        *operands, offset=np.int64(offset), has_src=source is not None
    )
    return updated


def reflectors(h: jax.Array, tau: jax.Array, *, offset: int, widths: Sequence[int], first: int = 0) -> list[Reflectors]:
    """Blocks of the reflectors of a compact factorization, one after another, by one launch.

    Args:
      h: float32 ``[batch, m, n]``, with the reflectors' vectors below its diagonal; the rest is not read.
      tau: float32 ``[batch, k]``, of the columns ``first…first+k``.
      offset: the first column of the first block.
      widths: of the blocks, each at most 64 on CUDA.
      first: the column of the first value of ``tau``.

    Returns:
      The blocks. V has a unit diagonal and entries of less than 2, or else its columns are scaled to be such, and T
      with them.
    """
    results: list[jax.core.ShapedArray] = []
    place = offset
    for width in widths:
        results.extend(_reflectors_results(h, place, width))
        place += width
    made = jax.ffi.ffi_call(REFLECTORS, results)(h, tau, offset=np.int64(offset), first=np.int64(first))
    return [Reflectors(t, halves) for t, halves in zip(made[::2], made[1::2], strict=True)]


def block_reflector(
    c: jax.Array | None,
    reflectors: Reflectors,
    scales: jax.Array | None = None,
    source: jax.Array | None = None,
    *,
    offset: int,
    first: int,
    transpose: bool,
    remake_scales: bool = False,
    known: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """``C ← (I − V T Vᵀ) C`` or ``C ← (I − V T Vᵀ)ᵀ C``, in place.

    Args:
      c: float32 ``[batch, m, n]``; C is its rows ``offset…m`` and columns ``first…n``. None where all of C is known:
        then the result has as many columns as ``scales``, and what is not C is left unwritten in it.
      reflectors: of ``m − offset`` rows.
      scales: float32 ``[batch, n]``, powers of two that an update by orthogonal reflectors made for these columns, from
        rows that included these, or that any update made again; None makes others on the way.
      source: ``[batch, m, n]`` to read C from; None reads it from ``c``.
      offset, first: the first row and column of C.
      transpose: whether the transposed block reflector is applied.
      remake_scales: make the columns' scales again from what is written, as is done where none are given.
      known: how many of C's first rows and columns are the identity's, whatever ``c`` has there.

    Returns:
      ``c`` with C overwritten, and the scales: C's columns have those that were given, or those made from what is
      written, which serve an update by any reflectors, of rows that have no other nonzero elements; columns before
      ``first`` keep those that were given.
    """
    updated, scales_out = _update_call(BLOCK_REFLECTOR, c, reflectors, scales, source, offset)(
        first=np.int64(first),
        last=np.int64(_columns(c, scales)),
        known=np.int64(known),
        transpose=transpose,
        remake_scales=remake_scales,
    )
    return updated, scales_out


def look_ahead(
    h: jax.Array,
    reflectors: Reflectors,
    scales: jax.Array | None = None,
    source: jax.Array | None = None,
    *,
    offset: int,
    width: int,
    early: int,
    regime: str,
    variant: tuple[int, ...],
    with_reflectors: bool,
) -> tuple[jax.Array, jax.Array, jax.Array, Reflectors]:
    """The update of all columns right of a panel by its reflectors, and beside it the next panel.

    Args:
      h, reflectors, scales, source: of `block_reflector`.
      offset: the first column of the reflectors' panel.
      width: of the next panel, whose columns come after the first one's.
      early: of so many matrices, or of all, the other columns are updated beside these, before the panel.
      regime, variant, with_reflectors: of the next panel, as for `panel`.

    Returns:
      ``h`` with the updated columns and the next panel, the columns' scales, and of the next panel ``tau [batch,
      width]`` and the reflectors.
    """
    first = offset + reflectors.t.shape[-1]
    results = _panel_results(h, first, width, with_reflectors)
    call = _update_call(LOOK_AHEAD, h, reflectors, scales, source, offset, results)
    updated, scales_out, tau, t, halves = call(early=early, regime=regime, variant=np.array(variant, np.int64))
    return updated, scales_out, tau, Reflectors(t, halves)


def steps(
    a: jax.Array,
    widths: Sequence[int],
    kernels: Sequence[tuple[str, tuple[int, ...]]],
    *,
    pairs: Sequence[bool],
    look_ahead: Sequence[bool],
    early: Sequence[int],
    in_halves: bool,
    in_place: bool,
    keep_reflectors: bool,
) -> tuple[jax.Array, list[jax.Array], list[Reflectors]]:
    """Panels from the first column to the last, each with the update of all columns right of it.

    Args:
      a: float32 ``[batch, m, n]``.
      widths: of the panels.
      kernels: regimes and variants of the panels' kernels, as for `panel`.
      pairs, look_ahead, early: of each step, as in ``jaxqr.schedule.Step``. A step that pairs is not the last one, and
        the next one does not; there are columns right of the two.
      in_halves: of two halves of the batch beside each other, without look-ahead.
      in_place: whether the result takes the buffer of ``a``.
      keep_reflectors: whether to return the reflectors. Otherwise the panels' take turns in the memory of a few.

    Returns:
      ``h [batch, m, n]``, the panels' ``tau [batch, width]``, and the reflectors of those with an update.
    """
    batch, _, n = a.shape
    offsets = np.cumsum([0, *widths[:-1]])
    updated = [(int(x), width) for x, width in zip(offsets, widths, strict=True) if x + width < n]
    reflector_slots, coupling_slots = step_slots(any(pairs), any(look_ahead))
    if updated and not keep_reflectors:
        updated = [(0, max(width for _, width in updated))] * reflector_slots
    results = [_result(a, a.shape), _result(a, (batch, n)), _result(a, (coupling_slots, batch, COUPLING_FLOATS))]
    results.extend(_result(a, (batch, width)) for width in widths)
    for place in updated:
        results.extend(_reflectors_results(a, *place))
    h, _, _, *others = jax.ffi.ffi_call(STEPS, results, input_output_aliases={0: 0} if in_place else None)(
        a,
        widths=np.array(widths, np.int64),
        kernels=",".join(f"{regime} {'x'.join(map(str, variant))}" for regime, variant in kernels),
        pairs=np.array(pairs, np.int64),
        look_ahead=np.array(look_ahead, np.int64),
        early=np.array(early, np.int64),
        in_halves=in_halves,
        in_place=in_place,
        keep=keep_reflectors,
    )
    taus, made = others[: len(widths)], others[len(widths) :]
    reflectors = [Reflectors(t, halves) for t, halves in zip(made[::2], made[1::2], strict=True)]
    return h, taus, reflectors if keep_reflectors else []


def scale_of_unit_columns(m: int) -> float:
    """The scale that `block_reflector` makes for columns of ``m`` elements with a largest one of 1."""
    return 2.0 ** (14 - ((m - 1).bit_length() + 1) // 2)


def _update_call(
    target: str,
    c: jax.Array | None,
    reflectors: Reflectors,
    scales: jax.Array | None,
    source: jax.Array | None,
    offset: int,
    more_results: Sequence[jax.core.ShapedArray] = (),
) -> Callable[..., Sequence[jax.Array]]:
    """A call of an update's target, which still takes the attributes that only this one has."""
    batch, rows = reflectors.halves.shape[:2]
    n = _columns(c, scales)
    aliases = {} if c is None else {0: 0}
    if scales is not None:
        aliases[3] = 1
    if c is None:
        c = reflectors.t[:, :0, :0]
    operands = [x for x in (c, reflectors.halves, reflectors.t, scales, source) if x is not None]
    results = (_result(c, (batch, offset + rows, n)), _result(c, (batch, n)), *more_results)
    return functools.partial(
        jax.ffi.ffi_call(target, results, input_output_aliases=aliases),
        *operands,
        offset=np.int64(offset),
        width=np.int64(reflectors.t.shape[-1]),
        has_scales=scales is not None,
        has_src=source is not None,
    )


def _columns(c: jax.Array | None, scales: jax.Array | None) -> int:
    of_columns = scales if c is None else c
    assert of_columns is not None
    return of_columns.shape[-1]


def _panel_results(
    h: jax.Array, offset: int, width: int, with_reflectors: bool
) -> tuple[jax.core.ShapedArray, jax.core.ShapedArray, jax.core.ShapedArray]:
    """The types of tau, T and halves of a panel."""
    batch = h.shape[0]
    of_reflectors = _reflectors_results(h, offset, width)
    if not with_reflectors:
        of_reflectors = _result(h, (batch, 0, 0)), _result(h, (batch, 0, 2, 0), np.float16)
    return _result(h, (batch, width)), *of_reflectors


def _reflectors_results(h: jax.Array, offset: int, width: int) -> tuple[jax.core.ShapedArray, jax.core.ShapedArray]:
    """The types of the results for reflectors in columns ``offset…offset+width`` of ``h``."""
    batch, m = h.shape[:2]
    pitch = -(-width // 8) * 8
    return _result(h, (batch, width, width)), _result(h, (batch, m - offset, 2, pitch), np.float16)


def _result(x: jax.Array, shape: tuple[int, ...], dtype: type[np.floating] = np.float32) -> jax.core.ShapedArray:
    """A result that varies over the same manual mesh axes as ``x``: inside shard_map a plain type would not."""
    kind = jax.typeof(x)
    return kind.update(
        shape=shape,
        dtype=np.dtype(dtype),
        sharding=NamedSharding(kind.sharding.mesh, PartitionSpec(*(None for _ in shape))),
    )
