"""Derivatives of `qr`, `householder_product`, `ormqr` and `lstsq`: against JAX's rule and finite differences, of second
order, under transformations, and finite where QR has none."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from tests import matrices

MODES = ["reduced", "complete", "r"]


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


normal = functools.partial(matrices.normal, dtype=np.float64, seed=12)


def scalar_of(factors) -> jax.Array:
    """A scalar that depends on every element of them."""
    leaves = jax.tree.leaves(factors)
    weights = [normal(*x.shape, dtype=x.dtype, seed=i) for i, x in enumerate(leaves)]
    return sum(jnp.sum(x * w).real for x, w in zip(leaves, weights, strict=True))


def assert_derivatives_equal(function, expected, a, da, tolerance=1e-9):
    """Forward and reverse, in one program each."""

    def both(f, a, da):
        return jax.jvp(f, (a,), (da,)), jax.grad(lambda a: scalar_of(f(a)))(a)

    found, wanted = (jax.jit(functools.partial(both, f))(a, da) for f in (function, expected))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, atol=tolerance * np.abs(y).max(initial=1e-300))


def assert_like_differences(function, *args, step=1e-6):
    """Forward and reverse derivatives along a random direction, and second derivatives of reverse ones."""
    directions = tuple(normal(*x.shape, dtype=x.dtype, seed=20 + i) for i, x in enumerate(args))
    value = jax.jit(lambda *args: scalar_of(function(*args)))
    gradient = jax.jit(jax.grad(value, argnums=tuple(range(len(args)))))
    after, before = ([x + sign * step * dx for x, dx in zip(args, directions, strict=True)] for sign in (1, -1))
    slope = (value(*after) - value(*before)) / (2 * step)
    (_, forward), (reverse, second) = jax.jit(
        lambda args, dirs: (jax.jvp(value, args, dirs), jax.jvp(gradient, args, dirs))
    )(args, directions)
    np.testing.assert_allclose(forward, slope, rtol=1e-5)
    # JAX's gradient of a real function of complex numbers is the conjugate.
    inner = sum(jnp.sum(x * dx).real for x, dx in zip(reverse, directions, strict=True))
    np.testing.assert_allclose(inner, slope, rtol=1e-5)
    for found, x, y in zip(second, gradient(*after), gradient(*before), strict=True):
        expected = (x - y) / (2 * step)
        np.testing.assert_allclose(found, expected, atol=1e-6 * max(1, np.abs(expected).max()))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(
    ("mode", "shape"), [("reduced", (5, 3)), ("reduced", (3, 5)), ("r", (2, 4, 4)), ("complete", (5, 3))], ids=str
)
def test_qr_equals_jaxs_rule_on_full_rank(mode, shape, dtype):
    a, da = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype, seed=13)
    ours, theirs = functools.partial(jaxqr.qr, mode=mode), functools.partial(jnp.linalg.qr, mode=mode)
    assert_derivatives_equal(ours, theirs, a, da)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("mode", "shape"), [("reduced", (0, 3)), ("complete", (3, 0)), ("r", (2, 0, 0))], ids=str)
def test_qr_of_empty_matrices(mode, shape):
    a = normal(*shape)
    assert jax.grad(lambda a: scalar_of(jaxqr.qr(a, mode)))(a).shape == shape


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("mode", "shape"),
    [("reduced", (2, 4)), ("complete", (5, 2)), ("r", (4, 3))],
)
def test_qr_equals_finite_differences_to_second_order(mode, shape):
    """jax#23533 and jax#10450 had wrong gradients at 2×4 and none in complete mode."""
    assert_like_differences(functools.partial(jaxqr.qr, mode=mode), normal(*shape))


@pytest.mark.usefixtures("x64")
def test_positive_diagonal():
    a = normal(4, 3)
    assert (np.sign(np.diagonal(jaxqr.qr(a).R)) == -1).any()
    assert_like_differences(functools.partial(jaxqr.qr, positive_diagonal=True), a)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_householder_product_equals_finite_differences(dtype):
    h, tau = normal(4, 3, dtype=dtype), normal(3, dtype=dtype)
    tau[1] = 0
    assert_like_differences(jaxqr.householder_product, h, tau)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("left", "transpose"), [(True, True), (False, True)])
def test_ormqr_equals_finite_differences(left, transpose):
    multiply = functools.partial(jaxqr.ormqr, left=left, transpose=transpose)
    dtype = complex if transpose == left else float
    h, tau, c = normal(4, 3, dtype=dtype), normal(3, dtype=dtype), normal(4, 4, dtype=dtype)
    assert_like_differences(multiply, h, tau, c)


@pytest.mark.usefixtures("x64")
def test_an_argument_without_a_tangent_costs_no_derivative():
    h, tau, c = normal(40, 30), normal(30), normal(40, 2)
    text = str(jax.make_jaxpr(jax.linearize, static_argnums=0)(functools.partial(jaxqr.ormqr, h, tau), c))
    wide = str(jax.make_jaxpr(jax.linearize, static_argnums=0)(lambda h: jaxqr.ormqr(h, tau, c), h))
    assert text.count("dot_general") < wide.count("dot_general")


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("dtype", "shape"), [(np.float64, (5, 3)), (np.complex128, (3, 5))])
def test_lstsq_equals_finite_differences(dtype, shape):
    assert_like_differences(jaxqr.lstsq, normal(*shape, dtype=dtype), normal(shape[0], 2, dtype=dtype))


@pytest.mark.parametrize(
    ("implementation", "shape"), [("blocked", (90, 70)), ("blocked", (70, 90)), (None, (70, 70))], ids=str
)
def test_float32_gradients_are_as_precise_as_their_dtype(implementation, shape):
    a = normal(*shape, dtype=np.float32)

    def gradient(qr, a):
        return np.asarray(jax.jit(jax.grad(lambda a: scalar_of(qr(a))))(a), np.float64)

    with jax.enable_x64(True):
        expected = gradient(jnp.linalg.qr, a.astype(np.float64))
    error = [
        np.linalg.norm(gradient(qr, a) - expected)
        for qr in (functools.partial(jaxqr.qr, implementation=implementation), jnp.linalg.qr)
    ]
    assert error[0] <= 3 * error[1]


def test_gradients_of_graded_columns_are_exact():
    """Columns of any scale are directions of their own: measured against the largest, half of these would be lost."""
    scale = np.exp2(np.linspace(0, -60, 24).round())
    a = normal(30, 24) * scale

    def gradient(qr, a):
        return jax.jit(jax.grad(lambda a: jnp.sum(jnp.sin(jnp.arange(30.0 * 24).reshape(30, 24)) * qr(a)[0])))(a)

    with jax.enable_x64(True):
        expected = np.asarray(gradient(jnp.linalg.qr, a))
    found = np.asarray(gradient(jaxqr.qr, a.astype(np.float32)), np.float64)
    error = np.linalg.norm(found - expected, axis=0) / np.linalg.norm(expected, axis=0)
    assert error.max() < 1e-4


@pytest.mark.parametrize("shape", [(24, 24), (30, 20), (20, 30)], ids=str)
def test_gradients_are_finite_on_every_class(shape):
    a = matrices.batch(*shape)
    for mode in ("reduced", "complete"):
        gradient = jax.jit(jax.grad(lambda a, mode=mode: scalar_of(jaxqr.qr(a, mode))))(a)
        finite = np.isfinite(gradient).all((1, 2))
        assert finite.all(), [name for name, good in zip(matrices.CLASSES, finite, strict=True) if not good]


DEGENERATE = {
    "zero columns": np.hstack([np.random.default_rng(0).random((8, 3)), np.zeros((8, 5))]),
    "a wide matrix with a zero column": np.array([[0.0, 1, 2], [0, 3, 4]]),
    "identity": np.eye(3, 2),
    "zeros": np.zeros((4, 3)),
    "duplicate columns": np.ones((5, 3)),
}


@pytest.mark.parametrize("a", DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_matrices(a):
    """pytorch#42792, and those at which JAX's rule gives NaN. Second derivatives too, but in complete mode."""
    a = a.astype(np.float32)
    for mode in ("reduced", "complete"):
        value = lambda a, mode=mode: scalar_of(jaxqr.qr(a, mode))  # noqa: E731
        derivative = jax.grad if mode == "complete" else jax.hessian
        assert np.isfinite(jax.jit(derivative(value))(a)).all()


@pytest.mark.usefixtures("x64")
def test_what_is_defined_at_a_zero_column_is_right():
    """The columns of Q left of it, and the rows of R above its own, are smooth functions of A."""
    a, da = normal(5, 4), normal(5, 4, seed=13)
    a[:, 2] = 0
    step = 1e-6
    _, (dq, dr) = jax.jit(lambda a, da: jax.jvp(jaxqr.qr, (a,), (da,)))(a, da)
    after, before = jnp.linalg.qr(a + step * da), jnp.linalg.qr(a - step * da)
    np.testing.assert_allclose(dq[:, :2], (after.Q - before.Q)[:, :2] / (2 * step), atol=1e-7)
    np.testing.assert_allclose(dr[:2], (after.R - before.R)[:2] / (2 * step), atol=1e-7)


def test_vmap_of_vmap_of_gradient():
    """skillmodels#81: square-root filters map over two axes."""
    a = normal(2, 3, 7, 7, dtype=np.float32)
    gradient = jax.grad(lambda a: jnp.sum(jnp.cos(jaxqr.qr(a, "r"))))
    found = jax.jit(jax.vmap(jax.vmap(gradient)))(a)
    np.testing.assert_allclose(found, jax.jit(gradient)(a), rtol=1e-5, atol=1e-5)
    assert np.isfinite(found).all()
    lowered = jax.jit(jax.vmap(jax.vmap(gradient))).lower(a).as_text()
    assert "while" not in lowered


def test_products_of_the_rule_are_of_float32_precision():
    a = normal(9, 7, dtype=np.float32)
    with jax.default_matmul_precision("bfloat16"):
        text = str(jax.make_jaxpr(jax.grad(lambda a: scalar_of(jaxqr.qr(a))))(a))
    _, *products = text.split("dot_general[")
    assert products
    assert all("Precision.HIGHEST" in product.split("]\n")[0] for product in products)


def test_rematerialisation():
    a = normal(4, 3, dtype=np.float32)
    value = lambda a: scalar_of(jaxqr.qr(a, "complete"))  # noqa: E731
    found = jax.jit(jax.grad(jax.checkpoint(value)))(a)
    np.testing.assert_allclose(found, jax.jit(jax.grad(value))(a), rtol=1e-5, atol=1e-6)


def test_gradient_through_a_scan():
    """A square-root Kalman filter's chain: R of one step is stacked onto the next."""
    steps = normal(6, 3, 3, dtype=np.float32)

    def loss(qr, steps):
        def step(r, x):
            return qr(jnp.concatenate([r, x]), "r"), None

        return jnp.sum(jnp.abs(jax.lax.scan(step, jnp.eye(3), steps)[0]))

    found, expected = (jax.jit(jax.grad(functools.partial(loss, qr)))(steps) for qr in (jaxqr.qr, jnp.linalg.qr))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_raw_has_no_derivative():
    with pytest.raises(NotImplementedError, match=r"Differentiate jaxqr\.qr"):
        jax.grad(lambda a: jnp.sum(jaxqr.qr(a, "raw")[0]))(normal(3, 2, dtype=np.float32))
