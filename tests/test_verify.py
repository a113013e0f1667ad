"""`jaxqr.verify` against a second float64 reference, and that it notices what it is there for."""

from dataclasses import fields

import jax
import numpy as np
import pytest

from jaxqr import verify
from jaxqr.verify import (
    Measures,
    as_good_as_lapack,
    contest_gate,
    fp32_grade,
    lapack_geqrf,
    lapack_measures,
    measures,
)

EPS = 2.0**-23


def dense(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32)


def one_by_one(a: np.ndarray, h: np.ndarray, tau: np.ndarray) -> tuple[float, float, float]:
    """The measures of one matrix, its reflectors applied one after the other."""
    a, h, tau = (np.asarray(x, np.result_type(x, np.longdouble)) for x in (a, h, tau))
    m, n = a.shape
    reflectors = [np.concatenate([np.zeros(i), [1], h[i + 1 :, i]]) for i in range(len(tau))]
    residual, q = a.copy(), np.eye(m, len(tau), dtype=h.dtype)
    for v, scale in zip(reflectors, tau, strict=True):
        residual -= scale.conj() * np.outer(v, v.conj() @ residual)
    for v, scale in zip(reversed(reflectors), reversed(tau), strict=True):
        q -= scale * np.outer(v, v.conj() @ q)
    residual = np.triu(h) - residual
    columns = np.sqrt((abs(residual) ** 2).sum(0) / (abs(a) ** 2).sum(0))
    return (
        float(abs(residual).sum(0).max() / (n * EPS * abs(a).sum(0).max())),
        float(abs(q.conj().T @ q - np.eye(len(tau))).sum(0).max() / (n * EPS)),
        float(columns.max() / EPS),
    )


@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (40, 40), (50, 20), (20, 50), (5, 1), (1, 5)])
def test_equals_one_reflector_after_the_other(shape):
    a = dense(3, *shape)
    h, tau = lapack_geqrf(a)
    measured = measures(a, h, tau)
    for i in range(3):
        mine = [getattr(measured, field.name)[i] for field in fields(Measures)]
        np.testing.assert_allclose(mine, one_by_one(a[i], h[i], tau[i]), rtol=1e-6, atol=1e-7)


def test_complex():
    a = (dense(12, 8) + 1j * dense(8, 12).T).astype(np.complex64)
    h, tau = lapack_geqrf(a)
    measured = measures(a, h, tau)
    mine = [float(getattr(measured, field.name)) for field in fields(Measures)]
    np.testing.assert_allclose(mine, one_by_one(a, h, tau), rtol=1e-6)
    assert contest_gate(measured)


@pytest.mark.parametrize("shape", [(24, 24), (30, 12), (12, 30), (0, 3), (3, 0)])
def test_the_accelerators_program_equals_the_hosts(shape):
    a = dense(4, *shape)
    factors = lapack_geqrf(a)
    on_host = measures(a, *factors)
    with jax.enable_x64(True):
        compiled = np.asarray(verify._measure_compiled(a, *factors))
    for row, field in zip(compiled, fields(Measures), strict=True):
        np.testing.assert_allclose(row, getattr(on_host, field.name), rtol=1e-6, atol=1e-7)


def test_chunks_change_nothing(monkeypatch):
    a = dense(2, 5, 9, 6)
    whole = measures(a, *lapack_geqrf(a))
    monkeypatch.setattr(verify, "_CHUNK_ELEMENTS", 3 * 9 * 6)
    parts = measures(a, *lapack_geqrf(a))
    assert whole.columnwise.shape == (2, 5)
    assert all(np.array_equal(getattr(whole, field.name), getattr(parts, field.name)) for field in fields(Measures))


@pytest.mark.parametrize("shape", [(0, 4, 4), (2, 0, 3), (2, 3, 0), (0, 0)])
def test_empty(shape):
    a = np.zeros(shape, np.float32)
    measured = measures(a, *lapack_geqrf(a))
    assert measured.worst() == dict.fromkeys(measured.worst(), 0.0)
    assert as_good_as_lapack(a, measured).shape == shape[:-2]
    assert as_good_as_lapack(a, measured).all()


def test_each_error_is_seen_where_it_is():
    a = dense(6, 16, 16) * np.logspace(0, -6, 16, dtype=np.float32)
    a[4, :, 7] = 0
    h, tau = (x.copy() for x in lapack_geqrf(a))
    h[0, 0, 0] *= 1 + 1e-3  # the norm of R
    tau[1, 3] *= 1 + 1e-3  # an H_i that is not orthogonal
    h[2, 0, 15] = 0  # a column so small that the other two measures cannot see it
    h[3, 5, 9] = np.nan
    h[4, 0, 7] = 1e-30  # a zero column that comes out as something else
    measured = measures(a, h, tau)
    assert contest_gate(measured).tolist() == [False, False, True, False, True, True]
    assert as_good_as_lapack(a, measured).tolist() == [False, False, False, False, False, True]
    assert np.isnan(measured.columnwise).tolist() == [False, False, False, True, False, False]
    assert np.isinf(measured.columnwise).tolist() == [False, False, False, False, True, False]
    assert np.isnan(measured.worst()["scaled_factor"])


def test_grade_is_relative_to_lapack():
    def all_three(factor, orthogonality, columnwise):
        return Measures(*(np.array([value]) for value in (factor, orthogonality, columnwise)))

    bad_input = all_three(1.0, 3.0, 40.0)
    assert fp32_grade(all_three(2.0, 6.0, 200.0), bad_input).all()
    for worse in (all_three(2.1, 6.0, 200.0), all_three(2.0, 6.1, 200.0), all_three(2.0, 6.0, 201.0)):
        assert not fp32_grade(worse, bad_input).any()
    good_input = all_three(0.01, 0.1, 1.0)
    assert fp32_grade(all_three(0.5, 2.0, 10.0), good_input).all()
    assert not fp32_grade(all_three(0.5, 2.0, 10.1), good_input).any()


def test_lapack_is_only_asked_where_it_decides(monkeypatch):
    # On min(i, j) LAPACK itself is above the absolute column-wise limit.
    hard = 1 + np.minimum.outer(np.arange(256), np.arange(256)).astype(np.float32)
    a = np.stack([dense(256, 256), hard])
    asked = []
    original = verify.lapack_measures
    monkeypatch.setattr(verify, "lapack_measures", lambda x: asked.append(len(x)) or original(x))
    measured = measures(a, *lapack_geqrf(a))
    assert measured.columnwise[1] > 10
    assert as_good_as_lapack(a, measured).all()
    assert asked == [1]


def test_few_columns_are_judged_beside_the_worst_of_the_batch(monkeypatch):
    a = np.random.default_rng(6).standard_normal((200, 9, 5), dtype=np.float32)
    sample = Measures(np.linspace(0.1, 0.9, 200), np.full(200, 0.1), np.full(200, 1.0))
    monkeypatch.setattr(verify, "lapack_measures", lambda x: sample[: len(x)])
    measured = Measures(np.repeat([1.7, 1.9, 0.1], [1, 1, 198]), np.full(200, 0.1), np.full(200, 1.0))
    assert np.flatnonzero(~as_good_as_lapack(a, measured)).tolist() == [1]
    # Ten columns: each beside its own.
    wide = np.concatenate([a, a], axis=-1)
    assert np.flatnonzero(~as_good_as_lapack(wide, measured)).tolist() == [0, 1]


@pytest.mark.parametrize(("m", "n"), [(2, 1), (7, 1), (100, 1), (7, 2), (100, 4)])
def test_lapack_is_as_good_as_itself_on_few_columns(m, n):
    """Its roundings depend on the order of the rows: a single matrix, or a few, must be judged beside many."""
    a = dense(300, m, n)
    assert not fp32_grade(lapack_measures(a[:, ::-1]), lapack_measures(a)).all()
    for part in (*a[:, None], *a.reshape(-1, 10, m, n)):
        assert as_good_as_lapack(part, lapack_measures(part[:, ::-1])).all()


def test_denormals_are_not_taken_for_zero():
    a = np.array([[[1e-40]]], np.float32)
    zeros = np.zeros((1, 1, 1), np.float32)
    assert measures(a, a, np.zeros((1, 1), np.float32)).columnwise == 0
    assert measures(a, zeros, np.zeros((1, 1), np.float32)).columnwise > 1e6


def test_shapes_must_belong_together():
    with pytest.raises(ValueError, match=r"\(3, 4, 4\).*not a matrix"):
        measures(np.zeros((3, 4, 4)), np.zeros((3, 4, 4)), np.zeros((3, 3)))
