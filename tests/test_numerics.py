"""FP32 grade on every matrix class: limits relative to LAPACK's sgeqrf on the same input, through the blocked driver.

Each shape and each way of updating factors one heterogeneous batch of all classes; each class is a test of its own.
"""

import functools

import jax
import numpy as np
import pytest

import jaxqr
from jaxqr import _targets, wy
from jaxqr.verify import Measures, contest_gate, fp32_grade, lapack_measures, measures
from tests import drivers, matrices
from tests.reference import EPS, block_measures, column_errors, larft, orthogonality

CLASSES = tuple(matrices.CLASSES)
SHAPES = [(96, 96), (130, 70), (257, 129), (70, 130)]
UPDATES = {"fused": None, "matmul": "highest"}
of_every_class = pytest.mark.parametrize("name", CLASSES)
both_updates = pytest.mark.parametrize("update", UPDATES)


@functools.cache
def factored(m: int, n: int, update: str, width: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The batch of all classes and its factorization, by panels of `width` or, with None, as `schedule_for` says."""
    a = matrices.batch(m, n)
    if width is not None:
        return a, *drivers.factor_by_panels(a, width, UPDATES[update])
    return a, *(np.asarray(x) for x in jaxqr.geqrf(a, precision=UPDATES[update], implementation="blocked"))


@functools.cache
def measured(m: int, n: int, update: str, width: int | None) -> Measures:
    return measures(*factored(m, n, update, width))


@functools.cache
def lapack(m: int, n: int) -> Measures:
    return lapack_measures(matrices.batch(m, n))


def assert_fp32_grade(m: int, n: int, update: str, width: int | None, name: str):
    i = CLASSES.index(name)
    ours, theirs = measured(m, n, update, width)[i], lapack(m, n)[i]
    assert fp32_grade(ours, theirs), f"{ours}, LAPACK: {theirs}"
    assert contest_gate(ours), ours
    a, h, _ = (x[i] for x in factored(m, n, update, width))
    assert (np.triu(h)[:, ~a.any(0)] == 0).all(), "a zero column of A has a zero column of R"


@of_every_class
@both_updates
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_scheduled(shape, update, name):
    assert_fp32_grade(*shape, update, None, name)


@of_every_class
@both_updates
@pytest.mark.parametrize(
    ("shape", "width"), [((96, 96), 32), ((130, 70), 24), ((257, 129), 40), ((70, 130), 8)], ids=str
)
def test_by_several_panels(shape, width, update, name):
    assert_fp32_grade(*shape, update, width, name)


def test_some_shape_is_scheduled_as_several_panels():
    assert max(len(jaxqr.schedule_for(*shape, batch=len(CLASSES)).steps) for shape in SHAPES) > 1


def test_the_default_implementation_is_fp32_grade():
    a = matrices.batch(60, 40)
    h, tau = (np.asarray(x) for x in jaxqr.geqrf(a))
    assert fp32_grade(measures(a, h, tau), lapack_measures(a)).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_measures_agree_with_reflectors_applied_one_by_one(shape):
    """The limits above stand on `jaxqr.verify`; this is a second float64 reference that shares nothing with it."""
    a, h, tau = factored(*shape, "fused", None)
    found = measured(*shape, "fused", None)
    norms = np.linalg.norm(a.astype(np.float64), axis=-2)
    errors = np.divide(column_errors(a, h, tau), EPS * norms, out=np.zeros_like(norms), where=norms > 0)
    np.testing.assert_allclose(found.columnwise, errors.max(-1), rtol=1e-3, atol=1e-3)
    if shape[0] <= shape[1]:  # the measure's Q has min(m, n) columns, the reference's has m
        expected = orthogonality(h, tau) / (shape[1] * EPS)
        np.testing.assert_allclose(found.scaled_orthogonality, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("damage", ["R", "V", "tau"])
def test_damage_is_noticed(damage):
    """One entry off by 2⁻¹⁵ of its column, in the last tenth of a graded matrix, fails the grade."""
    a, h, tau = (np.array(x) for x in factored(130, 70, "fused", None))
    i = CLASSES.index("graded_columns")
    if damage == "R":
        h[i, 3, 65] += 2.0**-15 * np.linalg.norm(a[i, :, 65])
    elif damage == "V":
        h[i, 90, 65] += 2.0**-10
    else:
        tau[i, 65] *= 1 + 2.0**-15
    assert not fp32_grade(measures(a, h, tau), lapack(130, 70))[i]


# T: Q formed blockwise, as I − V·T·Vᵀ, shows what a Q formed from (H, tau) cannot.


@functools.cache
def panels(rows: int, width: int) -> tuple[np.ndarray, ...]:
    """All classes as one panel each: a, h, tau and T of the panel target."""
    a = matrices.batch(rows, width)
    variant = drivers.covering_variant(rows, width)
    h, tau, reflectors = jax.jit(
        lambda x: _targets.panel(
            x, offset=0, width=width, regime="cta", variant=variant, with_reflectors=True, in_place=False
        )
    )(a)
    return a, *(np.asarray(x) for x in (h, tau, reflectors.t))


@jax.jit
def t_by_products(h: jax.Array, tau: jax.Array) -> jax.Array:
    return wy.t_factor(wy.unit_lower(h), tau)


@functools.cache
def t_of(source: str, rows: int, width: int) -> np.ndarray:
    _, h, tau, t = panels(rows, width)
    if source == "panel":
        return t
    if source == "slarft":
        return larft(h, tau)
    return np.asarray(t_by_products(h, tau))


@of_every_class
@pytest.mark.parametrize("source", ["panel", "wy"])
@pytest.mark.parametrize("shape", [(64, 64), (150, 40)], ids=str)
def test_q_formed_from_v_and_t(shape, source, name):
    i = CLASSES.index(name)
    a, h, _, _ = panels(*shape)
    ours, theirs = (block_measures(a[i], h[i], t_of(source, *shape)[i]) for source in (source, "slarft"))
    assert fp32_grade(ours, theirs), f"{ours}, with slarft's T: {theirs}"


@pytest.mark.parametrize("width", [96, 128])
@pytest.mark.parametrize("name", ["min_index", "lower_ones", "exponential", "squared_exponential"])
def test_wide_t_of_smooth_matrices(name, width):
    """What a careless inverse of T's reciprocal loses thousands of eps on; wider than the fused update takes."""
    a = matrices.matrix(name, 256, width)[None]
    h, tau = (np.asarray(x) for x in jaxqr.geqrf(a, implementation="jax"))
    t = np.asarray(t_by_products(h, tau))
    ours, theirs = (block_measures(a, h, t) for t in (t, larft(h, tau)))
    assert fp32_grade(ours, theirs), f"{ours}, with slarft's T: {theirs}"
    assert np.isfinite(t).all()
    assert (np.tril(t, -1) == 0).all()
