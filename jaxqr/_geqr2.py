"""LAPACK's unblocked geqr2 as array operations, of which XLA makes loops over the whole batch.

For one row, which is its own R, and for one or two columns of more rows than kernels hold, or in large batches
where kernels take longer: each reflector passes over the matrices a few times, at the speed of memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxqr import wy
from jaxqr._kernels import Device

MAX_COLUMNS = 2

# Sums of more terms are made in parts of so many, on every platform: one long float32 sum of terms of one sign is
# rounded the same way again and again.
_PART = 64


def geqr2(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``h [batch, m, n]`` and ``tau [batch, min(m, n)]`` of ``a [batch, m, n]``, float32; m is 1, or n 1 or 2.

    Columns are scaled by exact powers of two for all sums and products, so that none over- or underflows where the
    result does not (but XLA's CPU backend takes denormals for zeros). A column that is zero below the diagonal has tau
    = 0; where one is not finite, it and all later ones become NaN from its pivot down.
    """
    m, n = a.shape[1:]
    reflectors = min(m - 1, n)  # a last row has nothing below it
    taus = [jnp.zeros_like(a[:, 0, :1])] * (min(m, n) - reflectors)
    scale, unscale = wy.power_of_two_scales(_largest_of_rows(a)) if reflectors and n > 1 else (1, 1)
    row, column = lax.broadcasted_iota(jnp.int32, (m, 1), 0), lax.broadcasted_iota(jnp.int32, (1, n), 1)
    h = a
    for k in range(reflectors):
        v, tau, beta, empty = lax.optimization_barrier(_reflector(h[:, :, k : k + 1], row, k))
        if k + 1 < n:
            weight = tau * _sum_over_rows(jnp.where(row >= k, v * (h * scale), 0))
            h = jnp.where((row >= k) & (column > k) & ~empty, (h * scale - v * weight) * unscale, h)
        h = jnp.where(column == k, jnp.where(row > k, v, jnp.where((row == k) & ~empty, beta, h)), h)
        taus.insert(k, tau[:, 0])
    return h, jnp.concatenate(taus, axis=-1)


def _reflector(x: jax.Array, row: jax.Array, k: int) -> tuple[jax.Array, ...]:
    """LAPACK's larfg for rows k … of the column ``x [batch, m, 1]``: v, with its 1, tau, beta, and whether the tail is
    zero."""
    alpha, tail = x[:, k : k + 1], jnp.where(row > k, x, 0)
    largest = _largest_of_rows(tail)
    empty = largest == 0
    scale, unscale = wy.power_of_two_scales(jnp.maximum(largest, jnp.abs(alpha)))
    alpha, tail = alpha * scale, tail * scale
    norm = jnp.sqrt(alpha * alpha + _sum_over_rows(tail * tail))
    beta = jnp.copysign(jnp.where(jnp.isinf(norm), jnp.nan, norm), -alpha)
    v = jnp.where(row == k, 1, jnp.where(empty, tail, tail / (alpha - beta)))
    return v, jnp.where(empty, 0, (beta - alpha) / beta), beta * unscale, empty


def _largest_of_rows(x: jax.Array) -> jax.Array:
    """The largest magnitude over axis 1, which stays."""
    return _of_columns(lambda column: jnp.max(abs(column), axis=1, keepdims=True), x)


def _sum_over_rows(x: jax.Array) -> jax.Array:
    """The sum over axis 1, which stays."""
    return _of_columns(_sum_in_parts, x)


def _of_columns(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """One column after the other: alone, it is read along its rows by whole warps."""
    return jnp.concatenate([function(x[:, :, c : c + 1]) for c in range(x.shape[2])], axis=-1)


def _sum_in_parts(column: jax.Array) -> jax.Array:
    while (rows := column.shape[1]) > _PART:
        column = jnp.pad(column, ((0, 0), (0, -rows % _PART), (0, 0))).reshape(len(column), -1, _PART, 1)
        column = lax.optimization_barrier(jnp.sum(column, axis=2))  # XLA would make one long sum of two short ones
    return jnp.sum(column, axis=1, keepdims=True)


def geqr2_seconds(m: int, n: int, batch: int, device: Device) -> float:
    """Time of `geqr2`: memory traffic, and for each reflector launches for its scalars, sums in parts, and the rest."""
    reflectors, parts = min(m - 1, n), math.ceil(math.log(m, _PART)) if m > 1 else 0
    launches = 1 + reflectors * (2 + parts * n)
    passes = 2 if m == 1 else 2 * (n + reflectors * (2 + n))  # as measured: XLA's loops pass twice as often as these
    return 2.5e-6 * launches + passes * 4 * batch * m * n / device.bandwidth
