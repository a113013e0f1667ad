"""``qr``: Q and R in the modes of ``jnp.linalg.qr``, Q from the block reflectors of the factorization; derivatives.

With ``A = Q R`` and ``B = Qᴴ dA``, for k = min(m, n) and R₁ the first k columns of R:

    C = B₁ R₁⁻¹,  Ω = tril(C, −1) − tril(C, −1)ᴴ + i·Im(diag(C)),  dR = triu(B − Ω R),  dQ = Q Ω + (dA − Q B)₁ R₁⁻¹

(J. Townsend, "Differentiating the QR decomposition"; the last term is zero for m ≤ n). It is linear in dA and made of
differentiable functions of A, so reverse mode and higher derivatives follow. R₁⁻¹ leaves out dependent columns
(``_triangular.pseudo_inverse``), which keeps derivatives finite where QR has none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxqr import _blocked, _geqrf, _products, _tsqr
from jaxqr._operation import check_dtype, check_implementation, operation, tall_rows
from jaxqr._triangular import pseudo_inverse, unit_upper_inverse
from jaxqr.precision import Policy, PrecisionLike, Products, policy_for
from jaxqr.schedule import Schedule
from jaxqr.wy import product

Pair = tuple[jax.Array, jax.Array]
Triple = tuple[jax.Array, jax.Array, jax.Array]

_MODES = ("reduced", "complete", "r", "raw", "full")


def qr(
    a: Any,
    mode: str = "reduced",
    *,
    precision: PrecisionLike = None,
    positive_diagonal: bool = False,
    implementation: str | None = None,
) -> Any:
    """QR factorization ``A = Q R`` as by ``jnp.linalg.qr`` (``?geqrf``, ``?orgqr``): its modes, results and errors.

    float32 on a CUDA device runs on this package's kernels; other dtypes and platforms run on JAX's geqrf and
    householder_product. Under ``jax.vmap`` mapped axes join the batch; matrices that are sharded over devices along
    batch axes are factored where they are; sharded rows go to `jaxqr.tsqr` in modes ``"reduced"`` and ``"r"`` if each
    device has at least n of them, and other sharded rows and columns are gathered.

    There are derivatives of any order, forward and reverse, in every mode but ``"raw"``. On matrices of full rank they
    are those of ``jnp.linalg.qr``; its columns may have any scale. On others Q has no derivative: directions of columns
    that depend on those before them, with ``|R_kk| ≤ max(m, n)·eps·‖R[:, k]‖``, are left out, so that derivatives are
    finite. In mode ``"complete"`` with m > n the columns of Q beyond n are differentiated as LAPACK's reflectors make
    them (second derivatives need ``tau ≠ 0`` there). Sources: J. Townsend, "Differentiating the QR decomposition", and
    arXiv:2409.13374 for mode ``"complete"``.

    Args:
      a: ``[..., m, n]``, any m, n ≥ 0 and any leading batch shape; float32, float64, complex64 or complex128. Integers
        and booleans are converted as in ``jnp.linalg.qr``.
      mode: ``"reduced"`` or ``"full"`` (a synonym, as in JAX), ``"complete"``, ``"r"`` or ``"raw"``.
      precision: of the factorization's trailing updates, as for ``jaxqr.geqrf``. Q and derivatives have the precision
        of the dtype under every name, and whatever ``jax_default_matmul_precision`` says; under None the fused kernels
        make Q, otherwise matrix products do.
      positive_diagonal: change signs so that the diagonal of R is not negative, which makes the factorization of a
        matrix of full column rank unique. Otherwise signs are LAPACK's.
      implementation: as for ``jaxqr.geqrf``.

    Returns:
      A named tuple ``(Q, R)``, with k = min(m, n): ``Q [..., m, k]`` and ``R [..., k, n]``, in mode ``"complete"``
      ``Q [..., m, m]`` and ``R [..., m, n]``. Mode ``"r"``: R ``[..., k, n]`` alone. Mode ``"raw"``: ``(hᵀ, tau)`` with
      ``h, tau = jaxqr.geqrf(a)``, as ``[..., n, m]`` and ``[..., k]``.

    Raises:
      TypeError: if ``a`` is no array, has fewer than two dimensions, or its dtype is none of the above (float16 and
        bfloat16 have to be cast).
      ValueError: if ``mode``, ``precision`` or ``implementation`` is unknown, ``positive_diagonal`` is combined with
        mode ``"raw"``, or a side is over 2³¹ − 1.
      NotImplementedError: when differentiated in mode ``"raw"``.

    >>> a = jnp.array([[3.0, 1.0], [4.0, 3.0]])
    >>> q, r = jaxqr.qr(a, positive_diagonal=True)
    >>> print(jnp.round(r), jnp.allclose(q @ r, a))
    [[5. 3.]
     [0. 1.]] True
    >>> gradient = jax.grad(lambda a: jaxqr.qr(a, mode="r")[0, 0])(a)  # of −‖a_0‖
    >>> print(jnp.round(5 * gradient[:, 0]))
    [-3. -4.]
    """
    policy = policy_for(precision)
    check_implementation(implementation)
    if mode not in _MODES:
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'; there are {', '.join(map(repr, _MODES))}")
    if mode == "raw" and positive_diagonal:
        raise ValueError('jaxqr.qr(mode="raw") has LAPACK\'s signs: positive_diagonal=True needs Q or R')
    if np.ndim(a) < 2 and isinstance(a, jax.Array | np.ndarray):
        raise TypeError(f"jaxqr.qr takes an array of shape [..., m, n], got shape {list(np.shape(a))}")
    a = _geqrf.as_matrices(a, "jaxqr.qr")
    check_dtype(a, "jaxqr.qr", implementation)
    results = _qr(policy, implementation, "reduced" if mode == "full" else mode, bool(positive_diagonal))(a)
    return results[0] if mode == "r" else _result_type()(*results)


@functools.cache
def _result_type() -> Callable[..., Any]:
    """The named tuple of ``jnp.linalg.qr``, which JAX does not export."""
    return type(jax.eval_shape(jnp.linalg.qr, jax.ShapeDtypeStruct((1, 1), jnp.float32)))


@functools.cache
def _qr(policy: Policy, implementation: str | None, mode: str, positive: bool) -> Callable[[jax.Array], Any]:
    factorization = _factorization(policy, implementation, mode)

    @jax.jit
    def qr(a: jax.Array) -> tuple[jax.Array, ...]:
        results = factorization(a)
        return _with_positive_diagonal(*results) if positive else results

    return qr


def _with_positive_diagonal(*results: jax.Array) -> tuple[jax.Array, ...]:
    """``(Q, R)`` or ``(R,)`` with signs changed. LAPACK's diagonal is real also for complex matrices."""
    *q, r = results
    diagonal = jnp.diagonal(r, axis1=-2, axis2=-1).real
    signs = jnp.where(diagonal < 0, -1, 1).astype(r.dtype)
    rows = _padded(signs, -1, after=r.shape[-2] - signs.shape[-1], value=1)  # beyond the diagonal they keep their signs
    return *(x * rows[..., None, :] for x in q), r * rows[..., :, None]


def _padded(a: jax.Array, axis: int, *, before: int = 0, after: int = 0, value: int = 0) -> jax.Array:
    """With ``value`` before and after it along the axis.

    Concatenations, and ``jnp.pad`` by them, fail in JAX where a ``vmap`` maps an axis that is sharded in Explicit mode.
    """
    padding = [(0, 0, 0)] * a.ndim
    padding[axis] = (before, after, 0)
    return jax.lax.pad(a, jnp.asarray(value, a.dtype), padding)


@functools.cache
def _factorization(policy: Policy, implementation: str | None, mode: str) -> Callable[[jax.Array], tuple[Any, ...]]:
    """The factorization of ``[..., m, n]`` in one mode, with its derivative."""
    geqrf = _geqrf._operation(policy, False, implementation)
    q_and_h = functools.partial(_local_q_and_h, policy=policy, implementation=implementation)

    def raw(a: jax.Array) -> Pair:
        h, tau = geqrf(a)
        return h.mT, tau

    def local(a: jax.Array) -> Pair:
        k = min(a.shape[-2:])
        q, h = q_and_h(a, k)
        return q, jnp.triu(h[..., :k, :])

    def local_complete(a: jax.Array) -> Pair:
        return q_and_h(a, a.shape[-2])

    def local_r(a: jax.Array) -> tuple[jax.Array]:
        h, tau = geqrf(a)
        return (jnp.triu(h[..., : tau.shape[-1], :]),)

    def by_rows(a: jax.Array, axis_name: Any) -> Pair:
        return _tsqr.rows_of_qr(a, axis_name, policy, implementation)

    both = operation(local, "jaxqr.qr", ("m n",), ("m k", "k n"), by_rows=by_rows)
    square_q_and_h = operation(local_complete, "jaxqr.qr", ("m n",), ("m p", "m n"))
    r_alone = operation(local_r, "jaxqr.qr", ("m n",), ("k n",), by_rows=lambda a, axis_name: by_rows(a, axis_name)[1:])

    @jax.custom_jvp
    def reduced(a: jax.Array) -> Pair:
        q, r = both(a)
        return q, r

    @reduced.defjvp
    def _reduced_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[Pair, Pair]:
        q, r = reduced(*primals)
        return (q, r), _tangents(q, r, *tangents)

    @jax.custom_jvp
    def only_r(a: jax.Array) -> tuple[jax.Array]:
        (r,) = r_alone(a)
        return (r,)

    @only_r.defjvp
    def _only_r_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[tuple[jax.Array], tuple[jax.Array]]:
        q, r = reduced(*primals)
        _, dr = _tangents(q, r, *tangents)
        return (r,), (dr,)

    @jax.custom_jvp
    def complete(a: jax.Array) -> Pair:
        q, r, _ = with_ratio(a)
        return q, r

    @complete.defjvp
    def _complete_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[Pair, Pair]:
        q, r, z = with_ratio(*primals)
        return (q, r), _complete_tangents(q, r, z, *tangents)

    @jax.custom_jvp
    def with_ratio(a: jax.Array) -> Triple:
        """Also ``Z = V₂ V₁⁻¹`` of the reflectors' rows above and below n, from which Q's last columns follow."""
        n = a.shape[-1]
        q, h = square_q_and_h(a)
        v1, v2 = jnp.tril(h[..., :n, :], -1), h[..., n:, :]
        return q, jnp.triu(h), product(v2, unit_upper_inverse(v1.mT).mT)

    @with_ratio.defjvp
    def _with_ratio_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[Triple, Triple]:
        q, r, z = with_ratio(*primals)
        dq, dr = _complete_tangents(q, r, z, *tangents)
        # Q's first columns are [I; 0] − [I; Z] W with W = I − Q₁₁; so dZ W = Z dQ₁₁ − dQ₂₁.
        n = r.shape[-1]
        w = jnp.eye(n, dtype=q.dtype) - q[..., :n, :n]
        moved = product(z, dq[..., :n, :n]) - dq[..., n:, :n]
        return (q, r, z), (dq, dr, jnp.linalg.solve(w.mT, moved.mT).mT)

    def complete_or_reduced(a: jax.Array) -> Pair:
        return complete(a) if a.shape[-2] > a.shape[-1] else reduced(a)

    by_mode: dict[str, Callable[[jax.Array], tuple[Any, ...]]]
    by_mode = {"raw": raw, "reduced": reduced, "r": only_r, "complete": complete_or_reduced}
    function = by_mode[mode]

    def whole_or_by_rows(a: jax.Array) -> tuple[Any, ...]:
        """In Explicit mode a row-sharded array says so; its derivative is `tsqr`'s, a sum over the axis."""
        sharding = jax.typeof(a).sharding
        if sharding.mesh.explicit_axes and tall_rows(sharding.mesh, sharding.spec, a.shape):
            return _tsqr.row_sharded_qr(a, sharding.mesh, sharding.spec, mode, policy, implementation)
        return function(a)

    return whole_or_by_rows if mode in ("reduced", "r") else function


def _local_q_and_h(a: jax.Array, columns: int, policy: Policy, implementation: str | None) -> Pair:
    """Q ``[..., m, columns]`` and ``h`` of the matrices ``[..., m, n]`` of one device."""
    *batch, m, n = a.shape
    if a.size == 0:
        nothing = jnp.sum(a, axis=(-2, -1), keepdims=True)  # made from a, Q varies over the same mesh axes
        return jnp.where(False, nothing, jnp.eye(m, columns, dtype=a.dtype)), a

    def own(matrices: jax.Array, schedule: Schedule, products: Products) -> Pair:
        h, tau, blocks = _blocked.factor_and_blocks(matrices, schedule, precision=products, overwrite_a=False)
        if policy.fused:
            return _products.product_of_factorization(h, tau, blocks, columns), h
        return _products.matmul_product(_of_columns(h, columns), tau), h

    def in_jax(matrices: jax.Array) -> Pair:
        h, tau = _blocked.jax_geqrf(matrices)
        return jax.lax.linalg.householder_product(_of_columns(h, columns), tau), h

    q, h = _geqrf.on_platform(a.reshape(-1, m, n), policy, implementation, own, in_jax)
    return q.reshape(*batch, m, columns), h.reshape(a.shape)


def _of_columns(h: jax.Array, columns: int) -> jax.Array:
    """The first columns, with zeros beyond the last one."""
    return jnp.pad(h[..., :columns], ((0, 0),) * (h.ndim - 1) + ((0, max(0, columns - h.shape[-1])),))


def _tangents(q: jax.Array, r: jax.Array, da: jax.Array) -> Pair:
    """``(dQ, dR)`` for ``q [..., m, k]``, ``r [..., k, n]``: the formula of the module."""
    return tangents(q, r, da, product(q.conj().mT, da), q.shape[-2])


def tangents(q: jax.Array, r: jax.Array, da: jax.Array, b: jax.Array, rows: int) -> Pair:
    """The same given ``b = Qᴴ dA``, the only sum over rows: ``q`` and ``da`` may be some of the ``rows`` rows."""
    k = q.shape[-1]
    inverse = pseudo_inverse(r[..., :k], rows)
    c = product(b[..., :k], inverse)
    lower = jnp.tril(c, -1)
    omega = lower - lower.conj().mT
    if jnp.iscomplexobj(c):
        omega += jnp.eye(k, dtype=c.dtype) * (c - c.real)
    dq = product(q, omega)
    if rows > k:
        dq += product(da - product(q, b), inverse)
    return dq, jnp.triu(b - product(omega, r))


def _complete_tangents(q: jax.Array, r: jax.Array, z: jax.Array, da: jax.Array) -> Pair:
    """``(dQ, dR)`` of the complete mode for m > n: arXiv:2409.13374, eq. 32, with Z from the reflectors, so that it is
    finite where tau is zero."""
    n = r.shape[-1]
    q1, q2 = q[..., :n], q[..., n:]
    dq1, dr = _tangents(q1, r[..., :n, :], da)
    moved = dq1[..., n:, :] - product(z, dq1[..., :n, :])
    dq2 = product(dq1, z.conj().mT) - product(q1 + product(q2, z), moved.conj().mT)
    dq = _padded(dq1, -1, after=dq2.shape[-1]) + _padded(dq2, -1, before=n)
    return dq, _padded(dr, -2, after=r.shape[-2] - n)
