"""Tall panels on the GPU: what the leaves' and the lift's kernels do beyond results of FP32 grade (`test_regimes`)."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from jaxqr import Schedule, Step, _blocked, _targets, schedule_for
from jaxqr._kernels import MAX_TALL_WIDTH, CtaKernel, Leaves
from jaxqr.schedule import local_device
from tests import matrices
from tests.drivers import CTA_KERNELS, covering_variant
from tests.gpu.tools import assert_fp32_grade, launched_kernels, own_kernels, same_bits, scheduled_kernels
from tests.reference import apply_qt, assert_same_bits

pytestmark = pytest.mark.gpu
factor = jax.jit(jaxqr.geqrf)


def tall_step(m: int, width: int, variant: tuple[int, ...], leaves: int) -> Step:
    """All of a matrix, whose stack one thread block factors."""
    stacked = (1 + leaves) * width
    root = Step(0, width, stacked, "cta", covering_variant(stacked, width), None)
    return Step(0, width, m, "tall", variant, None, leaves, root)


@functools.partial(jax.jit, static_argnames=("step", "overwrite_a"))
def by_step(a: jax.Array, step: Step, overwrite_a: bool = False):
    schedule = Schedule(step.rows, step.width, len(a), "by hand", "float32", (step,))
    return _blocked.factor(a, schedule, precision=jax.lax.Precision.HIGHEST, overwrite_a=overwrite_a)


@pytest.mark.parametrize("kernel", CTA_KERNELS, ids=lambda kernel: "x".join(map(str, kernel.variant)))
@pytest.mark.parametrize("leaves", [1, 3])
def test_each_kernel_at_its_edges(kernel: CtaKernel, leaves: int):
    """The most rows and columns, uneven leaves, and rows that are not aligned."""
    most, widest = kernel.rows, min(kernel.columns, MAX_TALL_WIDTH)
    if not Leaves(widest + 2 * most, widest, kernel).fits(local_device()):  # as the lift takes no such blocks
        widest = 32
    for width in (widest, widest - 3, 10):
        most_below = leaves * (most // width * width)
        for m in (width + most_below, width + most_below - 1, width + leaves * width + 1):
            step = tall_step(m, width, kernel.variant, leaves)
            a = matrices.batch(m, width)
            h, tau = by_step(a, step)
            assert_fp32_grade(a, np.asarray(h), np.asarray(tau), matrices.CLASSES)
            assert same_bits(by_step(jnp.asarray(a), step, overwrite_a=True), (h, tau))


@pytest.mark.parametrize("shape", [(20_000, 32), (9000, 100), (300_000, 20)], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["NaN", "Inf"])
def test_bad_values_stay_in_their_matrix_and_column(shape, bad):
    m, n = shape
    a = matrices.normal(3, m, n)
    clean = [np.asarray(x) for x in factor(a)]
    for row, column in ((0, 0), (m - 1, 3), (m // 2, n - 1)):
        damaged = a.copy()
        damaged[1, row, column] = bad
        h, tau = (np.asarray(x) for x in factor(damaged))
        assert_same_bits([h[::2], tau[::2]], [x[::2] for x in clean])
        assert np.isnan(h[1, column:, column:]).all()
        assert np.isnan(tau[1, column:]).all()
        assert np.isfinite(h[1, :, : column // 32 * 32]).all()


@pytest.mark.parametrize("shape", [(20_000, 32), (300_000, 20)], ids=str)
def test_columns_at_any_scale(shape):
    """Powers of two of the columns are seen by R alone, and not by a bit of the reflectors."""
    m, n = shape
    a = matrices.normal(2, m, n)
    h, tau = (np.asarray(x) for x in factor(a))
    scale = np.exp2(np.linspace(-100, 100, n).round()).astype(np.float32)
    scaled_h, scaled_tau = (np.asarray(x) for x in factor(a * scale))
    assert_same_bits([np.triu(scaled_h), np.tril(scaled_h, -1), scaled_tau], [np.triu(h * scale), np.tril(h, -1), tau])


def test_what_is_zero_below_the_pivot_makes_no_reflector():
    a = np.triu(matrices.normal(2, 20_000, 32))
    h, tau = factor(a)
    assert_same_bits([np.asarray(h), np.asarray(tau)], [a, np.zeros((2, 32), np.float32)])


@pytest.mark.parametrize("shape", [(64, 20_000, 32), (1, 1_000_000, 32), (2, 65_536, 128)], ids=str)
def test_the_same_bits_on_every_run(shape):
    a = jnp.asarray(matrices.normal(*shape))
    first = factor(a)
    for _ in range(10):
        assert same_bits(factor(a), first)


def test_every_matrix_of_a_batch_is_factored_as_alone():
    """With more leaves than fit on the device at a time."""
    distinct = matrices.batch(9000, 32, ("dense", "exponential", "graded_columns", "lower_ones"))
    a = jnp.asarray(np.resize(distinct, (400, 9000, 32)))
    h, tau = factor(a)
    assert schedule_for(9000, 32, 400).steps[0].regime == "tall"
    repeated = jnp.arange(400) % 4
    assert same_bits((h, tau), (h[repeated], tau[repeated]))


@functools.partial(jax.jit, static_argnames="offset")
def update(h, tau, source=None, *, offset):
    return _targets.tall_update(h, tau, source, offset=offset)


def reflectors_and_columns(m: int, n: int, offset: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Reflections in the columns of two matrices, and NaN on and above the diagonal there."""
    h = matrices.normal(2, m, n)
    panel = h[:, offset:, offset : offset + width]
    panel /= np.sqrt(np.float32(m))
    panel[:, np.triu(np.ones(panel.shape[1:], bool))] = np.nan
    return h, (2 / (1 + np.nansum(panel.astype(np.float64) ** 2, axis=1))).astype(np.float32)


def updated(h: np.ndarray, tau: np.ndarray, c: np.ndarray, offset: int) -> np.ndarray:
    """Rows and columns that an update changes, in float64."""
    width = tau.shape[-1]
    return apply_qt(h[:, offset:, offset : offset + width], tau, c[:, offset:, offset + width :])


@pytest.mark.parametrize("rows", [64, 255, 256, 257, 511, 1025, 5000])
@pytest.mark.parametrize(("width", "columns"), [(32, 96), (32, 64), (20, 33), (1, 1), (33, 31), (64, 100), (64, 32)])
def test_updates_at_the_edges_of_chunks_and_strips(rows, width, columns):
    """In place and apart, aligned and not, every column with a scale of its own, and zeros in one's first chunk."""
    for offset, apart in ((0, True), (0, False), (3, False), (8, False)):
        m, n, first = rows + offset, width + columns + offset, width + offset
        h, tau = reflectors_and_columns(m, n, offset, width)
        c = matrices.normal(3, m, n)[:2] if apart else h
        c[:, :, first:] *= np.exp2(np.linspace(-100, 120, columns).round()).astype(np.float32)
        c[:, offset : offset + 256, first + columns // 2] = 0
        found = np.asarray(update(h, tau, c if apart else None, offset=offset))
        expected = updated(h, tau, c, offset)
        error = np.linalg.norm(found[:, offset:, first:] - expected, axis=1)
        assert (error <= 8 * 2.0**-23 * np.linalg.norm(expected, axis=1)).all()
        outside = np.ones((m, n), bool)
        outside[offset:, first:] = False
        assert_same_bits([found[:, outside]], [h[:, outside]])


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["NaN", "Inf"])
def test_an_update_keeps_bad_values_in_their_column(bad):
    h, tau = reflectors_and_columns(700, 130, 0, 32)
    clean = np.asarray(update(h, tau, offset=0))
    for row, column in ((0, 32), (300, 70), (699, 129)):
        damaged = h.copy()
        damaged[1, row, column] = bad
        found = np.asarray(update(damaged, tau, offset=0))
        others = np.arange(130) != column
        assert_same_bits([found[0], found[1, :, others]], [clean[0], clean[1, :, others]])
        assert not np.isfinite(found[1, :, column]).any()
    damaged = h.copy()
    damaged[1, 400, 3] = bad
    found = np.asarray(update(damaged, tau, offset=0))
    assert_same_bits([found[0]], [clean[0]])
    assert not np.isfinite(found[1, 3:, 32:]).any()


def test_updates_at_the_ends_of_the_range():
    h, tau = reflectors_and_columns(70_000, 40, 0, 32)
    h[:, :, 32:] = np.sign(h[:, :, 32:]) * np.exp2(np.array([-120, -80, -10, 0, 60, 100, 120, 124], np.float32))
    found = np.asarray(update(h, tau, offset=0))[:, :, 32:]
    expected = updated(h, tau, h, 0)
    assert (np.linalg.norm(found - expected, axis=1) <= 5 * 2.0**-23 * np.linalg.norm(expected, axis=1)).all()


def test_an_update_of_every_matrix_of_a_batch_is_as_alone():
    h, tau = reflectors_and_columns(3000, 90, 0, 32)
    many = jnp.asarray(np.resize(h, (300, *h.shape[1:])))
    found = update(many, jnp.asarray(np.resize(tau, (300, 32))), offset=0)
    alone = jnp.concatenate([update(h[:1], tau[:1], offset=0), update(h[1:], tau[1:], offset=0)])
    below = np.tril(np.ones(h.shape[1:], bool), -1) | (np.arange(90) >= 32)  # the rest is NaN
    assert same_bits([jnp.where(below, found, 0)], [jnp.where(below, alone[jnp.arange(300) % 2], 0)])


def test_the_launched_kernels_are_the_scheduled_ones_by_hand():
    step = tall_step(700, 20, (4, 8), 4)
    steps = replace(step, update="fused"), replace(tall_step(680, 20, (4, 8), 4), offset=20)
    schedule = Schedule(700, 40, 2, "by hand", "float32", steps)
    a = jnp.asarray(matrices.normal(2, 700, 40))
    by_hand = functools.partial(_blocked.factor, precision=jax.lax.Precision.HIGHEST, overwrite_a=False)
    by_schedule = jax.jit(lambda a: by_hand(a, schedule))

    def run():
        return jax.block_until_ready(by_schedule(a))

    run()
    expected = [kernel for step in steps for kernel in scheduled_kernels(step)]
    assert own_kernels(launched_kernels(run)) == expected
    assert len(expected) == schedule.launches
    assert expected[4:7] == ["tall_project", "tall_sum", "tall_subtract"]
