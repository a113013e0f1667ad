"""Compact WY form of a panel's reflectors: ``H_0 H_1 … H_{w-1} = I − V T Vᵀ``.

V is unit lower trapezoidal and T upper triangular with ``T⁻¹ = diag(1/tau) + striu(VᵀV)`` (Schreiber and Van Loan, "A
storage-efficient WY representation for products of Householder transformations", 1989). All arrays are float32 with one
leading batch dimension, whatever precision an update's own products have: an error in T would cost Q its orthogonality.
(``unit_upper_inverse`` takes any dtype.)
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxqr.precision import Products

# The widest triangle that is inverted by substitution. Wider ones lose digits on smooth matrices, whose VᵀV is large.
_BASE = 8

# Triangles of this side are inverted whole, for few and large products.
_LEAF = 64

# Sums over rows are made in this many parts, or in more if there are very many rows: smooth matrices have terms of one
# sign, and one long float32 sum of them is rounded the same way again and again.
_PARTS = 8


def unit_lower(panel: jax.Array) -> jax.Array:
    """V ``[batch, rows, w]`` of a factored panel ``[batch, rows, w]``: its part below the diagonal, with ones on it."""
    rows, width = panel.shape[1:]
    return jnp.tril(panel, -1) + jnp.eye(rows, width, dtype=panel.dtype)


def t_factor(v: jax.Array, tau: jax.Array, parts: int = 1) -> jax.Array:
    """T ``[batch, w, w]`` of ``v [batch, rows, w]`` and ``tau [batch, w]``, zero below the diagonal.

    Sums over rows are made in ``parts`` parts.

    ``T = M⁻¹·diag(tau)`` with the unit upper triangular ``M = I + diag(tau)·striu(VᵀV)``, so nothing is divided by tau
    and ``tau = 0`` needs no care.
    """
    width = v.shape[-1]
    strict = tau[:, :, None] * jnp.triu(_gram(v, parts), 1)
    side = _doubled_base(width)  # padded with the identity
    strict = jnp.pad(strict, ((0, 0), (0, side - width), (0, side - width)))
    inverse = _unit_upper_inverse(strict)[:, :width, :width]
    return inverse * tau[:, None, :]


def apply_transpose(v: jax.Array, t: jax.Array, c: jax.Array, products: Products, parts: int = _PARTS) -> jax.Array:
    """``(I − V T Vᵀ)ᵀ C`` for ``c [batch, rows, columns]``, with products of the precision ``products``.

    Sums over rows are made in ``parts`` parts.

    The columns of C are scaled by exact powers of two on the way in and back on the way out, so that no product
    over- or underflows where the result does not (but XLA's CPU backend takes denormals for zeros). NaN and Inf of a
    column of C stay in it.
    """
    scale, unscale = column_scales(c)
    # The barrier keeps XLA from reading C again where it writes the result: there C may be a slice of the buffer
    # written to, and XLA would copy all of that buffer first.
    c, unscale = lax.optimization_barrier((c * scale, unscale))
    projection = product(t.mT, tall_product(v, c, products, parts), products)
    return (c - product(v, projection, products)) * unscale


def column_scales(c: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Exact powers of two s and 1/s ``[batch, 1, columns]`` for ``c [batch, rows, columns]``: columns of C·s have a
    largest entry in [1, 2)."""
    return power_of_two_scales(jnp.max(jnp.abs(c), axis=1, keepdims=True))


def product(x: jax.Array, y: jax.Array, precision: Products = lax.Precision.HIGHEST) -> jax.Array:
    """``x y``, by default as precise as the dtype, whatever ``jax_default_matmul_precision`` says."""
    return jnp.matmul(x, y, precision=precision, preferred_element_type=x.dtype)


def unit_upper_inverse(u: jax.Array) -> jax.Array:
    """The inverse of unit upper triangular ``u [batch, n, n]``, whose other entries are not read, any inexact dtype.

    Diagonal blocks of at most ``_LEAF`` are inverted all at once; then neighbours are joined, ``[[A, B], [0, D]]⁻¹ =
    [[A⁻¹, −A⁻¹ B D⁻¹], [0, D⁻¹]]``, all pairs of a size at once: n³/3 multiplications, in few products.
    """
    batch, n = u.shape[:2]
    side = _doubled_base(min(n, _LEAF))
    count = -(-n // side)
    pad = count * side - n
    strict = jnp.pad(jnp.triu(u, 1), ((0, 0), (0, pad), (0, pad)))

    def corners(size: int, places: range) -> jax.Array:
        """The blocks right of those on the diagonal that begin at ``places``."""
        return jnp.stack([strict[:, i : i + size, i + size : i + 2 * size] for i in places], axis=1)

    def join(a: jax.Array, b: jax.Array, d: jax.Array) -> jax.Array:
        """From A⁻¹, B and D⁻¹."""
        upper = jnp.concatenate([a, -product(product(a, b), d)], axis=-1)
        return jnp.concatenate([upper, jnp.concatenate([jnp.zeros_like(b.mT), d], axis=-1)], axis=-2)

    leaves = jnp.stack([strict[:, i : i + side, i : i + side] for i in range(0, count * side, side)], axis=1)
    blocks = _unit_upper_inverse(leaves.reshape(-1, side, side)).reshape(batch, count, side, side)
    rest = None  # the inverse of what is right of and below the blocks, if there is something
    while True:
        count, size = blocks.shape[1:3]
        if count % 2:
            last, end = blocks[:, -1], count * size
            rest = last if rest is None else join(last, strict[:, end - size : end, end : end + rest.shape[1]], rest)
            blocks = blocks[:, :-1]
        if count < 2:
            assert rest is not None
            return rest[:, :n, :n]
        blocks = join(blocks[:, ::2], corners(size, range(0, (count - 1) * size, 2 * size)), blocks[:, 1::2])


def tall_product(
    x: jax.Array, y: jax.Array, precision: Products = lax.Precision.HIGHEST, parts: int = _PARTS
) -> jax.Array:
    """``xᵀ y`` for ``x [batch, rows, w]`` and ``y [batch, rows, columns]``, as the sum of ``parts`` products."""
    batch, rows = x.shape[:2]
    pad = -rows % parts
    part = (rows + pad) // parts
    x, y = (jnp.pad(z, ((0, 0), (0, pad), (0, 0))).reshape(batch, parts, part, z.shape[-1]) for z in (x, y))
    return jnp.sum(product(x.mT, y, precision), axis=1)


def _gram(v: jax.Array, parts: int) -> jax.Array:
    """VᵀV to about the last bit. A plain product, whose terms have one sign on smooth matrices, loses hundreds of eps.

    V = H + L with H in multiples of 2⁻¹¹ and ``|L| ≤ 2⁻¹²``. HᵀH is exact, in any order of summation: its terms are
    multiples of 2⁻²² and, as ``‖v‖² = 2/tau ≤ 2``, its partial sums stay below 4. The rest, ``HᵀL + LᵀH + LᵀL``, is the
    symmetric part of ``Lᵀ(V + H)``; it is small, and so is its error.
    """
    high = jnp.round(v * 2048) / 2048
    low = v - high
    rest = tall_product(low, v + high, parts=parts)
    return tall_product(high, high, parts=parts) + (rest + rest.mT) / 2


def _doubled_base(width: int) -> int:
    """``_BASE``, doubled until it covers ``width``."""
    side = _BASE
    while side < width:
        side *= 2
    return side


def _unit_upper_inverse(strict: jax.Array) -> jax.Array:
    """``(I + N)⁻¹`` for strictly upper triangular N ``[batch, s, s]``, s = 8, 16, 32, …

    Diagonal blocks of 8 by substitution, all at once; then neighbours A and D are joined, pair by pair at all places at
    once: ``[[A, B], [0, D]]⁻¹ = [[A⁻¹, −A⁻¹ B D⁻¹], [0, D⁻¹]]``. Products of whole matrices, mostly zero, do it in far
    fewer and larger operations than products of blocks would, and with the same bits.
    """
    batch, side = strict.shape[:2]
    count = side // _BASE
    blocks = jnp.stack([strict[:, i : i + _BASE, i : i + _BASE] for i in range(0, side, _BASE)], axis=1)
    on_diagonal = jnp.eye(count, dtype=strict.dtype)[:, None, :, None]
    inverse = (on_diagonal * _substitute(blocks)[:, :, :, None, :]).reshape(batch, side, side)
    block = _BASE
    while block < side:
        row, column = (index // block for index in jnp.indices((side, side), sparse=True))
        corners = jnp.where((row % 2 == 0) & (column == row + 1), strict, 0)
        inverse = inverse - product(product(inverse, corners), inverse)
        block *= 2
    return inverse


def _substitute(strict: jax.Array) -> jax.Array:
    """``(I + N)⁻¹`` for strictly upper triangular N ``[…, s, s]``: each row, once known, leaves those above it."""
    side = strict.shape[-1]
    inverse = jnp.broadcast_to(jnp.eye(side, dtype=strict.dtype), strict.shape)
    for i in reversed(range(1, side)):
        inverse = inverse - strict[..., :, i : i + 1] * inverse[..., i : i + 1, :]
    return inverse


def power_of_two_scales(magnitude: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Powers of two s and 1/s with s·magnitude in [1, 2) as far as both are normal; 1 and 1 for 0, Inf and NaN."""
    exponent = (lax.bitcast_convert_type(magnitude, jnp.int32) >> 23) & 0xFF
    exponent = jnp.where((magnitude == 0) | (exponent == 0xFF), 127, exponent)
    inverted = jnp.clip(254 - exponent, 1, 253)
    scale, unscale = (lax.bitcast_convert_type(bits << 23, jnp.float32) for bits in (inverted, 254 - inverted))
    return scale, unscale
