"""What `geqrf` promises of its results, by each implementation: LAPACK's signs and tau, NaN kept apart, same bits."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr

IMPLEMENTATIONS = {
    "default": {},
    "jax": {"implementation": "jax"},
    "blocked": {"implementation": "blocked"},
    "blocked-matmul": {"implementation": "blocked", "precision": "highest"},
    "blocked-in-place": {"implementation": "blocked", "overwrite_a": True},
}


@pytest.fixture(params=IMPLEMENTATIONS)
def geqrf(request):
    return functools.partial(jaxqr.geqrf, **IMPLEMENTATIONS[request.param])


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def lapack(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h, tau = jnp.linalg.qr(a, mode="raw")
    return np.asarray(h.mT), np.asarray(tau)


def as_numpy(factors) -> tuple[np.ndarray, np.ndarray]:
    h, tau = factors
    return np.array(h), np.array(tau)


@pytest.mark.parametrize("shape", [(40, 40), (75, 30), (30, 75), (2, 100, 70)], ids=str)
def test_signs_and_tau_are_lapacks(geqrf, shape):
    a = normal(*shape)
    for ours, theirs in zip(geqrf(a), lapack(a), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == a.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


def test_the_result_is_a_plain_tuple(geqrf):
    assert type(geqrf(normal(3, 2))) is tuple


def test_a_column_that_is_zero_below_the_diagonal_keeps_it(geqrf):
    """slarfg: tau = 0 and H = I where x = 0, whatever the sign of alpha, −0.0 included."""
    diagonal = np.array([3, -2, 0.0, -0.0, 1e-40, -5], np.float32)
    h, tau = as_numpy(geqrf(np.diag(diagonal)))
    np.testing.assert_array_equal(tau, 0)
    np.testing.assert_array_equal(np.diagonal(h).view(np.int32), diagonal.view(np.int32))


def test_the_last_column_of_a_square_matrix_has_no_reflector(geqrf):
    h, tau = as_numpy(geqrf(normal(50, 9, 9)))
    np.testing.assert_array_equal(tau[:, -1], 0)
    assert {-1, 1} == set(np.sign(h[:, -1, -1]))


def test_zero_columns_stay_zero(geqrf):
    a = normal(40, 30)
    a[:, [0, 7, 29]] = 0
    h, tau = as_numpy(geqrf(a))
    np.testing.assert_array_equal(np.triu(h)[:, [0, 7, 29]], 0)
    np.testing.assert_array_equal(tau[[0, 7, 29]], 0)


def test_nan_stays_in_its_matrix_and_right_of_its_column(geqrf):
    a = normal(4, 40, 40)
    a[2, 5, 20] = np.nan
    clean = a.copy()
    clean[2] = 0
    found, expected = as_numpy(geqrf(a)), as_numpy(geqrf(clean))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x[[0, 1, 3]].view(np.int32), y[[0, 1, 3]].view(np.int32))
    h, tau = found
    assert np.isfinite(h[2, :, :20]).all()
    assert np.isnan(np.diagonal(h[2])[20:]).all()
    assert np.isnan(tau[2, 20:39]).all()


def test_same_bits_on_every_run(geqrf):
    a = normal(3, 65, 65)
    compiled = jax.jit(geqrf).lower(a).compile()
    first = as_numpy(compiled(a))
    for _ in range(5):
        for x, y in zip(as_numpy(compiled(a)), first, strict=True):
            np.testing.assert_array_equal(x.view(np.int32), y.view(np.int32))


def test_a_view_gives_what_its_copy_gives(geqrf):
    """cupynumeric#1211: a transposed view as input."""
    a = normal(30, 2, 50)
    for view in (a.transpose(1, 2, 0), a[::-1, :, ::2].transpose(1, 0, 2)):
        for x, y in zip(geqrf(view), geqrf(view.copy()), strict=True):
            np.testing.assert_array_equal(x, y)


def test_the_input_is_left_alone(geqrf):
    a = jnp.asarray(normal(2, 40, 40))
    before = np.array(a)
    geqrf(a)
    np.testing.assert_array_equal(a, before)


def test_overwrite_a_and_donation_change_no_bits():
    a = normal(3, 60, 50)
    expected = as_numpy(jaxqr.geqrf(a, implementation="blocked"))
    in_place = functools.partial(jaxqr.geqrf, implementation="blocked", overwrite_a=True)
    donated = jnp.asarray(a)
    found = jax.jit(in_place, donate_argnums=0)(donated)
    assert donated.is_deleted()
    for factors in (found, in_place(a), jax.jit(in_place)(a)):
        for x, y in zip(as_numpy(factors), expected, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("precision", [None, "highest"])
def test_default_matmul_precision_is_ignored(precision):
    a = normal(60, 60)
    blocked = functools.partial(jaxqr.geqrf, implementation="blocked", precision=precision)
    expected = as_numpy(blocked(a))
    with jax.default_matmul_precision("bfloat16"):
        found = as_numpy(blocked(a))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


def test_unknown_implementation():
    with pytest.raises(ValueError, match="implementation='lapack' is not one of None, 'blocked', 'jax'"):
        jaxqr.geqrf(normal(2, 2), implementation="lapack")


@pytest.mark.parametrize("a", [[[1.0, 2.0], [3.0, 4.0]], 1.0, None, "ab"], ids=str)
def test_what_is_no_array(a):
    with pytest.raises(TypeError, match=rf"takes an array of shape \[..., m, n\], got {type(a).__name__}"):
        jaxqr.geqrf(a)


@pytest.mark.parametrize("shape", [(), (5,)], ids=str)
@pytest.mark.parametrize("array", [np.zeros, jnp.zeros], ids=["numpy", "jax"])
def test_too_few_dimensions(array, shape):
    with pytest.raises(ValueError, match=rf"\[..., m, n\], got shape \[{','.join(map(str, shape))}\]"):
        jaxqr.geqrf(array(shape, np.float32))


def test_a_side_beyond_32_bits_is_refused_before_anything_runs():
    for shape in [(2**31, 1), (3, 1, 2**31)]:
        with pytest.raises(ValueError, match="at most 2147483647 rows and columns"):
            jax.eval_shape(jaxqr.geqrf, jax.ShapeDtypeStruct(shape, np.float32))


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_starts_no_backend():
    """The number of CPU devices can only be set before a backend has started."""
    code = """
import jax, jaxqr
jax.config.update("jax_num_cpu_devices", 3)
jax.config.update("jax_platforms", "cpu")
print(len(jax.devices()))
"""
    assert run_python(code).strip() == "3"


def test_import_takes_little_beyond_jaxs_own():
    code = """
import time
start = time.perf_counter(); import jax, jax.numpy
middle = time.perf_counter(); import jaxqr
print(time.perf_counter() - middle, middle - start)
"""
    ours, jaxs = min(tuple(map(float, run_python(code).split())) for _ in range(2))
    assert ours < 0.1 + 0.1 * jaxs
