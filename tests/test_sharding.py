"""Sharded arrays on eight devices: each factors the matrices that it holds, and nothing is gathered.

The absence of an all-gather alone proves little, so the shapes that a device's handlers get are read from the program.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxqr

blocked = functools.partial(jaxqr.geqrf, implementation="blocked")
MODES = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}
SHAPE = (8, 4, 24, 20)


@pytest.fixture(params=MODES)
def mesh(request):
    mode = MODES[request.param]
    return jax.make_mesh((4, 2), ("x", "y"), axis_types=(mode, mode))


def sharded(mesh, *spec, shape=SHAPE) -> jax.Array:
    a = np.random.default_rng(5).standard_normal(shape, dtype=np.float32)
    return jax.device_put(a, NamedSharding(mesh, P(*spec)))


def run(function, a: jax.Array):
    """The results, and the text of the compiled program."""
    compiled = jax.jit(function).lower(a).compile()
    return compiled(a), compiled.as_text()


def local_batches(text: str) -> set[int]:
    """The batches that the panel handlers get on each device."""
    shapes = re.findall(r"= \(f32\[(\d+),24,20\].* custom-call\(.*jaxqr_panel", text)
    assert len(shapes) == len(re.findall(r" custom-call\(.*jaxqr_panel", text)) > 0
    return {int(batch) for batch in shapes}


def assert_equal(found, a):
    for x, y in zip(found, blocked(np.asarray(a)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def communicates(text: str) -> bool:
    return bool(re.search("all-gather|all-to-all|collective-permute|all-reduce", text))


SPECS = {
    ("x",): 8,
    (None, "x"): 8,
    ("x", "y"): 4,
    ("y", "x"): 4,
    (("x", "y"),): 4,
}


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("mapped", [0, 1, 2])
def test_batch_axes(mesh, spec, mapped):
    a = sharded(mesh, *spec)
    function = functools.reduce(lambda f, _: jax.vmap(f), range(mapped), blocked)
    found, text = run(function, a)
    assert local_batches(text) == {SPECS[spec]}
    assert not communicates(text)
    assert_equal(found, a)
    for factor in found:
        assert factor.sharding.is_equivalent_to(NamedSharding(mesh, P(*spec)), factor.ndim)


def test_in_the_context_of_a_mesh(mesh):
    a = sharded(mesh, "x", "y")
    with jax.set_mesh(mesh):
        found, text = run(jax.vmap(blocked), a)
    assert local_batches(text) == {4}
    assert not communicates(text)
    assert_equal(found, a)


def test_outside_of_jit(mesh):
    a = sharded(mesh, "x", "y")
    found = blocked(a)
    assert_equal(found, a)
    for factor in found:
        assert factor.sharding.is_equivalent_to(NamedSharding(mesh, P("x", "y")), factor.ndim)


def test_explicit_types_of_the_results():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    h, tau = jax.eval_shape(blocked, sharded(mesh, "y", "x"))
    assert h.sharding.spec == P("y", "x", None, None)
    assert tau.sharding.spec == P("y", "x", None)


@pytest.mark.parametrize("implementation", ["blocked", None, "jax"])
def test_every_implementation(mesh, implementation):
    a = sharded(mesh, "x")
    found, text = run(functools.partial(jaxqr.geqrf, implementation=implementation), a)
    assert not communicates(text)
    assert_equal(found, a)


@pytest.mark.parametrize("spec", [(None, None, "x"), ("y", None, None, "x"), (None, None, "x", "y")], ids=str)
def test_sharded_rows_and_columns_are_gathered(mesh, spec):
    a = sharded(mesh, *spec)
    found, text = run(blocked, a)
    assert local_batches(text) == {16 if spec[0] == "y" else 32}
    assert communicates(text)
    assert_equal(found, a)


def test_results_wanted_in_another_sharding():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    a = sharded(mesh, "x")
    wanted = (NamedSharding(mesh, P(None, "y", "x")), NamedSharding(mesh, P()))
    found = jax.jit(blocked, out_shardings=wanted)(a)
    assert_equal(found, a)
    assert found[0].sharding.is_equivalent_to(wanted[0], 4)


def test_a_replicated_input(mesh):
    a = sharded(mesh)
    found, text = run(blocked, a)
    assert local_batches(text) == {32}
    assert not communicates(text)
    assert_equal(found, a)


def test_between_other_operations(mesh):
    """The sharding propagates through the operation, from its input to what is computed from its results."""
    a = sharded(mesh, "x", "y")
    (h, tau), text = run(lambda a: [x + 1 for x in blocked(a)], a)
    assert local_batches(text) == {4}
    assert not communicates(text)
    assert_equal((h - 1, tau - 1), a)


@pytest.mark.parametrize("dims", [(), (0,)], ids=["plain", "vmap"])
@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map(mesh, check_vma, dims):
    a = sharded(mesh, "x", "y")
    local = jax.vmap(blocked) if dims else blocked
    mapped = jax.shard_map(local, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=check_vma)
    found, text = run(mapped, a)
    assert local_batches(text) == {4}
    assert not communicates(text)
    assert_equal(found, a)


@pytest.mark.parametrize("precision", [None, "highest"])
def test_scan_inside_shard_map(mesh, precision):
    """NVIDIA/warp#1851: a scan's carry must keep the type that varies over the mesh."""
    a = sharded(mesh, "x")

    def local(a):
        def step(carry, x):
            h, tau = jaxqr.geqrf(x, implementation="blocked", precision=precision)
            return (h, tau), carry

        h, tau = jaxqr.geqrf(a, implementation="blocked", precision=precision)
        (h, tau), _ = jax.lax.scan(step, (h, tau), jnp.stack([a, a]))
        return h, tau

    found, text = run(jax.shard_map(local, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=True), a)
    assert local_batches(text) == {8}
    assert not communicates(text)
    assert_equal(found, a)


def test_scan_over_a_sharded_array(mesh):
    a = sharded(mesh, None, "x")
    found, text = run(lambda a: jax.lax.map(blocked, a), a)
    assert local_batches(text) == {1}
    assert not communicates(text)
    assert_equal(found, a)


def test_shard_map_over_some_axes():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    a = sharded(mesh, "x", "y")
    mapped = jax.shard_map(blocked, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    found, text = run(mapped, a)
    assert local_batches(text) == {4}
    assert not communicates(text)
    assert_equal(found, a)


def test_shard_map_over_some_axes_cannot_gather():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    a = sharded(mesh, "x", None, "y")
    mapped = jax.shard_map(blocked, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    with pytest.raises(jax.errors.JaxRuntimeError, match="cannot gather the sharded rows or columns"):
        run(mapped, a)


def test_empty_matrices(mesh):
    for shape in [(8, 4, 0, 3), (8, 4, 3, 0), (8, 0, 3, 3)]:
        (h, tau), _ = run(blocked, sharded(mesh, "x", shape=shape))
        assert h.shape == shape
        assert tau.shape == (*shape[:2], min(shape[2:]))


def test_one_schedule_a_device():
    """The batch that is scheduled is the one that a device holds."""
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    a = sharded(mesh, "x", shape=(4096, 24, 20))
    _, text = run(blocked, a)
    assert local_batches(text) == {512}
    assert len(re.findall("jaxqr_panel", text)) >= len(jaxqr.schedule_for(24, 20, 512).steps)


def test_donation_of_a_sharded_array(mesh):
    a = sharded(mesh, "x", shape=(32, 24, 20))
    expected = [np.asarray(x) for x in blocked(a)]
    in_place = jax.jit(functools.partial(blocked, overwrite_a=True), donate_argnums=0)
    compiled = in_place.lower(a).compile()
    local_bytes = a.nbytes // 4
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == local_bytes
    assert memory.temp_size_in_bytes <= local_bytes // 2
    for x, y in zip(in_place(a), expected, strict=True):
        np.testing.assert_array_equal(x, y)
