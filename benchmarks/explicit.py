"""The measures of `jaxqr.verify` for an explicit Q, as `qr` and `householder_product` give it, and those of `ormqr`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxqr.verify import Measures, jit_reference

Array = np.ndarray | jax.Array

# At most this many elements at a time are held in float64.
_CHUNK_ELEMENTS = 2**26


def explicit_measures(a: Array, q: Array, r: Array) -> Measures:
    """Measures A = Q R in float64, on the device where `q` lies.

    Args:
      a: `[batch, m, n]`.
      q: `[batch, m, k]`, orthonormal columns.
      r: `[batch, k, n]`.

    Returns:
      `Measures` of shape `[batch]`: the residual is R - QᵀA, and QᵀQ - I is divided by k·eps.
    """
    batch, m, n = a.shape
    size = max(1, _CHUNK_ELEMENTS // max(1, m * n))
    eps = float(np.finfo(np.asarray(q[:0]).dtype).eps)
    with jax.enable_x64(True):
        parts = [
            _measure(*(jnp.asarray(x[start : start + size]) for x in (a, q, r)), eps) for start in range(0, batch, size)
        ]
    return Measures(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def product_errors(h: Array, tau: Array, c: Array, product: Array) -> np.ndarray:
    """How far QᵀC is from ``product``, in float64, on the device where that lies: `‖error_j‖₂ / (eps·‖c_j‖₂)`.

    Args:
      h, tau: `[batch, m, n]` and `[batch, k]`, Q's compact form.
      c, product: `[batch, m, p]`.

    Returns:
      Float64 `[batch, p]`.
    """
    batch, m, n = h.shape
    size = max(1, _CHUNK_ELEMENTS // max(1, m * n))
    with jax.enable_x64(True):
        parts = [
            _product_errors(*(jnp.asarray(x[start : start + size]) for x in (h, tau, c, product)))
            for start in range(0, batch, size)
        ]
    return np.concatenate(parts)


@jit_reference
def _product_errors(h: jax.Array, tau: jax.Array, c: jax.Array, product: jax.Array) -> jax.Array:
    """All reflectors are one compact-WY block, as in `jaxqr.verify`."""
    eps = jnp.finfo(h.dtype).eps
    h, tau, c, product = (x.astype(jnp.float64) for x in (h, tau, c, product))
    k = tau.shape[-1]
    v = jnp.tril(h[..., :k], -1) + jnp.eye(h.shape[-2], k)
    coupling = jnp.eye(k) + jnp.triu(tau[..., None] * (v.mT @ v), 1)
    # Tᵀ (Vᵀ C) with T = coupling⁻¹ diag(tau)
    weights = tau[..., None] * lax.linalg.triangular_solve(
        coupling, v.mT @ c, left_side=True, transpose_a=True, unit_diagonal=True
    )
    return _ratio(jnp.linalg.norm(product - (c - v @ weights), axis=-2), eps * jnp.linalg.norm(c, axis=-2))


@functools.partial(jit_reference, static_argnames="eps")
def _measure(a: jax.Array, q: jax.Array, r: jax.Array, eps: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    wide = jnp.promote_types(a.dtype, jnp.float64)
    a, q, r = (x.astype(wide) for x in (a, q, r))
    adjoint = q.conj().mT
    residual, defect = r - adjoint @ a, adjoint @ q - jnp.eye(q.shape[-1])
    norms = jnp.linalg.norm(a, axis=-2)
    return (
        _ratio(_norm1(residual), a.shape[-1] * eps * _norm1(a)),
        _norm1(defect) / (q.shape[-1] * eps),
        jnp.max(_ratio(jnp.linalg.norm(residual, axis=-2), eps * norms), axis=-1),
    )


def _norm1(x: jax.Array) -> jax.Array:
    return jnp.max(jnp.sum(abs(x), axis=-2), axis=-1)


def _ratio(error: jax.Array, size: jax.Array) -> jax.Array:
    """Zero if there is no error, infinite if there is one of nothing."""
    return jnp.where(error == 0, 0, error / size)
