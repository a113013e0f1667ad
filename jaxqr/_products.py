"""Products with Q in its compact form: ``householder_product`` forms Q, ``ormqr`` multiplies by it.

On this package's path the reflectors are applied a block at a time in compact WY form, by the kernels that make block
reflectors and apply them; in factorizations of other than the default precision by matrix products (``jaxqr.wy``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxqr import _blocked, _targets, wy
from jaxqr._kernels import MAX_FUSED_WIDTH
from jaxqr._operation import check_dtype, check_implementation, operation
from jaxqr._triangular import unit_upper_inverse

Rule = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[jax.Array, jax.Array]]


def householder_product(h: Any, tau: Any, *, implementation: str | None = None) -> jax.Array:
    """The first n columns of ``Q = H_0 H_1 … H_{k-1}``, ``H_i = I − tau_i v_i v_iᴴ`` (LAPACK's ``?orgqr``, ``?ungqr``).

    It takes the place of ``jax.lax.linalg.householder_product``, and also has derivatives. float32 on a CUDA device is
    batched at any size and as precise as float32 allows, whatever ``jax_default_matmul_precision`` says; other dtypes
    and platforms run on JAX's function. Under ``jax.vmap`` mapped axes join the batch; batch axes that are sharded over
    devices stay so.

    Args:
      h: ``[..., m, n]`` with m ≥ n; float32, float64, complex64 or complex128. Below its diagonal it holds the vectors
        v_i, whose unit diagonal is implied, as ``jaxqr.geqrf`` gives them; the rest is not read.
      tau: ``[..., k]`` with k ≤ n, of the dtype of ``h``.
      implementation: as for ``jaxqr.geqrf``; ``"blocked"`` runs on any platform.

    Returns:
      ``[..., m, n]``, of the dtype of ``h``.

    Raises:
      TypeError: if an argument is no array, or has too few dimensions, another dtype, or not the batch of the other.
      ValueError: if m < n or k > n, or ``implementation`` is unknown.

    >>> a = jnp.array([[1.0, 3.0], [2.0, 3.0], [2.0, 0.0]])
    >>> q = jaxqr.householder_product(*jaxqr.geqrf(a))
    >>> print(jnp.round(abs(q.T @ a)))
    [[3. 3.]
     [0. 3.]]
    """
    check_implementation(implementation)
    h, tau = _arrays("jaxqr.householder_product", {"h": (h, 2), "tau": (tau, 1)}, implementation)
    (m, n), k = h.shape[-2:], tau.shape[-1]
    if m < n or k > n:
        raise ValueError(
            f"jaxqr.householder_product takes h [..., m, n] and tau [..., k] with m ≥ n ≥ k, got h {list(h.shape)} and "
            f"tau {list(tau.shape)}"
        )
    return _householder_product(implementation)(h, tau)


def ormqr(
    h: Any, tau: Any, c: Any, *, left: bool = True, transpose: bool = False, implementation: str | None = None
) -> jax.Array:
    """``Q C``, ``Qᴴ C``, ``C Q`` or ``C Qᴴ`` with ``Q = H_0 H_1 … H_{k-1}``, m×m, which is not formed (``?ormqr``).

    It takes the place of ``jax.lax.linalg.ormqr``, and also has derivatives. What ``householder_product`` says of
    platforms, precision, ``jax.vmap`` and sharding holds here too.

    Args:
      h: ``[..., m, n]``; float32, float64, complex64 or complex128; and
      tau: ``[..., k]`` with k ≤ min(m, n): Q's compact form, as ``jaxqr.geqrf`` gives it.
      c: ``[..., m, p]``, or ``[..., p, m]`` with ``left=False``; of the dtype of ``h``.
      left: whether Q is the left factor.
      transpose: whether to multiply by Qᴴ instead of Q.
      implementation: as for ``jaxqr.geqrf``; ``"blocked"`` runs on any platform.

    Returns:
      An array like ``c``.

    Raises:
      TypeError: if an argument is no array, or has too few dimensions, another dtype, or not the batch of the others.
      ValueError: if sizes do not belong together, or ``implementation`` is unknown.

    >>> a = jnp.array([[1.0, 3.0], [2.0, 3.0], [2.0, 0.0]])
    >>> r = jaxqr.ormqr(*jaxqr.geqrf(a), a, transpose=True)
    >>> print(jnp.round(abs(r)))
    [[3. 3.]
     [0. 3.]
     [0. 0.]]
    """
    check_implementation(implementation)
    h, tau, c = _arrays("jaxqr.ormqr", {"h": (h, 2), "tau": (tau, 1), "c": (c, 2)}, implementation)
    m, k = h.shape[-2], tau.shape[-1]
    if k > min(h.shape[-2:]) or c.shape[-2 if left else -1] != m:
        raise ValueError(
            f"jaxqr.ormqr takes h [..., m, n], tau [..., k] with k ≤ min(m, n), and c "
            f"{'[..., m, p]' if left else '[..., p, m]'}, got h {list(h.shape)}, tau {list(tau.shape)} and c "
            f"{list(c.shape)} with left={left}"
        )
    return _ormqr(bool(left), bool(transpose), implementation)(h, tau, c)


def _arrays(name: str, arguments: dict[str, tuple[Any, int]], implementation: str | None) -> list[jax.Array]:
    """The arguments, given with their least ranks, as arrays of one dtype and one batch."""
    arrays = []
    for label, (x, rank) in arguments.items():
        if not (isinstance(x, jax.Array | np.ndarray) or hasattr(x, "__jax_array__")):
            raise TypeError(f"{name} takes an array {label}, got {type(x).__name__}")
        array = jnp.asarray(x)
        if array.ndim < rank:
            raise TypeError(f"{name} takes {label} of at least {rank} dimensions, got shape {list(array.shape)}")
        check_dtype(array, name, implementation)
        arrays.append(lax.convert_element_type(array, array.dtype))  # makes a weakly typed array a strongly typed one
    batches = [array.shape[: array.ndim - rank] for array, (_, rank) in zip(arrays, arguments.values(), strict=True)]
    if len(set(batches)) > 1 or len({array.dtype for array in arrays}) > 1:
        shown = ", ".join(
            f"{label} {array.dtype.name}{list(array.shape)}" for label, array in zip(arguments, arrays, strict=True)
        )
        raise TypeError(f"{name} takes arrays of one dtype and one batch shape, got {shown}")
    return arrays


@functools.cache
def _householder_product(implementation: str | None) -> Callable[[jax.Array, jax.Array], jax.Array]:
    in_jax = lax.linalg.householder_product

    def local(h: jax.Array, tau: jax.Array) -> tuple[jax.Array]:
        if tau.size == 0:
            m, n = h.shape[-2:]
            identity = jnp.eye(m, n, dtype=h.dtype)
            return (jnp.where(False, h, identity),)  # made from h it varies over the same mesh axes
        flat = h.reshape(-1, *h.shape[-2:]), tau.reshape(-1, tau.shape[-1])
        return (_on_platform(implementation, _fused_product, matmul_product, in_jax, *flat).reshape(h.shape),)

    batched = operation(local, "jaxqr.householder_product", ("m n", "k"), ("m n",))

    @jax.custom_jvp
    def householder_product(h: jax.Array, tau: jax.Array) -> jax.Array:
        (q,) = batched(h, tau)
        return q

    householder_product.defjvp(_through_compact_wy(householder_product, _product_by_wy), symbolic_zeros=True)
    return jax.jit(householder_product)


@functools.cache
def _ormqr(
    left: bool, transpose: bool, implementation: str | None, fused: bool = True
) -> Callable[[jax.Array, jax.Array, jax.Array], jax.Array]:
    in_jax = functools.partial(lax.linalg.ormqr, left=left, transpose=transpose)
    by_kernels = functools.partial(_fused_multiply, left=left, transpose=transpose)
    by_matmul = functools.partial(_matmul_multiply, left=left, transpose=transpose)
    own = by_kernels if fused else by_matmul

    def local(h: jax.Array, tau: jax.Array, c: jax.Array) -> tuple[jax.Array]:
        if tau.size == 0 or c.size == 0:
            return (c,)
        flat = h.reshape(-1, *h.shape[-2:]), tau.reshape(-1, tau.shape[-1]), c.reshape(-1, *c.shape[-2:])
        return (_on_platform(implementation, own, by_matmul, in_jax, *flat).reshape(c.shape),)

    of_c = "m p" if left else "p m"
    batched = operation(local, "jaxqr.ormqr", ("m n", "k", of_c), (of_c,))

    @jax.custom_jvp
    def ormqr(h: jax.Array, tau: jax.Array, c: jax.Array) -> jax.Array:
        (product,) = batched(h, tau, c)
        return product

    by_wy = functools.partial(_multiply_by_wy, left=left, transpose=transpose)
    ormqr.defjvp(_through_compact_wy(ormqr, by_wy), symbolic_zeros=True)
    return jax.jit(ormqr)


def _on_platform(
    implementation: str | None,
    own: Callable[..., jax.Array],
    elsewhere: Callable[..., jax.Array],
    in_jax: Callable[..., jax.Array],
    h: jax.Array,
    *others: jax.Array,
) -> jax.Array:
    """What the implementation chooses: ``own`` where this package has kernels, ``elsewhere`` if asked for on others."""
    if implementation == "blocked":
        return lax.platform_dependent(h, *others, cpu=own, cuda=own, default=elsewhere)
    if implementation is None and h.dtype == jnp.float32 and _targets.HAS_CUDA:
        return lax.platform_dependent(h, *others, cuda=own, default=in_jax)
    return in_jax(h, *others)


def _width(reflectors: int) -> int:
    """Reflectors of a block: wide blocks make large products, but their triangles cost more, in time and in accuracy.

    With 64, Q of min(i, j) at 100 × 70 has six times LAPACK's error; with 32 less than twice.
    """
    if reflectors <= 128:
        return 32
    return 64 if reflectors <= 512 else 128


# By this package's kernels, for float32 arrays with one batch dimension.


# Blocks that one launch makes: enough to fill a device. More would take more memory at a time.
_BLOCKS = 256


def _fused_blocks(
    h: jax.Array, tau: jax.Array, columns: range, *, backward: bool
) -> Iterator[tuple[int, _targets.Reflectors]]:
    """``(offset, reflectors)`` of every block of these columns, from the first or from the last to the other end."""
    batch, width = h.shape[0], min(_width(tau.shape[-1]), MAX_FUSED_WIDTH)
    offsets = columns[::width]
    at_once = -(-_BLOCKS // batch) if isinstance(batch, int) else 1
    groups = [offsets[i : i + at_once] for i in range(0, len(offsets), at_once)]
    h, step = _blocked.as_operand(h), -1 if backward else 1
    for group in groups[::step]:
        widths = [min(width, columns.stop - offset) for offset in group]
        made = _targets.reflectors(h, tau, offset=group[0], widths=widths)
        yield from zip(group[::step], made[::step], strict=True)


# Q is made from its last columns: a block changes only what is right of and below its corner, and takes what the one
# before has not changed for the identity. Columns begin with the scale of unit columns, which they are.


def _unit_scales(h: jax.Array, columns: int) -> jax.Array:
    scales = jnp.full(columns, _targets.scale_of_unit_columns(h.shape[1]), h.dtype)
    return _blocked.as_operand(jnp.where(False, h[:, :1, 0], scales))


def _fused_product(h: jax.Array, tau: jax.Array) -> jax.Array:
    """Q ``[batch, m, n]``.

    Columns right of a block are zero above the block before, which made their scales; the block's own are unit columns.
    """
    return _product_of_blocks(_fused_blocks(h, tau, range(tau.shape[-1]), backward=True), h, h.shape[-1], True)


def product_of_factorization(h: jax.Array, tau: jax.Array, blocks: _blocked.Blocks, columns: int) -> jax.Array:
    """Q ``[batch, m, columns]`` of a factorization, from the blocks that it made and new ones of the other columns.

    As all reflectors are orthogonal, columns keep their norm 1, and one scale does for all of them.
    """
    return _product_of_blocks(_all_blocks(h, tau, blocks), h, columns, False)


def _product_of_blocks(
    blocks: Iterator[tuple[int, _targets.Reflectors]], h: jax.Array, columns: int, remake_scales: bool
) -> jax.Array:
    q, scales, identity = None, _unit_scales(h, columns), columns
    for offset, reflectors in blocks:
        q, scales = _targets.block_reflector(
            q,
            reflectors,
            scales,
            offset=offset,
            first=offset,
            transpose=False,
            remake_scales=remake_scales,
            known=identity - offset,
        )
        identity = offset
    assert q is not None
    return q


def _all_blocks(h: jax.Array, tau: jax.Array, blocks: _blocked.Blocks) -> Iterator[tuple[int, _targets.Reflectors]]:
    """``(offset, reflectors)`` from the last block to the first: those that there are, and new ones in between."""
    stop = tau.shape[-1]
    for offset, reflectors in reversed(blocks):
        yield from _fused_blocks(h, tau, range(offset + reflectors.t.shape[-1], stop), backward=True)
        yield offset, reflectors
        stop = offset
    yield from _fused_blocks(h, tau, range(stop), backward=True)


def _fused_multiply(h: jax.Array, tau: jax.Array, c: jax.Array, *, left: bool, transpose: bool) -> jax.Array:
    if not left:
        return _fused_multiply(h, tau, c.mT, left=True, transpose=not transpose).mT
    c = _blocked.as_operand(c)
    scales = None
    for offset, reflectors in _fused_blocks(h, tau, range(tau.shape[-1]), backward=not transpose):
        c, made = _targets.block_reflector(
            c, reflectors, scales, offset=offset, first=0, transpose=transpose, remake_scales=transpose
        )
        # From the first block on, a block takes only rows that the one before has written.
        scales = made if transpose else None
    return c


# The same by matrix products, all factors T at once.


def _matmul_blocks(h: jax.Array, tau: jax.Array) -> list[tuple[int, jax.Array, jax.Array]]:
    """``(offset, V, T)`` of every block: its first reflector, V ``[batch, m − offset, w]``, T ``[batch, w, w]``."""
    (batch, m), k = h.shape[:2], tau.shape[-1]
    h, width = h[:, :, :k], _width(k)
    count = -(-k // width)
    pad = count * width - k
    # The last block is made as wide as the others by reflectors with tau = 0, and those below the first as high.
    v = jnp.pad(wy.unit_lower(h), ((0, 0), (0, 0), (0, pad))).reshape(batch, m, count, width)
    v = v.swapaxes(1, 2).reshape(batch * count, m, width)
    t = wy.t_factor(v, jnp.pad(tau, ((0, 0), (0, pad))).reshape(batch * count, width))
    t = t.reshape(batch, count, width, width)
    blocks = []
    for i, offset in enumerate(range(0, k, width)):
        last = min(offset + width, k)
        blocks.append((offset, wy.unit_lower(h[:, offset:, offset:last]), t[:, i, : last - offset, : last - offset]))
    return blocks


def matmul_product(h: jax.Array, tau: jax.Array) -> jax.Array:
    """Q ``[batch, m, n]``, made from its last columns: a block changes only what is right of and below its corner."""
    (batch, m, n), k = h.shape, tau.shape[-1]
    q = jnp.broadcast_to(jnp.eye(m - k, n - k, dtype=h.dtype), (batch, m - k, n - k))
    for _, v, t in reversed(_matmul_blocks(h, tau)):
        # Before this block, Q is [[I, 0], [0, q]] here, with w rows and columns in I.
        w, (below, right) = v.shape[-1], q.shape[1:]
        before = jnp.pad(q, ((0, 0), (w, 0), (w, 0))) + jnp.pad(jnp.eye(w, dtype=h.dtype), ((0, below), (0, right)))
        projection = jnp.concatenate([v[:, :w].mT, wy.tall_product(v[:, w:], q)], axis=2)
        q = before + wy.product(v, -wy.product(t, projection))
    return q


def _matmul_multiply(h: jax.Array, tau: jax.Array, c: jax.Array, *, left: bool, transpose: bool) -> jax.Array:
    if not left:
        return _matmul_multiply(h, tau, c.mT, left=True, transpose=not transpose).mT
    scale, unscale = wy.column_scales(c)  # no product over- or underflows where the result does not
    c = c * scale
    blocks = _matmul_blocks(h, tau)
    for offset, v, t in blocks if transpose else reversed(blocks):
        rows = c[:, offset:]
        projection = wy.product(t.mT if transpose else t, wy.tall_product(v, rows))
        c = jnp.concatenate([c[:, :offset], rows + wy.product(v, -projection)], axis=1)
    return c * unscale


# Derivatives: of Q = I − V T Vᴴ as a function of V and tau, all reflectors in one block, any dtype and batch.


def _through_compact_wy(function: Callable[..., jax.Array], by_wy: Callable[..., jax.Array]) -> Rule:
    """The rule of ``function``, whose tangents are those of ``by_wy``; arguments without tangents cost nothing."""

    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
        active = [i for i, dx in enumerate(tangents) if not isinstance(dx, jax.custom_derivatives.SymbolicZero)]

        def of_active(*values: jax.Array) -> jax.Array:
            replaced = dict(zip(active, values, strict=True))
            return by_wy(*(replaced.get(i, x) for i, x in enumerate(primals)))

        out = function(*primals)
        if not active:
            return out, jnp.zeros_like(out)
        _, tangent = jax.jvp(of_active, tuple(primals[i] for i in active), tuple(tangents[i] for i in active))
        return out, tangent

    return rule


def _compact_wy(h: jax.Array, tau: jax.Array) -> tuple[jax.Array, jax.Array]:
    m, k = h.shape[-2], tau.shape[-1]
    v = jnp.tril(h[..., :k], -1) + jnp.eye(m, k, dtype=h.dtype)
    unit = tau[..., :, None] * jnp.triu(wy.product(v.conj().mT, v), 1)
    return v, unit_upper_inverse(unit) * tau[..., None, :]


def _product_by_wy(h: jax.Array, tau: jax.Array) -> jax.Array:
    v, t = _compact_wy(h, tau)
    m, n = h.shape[-2:]
    return jnp.eye(m, n, dtype=h.dtype) - wy.product(v, wy.product(t, v[..., :n, :].conj().mT))


def _multiply_by_wy(h: jax.Array, tau: jax.Array, c: jax.Array, *, left: bool, transpose: bool) -> jax.Array:
    v, t = _compact_wy(h, tau)
    if transpose:
        t = t.conj().mT
    if left:
        return c - wy.product(v, wy.product(t, wy.product(v.conj().mT, c)))
    return c - wy.product(wy.product(wy.product(c, v), t), v.conj().mT)
