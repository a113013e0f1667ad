"""Each regime by shapes that reach it: the launched kernels are the scheduled ones, the results FP32-grade."""

import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from jaxqr._kernels import makes_t
from tests import matrices
from tests.gpu.tools import assert_fp32_grade, launched_kernels, own_kernels, same_bits, scheduled_kernels

pytestmark = pytest.mark.gpu
SHAPES = [
    (3, 1, 7),
    (1, 300, 1),
    (40000, 97, 1),
    (100000, 66, 2),
    (3000, 958, 1),
    (1500, 1741, 2),
    (3000, 1, 50),
    (100000, 2, 150),
    (5000, 3, 112),
    (3000, 21, 92),
    (2000, 53, 69),
    (4000, 6, 250),
    (1, 13, 3000),
    (10000, 7, 7),
    (10000, 15, 31),
    (8192, 16, 16),
    (20, 32, 32),
    (1000, 64, 16),
    (4096, 64, 64),
    (100, 129, 65),
    (40, 176, 176),
    (37, 300, 200),
    (40, 352, 352),
    (3, 50, 4000),
    (600, 256, 32),
    (100, 1024, 32),
    (1000, 30, 40),
    (32, 512, 512),
    (200, 300, 300),
    (140, 700, 260),
    (140, 1040, 150),
    (64, 512, 512),
    (12, 768, 768),
    (5, 777, 1000),
    (4, 1024, 1024),
    (2, 2048, 300),
    (1, 2048, 2048),
    (2, 2500, 60),
    (1, 4100, 200),
    (3, 8192, 40),
    (64, 9000, 1),
    (1, 9000, 9),
    (1, 9000, 20),
    (25, 9000, 32),
    (3, 9001, 150),
    (1, 65536, 128),
    (1, 1000000, 32),
]
# The first ones say most, for batches too small for all.
NAMES = tuple(dict.fromkeys(["exponential", "graded_columns", "near_collinear", "banded", *matrices.CLASSES]))
factor = jax.jit(jaxqr.geqrf)


@functools.cache
def inputs(batch: int, m: int, n: int) -> tuple[np.ndarray, jax.Array]:
    """Up to one matrix a class, and the batch that repeats them."""
    distinct = matrices.batch(m, n, NAMES[:batch])
    return distinct, jnp.asarray(np.resize(distinct, (batch, m, n)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_class_is_fp32_grade(shape):
    distinct, a = inputs(*shape)
    h, tau = factor(a)
    firsts = distinct, h[: len(distinct)], tau[: len(distinct)]
    # Small ones are measured on the host, which spares a compilation.
    assert_fp32_grade(*(firsts if distinct.size > 2**23 else map(np.asarray, firsts)), NAMES)
    repeated = jnp.arange(len(a)) % len(distinct)
    assert same_bits((h, tau), (h[repeated], tau[repeated]))


@pytest.mark.parametrize(
    "shape", [(25, 130, 70), (25, 257, 129), (25, 70, 130), (8, 512, 512), (3, 9001, 150)], ids=str
)
def test_matmul_updates_are_fp32_grade(shape):
    distinct, a = inputs(*shape)
    h, tau = jax.jit(functools.partial(jaxqr.geqrf, precision="highest"))(a)
    assert_fp32_grade(distinct, np.asarray(h), np.asarray(tau), NAMES)


def test_the_launched_kernels_are_the_scheduled_ones():
    def run():
        return [jax.block_until_ready(factor(inputs(*shape)[1])) for shape in SHAPES]

    run()
    launched = own_kernels(launched_kernels(run))
    for batch, m, n in SHAPES:
        schedule = jaxqr.schedule_for(m, n, batch)
        expected = [kernel for step in schedule.steps for kernel in scheduled_kernels(step)]
        expected *= 1 + schedule.in_halves
        assert len(expected) == schedule.launches
        found = launched[: len(expected)]
        beside = schedule.in_one_call or any(step.look_ahead for step in schedule.steps)
        if beside:  # then kernels run beside each other, or the steps of a pair share theirs
            assert Counter(found) == Counter(expected), (batch, m, n)
        else:
            assert found == expected, (batch, m, n)
        del launched[: len(expected)]
    assert not launched


def test_these_shapes_reach_halves_of_both_regimes():
    schedules = [jaxqr.schedule_for(m, n, batch) for batch, m, n in SHAPES]
    halves = [step.regime for schedule in schedules if schedule.in_halves for step in schedule.steps]
    assert set(halves) == {"cta", "cluster"}


def test_these_shapes_reach_all_regimes_and_both_kinds_of_steps():
    steps = [step for batch, m, n in SHAPES for step in jaxqr.schedule_for(m, n, batch).steps]
    assert {step.regime for step in steps} == {"narrow", "tiny", "wide", "cta", "cluster", "tall", "loops", "jax"}
    assert {step.update for step in steps} == {"fused", None}
    assert {step.look_ahead for step in steps} == {True, False}
    with_t = [step for step in steps if step.regime == "cta" and step.update == "fused"]
    assert {makes_t(step.regime, step.variant, step.width) for step in with_t} == {True, False}
