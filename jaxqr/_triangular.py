"""Inverses of R for derivative rules, with dependent directions dropped, and solves with R; batched and partitioned."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxqr import wy
from jaxqr._operation import operation


def pseudo_inverse(r: jax.Array, rows: int) -> jax.Array:
    """R⁻¹ of upper triangular ``r [..., n, n]``, where a column that depends on those before it counts for nothing.

    Column k depends on them if ``|R_kk| ≤ max(rows, n)·eps·‖R[:, k]‖``, eps the spacing of the dtype: its rounding
    errors are no smaller. The measure is the column's own norm, so columns of any scale are kept. For such k, row and
    column k of the result are zero, as if R_kk were infinite: ``X = A R⁻¹`` is forward substitution with ``X_k = 0``.

    Args:
      r: of a factorization; only the upper triangle is read.
      rows: of the matrix that was factored.
    """
    n = r.shape[-1]
    diagonal = jnp.diagonal(r, axis1=-2, axis2=-1)
    kept = lax.stop_gradient(jnp.abs(diagonal) > max(rows, n) * jnp.finfo(r.dtype).eps * _column_norms(jnp.triu(r)))
    reciprocal = jnp.where(kept, 1 / jnp.where(kept, diagonal, 1), 0)
    # Columns are scaled rather than rows: entries of what is inverted are then at most 1/eps.
    unit = jnp.triu(r, 1) * reciprocal[..., None, :]
    return reciprocal[..., :, None] * unit_upper_inverse(unit)


@jax.custom_jvp
def unit_upper_inverse(u: jax.Array) -> jax.Array:
    """The inverse of unit upper triangular ``u [..., n, n]``, whose other entries are not read."""
    (inverse,) = _unit_upper_inverse()(u)
    return inverse


@unit_upper_inverse.defjvp
def _unit_upper_inverse_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    inverse = unit_upper_inverse(*primals)
    (du,) = tangents
    return inverse, -wy.product(inverse, wy.product(jnp.triu(du, 1), inverse))


def solve(r: jax.Array, b: jax.Array, adjoint: bool = False) -> jax.Array:
    """``R⁻¹ B``, or ``R⁻ᴴ B``, for upper triangular ``r [..., n, n]`` and ``b [..., n, p]``. It has no derivative."""
    (x,) = _solve(adjoint)(r, b)
    return x


def _column_norms(r: jax.Array) -> jax.Array:
    """Scaled by their largest entries, so that no square over- or underflows."""
    magnitude = jnp.abs(r)
    largest = jnp.max(magnitude, axis=-2, initial=0, keepdims=True)
    scaled = magnitude / jnp.where(largest > 0, largest, 1)
    return largest[..., 0, :] * jnp.sqrt(jnp.sum(scaled * scaled, axis=-2))


@functools.cache
def _unit_upper_inverse() -> Callable[..., tuple[jax.Array, ...]]:
    def local(u: jax.Array) -> tuple[jax.Array]:
        if u.size == 0:
            return (u,)
        return (wy.unit_upper_inverse(u.reshape(-1, *u.shape[-2:])).reshape(u.shape),)

    return operation(local, "the derivative of jaxqr.qr", ("i j",), ("i j",))


@functools.cache
def _solve(adjoint: bool) -> Callable[..., tuple[jax.Array, ...]]:
    def local(r: jax.Array, b: jax.Array) -> tuple[jax.Array]:
        options: dict[str, Any] = {"transpose_a": adjoint, "conjugate_a": adjoint}
        return (lax.linalg.triangular_solve(r, b, left_side=True, lower=False, **options),)

    return operation(local, "jaxqr.lstsq", ("i j", "n p"), ("n p",))
