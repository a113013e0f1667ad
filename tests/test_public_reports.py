"""Inputs from public bug reports on which other libraries failed, as far as geqrf goes; docstrings name the reports."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxqr
from tests.reference import EPS, FLT_MAX, assert_same_bits, column_errors, orthogonality

blocked = functools.partial(jaxqr.geqrf, implementation="blocked")
both = pytest.mark.parametrize("geqrf", [blocked, jaxqr.geqrf], ids=["blocked", "default"])


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def assert_fp32_grade(a, h, tau):
    a, h, tau = (np.asarray(x) for x in (a, h, tau))
    norms = np.linalg.norm(a.astype(np.float64), axis=-2)
    assert (column_errors(a, h, tau) <= 10 * EPS * norms).all()
    assert (orthogonality(h, tau) <= 2 * a.shape[-1] * EPS).all()


@pytest.mark.parametrize("shape", [(4, 4), (256, 32)], ids=str)
def test_vmap_is_one_batched_launch(shape):
    """jax#8542, jax#15803: vmap of qr over (B, 4, 4) and (10000, 256, 32) ran matrix by matrix."""

    def custom_calls(batch):
        lowered = jax.jit(jax.vmap(blocked)).lower(jax.ShapeDtypeStruct((batch, *shape), np.float32))
        assert "while" not in lowered.as_text()
        return lowered.as_text().count("jaxqr_panel")

    assert custom_calls(10_000) == len(jaxqr.schedule_for(*shape, batch=10_000).steps)
    a = normal(50, *shape)
    assert_same_bits(jax.vmap(blocked)(a), blocked(a))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (0, 3, 3), (2, 0, 4), (0, 0, 0)], ids=str)
@both
def test_empty_matrices_and_batches(geqrf, shape):
    """jax#10485: factors of empty matrices."""
    h, tau = jax.jit(geqrf)(jnp.zeros(shape, jnp.float32))
    assert h.shape == shape
    assert tau.shape == (*shape[:-2], min(shape[-2:]))
    assert h.dtype == tau.dtype == jnp.float32


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
@both
def test_half_precision_is_a_type_error_that_names_the_cast(geqrf, dtype):
    """jax#10530, jax#30176: half precision died inside the compiler."""
    with pytest.raises(TypeError, match="float32"):
        geqrf(jnp.zeros((3, 3), dtype))


@both
def test_inf_and_nan_inside_a_good_batch(geqrf):
    """pytorch#126748: a 3×3 matrix with every row [inf, nan, 5] hung or took the batch with it."""
    good = normal(5, 3, 3)
    a = good.copy()
    a[2] = [np.inf, np.nan, 5]
    h, tau = (np.asarray(x) for x in jax.jit(geqrf)(a))
    assert not np.isfinite(np.diagonal(h[2])[:2]).any()
    assert np.isnan(tau[2, :2]).all()
    others = [0, 1, 3, 4]
    assert_same_bits((h[others], tau[others]), (np.asarray(x)[others] for x in jax.jit(geqrf)(good)))


@both
def test_inf_in_one_column(geqrf):
    """Reference-LAPACK#196, #197: Inf in one column: returns, NaN from that column on."""
    a = normal(6, 4)
    h, tau = (np.asarray(x) for x in jax.jit(geqrf)(np.where(np.arange(24).reshape(6, 4) == 9, np.inf, a)))
    assert np.isfinite(h[:, 0]).all()
    assert np.isnan(tau[1:]).all()
    assert np.isnan(np.diagonal(h)[1:]).all()


def test_largest_well_conditioned_matrix():
    """Reference-LAPACK#1381: well-conditioned 6×4 scaled to a maximum of 2e38; LAPACK's alpha - beta overflows."""
    a = np.linalg.qr(normal(6, 4)).Q.astype(np.float64)
    a = (a * (2e38 / np.abs(a).max())).astype(np.float32)
    h, tau = (np.asarray(x) for x in jax.jit(blocked)(a))
    assert np.isfinite(h).all()
    assert_fp32_grade(a, h, tau)


def test_a_large_multiple_of_the_identity():
    """lineax#98: 0.1·randn(100, 100) + (FLT_MAX/8)·I overflowed."""
    a = (0.1 * normal(100, 100) + FLT_MAX / 8 * np.eye(100)).astype(np.float32)
    h, tau = (np.asarray(x) for x in jax.jit(blocked)(a))
    assert np.isfinite(h).all()
    assert np.isfinite(tau).all()
    assert_fp32_grade(a, h, tau)


@both
def test_tall_and_narrow(geqrf):
    """pytorch#107222: (40000, 5) crashed."""
    a = normal(40_000, 5)
    h, tau = (np.asarray(x) for x in jax.jit(geqrf)(a))
    norms = np.linalg.norm(a.astype(np.float64), axis=0)
    assert (column_errors(a, h, tau) <= 10 * EPS * norms).all()


@pytest.mark.parametrize(("shape", "runs"), [((256, 256), 100), ((2048, 1024), 2)], ids=str)
def test_repeated_runs_give_the_same_bits(shape, runs):
    """oneMath#626, tensorflow#20099: 256² and 2048×1024, run again and again, changed or lost orthogonality."""
    a = normal(*shape)
    factor = jax.jit(blocked)
    first = factor(a)
    for _ in range(runs - 1):
        assert_same_bits(factor(a), first)
    if shape == (256, 256):
        assert_fp32_grade(a, *first)


@both
def test_a_transposed_view(geqrf):
    """cupynumeric#1211: the result for a transposed view differed from that for its copy."""
    a = normal(3, 40, 60)
    assert_same_bits(jax.jit(geqrf)(a.mT), jax.jit(geqrf)(np.ascontiguousarray(a.mT)))


@pytest.mark.parametrize("shape", [(30, 20), (20, 20), (20, 30)], ids=str)
@both
def test_signs_are_lapacks(geqrf, shape):
    """numpy#18177: which sign R's diagonal has was undocumented."""
    a = normal(*shape)
    (expected_h, expected_tau), _ = scipy.linalg.qr(a, mode="raw")
    h, tau = (np.asarray(x) for x in geqrf(a))
    np.testing.assert_array_equal(np.sign(np.diagonal(h)), np.sign(np.diagonal(expected_h)))
    np.testing.assert_allclose(h, expected_h, atol=1e-4)
    np.testing.assert_allclose(tau, expected_tau, atol=1e-4)


@both
def test_a_batch_sharded_input_is_not_gathered(geqrf):
    """jax#32098, jax#38551: a batch-sharded input was gathered onto every device."""
    devices = jax.devices()
    if len(devices) == 1:
        pytest.skip("one device")
    mesh = jax.make_mesh((len(devices),), ("batch",))
    sharding = jax.NamedSharding(mesh, jax.P("batch"))
    a = jax.device_put(normal(2 * len(devices), 20, 12), sharding)
    compiled = jax.jit(geqrf).lower(a).compile()
    assert "all-gather" not in compiled.as_text()
    h, tau = compiled(a)
    assert h.sharding.is_equivalent_to(sharding, 3)
    assert tau.sharding.is_equivalent_to(sharding, 2)
    assert_fp32_grade(a, h, tau)


@both
def test_inside_shard_map_in_a_scan(geqrf):
    """NVIDIA/warp#1851: inside shard_map with check_vma, in a scan, the carry lost its type."""
    devices = jax.devices()
    mesh = jax.make_mesh((len(devices),), ("batch",))
    a = jax.device_put(normal(2 * len(devices), 12, 8), jax.NamedSharding(mesh, jax.P("batch")))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=jax.P("batch"), out_specs=jax.P("batch"), check_vma=True)
    def three_times(a):
        return jax.lax.scan(lambda x, _: (geqrf(x)[0], None), a, length=3)[0]

    expected = np.asarray(a)
    for _ in range(3):
        expected, _ = geqrf(expected)
    np.testing.assert_allclose(three_times(a), expected, atol=1e-4)


@both
def test_vmap_of_vmap(geqrf):
    """skillmodels#81: vmap(vmap(qr)) on (7, 7)."""
    a = normal(3, 5, 7, 7)
    h, tau = jax.jit(jax.vmap(jax.vmap(geqrf)))(a)
    assert h.shape == (3, 5, 7, 7)
    assert tau.shape == (3, 5, 7)
    assert_fp32_grade(a, h, tau)
