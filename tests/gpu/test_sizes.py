"""Sizes on the GPU: batches beyond 65 535, more than 2³¹ elements, tall and empty matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from tests import matrices
from tests.drivers import factor_by_panels
from tests.gpu.tools import assert_fp32_grade
from tests.reference import assert_same_bits

pytestmark = pytest.mark.gpu
NAMES = ("dense", "graded_columns", "near_collinear", "min_index", "exponential", "duplicate_columns", "zero_column")
factor = jax.jit(jaxqr.geqrf)


@pytest.mark.parametrize("shape", [(66_000, 8, 8), (140_000, 5, 3), (66_000, 40, 24), (66_000, 5, 40)], ids=str)
def test_batches_beyond_65535(shape):
    distinct = matrices.batch(*shape[1:], NAMES)
    h, tau = (np.asarray(x) for x in factor(np.resize(distinct, shape)))
    expected_h, expected_tau = h[: len(NAMES)], tau[: len(NAMES)]
    assert_fp32_grade(distinct, expected_h, expected_tau, NAMES)
    assert_same_bits([h, tau], [np.resize(expected_h, h.shape), np.resize(expected_tau, tau.shape)])


def test_several_panels_at_a_batch_beyond_65535():
    distinct = matrices.batch(12, 80, NAMES)
    h, tau = factor_by_panels(np.resize(distinct, (66_000, 12, 80)), width=4)
    assert_fp32_grade(distinct, h[: len(NAMES)], tau[: len(NAMES)], NAMES)
    assert_same_bits([h, tau], [np.resize(h[: len(NAMES)], h.shape), np.resize(tau[: len(NAMES)], tau.shape)])


@pytest.mark.parametrize("shape", [(70_000, 176, 176), (8_300, 512, 512), (1_200_000, 20, 100)], ids=str)
def test_more_than_2_to_the_31_elements(cuda_device, shape):
    """The batch repeats the same distinct matrices; every repetition is compared with the first, to the bit."""
    batch, m, n = shape
    assert batch * m * n > 2**31
    if cuda_device.memory_stats()["bytes_limit"] < 5 * 4 * batch * m * n:
        pytest.skip("not enough device memory")
    count = 100
    distinct = np.concatenate(
        [matrices.batch(m, n, NAMES), np.random.default_rng(0).standard_normal((count - 7, m, n))]
    )
    distinct = jnp.asarray(distinct, jnp.float32)
    a = jax.jit(lambda x: jnp.broadcast_to(x, (batch // count, *x.shape)).reshape(shape))(distinct)
    h, tau = factor(a)
    a.delete()
    assert_fp32_grade(distinct, h[:count], tau[:count])

    @jax.jit
    def repeats_equal_the_first(x):
        bits = jax.lax.bitcast_convert_type(x, jnp.int32)

        def window(i):
            return jax.lax.dynamic_slice_in_dim(bits, i * count, count)

        return jax.lax.map(lambda i: jnp.all(window(i) == window(0)), jnp.arange(batch // count))

    assert repeats_equal_the_first(h).all()
    assert repeats_equal_the_first(tau).all()


@pytest.mark.parametrize("shape", [(2, 1025, 20), (2, 2049, 20), (40_000, 5), (3, 5000, 100), (40_000, 50)], ids=str)
def test_tall_matrices(shape):
    """pytorch#107222, among others: rows that no thread block or cluster holds."""
    a = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    h, tau = factor(a)
    stacked = [np.asarray(x).reshape(-1, *x.shape[len(shape) - 2 :]) for x in (a, h)]
    assert_fp32_grade(*stacked, np.asarray(tau).reshape(-1, tau.shape[-1]))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (0, 3, 3), (2, 0, 4), (0, 40, 5, 5)], ids=str)
def test_empty(shape):
    h, tau = factor(jnp.zeros(shape, jnp.float32))
    assert h.shape == shape
    assert tau.shape == (*shape[:-2], min(shape[-2:]))
