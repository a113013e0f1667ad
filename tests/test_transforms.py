"""jit, vmap and its nestings, scan, ahead-of-time lowering, export, and the refusal to differentiate."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from jaxqr import _targets

blocked = functools.partial(jaxqr.geqrf, implementation="blocked")
each = pytest.mark.parametrize("geqrf", [jaxqr.geqrf, blocked], ids=["default", "blocked"])


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(4).standard_normal(shape, dtype=np.float32)


def assert_equal(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


def panels(function, *args) -> list[str]:
    """The lines of the lowered program that call the panel target."""
    text = jax.jit(function).lower(*args).as_text()
    assert "while" not in text
    return [line for line in text.splitlines() if "@jaxqr_panel" in line]


@each
def test_jit(geqrf):
    a = normal(3, 40, 40)
    assert_equal(jax.jit(geqrf)(a), geqrf(a))


@each
def test_vmap_adds_to_the_batch(geqrf):
    a = normal(2, 3, 20, 12)
    expected = geqrf(a)
    for mapped in (jax.vmap(geqrf), jax.vmap(jax.vmap(geqrf)), jax.jit(jax.vmap(jax.jit(jax.vmap(geqrf))))):
        assert_equal(mapped(a), expected)


@pytest.mark.parametrize("batch", [(6,), (2, 3), (1, 2, 3)], ids=str)
def test_every_mapped_axis_is_folded_before_scheduling(batch):
    mapped = blocked
    for _ in batch:
        mapped = jax.vmap(mapped)
    calls = panels(mapped, normal(*batch, 50, 50))
    assert len(calls) == len(jaxqr.schedule_for(50, 50, batch=6).steps)
    assert all("tensor<6x50x50xf32>" in call for call in calls)
    assert "transpose" not in jax.jit(mapped).lower(normal(*batch, 50, 50)).as_text()


@each
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_vmap_over_another_axis(geqrf, axis):
    a = normal(4, 20, 12)
    mapped = jax.vmap(geqrf, in_axes=axis, out_axes=(axis, -1))(np.moveaxis(a, 0, axis))
    h, tau = geqrf(a)
    assert_equal(mapped, (np.moveaxis(h, 0, axis), np.moveaxis(tau, 0, -1)))


@each
def test_vmap_of_something_else(geqrf):
    a = normal(20, 12)
    h, tau, _ = jax.vmap(lambda i: (*geqrf(a), i))(jnp.arange(3))
    assert_equal((h, tau), (np.broadcast_to(x, (3, *x.shape)) for x in geqrf(a)))
    (h, tau), _ = jax.vmap(lambda a, i: (geqrf(a), i), in_axes=(None, 0), out_axes=(None, 0))(a, jnp.arange(3))
    assert_equal((h, tau), geqrf(a))


@each
def test_vmap_of_an_axis_of_no_matrices(geqrf):
    h, tau = jax.vmap(geqrf)(np.zeros((0, 4, 3), np.float32))
    assert h.shape == (0, 4, 3)
    assert tau.shape == (0, 3)


@each
def test_scan(geqrf):
    a = normal(5, 2, 20, 12)

    def step(carry, x):
        h, tau = geqrf(x + 0 * carry[0])
        return (h, tau), (h, tau)

    last, stacked = jax.lax.scan(step, (a[0], jnp.zeros((2, 12))), a)
    assert_equal(stacked, geqrf(a))
    assert_equal(last, (x[-1] for x in stacked))
    assert_equal(jax.lax.map(geqrf, a), stacked)


@each
def test_map_in_batches(geqrf):
    a = normal(5, 20, 12)
    assert_equal(jax.lax.map(geqrf, a, batch_size=2), geqrf(a))


@each
def test_while_and_cond(geqrf):
    a = normal(20, 12)
    found = jax.lax.cond(jnp.sum(a) > 1e9, lambda x: (x, jnp.zeros(12)), geqrf, a)
    assert_equal(found, geqrf(a))


@each
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_eval_shape(geqrf, dtype):
    if dtype is np.complex64 and geqrf is blocked:
        pytest.skip("the blocked driver is float32 only")
    h, tau = jax.eval_shape(geqrf, jax.ShapeDtypeStruct((3, 500, 200), dtype))
    assert (h.shape, h.dtype) == ((3, 500, 200), dtype)
    assert (tau.shape, tau.dtype) == ((3, 200), dtype)


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f, a: jax.grad(f)(a),
        lambda f, a: jax.jit(jax.grad(f))(a),
        lambda f, a: jax.jvp(f, (a,), (a,)),
        lambda f, a: jax.linearize(f, a),
        lambda f, a: jax.hessian(f)(a),
        lambda f, a: jax.vmap(jax.grad(f))(a[None]),
        lambda f, a: jax.grad(lambda a: jnp.sum(jax.vmap(f)(a[None])))(a),
    ],
    ids=["grad", "jit-grad", "jvp", "linearize", "hessian", "vmap-grad", "grad-vmap"],
)
@each
def test_derivatives_are_refused_with_the_way_out(geqrf, derivative):
    with pytest.raises(NotImplementedError, match=r"jaxqr.geqrf has no derivative.*jnp\.linalg\.qr"):
        derivative(lambda a: jnp.sum(geqrf(a)[0]), normal(4, 3))


@each
def test_derivatives_of_what_does_not_depend_on_it(geqrf):
    a = normal(4, 3)
    function = jax.jit(lambda a: jnp.sum(a * geqrf(jax.lax.stop_gradient(a))[0]))
    np.testing.assert_array_equal(jax.grad(function)(a), geqrf(a)[0])


@each
def test_rematerialisation(geqrf):
    a = normal(4, 3)
    assert_equal(jax.checkpoint(geqrf)(a), geqrf(a))


def lowered_for(platforms: tuple[str, ...], function=jaxqr.geqrf, shape=(3, 40, 40)) -> str:
    a = jax.ShapeDtypeStruct(shape, np.float32)
    return jax.jit(lambda a: function(a)).trace(a).lower(lowering_platforms=platforms).as_text()


@pytest.fixture
def fresh_operation(monkeypatch):
    """`geqrf` traced anew, whatever was traced for the same shape before."""
    jax.clear_caches()
    yield monkeypatch
    jax.clear_caches()


def test_lowering_for_cuda_without_a_gpu(fresh_operation):
    fresh_operation.setattr(_targets, "HAS_CUDA", True)
    text = lowered_for(("cuda",))
    assert text.count("@jaxqr_panel") == len(jaxqr.schedule_for(40, 40, 3).steps)
    assert "geqrf_ffi" not in text
    assert "@jaxqr_panel" not in lowered_for(("cpu",))


def test_lowering_for_both_platforms(fresh_operation):
    fresh_operation.setattr(_targets, "HAS_CUDA", True)
    text = lowered_for(("cpu", "cuda"))
    assert "@jaxqr_panel" in text
    assert "lapack_sgeqrf_ffi" in text


def test_a_build_without_cuda_lowers_to_jaxs_geqrf(fresh_operation):
    fresh_operation.setattr(_targets, "HAS_CUDA", False)
    text = lowered_for(("cuda",))
    assert "@jaxqr_panel" not in text
    assert "cusolver_geqrf_ffi" in text


@pytest.mark.parametrize(
    ("precision", "algorithm"), [("highest", "HIGHEST"), ("high", "num_primitive_operations = 3"), ("default", "tf32")]
)
def test_named_precisions_lower_for_cuda(precision, algorithm):
    text = lowered_for(("cuda",), functools.partial(blocked, precision=precision), shape=(3, 70, 130))
    assert algorithm in text
    assert "TF32" not in lowered_for(("cpu",), functools.partial(blocked, precision=precision), shape=(3, 70, 130))


def test_blocked_is_refused_where_there_are_no_kernels():
    with pytest.raises(NotImplementedError, match="tpu"):
        lowered_for(("tpu",), blocked)


# Custom calls carry no promise of stability, so JAX wants to be told which ones may be exported.
OWN_TARGETS = [
    jax.export.DisabledSafetyCheck.custom_call(name)
    for name in (_targets.PANEL, _targets.REFLECTORS, _targets.BLOCK_REFLECTOR)
]


@pytest.mark.parametrize("platforms", [("cpu",), ("cpu", "cuda")], ids=str)
def test_export(platforms):
    a = normal(3, 20, 12)
    allowed = OWN_TARGETS if "cuda" in platforms else ()
    exported = jax.export.export(jax.jit(jaxqr.geqrf), platforms=platforms, disabled_checks=allowed)(a)
    assert exported.platforms == platforms
    assert_equal(exported.call(a), jaxqr.geqrf(a))


def test_export_of_own_kernels_on_request():
    a = normal(3, 20, 12)
    exported = jax.export.export(jax.jit(blocked), disabled_checks=OWN_TARGETS)(a)
    assert_equal(exported.call(a), blocked(a))
