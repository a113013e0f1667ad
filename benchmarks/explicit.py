"""The measures of `jaxqr.verify` for an explicit Q, as `qr` and `householder_product` give it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxqr.verify import Measures

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


@functools.partial(jax.jit, static_argnames="eps")
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
