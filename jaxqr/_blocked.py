"""The blocked Householder driver: walks a schedule, panel by panel, and updates what is right of each panel.

The first step reads A and writes H, every later one works in place on H, so that XLA copies nothing; with
``overwrite_a`` the first step is in place too.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from jaxqr import _targets, wy
from jaxqr._geqr2 import geqr2
from jaxqr._kernels import tall_update_parts
from jaxqr.precision import Products
from jaxqr.schedule import Schedule, Step

Blocks = Sequence[tuple[int, _targets.Reflectors]]
"""Blocks of reflectors with their first columns, in order."""


def factor(a: jax.Array, schedule: Schedule, *, precision: Products, overwrite_a: bool) -> tuple[jax.Array, jax.Array]:
    """``h`` and ``tau`` of `factor_and_blocks`."""
    h, tau, _ = factor_and_blocks(a, schedule, precision=precision, overwrite_a=overwrite_a, keep_blocks=False)
    return h, tau


def factor_and_blocks(
    a: jax.Array, schedule: Schedule, *, precision: Products, overwrite_a: bool, keep_blocks: bool = True
) -> tuple[jax.Array, jax.Array, Blocks]:
    """LAPACK's compact QR form of ``a [batch, m, n]``, float32, step by step as ``schedule`` says.

    Args:
      a: the matrices.
      schedule: made for this m, n and batch.
      precision: of the products of ``"matmul"`` updates.
      overwrite_a: let the first step take the buffer of ``a``.
      keep_blocks: whether the blocks are wanted; otherwise there may be none.

    Returns:
      ``h [batch, m, n]``, ``tau [batch, min(m, n)]``, and the blocks of reflectors that updates were made with: panels
      without an update, tall ones and those of ``"matmul"`` updates have none.
    """
    if schedule.in_one_call:
        return _factor_in_one_call(a, schedule, overwrite_a, keep_blocks)
    h, taus, scales = a, [], None
    blocks: list[tuple[int, _targets.Reflectors]] = []
    reflectors: _targets.Reflectors | None = None
    ahead: tuple[jax.Array, _targets.Reflectors] | None = None
    for step, next_step in zip(schedule.steps, (*schedule.steps[1:], None), strict=True):
        in_place = overwrite_a or step.offset > 0
        before = h
        if ahead is not None:
            tau, reflectors = ahead
            ahead = None
        elif step.regime == "loops":
            (h, tau), reflectors = geqr2(before), None
        elif step.regime == "jax":
            # Without an update to follow, JAX factors all that is left, also the columns beyond the last pivot.
            last = step.offset + step.width if step.update else h.shape[-1]
            (h, tau), reflectors = _jax_columns(before, step.offset, last), None
        else:
            h, tau, reflectors = _panel(before, step, in_place)
        # Out of place, the panel call leaves the trailing columns of h unwritten: they are still in A.
        source = None if in_place else before
        if step.update == "fused" and step.regime != "tall":
            assert reflectors is not None
            blocks.append((step.offset, reflectors))
        if step.look_ahead:
            assert reflectors is not None
            assert next_step is not None
            assert next_step.variant is not None
            h, scales, next_tau, next_reflectors = _targets.look_ahead(
                h,
                reflectors,
                scales,
                source,
                offset=step.offset,
                width=next_step.width,
                early=step.early,
                regime=next_step.regime,
                variant=next_step.variant,
                with_reflectors=next_step.update == "fused",
            )
            ahead = next_tau, next_reflectors
        elif step.update == "fused" and step.regime == "tall":
            h = _targets.tall_update(h, tau, source, offset=step.offset)
        elif step.update == "fused":
            assert reflectors is not None
            h, scales = _targets.block_reflector(
                h, reflectors, scales, source, offset=step.offset, first=step.offset + step.width, transpose=True
            )
        elif step.update == "matmul":
            h = _matmul_update(h, tau, h if source is None else source, step, precision)
        taus.append(tau)
    return h, jnp.concatenate(taus, axis=-1), blocks


def _factor_in_one_call(
    a: jax.Array, schedule: Schedule, overwrite_a: bool, keep_blocks: bool
) -> tuple[jax.Array, jax.Array, Blocks]:
    steps, kernels = schedule.steps, []
    for step in steps:
        assert step.variant is not None
        kernels.append((step.regime, step.variant))
    h, taus, blocks = _targets.steps(
        a,
        [step.width for step in steps],
        kernels,
        pairs=[step.pairs for step in steps],
        look_ahead=[step.look_ahead for step in steps],
        early=[step.early for step in steps],
        in_halves=schedule.in_halves,
        in_place=overwrite_a,
        keep_reflectors=keep_blocks,
    )
    # Steps with an update come first.
    of_blocks = [(step.offset, block) for step, block in zip(steps, blocks, strict=False)]
    return h, jnp.concatenate(taus, axis=-1), of_blocks


def _panel(a: jax.Array, step: Step, in_place: bool) -> tuple[jax.Array, jax.Array, _targets.Reflectors | None]:
    """The panel of a step by this package's kernels, and its reflectors for a fused update, which after a tall panel
    needs none."""
    assert step.variant is not None
    if step.root is None:
        return _targets.panel(
            a,
            offset=step.offset,
            width=step.width,
            regime=step.regime,
            variant=step.variant,
            with_reflectors=step.update == "fused",
            in_place=in_place and step.regime != "wide",  # those read again what others have written
        )
    h, tau_of_leaves, stack = _targets.leaves(
        a, offset=step.offset, width=step.width, count=step.leaves, variant=step.variant, in_place=in_place
    )
    stack, tau, _ = _panel(stack, step.root, in_place=True)
    return _targets.lift(h, tau_of_leaves, stack, offset=step.offset), tau, None


def jax_geqrf(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """JAX's own geqrf of ``a [..., m, n]``, any inexact dtype that JAX factors, on any platform."""
    h_transposed, tau = jnp.linalg.qr(a, mode="raw")
    return h_transposed.mT, tau


def as_operand(h: jax.Array) -> jax.Array:
    """``h`` as an FFI call takes it without a copy: XLA's CPU backend copies an operand that comes out of a fusion."""
    return lax.optimization_barrier(h)


def _jax_columns(h: jax.Array, offset: int, last: int) -> tuple[jax.Array, jax.Array]:
    if offset == 0 and last == h.shape[-1]:
        return jax_geqrf(h)
    columns, tau = jax_geqrf(h[:, offset:, offset:last])
    return as_operand(lax.dynamic_update_slice(h, columns, (0, offset, offset))), tau


def _matmul_update(h: jax.Array, tau: jax.Array, source: jax.Array, step: Step, products: Products) -> jax.Array:
    offset, first = step.offset, step.offset + step.width
    v, c = wy.unit_lower(h[:, offset:, offset:first]), source[:, offset:, first:]
    if step.regime == "tall":
        parts = tall_update_parts(step.rows)
        updated = wy.apply_transpose(v, wy.t_factor(v, tau, parts), c, products, parts)
    else:
        updated = wy.apply_transpose(v, wy.t_factor(v, tau), c, products)
    return as_operand(lax.dynamic_update_slice(h, updated, (0, offset, first)))
