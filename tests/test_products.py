"""`householder_product` and `ormqr`: JAX's contracts, factors of any origin, precision, NaN, vmap and export."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from benchmarks.explicit import explicit_measures
from jaxqr import _products, _targets
from jaxqr.verify import fp32_grade
from tests import matrices
from tests.reference import apply_qt

EPS = 2.0**-23
IMPLEMENTATIONS = [None, "blocked"]
each = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=["default", "blocked"])
SIDES = list(itertools.product([True, False], repeat=2))


normal = functools.partial(matrices.normal, seed=9)


def factors(*shape: int, dtype=np.float32) -> tuple[np.ndarray, np.ndarray]:
    """LAPACK's `(h, tau)`."""
    h, tau = jnp.linalg.qr(normal(*shape, dtype=dtype), mode="raw")
    return np.asarray(h.mT), np.asarray(tau)


@each
@pytest.mark.parametrize("shape", [(2, 3, 5, 3), (1, 1), (3, 130, 66), (530, 516)], ids=str)
def test_householder_product(implementation, shape):
    h, tau = factors(*shape)
    q = jaxqr.householder_product(h, tau, implementation=implementation)
    np.testing.assert_allclose(q, jax.lax.linalg.householder_product(h, tau), atol=5e-6)


@each
@pytest.mark.parametrize(("left", "transpose"), SIDES)
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 130, 66)], ids=str)
def test_ormqr(implementation, shape, left, transpose):
    h, tau = factors(*shape)
    c = normal(*shape[:-2], *((shape[-2], 7) if left else (7, shape[-2])))
    found = jaxqr.ormqr(h, tau, c, left=left, transpose=transpose, implementation=implementation)
    np.testing.assert_allclose(
        found, jax.lax.linalg.ormqr(h, tau, c, left=left, transpose=transpose), rtol=1e-5, atol=2e-5
    )


@pytest.mark.parametrize("reflectors", [0, 70])
def test_fewer_reflectors_than_columns(reflectors):
    """The last columns of h are then not read, nor is what lies on and above its diagonal."""
    h, tau = factors(2, 90, 80)
    tau = tau[:, :reflectors]
    expected = jax.lax.linalg.householder_product(h, tau)
    c = normal(2, 90, 3)
    expected_c = jax.lax.linalg.ormqr(h, tau, c)
    h = np.tril(h, -1) + np.triu(np.full_like(h, np.nan))
    h[:, :, reflectors:] = np.nan
    np.testing.assert_allclose(jaxqr.householder_product(h, tau, implementation="blocked"), expected, atol=5e-6)
    np.testing.assert_allclose(jaxqr.ormqr(h, tau, c, implementation="blocked"), expected_c, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64, np.complex128])
def test_dtypes(dtype):
    with jax.enable_x64(True):
        h, tau = factors(2, 6, 4, dtype=dtype)
        c = normal(2, 6, 6, dtype=dtype)
        tolerance = 100 * np.finfo(dtype).eps
        q = jaxqr.householder_product(h, tau)
        np.testing.assert_allclose(q, jax.lax.linalg.householder_product(h, tau), atol=tolerance)
        assert q.dtype == dtype
        for left, transpose in SIDES:
            found = jaxqr.ormqr(h, tau, c, left=left, transpose=transpose)
            expected = jax.lax.linalg.ormqr(h, tau, c, left=left, transpose=transpose)
            np.testing.assert_allclose(found, expected, atol=10 * tolerance)


def test_reflectors_of_other_origin():
    """Any v and tau = 2/‖v‖² are a reflection: here with tau far from LAPACK's 1 to 2, and zeros among them."""
    rng = np.random.default_rng(10)
    h = np.tril(rng.standard_normal((2, 60, 40)) * np.exp2(rng.integers(-4, 5, 40)), -1).astype(np.float32)
    tau = (2 / (1 + np.sum(h.astype(np.float64) ** 2, axis=-2))).astype(np.float32)
    tau[:, [0, 7, 39]] = 0
    q = apply_qt(h, tau, np.broadcast_to(np.eye(60), (2, 60, 60))).mT[..., :40]
    np.testing.assert_allclose(jaxqr.householder_product(h, tau, implementation="blocked"), q, atol=2e-6)


def test_every_block_of_q_has_the_scales_of_its_columns(monkeypatch):
    """Of columns that grow, as the block before made them, and of unit columns."""
    h, tau = factors(2, 200, 150)
    update, offsets = _targets.block_reflector, []

    def checked(q, reflectors, scales, *, offset, known, **options):
        offsets.append(offset)
        rows, columns = np.indices((200 - offset, 150 - offset))
        in_memory = 0 if q is None else q[:, offset:, offset:]
        c = np.where(np.minimum(rows, columns) < known, rows == columns, in_memory)
        largest = np.abs(c).max(axis=-2)
        scaled = np.asarray(scales)[:, offset:] * largest / _targets.scale_of_unit_columns(200)
        assert ((scaled >= 1) & (scaled < 2)).all()
        return update(q, reflectors, scales, offset=offset, known=known, **options)

    monkeypatch.setattr(_targets, "block_reflector", checked)
    _products._fused_product(jnp.asarray(h), jnp.asarray(3 * tau))
    assert offsets == [128, 64, 0]


@pytest.mark.parametrize("transpose", [True, False])
def test_no_block_of_ormqr_has_scales_too_large_for_its_columns(monkeypatch, transpose):
    h, tau = factors(2, 200, 150)
    update, given = _targets.block_reflector, []

    def checked(c, reflectors, scales, *, offset, **options):
        given.append(scales is not None)
        if scales is not None:
            assert (
                np.asarray(scales) * np.abs(c[:, offset:]).max(axis=1) < 2 * _targets.scale_of_unit_columns(200)
            ).all()
        return update(c, reflectors, scales, offset=offset, **options)

    monkeypatch.setattr(_targets, "block_reflector", checked)
    c = normal(2, 200, 9) * np.exp2(np.arange(-60, 66, 14)).astype(np.float32)
    _products._fused_multiply(jnp.asarray(h), jnp.asarray(3 * tau), jnp.asarray(c), left=True, transpose=transpose)
    assert given == [False, transpose, transpose]


SMOOTH = ("min_index", "exponential", "lower_ones")


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "matmul"])
@pytest.mark.parametrize(("m", "n", "names"), [(100, 70, tuple(matrices.CLASSES)), (512, 512, SMOOTH)])
def test_fp32_grade(m, n, names, fused):
    """Of every class; of smooth covariances, where a careless T or plain float32 sums lose hundreds of eps, at n = 512
    too."""
    a = matrices.batch(m, n, names)
    h_transposed, tau = jnp.linalg.qr(a, mode="raw")
    h = h_transposed.mT
    r = jnp.triu(h[:, :n])
    form = functools.partial(jaxqr.householder_product, implementation="blocked") if fused else _products.matmul_product
    q = form(h, tau)
    good = fp32_grade(explicit_measures(a, q, r), explicit_measures(a, jax.lax.linalg.householder_product(h, tau), r))
    assert good.all(), [name for name, is_good in zip(names, good, strict=True) if not is_good]


def test_ormqr_of_columns_of_any_scale():
    """As good as at unit scale, column by column, at scales whose products over- or underflow."""
    h, tau = factors(90, 70)
    exponents = np.array([-100, -80, -20, 0, 20, 80, 120])  # a CPU takes denormals for zeros
    c = np.ldexp(np.clip(normal(90, 7), -3, 3), exponents).astype(np.float32)
    found = np.asarray(jaxqr.ormqr(h, tau, c, transpose=True, implementation="blocked"), np.float64)
    error = np.linalg.norm(np.ldexp(found - apply_qt(h, tau, c), -exponents), axis=0)
    assert (error <= 20 * EPS * np.linalg.norm(np.ldexp(c.astype(np.float64), -exponents), axis=0)).all()


def test_nan_stays_in_its_matrix():
    h, tau = factors(3, 70, 66)
    h = h.copy()
    h[1, 40, 3] = np.nan
    q = np.asarray(jaxqr.householder_product(h, tau, implementation="blocked"))
    np.testing.assert_array_equal(np.isfinite(q).all((1, 2)), [True, False, True])
    c = normal(3, 70, 4)
    c[2, 0, 0] = np.inf
    product = np.asarray(jaxqr.ormqr(h, tau, c, implementation="blocked"))
    np.testing.assert_array_equal(np.isfinite(product).all((1, 2)), [True, False, False])
    assert np.isfinite(product[2, :, 1:]).all()


@each
@pytest.mark.parametrize(("m", "n"), [(0, 0), (3, 0), (3, 3)])
@pytest.mark.parametrize("batch", [(), (2,), (0,)], ids=str)
def test_empty(implementation, m, n, batch):
    h, tau = np.full((*batch, m, n), np.nan, np.float32), np.zeros((*batch, 0), np.float32)
    q = jaxqr.householder_product(h, tau, implementation=implementation)
    np.testing.assert_array_equal(q, np.broadcast_to(np.eye(m, n), (*batch, m, n)))
    c = normal(*batch, m, 2)
    np.testing.assert_array_equal(jaxqr.ormqr(h, tau, c, implementation=implementation), c)


@pytest.mark.parametrize("function", [jaxqr.householder_product, jaxqr.ormqr])
def test_products_are_of_float32_precision(function):
    """Whatever `jax_default_matmul_precision` says; on a CPU all have it, so the program is asked."""
    h, tau = factors(90, 70)
    arguments = (h, tau) if function is jaxqr.householder_product else (h, tau, normal(90, 5))
    with jax.default_matmul_precision("bfloat16"):
        text = str(jax.make_jaxpr(functools.partial(function, implementation="blocked"))(*arguments))
    _, *products = text.split("dot_general[")
    assert products
    assert all("precision=(Precision.HIGHEST, Precision.HIGHEST)" in product.split("]\n")[0] for product in products)


def test_vmap_adds_to_the_batch():
    h, tau = factors(6, 12, 8)
    c = normal(6, 12, 4)
    multiply = functools.partial(jaxqr.ormqr, implementation="blocked")
    form = functools.partial(jaxqr.householder_product, implementation="blocked")
    expected_q, expected = jax.lax.linalg.householder_product(h, tau), jax.lax.linalg.ormqr(h, tau, c)
    nested = jax.jit(jax.vmap(jax.vmap(form)))
    stacked = h.reshape(2, 3, 12, 8), tau.reshape(2, 3, 8)
    np.testing.assert_allclose(nested(*stacked).reshape(h.shape), expected_q, atol=2e-6)
    assert "while" not in nested.lower(*stacked).as_text()
    np.testing.assert_allclose(
        jax.vmap(multiply, in_axes=(0, 0, 2), out_axes=2)(h, tau, np.moveaxis(c, 0, 2)),
        np.moveaxis(expected, 0, 2),
        atol=1e-5,
    )
    one = jax.vmap(multiply, in_axes=(None, None, 0))(h[0], tau[0], c)
    np.testing.assert_allclose(one, [jax.lax.linalg.ormqr(h[0], tau[0], x) for x in c], atol=1e-5)


WRONG = {
    "wide": ((2, 3), (2,), None, ValueError, "m ≥ n ≥ k"),
    "too many reflectors": ((3, 2), (3,), None, ValueError, "m ≥ n ≥ k"),
    "another batch": ((4, 3, 2), (2,), None, TypeError, "one batch shape"),
    "a vector": ((3,), (2,), None, TypeError, "h of at least 2 dimensions"),
    "rows of c": ((3, 2), (2,), (2, 2), ValueError, r"c \[2, 2\] with left=True"),
    "too many for c": ((3, 2), (3,), (3, 2), ValueError, "k ≤ min"),
    "c is a vector": ((3, 2), (2,), (3,), TypeError, "c of at least 2 dimensions"),
}


@pytest.mark.parametrize(("h", "tau", "c", "error", "message"), WRONG.values(), ids=WRONG)
def test_shapes_that_do_not_belong_together(h, tau, c, error, message):
    h, tau = jnp.zeros(h), jnp.zeros(tau)
    with pytest.raises(error, match=message):
        jaxqr.householder_product(h, tau) if c is None else jaxqr.ormqr(h, tau, jnp.zeros(c))


def test_dtypes_that_do_not_belong_together():
    with pytest.raises(TypeError, match="one dtype and one batch shape, got h float32"):
        jaxqr.householder_product(jnp.zeros((3, 2)), jnp.zeros(2, jnp.complex64))
    with pytest.raises(TypeError, match=r"float16\[3, 2\]: cast with"):
        jaxqr.householder_product(jnp.zeros((3, 2), jnp.float16), jnp.zeros(2, jnp.float16))
    with pytest.raises(TypeError, match="takes an array tau, got list"):
        jaxqr.householder_product(jnp.zeros((3, 2)), [0.0, 0.0])
    with pytest.raises(TypeError, match='"blocked"'):
        jaxqr.ormqr(*(x.astype(complex) for x in (*factors(3, 2), normal(3, 1))), implementation="blocked")


@pytest.fixture
def cuda_build(monkeypatch):
    """As in a build with CUDA kernels, with functions traced anew."""
    monkeypatch.setattr(_targets, "HAS_CUDA", True)
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.usefixtures("cuda_build")
def test_lowering_for_cuda_without_a_gpu():
    """There all is block reflectors; on a CPU it stays LAPACK's."""
    h, tau, c = (jax.ShapeDtypeStruct(shape, np.float32) for shape in [(3, 80, 70), (3, 70), (3, 80, 9)])
    for function, arguments, target in [
        (jaxqr.householder_product, (h, tau), "orgqr"),
        (jaxqr.ormqr, (h, tau, c), "ormqr"),
    ]:
        traced = jax.jit(lambda *x, function=function: function(*x)).trace(*arguments)
        on_cuda, on_cpu = (traced.lower(lowering_platforms=(platform,)).as_text() for platform in ("cuda", "cpu"))
        assert on_cuda.count(f"@{_targets.REFLECTORS}") == 1
        assert on_cuda.count(f"@{_targets.BLOCK_REFLECTOR}") == 3
        assert "dot_general" not in on_cuda
        assert target in on_cpu
        assert "@jaxqr" not in on_cpu


def test_blocks_are_made_a_few_at_a_time():
    """As many as fill a device, and so as much memory."""
    for batch, launches in [(3, 1), (100, 2), (300, 5)]:
        h, tau = (jax.ShapeDtypeStruct(shape, np.float32) for shape in [(batch, 300, 290), (batch, 290)])
        text = jax.jit(functools.partial(jaxqr.householder_product, implementation="blocked")).lower(h, tau).as_text()
        assert text.count(f"@{_targets.REFLECTORS}") == launches
        assert text.count(f"@{_targets.BLOCK_REFLECTOR}") == 5


@pytest.mark.parametrize(("left", "transpose"), [(True, True), (False, True)])
def test_products_of_other_precision_are_matrix_products(left, transpose):
    h, tau = factors(2, 70, 40)
    c = normal(2, *((70, 7) if left else (7, 70)))
    form = jax.jit(_products.matmul_product)
    multiply = jax.jit(_products._ormqr(left, transpose, "blocked", fused=False))
    assert "@jaxqr" not in form.lower(h, tau).as_text() + multiply.lower(h, tau, c).as_text()
    np.testing.assert_allclose(form(h, tau), jax.lax.linalg.householder_product(h, tau), atol=5e-6)
    expected = jax.lax.linalg.ormqr(h, tau, c, left=left, transpose=transpose)
    np.testing.assert_allclose(multiply(h, tau, c), expected, rtol=1e-5, atol=2e-5)


def test_export_with_symbolic_batch():
    batch = jax.export.symbolic_shape("b")[0]
    h, tau = factors(3, 30, 20)
    specs = [jax.ShapeDtypeStruct((batch, *x.shape[1:]), np.float32) for x in (h, tau)]
    form = functools.partial(jaxqr.householder_product, implementation="blocked")
    own = [jax.export.DisabledSafetyCheck.custom_call(x) for x in (_targets.REFLECTORS, _targets.BLOCK_REFLECTOR)]
    exported = jax.export.export(jax.jit(form), disabled_checks=own)(*specs)
    np.testing.assert_allclose(exported.call(h, tau), form(h, tau), atol=1e-6)
