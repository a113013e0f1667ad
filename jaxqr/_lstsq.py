"""``lstsq``: least-squares and least-norm solutions of full-rank systems, by ``geqrf`` and ``ormqr``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxqr import _geqrf, _products, _qr
from jaxqr._operation import check_dtype, check_implementation
from jaxqr._triangular import pseudo_inverse, solve
from jaxqr.precision import Policy, PrecisionLike, policy_for
from jaxqr.wy import product


def lstsq(a: Any, b: Any, *, precision: PrecisionLike = None, implementation: str | None = None) -> jax.Array:
    """The x that minimizes ``‖A x − b‖₂``, and of several the one of least norm, for A of full rank (``?gels``).

    ``x = R⁻¹ (Qᴴ b)`` with ``A = Q R`` for m ≥ n, and ``x = Q (R⁻ᴴ b)`` with ``Aᴴ = Q R`` for m < n; Q is not formed.
    An A of deficient rank gives Inf, NaN or a large x: use ``jnp.linalg.lstsq``, which goes by singular values.

    There are derivatives of any order with respect to ``a`` and ``b``. Platforms, ``jax.vmap`` and sharding are as for
    ``jaxqr.qr``.

    Args:
      a: ``[..., m, n]``, any m, n ≥ 0 and any leading batch shape; float32, float64, complex64 or complex128. Integers
        and booleans are converted as in ``jnp.linalg.qr``.
      b: ``[..., m]``, one right side a matrix, or ``[..., m, p]``, several; its batch shape is that of ``a``. It is
        promoted with ``a`` to one dtype.
      precision: of the factorization's trailing updates, as for ``jaxqr.geqrf``.
      implementation: as for ``jaxqr.geqrf``.

    Returns:
      x, ``[..., n]`` or ``[..., n, p]``.

    Raises:
      TypeError: if an argument is no array, or its dtype is none of the above (float16 and bfloat16 have to be cast).
      ValueError: if the shapes do not belong together, or ``precision`` or ``implementation`` is unknown.

    >>> t = jnp.array([0.0, 1.0, 2.0, 3.0])
    >>> a = jnp.stack([jnp.ones(4), t], axis=1)
    >>> print(jnp.round(jaxqr.lstsq(a, 1 + 2 * t), 4))
    [1. 2.]
    """
    policy = policy_for(precision)
    check_implementation(implementation)
    a, b = _geqrf.as_matrices(a, "jaxqr.lstsq"), _right_sides(b)
    if b.shape[: a.ndim - 1] != a.shape[:-1] or b.ndim > a.ndim:
        raise ValueError(
            f"jaxqr.lstsq takes a [..., m, n] and b [..., m] or [..., m, p] with the same batch, got a {list(a.shape)} "
            f"and b {list(b.shape)}"
        )
    dtype = jnp.promote_types(a.dtype, b.dtype)
    a, b = a.astype(dtype), b.astype(dtype)
    check_dtype(a, "jaxqr.lstsq", implementation)
    vector = b.ndim < a.ndim
    x = _lstsq(policy, implementation)(a, b[..., None] if vector else b)
    return x[..., 0] if vector else x


def _right_sides(b: Any) -> jax.Array:
    if not (isinstance(b, jax.Array | np.ndarray) or hasattr(b, "__jax_array__")):
        raise TypeError(f"jaxqr.lstsq takes an array b, got {type(b).__name__}")
    b = jnp.asarray(b)
    if jnp.issubdtype(b.dtype, jnp.inexact):
        check_dtype(b, "jaxqr.lstsq")
    return b


@functools.cache
def _lstsq(policy: Policy, implementation: str | None) -> Callable[[jax.Array, jax.Array], jax.Array]:
    geqrf = _geqrf._operation(policy, False, implementation)
    apply = _products._ormqr(True, False, implementation, policy.fused)
    apply_adjoint = _products._ormqr(True, True, implementation, policy.fused)
    reduced = _qr._factorization(policy, implementation, "reduced")

    @jax.custom_jvp
    def lstsq(a: jax.Array, b: jax.Array) -> jax.Array:
        m, n = a.shape[-2:]
        if m >= n:
            h, tau = geqrf(a)
            return solve(h[..., :n, :], apply_adjoint(h, tau, b)[..., :n, :])
        h, tau = geqrf(a.conj().mT)
        y = solve(h[..., :m, :], b, adjoint=True)
        return apply(h, tau, jnp.pad(y, ((0, 0),) * (y.ndim - 2) + ((0, n - m), (0, 0))))

    @lstsq.defjvp
    def _lstsq_jvp(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        a, b = primals
        da, db = tangents
        x = lstsq(a, b)
        moved = db - product(da, x)
        if a.shape[-2] >= a.shape[-1]:
            # dx = A⁺ (db − dA x) + (Aᴴ A)⁻¹ dAᴴ (b − A x)
            q, r = reduced(a)
            inverse = pseudo_inverse(r, a.shape[-2])
            residual = product(da.conj().mT, b - product(a, x))
            return x, product(inverse, product(q.conj().mT, moved) + product(inverse.conj().mT, residual))
        # dx = A⁺ (db − dA x) + (I − A⁺ A) dAᴴ (A Aᴴ)⁻¹ b
        q, r = reduced(a.conj().mT)
        inverse = pseudo_inverse(r, a.shape[-1])
        free = product(da.conj().mT, product(inverse, product(q.conj().mT, x)))
        return x, free + product(q, product(inverse.conj().mT, moved) - product(q.conj().mT, free))

    return jax.jit(lstsq)
