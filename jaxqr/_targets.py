"""The FFI targets: registered at import, and wrapped one function a target. No numerics here.

Registering only hands function pointers to XLA: it starts no backend and creates no CUDA context.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxqr import _native

PANEL = "jaxqr_panel"
BLOCK_REFLECTOR = "jaxqr_block_reflector"

_REGISTRATIONS = _native.registrations()
HAS_CUDA = "CUDA" in _REGISTRATIONS

for _platform, _handlers in _REGISTRATIONS.items():
    for _target, _handler in _handlers.items():
        jax.ffi.register_ffi_target(_target, _handler, platform=_platform)


class Reflectors(NamedTuple):
    """A panel's block of reflectors as the update takes it.

    Attributes:
      t: the compact-WY factor, float32 ``[batch, width, width]``.
      halves: V with its unit diagonal, times 2¹⁴, as pairs of halves: float16 ``[batch, rows, 2, pitch]`` with the high
        parts of a row before the low ones, and ``pitch`` the width rounded up to a multiple of 8.
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
      regime, variant: of the CUDA kernel, as in ``jaxqr.schedule.Step``; the CPU has one for all.
      with_reflectors: also make what the fused update takes.
      in_place: whether the result takes the buffer of ``a``. Otherwise everything outside the panel is left unwritten
        in it, and ``offset`` must be 0.

    Returns:
      ``h [batch, m, n]``, ``tau [batch, width]`` and the reflectors, empty ones without ``with_reflectors``.
    """
    batch, m = a.shape[:2]
    results = (
        _result(a, a.shape),
        _result(a, (batch, width)),
        _result(a, (batch, width, width) if with_reflectors else (batch, 0, 0)),
        _result(a, (batch, m - offset, 2, -(-width // 8) * 8) if with_reflectors else (batch, 0, 2, 0), np.float16),
    )
    h, tau, t, halves = jax.ffi.ffi_call(PANEL, results, input_output_aliases={0: 0} if in_place else None)(
        a,
        offset=np.int64(offset),
        width=np.int64(width),
        regime=regime,
        variant=np.array(variant, np.int64),
        in_place=in_place,
    )
    return h, tau, Reflectors(t, halves)


def block_reflector(
    h: jax.Array,
    reflectors: Reflectors,
    scales: jax.Array | None,
    source: jax.Array | None,
    *,
    offset: int,
    width: int,
) -> tuple[jax.Array, jax.Array]:
    """Applies the transposed block reflector of a panel to all columns right of it, in place in ``h``.

    Args:
      h: float32 ``[batch, m, n]``; its columns ``offset…offset+width`` hold the panel's reflectors.
      reflectors: from the panel.
      scales: float32 ``[batch, n]``, powers of two that the update of an earlier panel made for these columns; None
        makes them.
      source: ``[batch, m, n]`` to read the columns right of the panel from; None reads them from ``h``.
      offset, width: the panel's columns.

    Returns:
      ``h`` with rows ``offset…m`` of those columns overwritten, and their scales.
    """
    operands = [x for x in (h, reflectors.halves, reflectors.t, scales, source) if x is not None]
    results = (_result(h, h.shape), _result(h, (h.shape[0], h.shape[2])))
    aliases = {0: 0} if scales is None else {0: 0, 3: 1}
    updated, scales_out = jax.ffi.ffi_call(BLOCK_REFLECTOR, results, input_output_aliases=aliases)(
        *operands,
        offset=np.int64(offset),
        width=np.int64(width),
        first=np.int64(offset + width),
        last=np.int64(h.shape[-1]),
        has_scales=scales is not None,
        has_src=source is not None,
    )
    return updated, scales_out


def _result(x: jax.Array, shape: tuple[int, ...], dtype: type[np.floating] = np.float32) -> jax.core.ShapedArray:
    """A result that varies over the same manual mesh axes as ``x``: inside shard_map a plain type would not."""
    kind = jax.typeof(x)
    return kind.update(
        shape=shape,
        dtype=np.dtype(dtype),
        sharding=NamedSharding(kind.sharding.mesh, PartitionSpec(*(None for _ in shape))),
    )
