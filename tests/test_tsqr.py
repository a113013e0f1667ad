"""Tall matrices with rows on several devices: `jaxqr.tsqr`, and QR of row-sharded arrays by it."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxqr
from benchmarks.explicit import explicit_measures
from jaxqr._tsqr import row_sharded_qr
from jaxqr.precision import policy_for
from jaxqr.verify import fp32_grade, lapack_measures
from tests import matrices

normal = functools.partial(matrices.normal, seed=8)


def over(devices: int, check_vma: bool = True, **options):
    """`tsqr` of global arrays [batch, m, n], rows over so many devices."""
    mesh = jax.make_mesh((devices,), ("rows",), devices=jax.devices()[:devices], axis_types=(AxisType.Auto,))
    return jax.shard_map(
        functools.partial(jaxqr.tsqr, axis_name="rows", **options),
        mesh=mesh,
        in_specs=P(None, "rows"),
        out_specs=(P(None, "rows"), P()),
        check_vma=check_vma,
    )


def assert_fp32_grade(a, q, r):
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    measured, lapack = explicit_measures(a, q, r), lapack_measures(a)
    good = fp32_grade(measured, lapack)
    assert good.all(), [(i, measured[i], lapack[i]) for i in np.flatnonzero(~good)]


def assert_like_lapack(found, a, tolerance=2e-5):
    """Q and R are those of the whole matrices, signs included."""
    for x, y in zip(found, np.linalg.qr(a), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("devices", [1, 2, 3, 7, 8])
def test_several_numbers_of_devices(devices):
    """FP32-grade on every class of matrices, and LAPACK's signs."""
    a = matrices.batch(168, 12)
    q, r = jax.jit(over(devices))(a)
    assert_fp32_grade(a, q, r)
    dense = [i for i, name in enumerate(matrices.CLASSES) if name in ("dense", "graded_columns", "banded", "grcar")]
    assert_like_lapack((q[np.array(dense)], r[np.array(dense)]), a[dense])


@pytest.mark.parametrize(("devices", "rows"), [(8, 1), (3, 11), (4, 12), (3, 24)])
def test_blocks_of_any_height(devices, rows):
    """Also shorter than n = 12, and of whole matrices that are wide."""
    a = matrices.batch(devices * rows, 12, ("dense", "graded_columns", "near_collinear"))
    q, r = jax.jit(over(devices))(a)
    assert q.shape == (3, devices * rows, min(devices * rows, 12))
    assert_fp32_grade(a, q, r)
    assert_like_lapack((q[:2], r[:2]), a[:2])


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 12, 0), (0, 12, 3)], ids=str)
def test_nothing(shape):
    q, r = jax.jit(over(3))(np.zeros(shape, np.float32))
    k = min(shape[1:])
    assert q.shape == (*shape[:2], k)
    assert r.shape == (shape[0], k, shape[2])


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_any_scale(scale):
    a = normal(2, 24, 4)
    q, r = jax.jit(over(3))((a * scale).astype(np.float32))
    assert_like_lapack((q, np.asarray(r, np.float64) / scale), a)


def test_nan_stays_in_its_matrix():
    a = normal(3, 24, 4)
    a[1, 13, 2] = np.nan
    factor = jax.jit(over(3))
    found, expected = factor(a), factor(normal(3, 24, 4))
    for x, y in zip(found, expected, strict=True):
        assert np.isnan(x[1]).any()
        np.testing.assert_array_equal(x[::2], y[::2])


@pytest.mark.parametrize("dtype", [np.float64, np.complex64, np.complex128])
def test_other_dtypes(dtype):
    with jax.enable_x64(np.finfo(dtype).eps < 1e-10):
        a = normal(2, 24, 4, dtype=dtype)
        found = jax.jit(over(3))(a)
        assert {x.dtype for x in found} == {np.dtype(dtype)}
        assert_like_lapack(found, a, 100 * np.finfo(dtype).eps)


def test_half_precision_is_refused():
    with pytest.raises(TypeError, match=r"jaxqr\.tsqr takes .* got bfloat16"):
        over(2)(jnp.zeros((1, 8, 2), jnp.bfloat16))


def test_precision_and_implementation_are_those_of_every_factorization():
    a = normal(1, 36, 4)
    for options, updates in [({}, True), ({"precision": "highest"}, False)]:
        lowered = jax.jit(over(3, implementation="blocked", **options)).lower(a)
        assert "lapack_sgeqrf" not in lowered.as_text()
        assert ("@jaxqr_block_reflector" in lowered.as_text()) == updates  # Q is formed by them
        assert_like_lapack(lowered.compile()(a), a)
    with pytest.raises(ValueError, match="precision='best'"):
        over(3, precision="best")(a)
    with pytest.raises(TypeError, match='"blocked"'):
        over(3, implementation="blocked")(a.astype(complex))


def test_rows_of_a_sharded_array_are_factored_as_asked():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    a = jax.device_put(normal(64, 4), NamedSharding(mesh, P("x")))
    compiled = jax.jit(lambda a: tuple(jaxqr.qr(a, implementation="blocked"))).lower(a).compile()
    assert "geqrf" not in compiled.as_text()
    assert "jaxqr_panel" in compiled.as_text()
    assert_like_lapack(compiled(a), np.asarray(a))


def test_an_axis_that_is_not_there():
    with pytest.raises(NameError, match="elsewhere"):
        jaxqr.tsqr(jnp.zeros((4, 2)), "elsewhere")


def test_without_checked_types():
    a = normal(2, 35, 4)
    assert_like_lapack(jax.jit(over(5, check_vma=False))(a), a)


def test_what_is_sent():
    """Triangles alone: ⌊log₂ P⌋ exchanges, two transfers more if P is no power of two, and one sum."""
    for devices, transfers in ((8, 3), (6, 4)):
        text = jax.jit(over(devices)).lower(normal(1, 40 * devices, 4)).compile().as_text()
        sent = re.findall(r"= f32\[([\d,]+)\]\S* collective-permute(?:-start)?\(", text)
        assert sent == ["1,4,4"] * transfers
        assert re.findall(r"= f32\[([\d,]+)\]\S* all-reduce(?:-start)?\(", text) == ["1,8,4"]
        assert "all-gather" not in text
        assert "all-to-all" not in text


def test_inside_scan_with_checked_types():
    mesh = jax.make_mesh((4,), ("rows",), devices=jax.devices()[:4], axis_types=(AxisType.Auto,))

    def local(a):
        def step(carry, _):
            q, r = jaxqr.tsqr(carry[0], "rows")
            return (q, r + 0 * carry[1]), jnp.sum(r)

        return jax.lax.scan(step, (a, jnp.zeros((4, 4))), length=2)[0]

    q, r = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P("rows"), out_specs=(P("rows"), P())))(normal(40, 4))
    np.testing.assert_allclose(np.abs(r), np.eye(4), atol=1e-5)
    np.testing.assert_allclose(q.T @ q, np.eye(4), atol=1e-5)


def test_vmap():
    a = normal(3, 2, 24, 4)
    assert_like_lapack(jax.jit(jax.vmap(over(3)))(a), a)


# Derivatives.


def by_jax(a):
    q, r = jnp.linalg.qr(a)
    return q, r


def assert_same(found, expected):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5 * np.max(np.abs(y)))


def weighted(factor, a):
    q, r = factor(a)
    return jnp.sum(jnp.sin(3 * q)) + jnp.sum(r**3)


@pytest.mark.parametrize(("rows", "check_vma"), [(7, True), (4, False), (2, True)])
def test_forward_and_reverse(rows, check_vma):
    a, da = jnp.asarray(normal(2, 2, 3 * rows, 4))

    @functools.partial(jax.jit, static_argnums=0)
    def derivatives(factor, a, da):
        (_, r), pull_back = jax.vjp(factor, a)
        return jax.jvp(factor, (a,), (da,)), pull_back((da[..., : r.shape[-2]], r))

    assert_same(*(derivatives(factor, a, da) for factor in (over(3, check_vma), by_jax)))


def test_forward_over_reverse():
    a, da = jnp.asarray(normal(2, 2, 15, 4))
    gradients = (jax.grad(functools.partial(weighted, factor)) for factor in (over(3), by_jax))
    assert_same(*(jax.jit(functools.partial(jax.jvp, gradient))((a,), (da,)) for gradient in gradients))


def test_complex_derivatives():
    """They are what d(QR) = dA, d(QᴴQ) = 0 and a real diagonal of dR say."""
    a, da = jnp.asarray(normal(2, 2, 21, 4, dtype=np.complex64))
    (q, r), (dq, dr) = jax.jit(functools.partial(jax.jvp, over(3)))((a,), (da,))
    np.testing.assert_allclose(dq @ r + q @ dr, da, atol=1e-5)
    skew = np.asarray(q.conj().mT @ dq)
    np.testing.assert_allclose(skew, -skew.conj().mT, atol=1e-5)
    np.testing.assert_array_equal(np.tril(dr, -1), 0)
    np.testing.assert_allclose(np.diagonal(dr, axis1=1, axis2=2).imag, 0, atol=1e-5)


def test_derivatives_are_finite():
    """On singular matrices, of every class and of rank zero, as those of `jaxqr.qr` are."""
    gradient = jax.jit(jax.grad(functools.partial(weighted, over(3))))
    assert np.isfinite(gradient(jnp.asarray(matrices.batch(30, 8)))).all()


# Global arrays.


@pytest.mark.parametrize(
    ("spec", "mode"),
    [(P("batch", ("x", "y")), "reduced"), (P(None, "x"), "reduced"), (P("batch", "y", None), "r")],
    ids=str,
)
@pytest.mark.parametrize("axes", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_row_sharded_qr(axes, spec, mode):
    mesh = jax.make_mesh((2, 2, 2), ("batch", "x", "y"), axis_types=(axes,) * 3)
    a = jax.device_put(normal(2, 40, 4), NamedSharding(mesh, spec))
    compiled = jax.jit(lambda a: row_sharded_qr(a, mesh, spec, mode, policy_for(None), None)).lower(a).compile()
    assert "all-gather" not in compiled.as_text()
    *q, r = jax.tree.leaves(compiled(a))
    assert len(q) == (mode == "reduced")
    assert_like_lapack([*(q or [np.linalg.qr(a).Q]), r], np.asarray(a))
    for factor, sharding in zip([*q, r], [*([a.sharding] * len(q)), NamedSharding(mesh, P(spec[0]))], strict=True):
        assert factor.sharding.is_equivalent_to(sharding, 3)


def test_qr_of_a_row_sharded_array_outside_of_jit():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    a = jax.device_put(normal(64, 4), NamedSharding(mesh, P("x")))
    q, r = jaxqr.qr(a)
    assert_like_lapack((q, r), np.asarray(a))
    assert q.sharding.is_equivalent_to(a.sharding, 2)
    assert r.sharding.is_fully_replicated


@pytest.mark.parametrize("mode", ["reduced", "r"])
@pytest.mark.parametrize("axes", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_qr_of_a_row_sharded_array(axes, mode):
    """It comes to `tsqr` by itself; the rows are not gathered, for the derivative neither."""
    mesh = jax.make_mesh((2, 2, 2), ("batch", "x", "y"), axis_types=(axes,) * 3)
    a = jax.device_put(normal(2, 40, 4), NamedSharding(mesh, P("batch", ("x", "y"))))

    def r_and_gradient(a):
        return jaxqr.qr(a, mode="r"), jax.grad(lambda a: jnp.sum(jaxqr.qr(a, mode="r") ** 3))(a)

    def q_and_r(a):
        return tuple(jaxqr.qr(a))

    compiled = jax.jit(r_and_gradient if mode == "r" else q_and_r).lower(a).compile()
    assert "all-gather" not in compiled.as_text()
    assert "collective-permute" in compiled.as_text()
    expected = np.linalg.qr(a)
    if mode == "r":
        gradient = jax.jit(jax.grad(lambda a: jnp.sum(jnp.linalg.qr(a).R ** 3)))(np.asarray(a))
        expected = [expected.R, gradient]
    assert_same(compiled(a), list(expected))


@pytest.mark.parametrize("spec", [P("batch", ("y", "x")), P("batch", None, "x"), P("batch", "x", "y")], ids=str)
def test_qr_of_arrays_that_must_be_gathered(spec):
    mesh = jax.make_mesh((2, 2, 2), ("batch", "x", "y"), axis_types=(AxisType.Auto,) * 3)
    a = jax.device_put(normal(2, 40, 4), NamedSharding(mesh, spec))
    assert_like_lapack(jax.jit(lambda a: tuple(jaxqr.qr(a)))(a), np.asarray(a))
