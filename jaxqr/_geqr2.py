"""LAPACK's unblocked geqr2 as array operations, of which XLA makes loops over the whole batch.

Each reflector passes over the matrices a few times, at the speed of memory. That is the least there is for one or two
of them, and needs no kernel.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from jaxqr import wy
from jaxqr._kernels import Device

MAX_REFLECTORS = 2

# Sums of more terms are made in parts of so many, on every platform: one long float32 sum of terms of one sign is
# rounded the same way again and again.
_PART = 64

# What goes over so few rows goes element by element, as part of the loop that needs it.
_FEW_ROWS = 3


def geqr2(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``h [batch, m, n]`` and ``tau [batch, min(m, n)]`` of ``a [batch, m, n]``, float32.

    Columns are scaled by exact powers of two for all sums and products, so that none over- or underflows where the
    result does not (but XLA's CPU backend takes denormals for zeros). A column that is zero below the diagonal has tau
    = 0; where one is not finite, it and all later ones become NaN from its pivot down.
    """
    m, n = a.shape[1:]
    reflectors = min(m - 1, n)  # a last row has nothing below it
    taus = [jnp.zeros_like(a[:, 0, :1])] * (min(m, n) - reflectors)
    scale, unscale = _column_scales(a)  # columns do not grow
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
    scale, unscale = _column_scales(jnp.where(row >= k, x, 0))
    x = x * scale
    alpha, tail = x[:, k : k + 1], jnp.where(row > k, x, 0)
    empty = _largest_of_rows(tail) == 0
    norm = jnp.sqrt(alpha * alpha + _sum_over_rows(tail * tail))
    beta = jnp.copysign(jnp.where(jnp.isinf(norm), jnp.nan, norm), -alpha)
    v = jnp.where(row == k, 1, jnp.where(empty, tail, tail / (alpha - beta)))
    return v, jnp.where(empty, 0, (beta - alpha) / beta), beta * unscale, empty


def _column_scales(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return wy.power_of_two_scales(_largest_of_rows(x))


def _largest_of_rows(x: jax.Array) -> jax.Array:
    if x.shape[1] > _FEW_ROWS:
        return jnp.max(jnp.abs(x), axis=1, keepdims=True)
    return functools.reduce(jnp.maximum, _rows(jnp.abs(x)))


def _sum_over_rows(x: jax.Array) -> jax.Array:
    """The sum over axis 1, which stays, in parts of `_PART`."""
    if x.shape[1] <= _FEW_ROWS:
        return functools.reduce(jnp.add, _rows(x))
    while (rows := x.shape[1]) > _PART:
        x = jnp.pad(x, ((0, 0), (0, -rows % _PART), (0, 0))).reshape(x.shape[0], -1, _PART, x.shape[-1])
        x = lax.optimization_barrier(jnp.sum(x, axis=2))  # XLA would make one long sum of two short ones
    return jnp.sum(x, axis=1, keepdims=True)


def _rows(x: jax.Array) -> list[jax.Array]:
    return [x[:, i : i + 1] for i in range(x.shape[1])]


def geqr2_seconds(m: int, n: int, batch: int, device: Device) -> float:
    """Time of `geqr2`: memory traffic, and for each reflector launches for its scalars, sums in parts, and the rest."""
    reflectors, whole = min(m - 1, n), 4 * batch * m * n
    passes: float
    if m <= _FEW_ROWS:
        launches, passes = max(1, 4 * reflectors), 2 * max(1, reflectors)
    else:
        parts = math.ceil(math.log(m, _PART))
        column = min(1, 8 / n)  # of the matrix: a sector of 32 bytes is read for each element
        launches = 1 + reflectors * (2 + parts * (1 if n == 1 else 2))
        passes = 1 + reflectors * (2 * column + (2 if n == 1 else 3))
    return 2.5e-6 * launches + passes * whole / device.bandwidth
