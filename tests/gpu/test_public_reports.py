"""Public bug reports that are about a GPU's speed or repeatability; tests/test_public_reports.py has the others."""

import time

import jax
import jax.numpy as jnp
import pytest

import jaxqr
from tests.gpu.tools import assert_fp32_grade, same_bits

pytestmark = pytest.mark.gpu
factor = jax.jit(jaxqr.geqrf)


def normal(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(0), shape, jnp.float32)


def best_seconds(function, a, repeats: int = 5) -> float:
    jax.block_until_ready(function(a))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(a))
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@pytest.mark.parametrize("shape", [(10_000, 4, 4), (10_000, 256, 32)], ids=str)
def test_vmap_takes_the_time_of_a_batch(shape):
    """jax#8542, jax#15803: vmap of qr took batch times the time of a single matrix."""
    a = normal(*shape)
    batched = best_seconds(jax.jit(jax.vmap(jaxqr.geqrf)), a)
    assert batched < shape[0] / 100 * best_seconds(factor, a[0])


def test_many_small_matrices_are_faster_than_on_the_cpu():
    """pytorch#143281: batch 8192 of small matrices was slower on the GPU."""
    a = normal(8192, 16, 16)
    on_cpu = jax.device_put(a, jax.devices("cpu")[0])
    assert best_seconds(factor, a) < best_seconds(factor, on_cpu)


@pytest.mark.parametrize("shape", [(1, 256, 256), (1, 2048, 1024)], ids=str)
def test_100_runs_give_the_same_orthogonal_factors(shape):
    """oneMath#626, tensorflow#20099: 256² and 2048×1024, run 100 times."""
    a = normal(*shape)
    first = factor(a)
    assert all(same_bits(factor(a), first) for _ in range(99))
    assert_fp32_grade(a, *first)


def test_a_transposed_view_equals_its_copy():
    """cupynumeric#1211."""
    a = normal(5, 300, 200)
    of_view = jax.jit(lambda x: jaxqr.geqrf(x.mT))(a)
    assert same_bits(of_view, factor(jnp.array(a.mT)))
