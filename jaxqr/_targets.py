"""The FFI targets: registered at import, and wrapped one function a target. No numerics here.

Registering only hands function pointers to XLA: it starts no backend and creates no CUDA context.
"""

from __future__ import annotations

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


def panel(
    a: jax.Array, *, offset: int, width: int, variant: tuple[int, int, int], with_t: bool, in_place: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Householder QR of rows ``offset…m``, columns ``offset…offset+width`` of every matrix.

    Args:
      a: float32 ``[batch, m, n]``.
      offset, width: the panel's columns; ``offset + width <= min(m, n)``.
      variant: ``(row_lanes, rows_per_lane, cols_per_lane)`` of the CUDA kernel.
      with_t: also make the panel's compact-WY factor T.
      in_place: whether the result takes the buffer of ``a``. Otherwise everything outside the panel is left unwritten
        in it, and ``offset`` must be 0.

    Returns:
      ``h [batch, m, n]``, ``tau [batch, width]``, ``t [batch, width, width]`` (``[batch, 0, 0]`` without ``with_t``).
    """
    batch = a.shape[0]
    t_side = width if with_t else 0
    results = (_result(a, a.shape), _result(a, (batch, width)), _result(a, (batch, t_side, t_side)))
    row_lanes, rows_per_lane, cols_per_lane = variant
    h, tau, t = jax.ffi.ffi_call(PANEL, results, input_output_aliases={0: 0} if in_place else None)(
        a,
        offset=np.int64(offset),
        width=np.int64(width),
        row_lanes=np.int64(row_lanes),
        rows_per_lane=np.int64(rows_per_lane),
        cols_per_lane=np.int64(cols_per_lane),
        in_place=in_place,
    )
    return h, tau, t


def block_reflector(h: jax.Array, t: jax.Array, source: jax.Array | None, *, offset: int, width: int) -> jax.Array:
    """Applies the transposed block reflector of a panel to all columns right of it, in place in ``h``.

    Args:
      h: float32 ``[batch, m, n]``; its columns ``offset…offset+width`` hold the panel's reflectors.
      t: ``[batch, width, width]``, from the panel.
      source: ``[batch, m, n]`` to read the columns right of the panel from; None reads them from ``h``.
      offset, width: the panel's columns.

    Returns:
      ``h`` with rows ``offset…m`` of those columns overwritten.
    """
    operands = (h, t) if source is None else (h, t, source)
    return jax.ffi.ffi_call(BLOCK_REFLECTOR, _result(h, h.shape), input_output_aliases={0: 0})(
        *operands,
        offset=np.int64(offset),
        width=np.int64(width),
        first=np.int64(offset + width),
        last=np.int64(h.shape[-1]),
    )


def _result(x: jax.Array, shape: tuple[int, ...]) -> jax.core.ShapedArray:
    """A float32 result that varies over the same manual mesh axes as ``x``: inside shard_map a plain type would not."""
    kind = jax.typeof(x)
    return kind.update(shape=shape, sharding=NamedSharding(kind.sharding.mesh, PartitionSpec(*(None for _ in shape))))
