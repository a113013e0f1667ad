"""Every shape: sides of 0 and 1, any batch shape, many matrices, tall, wide, and taller than any kernel takes."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr

IMPLEMENTATIONS = ["default", "blocked", "matmul"]
GEQRF = {
    "default": jaxqr.geqrf,
    "blocked": functools.partial(jaxqr.geqrf, implementation="blocked"),
    "matmul": functools.partial(jaxqr.geqrf, implementation="blocked", precision="highest"),
}
each = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


def check(implementation: str, shape: tuple[int, ...]):
    a = np.random.default_rng(2).standard_normal(shape, dtype=np.float32)
    h, tau = GEQRF[implementation](a)
    expected_h, expected_tau = jnp.linalg.qr(a, mode="raw")
    np.testing.assert_allclose(h, expected_h.mT, rtol=1e-4, atol=5e-5)
    np.testing.assert_allclose(tau, expected_tau, rtol=1e-4, atol=5e-5)


@each
@pytest.mark.parametrize("batch", [(), (0,), (2, 0), (3,)], ids=str)
@pytest.mark.parametrize(("m", "n"), [(0, 0), (0, 3), (3, 0), (0, 1), (1, 0)])
def test_empty_matrices(implementation, batch, m, n):
    h, tau = GEQRF[implementation](np.zeros((*batch, m, n), np.float32))
    assert h.shape == (*batch, m, n)
    assert tau.shape == (*batch, 0)


@each
@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3, 4), (0, 0, 1, 1), (0, 3, 3)], ids=str)
def test_empty_batches(implementation, shape):
    h, tau = GEQRF[implementation](np.zeros(shape, np.float32))
    assert h.shape == shape
    assert tau.shape == (*shape[:-2], min(shape[-2:]))


@each
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 2), (1, 9), (2, 1), (9, 1), (2, 2), (2, 3), (3, 2)])
def test_smallest_matrices(implementation, m, n):
    check(implementation, (4, m, n))


@pytest.mark.parametrize(("m", "n"), list(itertools.product([7, 9, 63, 64, 65, 129], repeat=2)))
def test_around_powers_of_two(m, n):
    check("blocked", (2, m, n))


@pytest.mark.parametrize("shape", [(65, 65), (9, 40), (40, 9), (129, 200), (200, 129)], ids=str)
def test_shapes_by_matmul_updates(shape):
    check("matmul", shape)


@each
@pytest.mark.parametrize("batch", [(), (1,), (2, 3), (1, 2, 1, 2)], ids=str)
def test_batch_shapes(implementation, batch):
    check(implementation, (*batch, 10, 6))


@each
def test_more_matrices_than_a_cuda_grid_has_rows(implementation):
    check(implementation, (70_000, 3, 2))


@pytest.mark.parametrize("shape", [(1024, 9), (1025, 9), (2048, 9), (3000, 3), (9, 3000), (2, 2200, 17)], ids=str)
def test_tall_and_wide(shape):
    check("blocked", shape)


def test_more_elements_than_32_bits_count():
    """Only shapes: the sizes are the interface's to carry; a device test factors such an array."""
    shape = (2**20, 64, 48)
    h, tau = jax.eval_shape(GEQRF["blocked"], jax.ShapeDtypeStruct(shape, np.float32))
    assert h.shape == shape
    assert tau.shape == (2**20, 48)
    lowered = jax.jit(GEQRF["blocked"]).lower(jax.ShapeDtypeStruct(shape, np.float32))
    assert f"tensor<{2**20}x64x48xf32>" in lowered.as_text()
