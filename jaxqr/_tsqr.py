"""QR of tall matrices whose rows are spread over devices: every device factors its rows, and triangles are combined.

Demmel, Grigori, Hoemmen and Langou, "Communication-optimal parallel and sequential QR and LU factorizations", 2012. The
triangles travel along a butterfly, so that each device sends one n × n triangle a level and all know the last one. The
first n rows of the matrix stay out of it until the root, where they lie on top of the triangle of all other rows:
there the signs are LAPACK's, as those only depend on the first rows and on the inner products of the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from jaxqr import _qr
from jaxqr._geqrf import as_matrices
from jaxqr._operation import check_dtype, check_implementation
from jaxqr.precision import Policy, PrecisionLike, policy_for
from jaxqr.wy import product

AxisName = Hashable | tuple[Hashable, ...]
Factors = tuple[jax.Array, jax.Array]
Factor = Callable[[jax.Array], Factors]


def tsqr(a: Any, axis_name: AxisName, *, precision: PrecisionLike = None, implementation: str | None = None) -> Factors:
    """Reduced QR factorization of matrices whose rows are spread over a mesh axis; for use inside ``jax.shard_map``.

    With P devices along the axis, the matrices are ``[..., P·m, n]`` and this device holds its block of m rows, in the
    order of ``lax.axis_index``. The factors are those of `jaxqr.qr` of the whole matrices, LAPACK's signs included, and
    as accurate. They can be differentiated, in both modes and again; on rank-deficient input the derivative is finite,
    by the rule of `jaxqr.qr`.

    Each device factors its own rows and ``⌊log₂ P⌋`` pairs of n × n triangles, one more if P is no power of two, and
    sends one triangle for each; a sum of 2n × n elements over the axis ends it. Where m < n there is nothing to gain:
    the whole matrices, smaller than the P triangles, are summed up and factored on every device. Source: Demmel,
    Grigori, Hoemmen and Langou, "Communication-optimal parallel and sequential QR and LU factorizations", 2012.

    Args:
      a: the rows of this device, ``[..., m, n]``, any m, n ≥ 0 and any leading batch shape; the dtypes of `jaxqr.qr`.
      axis_name: the mesh axis that the rows are spread over, or a tuple of axes in the mesh's order.
      precision, implementation: of the factorizations on each device, as for `jaxqr.qr`.

    Returns:
      ``(q, r)``: ``q [..., m, k]`` are this device's rows of Q, with ``k = min(P·m, n)``, and ``r [..., k, n]`` is the
      same on every device (of a type that does not vary along the axis, so ``out_specs`` may have it replicated).

    Raises:
      TypeError, ValueError: as `jaxqr.qr` does.
      NameError: there is no such axis here.

    >>> from jax.sharding import PartitionSpec as P
    >>> mesh = jax.make_mesh((jax.device_count(),), ("rows",))
    >>> a = jax.random.normal(jax.random.key(0), (64 * jax.device_count(), 5))
    >>> expected = jnp.linalg.qr(a, mode="r")
    >>> a = jax.device_put(a, jax.NamedSharding(mesh, P("rows")))
    >>> factor = functools.partial(jaxqr.tsqr, axis_name="rows")
    >>> q, r = jax.jit(jax.shard_map(factor, mesh=mesh, in_specs=P("rows"), out_specs=(P("rows"), P())))(a)
    >>> print(q.shape == a.shape, r.shape, jnp.allclose(jax.device_get(r), expected, atol=1e-4))
    True (5, 5) True
    """
    policy = policy_for(precision)
    check_implementation(implementation)
    a = as_matrices(a, "jaxqr.tsqr")
    check_dtype(a, "jaxqr.tsqr", implementation)
    return rows_of_qr(a, axis_name, policy, implementation)


def rows_of_qr(a: jax.Array, axis_name: AxisName, policy: Policy, implementation: str | None) -> Factors:
    """`tsqr` of checked arguments."""
    factor: Factor = _qr._qr(policy, implementation, "reduced", False)
    if lax.axis_size(axis_name) == 1:
        q, r = factor(a)
        return q, lax.psum(r, axis_name)
    m, n = a.shape[-2:]
    if m < n:
        return _gathered(a, axis_name, factor)
    return _tall(a, axis_name, factor)


def row_sharded_qr(
    a: jax.Array, mesh: Any, spec: PartitionSpec, mode: str, policy: Policy, implementation: str | None
) -> tuple[jax.Array, ...]:
    """Reduced QR of a global array ``[..., m, n]`` whose rows are sharded, by `tsqr` on each device's rows.

    Args:
      a: the matrices; m is a multiple of the number of devices along the axes of the rows.
      mesh: the mesh, concrete or abstract.
      spec: how ``a`` is sharded: its batch axes in any way, its rows over one or more axes in the mesh's order, its
        columns not at all.
      mode: ``"reduced"`` or ``"r"``.
      policy, implementation: of the factorizations on each device.

    Returns:
      ``(q, r)``, or ``(r,)``: Q with the sharding of ``a``, R with its batch axes' sharding.
    """
    *batch, rows, _ = list(spec) + [None] * (a.ndim - len(spec))
    q_spec, r_spec = PartitionSpec(*batch, rows, None), PartitionSpec(*batch, None, None)
    first = 1 if mode == "r" else 0

    def local(a: jax.Array) -> tuple[jax.Array, ...]:
        return rows_of_qr(a, rows, policy, implementation)[first:]

    return jax.shard_map(local, mesh=mesh, in_specs=q_spec, out_specs=(q_spec, r_spec)[first:])(a)


def _gathered(a: jax.Array, axis_name: AxisName, factor: Factor) -> Factors:
    """Every device factors the whole matrices. (A sum, because the type of an all-gather varies along the axis.)"""
    m, n = a.shape[-2:]
    size, first_row = lax.axis_size(axis_name), lax.axis_index(axis_name) * m
    padded = jnp.zeros_like(a, shape=(*a.shape[:-2], size * m, n))
    padded = lax.dynamic_update_slice_in_dim(padded, a, first_row, axis=-2)
    q, r = factor(lax.psum(padded, axis_name))
    return lax.dynamic_slice_in_dim(q, first_row, m, axis=-2), r


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _tall(a: jax.Array, axis_name: AxisName, factor: Factor) -> Factors:
    """`tsqr` for m ≥ n and several devices.

    In every stack of rows the zeros that stand for no rows are at the bottom, below n rows of a matrix. There they have
    no part in any reflector, and the rows of Q that belong to them are exactly zero; elsewhere those rows would be lost
    to Q, and with them its orthogonality.
    """
    m, n = a.shape[-2:]
    size, rank = lax.axis_size(axis_name), lax.axis_index(axis_name)
    levels = size.bit_length() - 1
    power, extra = 2**levels, size - 2**levels
    # Places in the tree run against the ranks: so the rows of rank 0, which are fewest, are always the lower ones.
    place = size - 1 - rank

    def send(x: jax.Array, routes: dict[int, int]) -> jax.Array:
        """x, from place to place; zeros where nothing arrives."""
        return lax.ppermute(x, axis_name, [(size - 1 - source, size - 1 - to) for source, to in routes.items()])

    first_rows = a[..., :n, :]
    rest = jnp.concatenate([a[..., n:, :], jnp.where(rank == 0, 0, first_rows)], axis=-2)
    q, r = factor(rest)
    if extra:
        received = send(r, {power + i: i for i in range(extra)})
        q_extra, r = factor(jnp.concatenate([r, received], axis=-2))
    halves = []
    for level in range(levels):
        received = send(r, {i: i ^ (1 << level) for i in range(power)})
        upper = place & (1 << level) == 0
        pair = jnp.where(upper, r, received), jnp.where(upper, received, r)
        q_pair, r = factor(jnp.concatenate(pair, axis=-2))
        halves.append(jnp.where(upper, q_pair[..., :n, :], q_pair[..., n:, :]))

    root = jnp.concatenate([jnp.where(rank == 0, first_rows, 0), jnp.where(place == 0, r, 0)], axis=-2)
    q_root, r = factor(lax.psum(root, axis_name))

    below = q_root[..., n:, :]
    for half in reversed(halves):
        below = product(half, below)
    if extra:
        sent = send(product(q_extra[..., n:, :], below), {i: power + i for i in range(extra)})
        below = jnp.where(place < power, product(q_extra[..., :n, :], below), sent)
    q = product(q, below)
    first_rows_of_q = jnp.where(rank == 0, q_root[..., :n, :], q[..., m - n :, :])
    return jnp.concatenate([first_rows_of_q, q[..., : m - n, :]], axis=-2), r


@_tall.defjvp
def _tall_jvp(axis_name: AxisName, factor: Factor, primals: Any, tangents: Any) -> tuple[Factors, Factors]:
    """The derivative of `jaxqr._qr`, whose only sum over rows is ``B = QᴴdA``."""
    (a,), (da,) = primals, tangents
    q, r = _tall(a, axis_name, factor)
    b = lax.psum(product(q.conj().mT, da), axis_name)
    return (q, r), _qr.tangents(q, r, da, b, lax.axis_size(axis_name) * a.shape[-2])
