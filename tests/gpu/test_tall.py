"""Tall panels on the GPU: what the leaves' and the lift's kernels do beyond results of FP32 grade (`test_regimes`)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from jaxqr import Schedule, Step, _blocked, _native, schedule_for
from tests import matrices
from tests.drivers import covering_variant
from tests.gpu.tools import assert_fp32_grade, launched_kernels, own_kernels, same_bits, scheduled_kernels
from tests.reference import assert_same_bits

pytestmark = pytest.mark.gpu
factor = jax.jit(jaxqr.geqrf)
ROWS_KERNELS = _native.kernels()["rows"]


def tall_step(m: int, width: int, variant: tuple[int, ...], leaves: int) -> Step:
    """All of a matrix, whose stack one thread block factors."""
    stacked = (1 + leaves) * width
    root = Step(0, width, stacked, "cta", covering_variant(stacked, width), None)
    return Step(0, width, m, "tall", variant, None, leaves, root)


@functools.partial(jax.jit, static_argnames=("step", "overwrite_a"))
def by_step(a: jax.Array, step: Step, overwrite_a: bool = False):
    schedule = Schedule(step.rows, step.width, len(a), "by hand", "float32", (step,))
    return _blocked.factor(a, schedule, precision=jax.lax.Precision.HIGHEST, overwrite_a=overwrite_a)


@pytest.mark.parametrize("variant", ROWS_KERNELS, ids=str)
@pytest.mark.parametrize("leaves", [1, 3])
def test_each_kernel_at_its_edges(variant, leaves):
    """The most rows and columns, uneven leaves, and rows that are not aligned."""
    cols_per_lane, rows_per_lane, warps = variant
    most, widest = 4 * rows_per_lane * warps, 8 * cols_per_lane
    for width in (widest, widest - 3, 10):
        most_below = leaves * (most // width * width)
        for m in (width + most_below, width + most_below - 1, width + leaves * width + 1):
            step = tall_step(m, width, variant, leaves)
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


def test_the_launched_kernels_are_the_scheduled_ones_by_hand():
    step = tall_step(700, 20, (4, 16, 4), 4)
    a = jnp.asarray(matrices.normal(2, 700, 20))

    def run():
        return jax.block_until_ready(by_step(a, step))

    run()
    assert own_kernels(launched_kernels(run)) == scheduled_kernels(step)
