"""`install` and `installed`: JAX's own QR functions follow the context, through every cache, and lose nothing by it."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from jaxqr import _install, _jax_rules, _targets
from tests import matrices

normal = functools.partial(matrices.normal, seed=6)


def test_gradients_are_this_packages():
    """And so finite where JAX's are not, as at zero."""
    gradient = jax.jit(jax.vmap(jax.grad(lambda a: jnp.linalg.qr(a).R.sum())))
    for within in (False, True, False):
        with jaxqr.installed(within):
            assert bool(jnp.isfinite(gradient(jnp.zeros((2, 4, 3)))).all()) == within


# What becomes this package's, and what does not.


def traced(function, *args) -> str:
    return str(jax.make_jaxpr(function)(*args))


def is_replaced(function, *args) -> bool:
    with jaxqr.installed(False):
        outside = traced(function, *args)
    with jaxqr.installed():
        inside = traced(function, *args)
    assert ("custom_partitioning" in inside) == (inside != outside)
    return inside != outside


def test_every_function_is_replaced():
    a, tau, c = normal(2, 5, 4), normal(2, 4), normal(2, 5, 6)
    for mode in ("reduced", "complete", "full", "r", "raw"):
        assert is_replaced(functools.partial(jnp.linalg.qr, mode=mode), a)
    assert is_replaced(jax.vmap(jnp.linalg.qr), a)
    assert is_replaced(jax.lax.linalg.qr, a)
    assert is_replaced(functools.partial(jax.lax.linalg.qr, full_matrices=False), a)
    assert is_replaced(jax.lax.linalg.householder_product, a, tau)
    assert is_replaced(jax.lax.linalg.ormqr, a, tau, c)
    assert is_replaced(jax.scipy.linalg.qr, a)
    assert is_replaced(functools.partial(jax.scipy.linalg.qr_multiply, mode="left"), a[0], c[0, :4])
    assert is_replaced(functools.partial(jnp.linalg.slogdet, method="qr"), a[:, :4])
    assert is_replaced(lambda key: jax.nn.initializers.orthogonal()(key, (5, 4)), jax.random.key(0))


@pytest.mark.parametrize("dtype", [np.complex64, np.float64, np.complex128])
def test_other_dtypes_stay(dtype):
    with jax.enable_x64(True):
        a = normal(5, 4, dtype=dtype)
        assert not is_replaced(jnp.linalg.qr, a)
        assert not is_replaced(functools.partial(jnp.linalg.qr, mode="raw"), a)
        assert not is_replaced(jax.lax.linalg.householder_product, a, a[0])
        assert not is_replaced(jax.lax.linalg.ormqr, a, a[0], a)


def test_pivoting_and_magma_stay():
    a = normal(5, 4)
    assert not is_replaced(functools.partial(jax.lax.linalg.qr, pivoting=True), a)
    assert not is_replaced(functools.partial(jax.scipy.linalg.qr, pivoting=True), a)
    for use_magma in (True, False):
        assert not is_replaced(functools.partial(jax.lax.linalg.qr, use_magma=use_magma), a)


def test_a_primitive_that_is_lowered_inside_keeps_its_rules():
    """The pivoting QR of JAX, which stays JAX's, makes its Q by householder_product when it is lowered."""
    factor = functools.partial(jax.scipy.linalg.qr, pivoting=True)
    expected = factor(normal(6, 4))
    with jaxqr.installed():
        found = factor(normal(6, 4))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


def test_symbolic_shapes_stay():
    (batch,) = jax.export.symbolic_shape("b")
    a = jax.ShapeDtypeStruct((batch, 5, 4), np.float32)
    with jaxqr.installed():
        exported = jax.export.export(jax.jit(jnp.linalg.qr))(a)
    np.testing.assert_array_equal(exported.call(normal(3, 5, 4)).R, jnp.linalg.qr(normal(3, 5, 4)).R)


def test_lowering_for_cuda():
    """Where the kernels are built in, JAX's own solver is gone from a program for CUDA; else it is all there is."""
    traced = jax.jit(lambda a: jax.vmap(jnp.linalg.qr)(a))
    for within in (False, True, False):
        with jaxqr.installed(within):
            text = traced.trace(normal(3, 20, 10)).lower(lowering_platforms=("cuda",)).as_text()
        assert (
            ("@cusolver_geqrf_ffi" in text) == ("@cusolver_orgqr_ffi" in text) == (not (within and _targets.HAS_CUDA))
        )
        assert ("@jaxqr_" in text) == (within and _targets.HAS_CUDA)


def test_the_other_platforms_get_the_same_bits():
    a, tau, c = normal(2, 5, 4), normal(2, 4), normal(2, 5, 6)
    calls = [functools.partial(jnp.linalg.qr, a, mode=mode) for mode in ("reduced", "complete", "r", "raw")]
    calls += [functools.partial(jnp.linalg.qr, a.mT, mode=mode) for mode in ("reduced", "complete", "r", "raw")]
    calls += [
        functools.partial(jax.lax.linalg.householder_product, a, tau),
        functools.partial(jax.lax.linalg.ormqr, a, tau, c),
        functools.partial(jax.lax.linalg.ormqr, a, tau, c.mT, left=False, transpose=True),
        functools.partial(jnp.linalg.slogdet, a[:, :4], method="qr"),
    ]
    for call in map(jax.jit, calls):
        expected = call()
        with jaxqr.installed():
            found = call()
        assert type(found) is type(expected)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert x.dtype == y.dtype
            assert x.weak_type == y.weak_type
            np.testing.assert_array_equal(x, y)


def test_what_is_left_to_jax_does_not_come_back():
    """A function of this package that is told to leave the work to JAX does so inside as well."""
    by_jax = functools.partial(jaxqr.geqrf, implementation="jax")
    with jaxqr.installed(False):
        outside = jax.jit(by_jax).trace(normal(2, 5, 4)).lower(lowering_platforms=("cuda",)).as_text()
    with jaxqr.installed():
        inside = jax.jit(by_jax).trace(normal(2, 5, 4)).lower(lowering_platforms=("cuda",)).as_text()
    assert "@cusolver_geqrf_ffi" in outside
    assert inside == outside


@pytest.mark.parametrize("has_cuda", [False, True])
def test_direct_calls_inside(has_cuda, monkeypatch):
    """This package's own functions, called by name where JAX's are replaced, end, with and without CUDA kernels."""
    monkeypatch.setattr(_targets, "HAS_CUDA", has_cuda)
    for a in (normal(3, 6, 5), normal(3, 6, 5)[:, :, :4]):
        with jaxqr.installed(False):
            h, tau = jaxqr.geqrf(a)
            expected = [h, tau, *jaxqr.qr(a), jaxqr.householder_product(h, tau), jaxqr.ormqr(h, tau, a)]
        with jaxqr.installed():
            found = [*jaxqr.geqrf(a), *jaxqr.qr(a), jaxqr.householder_product(h, tau), jaxqr.ormqr(h, tau, a)]
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_array_equal(x, y)


def test_sharded_batches_are_not_gathered():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.NamedSharding(mesh, jax.P("x"))
    a = jax.device_put(normal(16, 5, 4), sharding)
    with jaxqr.installed():
        compiled = jax.jit(jax.vmap(jnp.linalg.qr)).lower(a).compile()
    assert "all-gather" not in compiled.as_text()
    for found, expected in zip(compiled(a), jnp.linalg.qr(normal(16, 5, 4)), strict=True):
        assert found.sharding.is_equivalent_to(sharding, 3)
        np.testing.assert_array_equal(found, expected)


# JAX versions that are not known.


@pytest.fixture
def untouched(monkeypatch):
    """JAX as it was before anything was installed."""
    for primitive in _install._switched:
        monkeypatch.delattr(primitive, "bind")
    monkeypatch.setattr(_install, "_switched", [])
    yield
    assert not _install._switched
    assert not any("bind" in vars(primitive) for primitive in PRIMITIVES)
    assert not _jax_rules.replaced.value


PRIMITIVES = jax.lax.linalg.qr_p, jax.lax.linalg.householder_product_p, jax.lax.linalg.ormqr_p


@pytest.mark.parametrize("version", [(0, 9, 2), (0, 13, 0), (1, 0, 0)], ids=str)
def test_a_version_of_jax_that_is_not_known_is_refused(untouched, version, monkeypatch):
    monkeypatch.setattr(jax, "__version_info__", version)
    with pytest.raises(RuntimeError, match=r"knows the internals of JAX 0\.10 to 0\.12.*call jaxqr\.qr"):
        jaxqr.install()
    with pytest.raises(RuntimeError), jaxqr.installed():
        pass


def qr_once():
    """A function like JAX's that binds its primitive at the first call only."""
    results = []

    def qr(a):
        if not results:
            results.append(jax.eval_shape(jax.lax.linalg.qr, a))
            return jax.lax.linalg.qr(a)
        return a

    return qr


QR_PARAMS = frozenset({"pivoting", "full_matrices", "use_magma"})
UNKNOWN = {
    "another name": ("geqrt", QR_PARAMS, jax.lax.linalg.qr, "geqrt is not the primitive known by that name"),
    "other parameters": ("qr", QR_PARAMS | {"block"}, jax.lax.linalg.qr, "qr is not the primitive known by that name"),
    "several": ("qr", QR_PARAMS, lambda a: [jax.lax.linalg.qr(a)] * 1 + [jax.lax.linalg.qr(a)], "qr is not the"),
    "out of reach": ("qr", QR_PARAMS, qr_once(), "qr cannot be replaced"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_internals_of_jax_that_are_not_known_are_refused(untouched, case, monkeypatch):
    """And then the primitives that are as expected stay what they were, too."""
    name, params, example, message = UNKNOWN[case]
    replacement = _install._Replacement(name, params, example, (2,), _install._qr)
    monkeypatch.setattr(_install, "_REPLACEMENTS", (*_install._REPLACEMENTS, replacement))
    with pytest.raises(RuntimeError, match=message):
        jaxqr.install()


def test_installing_twice_changes_nothing_more():
    with jaxqr.installed():
        binds = [vars(primitive)["bind"] for primitive in PRIMITIVES]
    with jaxqr.installed():
        assert [vars(primitive)["bind"] for primitive in PRIMITIVES] == binds


def test_installing_starts_no_backend():
    """It may come before `jax.distributed.initialize`, and costs no memory on a GPU."""
    code = "import jax, jaxqr; jaxqr.install(); jax.config.update('jax_platforms', 'nonesuch'); print(jax.devices())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert "nonesuch" in run.stderr
