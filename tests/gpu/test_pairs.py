"""Steps whose updates are made by two block reflectors at once, on the GPU: also where planning would not pair them."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxqr import Schedule, _blocked, schedule_for
from jaxqr.precision import policy_for
from tests import drivers, matrices
from tests.gpu.tools import assert_fp32_grade, launched_kernels, own_kernels, same_bits, scheduled_kernels

pytestmark = pytest.mark.gpu
NAMES = ("dense", "graded_columns", "near_collinear", "exponential", "duplicate_columns", "zero_column", "banded")
# With look-ahead, early matrices, halves, and neither; the last ones reach pairs that the kernel does not take.
SHAPES = [
    (7, 512, 512),
    (12, 768, 768),
    (2, 1024, 1024),
    (60, 1024, 1024),
    (64, 512, 512),
    (5, 300, 1000),
    (3, 1500, 640),
    (1, 2048, 2048),
    (200, 300, 300),
    (140, 700, 701),
    (4, 778, 1030),
]


def plain(shape: tuple[int, int, int]) -> Schedule:
    """As planned, but without pairs."""
    batch, m, n = shape
    schedule = schedule_for(m, n, batch)
    return replace(schedule, steps=tuple(replace(step, pairs=False) for step in schedule.steps))


@functools.cache
def inputs(shape: tuple[int, int, int]) -> tuple[np.ndarray, jax.Array]:
    """Up to one matrix a class, and the batch that repeats them."""
    batch, m, n = shape
    distinct = matrices.batch(m, n, NAMES[:batch])
    return distinct, jnp.asarray(np.resize(distinct, shape))


def program(schedule: Schedule, overwrite_a: bool = False):
    products = policy_for(None).products("cuda")
    factor = functools.partial(_blocked.factor, schedule=schedule, precision=products, overwrite_a=overwrite_a)
    return jax.jit(factor, donate_argnums=0 if overwrite_a else ())


def test_these_shapes_reach_halves_and_look_ahead():
    schedules = [drivers.with_pairs(plain(shape)) for shape in SHAPES]
    assert all(any(step.pairs for step in schedule.steps) for schedule in schedules)
    assert {schedule.in_halves for schedule in schedules} == {True, False}
    looks = {any(step.look_ahead for step in schedule.steps) for schedule in schedules if not schedule.in_halves}
    assert looks == {True, False}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pairs_are_fp32_grade(shape, first):
    distinct, a = inputs(shape)
    h, tau = program(drivers.with_pairs(plain(shape), first))(a)
    assert_fp32_grade(distinct, h[: len(distinct)], tau[: len(distinct)], NAMES)
    repeated = jnp.arange(len(a)) % len(distinct)
    assert same_bits((h, tau), (h[repeated], tau[repeated]))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pairs_give_the_same_bits_on_every_run_and_in_place(shape):
    a, schedule = inputs(shape)[1], drivers.with_pairs(plain(shape))
    factor = program(schedule)
    expected = factor(a)
    for run in range(20):
        assert same_bits(factor(a), expected), f"run {run}"
    assert same_bits(program(schedule, overwrite_a=True)(jnp.array(a)), expected)

    @jax.jit
    def with_blocks(a):
        products = policy_for(None).products("cuda")
        h, tau, blocks = _blocked.factor_and_blocks(a, schedule, precision=products, overwrite_a=False)
        return h, tau, [tuple(block) for _, block in blocks]

    h, tau, blocks = with_blocks(a)
    assert len(blocks) == sum(step.update == "fused" for step in schedule.steps)
    assert same_bits((h, tau), expected)


@pytest.mark.parametrize("shape", [(7, 512, 512), (64, 512, 512), (200, 300, 300)], ids=str)
def test_pairs_launch_what_the_schedule_says(shape):
    schedule, a = drivers.with_pairs(plain(shape)), inputs(shape)[1]
    factor = program(schedule)
    jax.block_until_ready(factor(a))
    expected = [kernel for step in schedule.steps for kernel in scheduled_kernels(step)] * (1 + schedule.in_halves)
    launched = own_kernels(launched_kernels(lambda: factor(a)))
    assert len(launched) == schedule.launches
    assert sorted(map(str, launched)) == sorted(map(str, expected))
