"""`qr`, `householder_product`, `ormqr`, `lstsq` and gradients on sharded arrays: each device works on the matrices that
it holds, and nothing is gathered."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxqr
from jaxqr import _targets

BATCH, M, N = (9, 4), 12, 7  # on 3 × 2 devices, so that no product of local sizes looks like the whole batch
blocked = {"implementation": "blocked"}


def operands(*names: str) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(14)
    a = rng.standard_normal((*BATCH, M, N), dtype=np.float32)
    h, tau = jaxqr.geqrf(a)
    wide = np.swapaxes(a, -1, -2)
    every = {"a": a, "wide": wide, "h": h, "tau": tau, "c": rng.standard_normal((*BATCH, M, 3), dtype=np.float32)}
    return tuple(np.asarray(every[name]) for name in names)


def gradient(function, *arguments):
    return jax.grad(lambda *x: sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(function(*x))))(*arguments)


FUNCTIONS = {
    "qr": (functools.partial(jaxqr.qr, **blocked), operands("a")),
    "qr-jax": (jaxqr.qr, operands("a")),
    "r": (functools.partial(jaxqr.qr, mode="r", **blocked), operands("a")),
    "raw": (functools.partial(jaxqr.qr, mode="raw", **blocked), operands("a")),
    "complete": (functools.partial(jaxqr.qr, mode="complete", positive_diagonal=True, **blocked), operands("a")),
    "wide": (functools.partial(jaxqr.qr, **blocked), operands("wide")),
    "householder_product": (functools.partial(jaxqr.householder_product, **blocked), operands("h", "tau")),
    "ormqr": (functools.partial(jaxqr.ormqr, transpose=True, **blocked), operands("h", "tau", "c")),
    "lstsq": (functools.partial(jaxqr.lstsq, **blocked), operands("a", "c")),
    "gradient of qr": (functools.partial(gradient, jaxqr.qr), operands("a")),
    "gradient of complete": (functools.partial(gradient, functools.partial(jaxqr.qr, mode="complete")), operands("a")),
    "gradient of householder_product": (functools.partial(gradient, jaxqr.householder_product), operands("h", "tau")),
    "gradient of lstsq": (functools.partial(gradient, jaxqr.lstsq), operands("a", "c")),
}
each = pytest.mark.parametrize(("function", "arguments"), FUNCTIONS.values(), ids=FUNCTIONS)


@pytest.fixture(params=["auto", "explicit"])
def mesh(request):
    mode = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}[request.param]
    return jax.make_mesh((3, 2), ("x", "y"), axis_types=(mode, mode), devices=jax.devices()[:6])


def communicates(text: str) -> bool:
    return bool(re.search("all-gather|all-to-all|collective-permute|all-reduce", text))


def holds_the_whole_batch(text: str) -> bool:
    """Whether any array on a device has more matrices than the six that are there."""
    return bool(re.search(r"\[(?:9,4|36)(?:,\d+)+\]", text))


def assert_close(found, expected):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-4)


@each
def test_batch_axes(mesh, function, arguments):
    sharding = NamedSharding(mesh, P("x", "y"))
    compiled = jax.jit(function).lower(*(jax.device_put(x, sharding) for x in arguments)).compile()
    text = compiled.as_text()
    assert not communicates(text)
    assert not holds_the_whole_batch(text)
    found = compiled(*(jax.device_put(x, sharding) for x in arguments))
    assert_close(found, jax.jit(function)(*arguments))
    for result in jax.tree.leaves(found):
        assert result.sharding.is_equivalent_to(sharding, result.ndim)


@each
def test_a_mapped_axis_that_is_sharded(mesh, function, arguments):
    sharding = NamedSharding(mesh, P("x", "y"))
    placed = [jax.device_put(x, sharding) for x in arguments]
    compiled = jax.jit(jax.vmap(function)).lower(*placed).compile()
    assert not communicates(compiled.as_text())
    found = compiled(*placed)
    assert_close(found, jax.jit(function)(*arguments))
    for result in jax.tree.leaves(found):
        assert result.sharding.is_equivalent_to(sharding, result.ndim)


@each
def test_shard_map_with_a_scan(function, arguments):
    """A scan's carry must keep the type that varies over the mesh."""
    mesh = jax.make_mesh((3,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:3])

    def local(*x):
        results = function(*x)
        return jax.lax.scan(lambda carry, _: (function(*x), None), results, None, length=2)[0]

    mapped = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=True))
    compiled = mapped.lower(*arguments).compile()
    assert not communicates(compiled.as_text())
    assert_close(compiled(*arguments), jax.jit(function)(*arguments))


def test_a_replicated_factorization_and_sharded_right_sides():
    """`vmap` over c alone: h is broadcast on each device."""
    mesh = jax.make_mesh((3,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:3])
    h, tau, c = operands("h", "tau", "c")
    h, tau, c = h[0, 0], tau[0, 0], jax.device_put(c[:, 0], NamedSharding(mesh, P("x")))
    multiply = jax.vmap(functools.partial(jaxqr.ormqr, **blocked), in_axes=(None, None, 0))
    compiled = jax.jit(multiply).lower(h, tau, c).compile()
    assert not communicates(compiled.as_text())
    np.testing.assert_allclose(compiled(h, tau, c), [jaxqr.ormqr(h, tau, x) for x in np.asarray(c)], atol=1e-5)


def test_operands_sharded_differently():
    """Those that are sharded less are cut to what the others have."""
    mesh = jax.make_mesh((3, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:6])
    h, tau, c = operands("h", "tau", "c")
    specs = P(), P("x"), P("x", "y")
    arguments = [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip((h, tau, c), specs, strict=True)]
    compiled = jax.jit(functools.partial(jaxqr.ormqr, **blocked)).lower(*arguments).compile()
    assert not communicates(compiled.as_text())
    assert_close(compiled(*arguments), jaxqr.ormqr(h, tau, c))


def test_while_in_the_context_of_a_mesh(mesh):
    (a,) = operands("a")

    def iterate(a):
        return jax.lax.while_loop(
            lambda x: jnp.sum(x[1]) < 3, lambda x: (jaxqr.qr(x[0], **blocked).Q, x[1] + 1), (a, 0)
        )[0]

    with jax.set_mesh(mesh):
        sharded = jax.device_put(a, NamedSharding(mesh, P("x", "y")))
        compiled = jax.jit(iterate).lower(sharded).compile()
    assert not re.search("all-gather|all-to-all|collective-permute", compiled.as_text())
    assert_close(compiled(sharded), iterate(a))


@pytest.mark.parametrize("name", ["qr", "qr-jax", "lstsq", "gradient of qr"])
def test_export_over_several_devices(name):
    """Inside a `shard_map`: elsewhere JAX does not serialize what is partitioned in Python, and says so."""
    function, arguments = FUNCTIONS[name]
    targets = _targets.PANEL, _targets.REFLECTORS, _targets.BLOCK_REFLECTOR
    own = [jax.export.DisabledSafetyCheck.custom_call(target) for target in targets]
    mesh = jax.make_mesh((3,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:3])
    sharded = [jax.device_put(x, NamedSharding(mesh, P("x"))) for x in arguments]
    mapped = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    exported = jax.export.export(mapped, disabled_checks=own)(*sharded)
    assert exported.nr_devices == 3
    assert_close(jax.jit(exported.call)(*sharded), mapped(*sharded))
    with pytest.raises(NotImplementedError, match="serialization of host_callbacks"):
        jax.export.export(jax.jit(function), disabled_checks=own)(*sharded)
