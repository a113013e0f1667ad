"""`qr`: results, types and errors of `jnp.linalg.qr` in every mode, positive diagonals, and Q of FP32 grade."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from benchmarks.explicit import explicit_measures
from jaxqr import Schedule, Step, _blocked, _products, _targets
from jaxqr.verify import fp32_grade
from tests import drivers, matrices

MODES = ["reduced", "complete", "r", "raw", "full"]
SHAPES = [(3, 5), (4, 4), (2, 3, 70, 66), (1, 1), (0, 0), (0, 3), (3, 0), (0, 4, 3), (2, 0, 3)]
blocked = functools.partial(jaxqr.qr, implementation="blocked")
each = pytest.mark.parametrize("qr", [jaxqr.qr, blocked], ids=["default", "blocked"])


normal = functools.partial(matrices.normal, seed=8)


def assert_like_jax(found, a, mode: str, tolerance: float = 5e-5):
    expected = jnp.linalg.qr(a, mode=mode)
    assert type(found) is type(expected) or mode == "r"
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@each
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_mode_and_shape(qr, shape):
    a = normal(*shape)
    for mode in MODES:
        assert_like_jax(qr(a, mode), a, mode)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64, np.complex128, np.int32, np.bool_])
def test_dtypes(dtype):
    with jax.enable_x64(True):
        a = normal(2, 5, 4, dtype=dtype)
        for mode in MODES:
            assert_like_jax(jaxqr.qr(a, mode), a, mode, 1e-12 if a.itemsize > 8 or dtype == np.float64 else 5e-5)


def test_the_named_tuple():
    factors = jaxqr.qr(normal(4, 3))
    assert factors._fields == ("Q", "R")
    np.testing.assert_array_equal(factors.R, factors[1])


def test_nan_stays_in_its_matrix():
    """pytorch#126748: rows [inf, nan, 5] inside a good batch."""
    a = normal(3, 3, 3)
    a[1] = [np.inf, np.nan, 5]
    good = np.array([True, False, True])
    for factor, expected in zip(blocked(a), jnp.linalg.qr(np.where(good[:, None, None], a, 0)), strict=True):
        assert np.isnan(factor[1]).any()
        np.testing.assert_allclose(factor[good], expected[good], atol=1e-5)


def test_raw_is_geqrf():
    a = normal(3, 5, 4)
    h_transposed, tau = jaxqr.qr(a, "raw")
    for x, y in zip((h_transposed.mT, tau), jaxqr.geqrf(a), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", ["unknown", "Reduced", None])
def test_an_unknown_mode(name):
    with pytest.raises(ValueError, match=f"Unsupported QR decomposition mode '{name}'"):
        jnp.linalg.qr(normal(2, 2), mode=name)
    with pytest.raises(ValueError, match=f"Unsupported QR decomposition mode '{name}'"):
        jaxqr.qr(normal(2, 2), name)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_low_precision_names_the_cast(dtype):
    name = np.dtype(dtype).name
    with pytest.raises(TypeError, match=rf"jaxqr.qr .*{name}\[3, 2\]: cast with a.astype\(jnp.float32\)"):
        jaxqr.qr(jnp.zeros((3, 2), dtype))


@pytest.mark.parametrize("a", [np.zeros(3), jnp.zeros(()), [[1.0]], None], ids=str)
def test_arguments_that_jax_refuses_too(a):
    for function in (jaxqr.qr, jnp.linalg.qr):
        with pytest.raises(TypeError):
            function(a)


def test_options_are_checked():
    a = normal(2, 2)
    with pytest.raises(ValueError, match="precision='single'"):
        jaxqr.qr(a, precision="single")
    with pytest.raises(ValueError, match="implementation='lapack'"):
        jaxqr.qr(a, implementation="lapack")
    with pytest.raises(ValueError, match="positive_diagonal=True needs Q or R"):
        jaxqr.qr(a, "raw", positive_diagonal=True)
    with pytest.raises(TypeError, match=r'qr\(implementation="blocked"\) takes float32, got complex64'):
        blocked(a.astype(np.complex64))


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 40, 40), (0, 2)], ids=str)
def test_positive_diagonal(shape, dtype):
    """numpy#18177. Only signs differ from LAPACK's, and the product stays A."""
    a = normal(*shape, dtype=dtype)
    r = jaxqr.qr(a, "r", positive_diagonal=True)
    for mode in ("reduced", "complete"):
        q, full_r = jaxqr.qr(a, mode, positive_diagonal=True)
        np.testing.assert_array_equal(full_r[..., : min(shape[-2:]), :], r)
        np.testing.assert_allclose(q @ full_r, a, atol=2e-5)
        np.testing.assert_array_equal(abs(q), abs(jaxqr.qr(a, mode).Q))
    diagonal = np.asarray(jnp.diagonal(r, axis1=-2, axis2=-1))
    assert (diagonal.real >= 0).all()
    np.testing.assert_array_equal(diagonal.imag, 0)


def test_positive_diagonal_of_zeros():
    q, r = jaxqr.qr(np.zeros((3, 2), np.float32), positive_diagonal=True)
    np.testing.assert_array_equal(r, 0)
    np.testing.assert_array_equal(q, np.eye(3, 2))


@pytest.mark.parametrize(("m", "n"), [(24, 24), (66, 100)])
def test_fp32_grade_of_every_class(m, n):
    """Q as the caller gets it, with LAPACK's Q as yardstick: T's errors, if any, show here."""
    a = matrices.batch(m, n)
    good = fp32_grade(explicit_measures(a, *blocked(a)), explicit_measures(a, *jnp.linalg.qr(a)))
    assert good.all(), [name for name, is_good in zip(matrices.CLASSES, good, strict=True) if not is_good]


OF_THE_FACTORIZATION = {
    "last panel in two blocks": ((2, 176, 176), "reduced"),
    "complete": ((12, 330, 300), "complete"),
    "no panel without update": ((2, 200, 290), "reduced"),
    "few reflectors": ((2, 300, 128), "reduced"),
    "few reflectors, complete": ((2, 300, 128), "complete"),
}


def lowered(shape: tuple[int, ...], mode: str, **options) -> str:
    return jax.jit(functools.partial(blocked, mode=mode, **options)).lower(jnp.zeros(shape)).as_text()


@pytest.mark.parametrize(("shape", "mode"), OF_THE_FACTORIZATION.values(), ids=OF_THE_FACTORIZATION)
def test_q_of_the_factorizations_own_blocks(shape, mode):
    """Only what they leave out is made for Q."""
    batch, m, n = shape
    k = min(m, n)
    schedule = jaxqr.schedule_for(m, n, batch)
    updates = [step for step in schedule.steps if step.update == "fused"]
    text = lowered(shape, mode)
    updates_without_look_ahead = sum(not step.look_ahead for step in updates)
    of_q = text.count(f"@{_targets.BLOCK_REFLECTOR}") - updates_without_look_ahead
    rest = k - updates[-1].offset - updates[-1].width
    assert text.count(f"@{_targets.REFLECTORS}") == (rest > 0)
    assert of_q == len(updates) + -(-rest // (32 if k <= 128 else 64))

    a = normal(*shape)
    q, r = blocked(a, mode)
    h, tau = jaxqr.geqrf(a, implementation="blocked")
    columns = m if mode == "complete" else k
    square = jnp.pad(h, ((0, 0), (0, 0), (0, max(0, columns - n))))[..., :columns]
    expected = jaxqr.householder_product(square, tau, implementation="blocked")
    np.testing.assert_allclose(q, expected, atol=2e-6)
    np.testing.assert_array_equal(r, jnp.triu(h)[:, :columns])


def test_q_of_other_precision_is_made_by_matrix_products():
    assert f"@{_targets.BLOCK_REFLECTOR}" not in lowered((2, 300, 200), "reduced", precision="highest")


@pytest.mark.parametrize(("m", "n", "columns"), [(300, 230, 230), (300, 230, 300), (230, 260, 230)])
def test_new_blocks_between_those_of_the_factorization(m, n, columns):
    """Look-ahead, and panels that make no blocks: a tall one, those of matmul updates, and a last one."""
    cta = functools.partial(Step, regime="cta", variant=drivers.covering_variant(m, 24))
    root = Step(0, 32, 192, "cta", drivers.covering_variant(1, 1), None)
    steps = (
        Step(0, 32, m, "tall", (4, 8), "fused", 5, root),
        Step(32, 40, m - 32, "jax", None, "matmul"),
        cta(72, 24, m - 72, update="fused"),
        cta(96, 10, m - 96, update="matmul"),
        cta(106, 24, m - 106, update="fused", look_ahead=True),
        cta(130, 24, m - 130, update="fused"),
        cta(154, 76, m - 154, update="matmul" if n > 230 else None),
    )
    schedule = Schedule(m, n, 2, "by hand", "float32", steps)

    @jax.jit
    def factored(a):
        h, tau, blocks = _blocked.factor_and_blocks(a, schedule, precision=jax.lax.Precision.HIGHEST, overwrite_a=False)
        assert [offset for offset, _ in blocks] == [72, 106, 130]
        return h, tau, _products.product_of_factorization(h, tau, blocks, columns)

    a = normal(2, m, n)
    h, tau, q = factored(a)
    square = jnp.pad(h[..., :columns], ((0, 0), (0, 0), (0, max(0, columns - n))))
    np.testing.assert_allclose(q, jax.lax.linalg.householder_product(square, tau), atol=5e-6)
    assert factored.lower(a).as_text().count(f"@{_targets.REFLECTORS}") == 3


@pytest.mark.parametrize(("m", "n"), [(200, 200), (150, 260)])
def test_q_of_the_factorizations_own_blocks_is_of_fp32_grade(m, n):
    a = matrices.batch(m, n)
    good = fp32_grade(explicit_measures(a, *blocked(a)), explicit_measures(a, *jnp.linalg.qr(a)))
    assert good.all(), [name for name, is_good in zip(matrices.CLASSES, good, strict=True) if not is_good]


@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_export_with_symbolic_batch(mode):
    batch = jax.export.symbolic_shape("b")[0]
    a = normal(3, 200, 150)
    function = functools.partial(blocked, mode=mode)
    targets = _targets.PANEL, _targets.LOOK_AHEAD, _targets.REFLECTORS, _targets.BLOCK_REFLECTOR, _targets.STEPS
    own = [jax.export.DisabledSafetyCheck.custom_call(x) for x in targets]
    spec = jax.ShapeDtypeStruct((batch, 200, 150), np.float32)
    exported = jax.export.export(jax.jit(lambda a: tuple(function(a))), disabled_checks=own)(spec)
    for x, y in zip(exported.call(a), function(a), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)
