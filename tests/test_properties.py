"""Properties of geqrf on arbitrary shapes, batches, panel widths and seeds, by hypothesis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxqr
from jaxqr.verify import as_good_as_lapack, measures
from tests.drivers import factor_by_panels
from tests.reference import assert_same_bits

either = pytest.mark.parametrize("implementation", ["blocked", None], ids=["blocked", "default"])

# Every new shape is a compilation, so the examples are few, small, and the same on every run.
few = settings(max_examples=8, deadline=None, derandomize=True)
sizes = st.integers(0, 20)
positive_sizes = st.integers(1, 20)
batches = st.lists(st.integers(0, 3), max_size=3).map(tuple)
seeds = st.integers(0, 2**32 - 1)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@either
@few
@given(batch=batches, m=sizes, n=sizes, seed=seeds)
def test_h_and_tau_are_a_qr_factorization(implementation, batch, m, n, seed):
    a = normal(seed, *batch, m, n)
    h, tau = (np.asarray(x) for x in jaxqr.geqrf(a, implementation=implementation))
    k = min(m, n)
    assert h.shape == a.shape
    assert tau.shape == (*batch, k)
    if a.size == 0:
        return
    assert as_good_as_lapack(a, measures(a, h, tau)).all()
    # LAPACK's signs: R_kk has the sign opposite to alpha, so tau is in [1, 2], or 0 where nothing is below.
    assert ((tau == 0) | ((tau >= 1) & (tau <= 2))).all()
    if m <= n:
        assert (tau[..., -1] == 0).all()


@either
@few
@given(outer=st.integers(1, 3), inner=st.integers(1, 3), m=positive_sizes, n=positive_sizes, seed=seeds)
def test_vmap_is_the_batch(implementation, outer, inner, m, n, seed):
    a = normal(seed, outer, inner, m, n)

    def factor(x):
        return jaxqr.geqrf(x, implementation=implementation)

    assert_same_bits(jax.vmap(jax.vmap(factor))(a), factor(a))
    in_the_middle = jax.vmap(jax.vmap(factor, in_axes=1, out_axes=1), in_axes=-1, out_axes=-1)(a.transpose(2, 0, 3, 1))
    assert_same_bits(
        (x.transpose(*order) for x, order in zip(in_the_middle, [(1, 3, 0, 2), (1, 2, 0)], strict=True)), factor(a)
    )


@either
@few
@given(batch=st.integers(2, 6), m=positive_sizes, n=positive_sizes, seed=seeds)
def test_a_permuted_batch_gives_permuted_results(implementation, batch, m, n, seed):
    a = normal(seed, batch, m, n)
    order = np.random.default_rng(seed).permutation(batch)
    h, tau = jaxqr.geqrf(a, implementation=implementation)
    assert_same_bits(
        jaxqr.geqrf(a[order], implementation=implementation), (np.asarray(h)[order], np.asarray(tau)[order])
    )


@either
@few
@given(m=positive_sizes, n=positive_sizes, seed=seeds)
def test_a_transposed_view_equals_its_copy(implementation, m, n, seed):
    a = normal(seed, 2, n, m)
    factor = jax.jit(lambda x: jaxqr.geqrf(x, implementation=implementation))
    of_a_copy = factor(np.ascontiguousarray(a.mT))
    assert_same_bits(factor(a.mT), of_a_copy)
    assert_same_bits(jax.jit(lambda x: factor(jnp.matrix_transpose(x)))(a), of_a_copy)


@either
@few
@given(m=positive_sizes, n=positive_sizes, seed=seeds)
def test_negation_changes_only_the_sign_of_r(implementation, m, n, seed):
    a = normal(seed, 2, m, n)
    h, tau = (np.asarray(x) for x in jaxqr.geqrf(a, implementation=implementation))
    of_negated = jaxqr.geqrf(-a, implementation=implementation)
    assert_same_bits(of_negated, (np.where(np.tri(m, n, -1, dtype=bool), h, -h), tau))


@either
@few
@given(m=positive_sizes, n=positive_sizes, seed=seeds)
def test_powers_of_two_on_columns_change_only_r(implementation, m, n, seed):
    a = normal(seed, 2, m, n)
    scale = np.exp2(np.random.default_rng(seed).integers(-20, 20, n, endpoint=True)).astype(np.float32)
    h, tau = (np.asarray(x) for x in jaxqr.geqrf(a, implementation=implementation))
    of_scaled = jaxqr.geqrf(a * scale, implementation=implementation)
    assert_same_bits(of_scaled, (np.where(np.tri(m, n, -1, dtype=bool), h, h * scale), tau))


@pytest.mark.parametrize("precision", [None, "highest"], ids=["fused", "matmul"])
@settings(few, max_examples=5)
@given(m=st.integers(1, 12), n=st.integers(1, 12), width=st.integers(1, 5), seed=seeds)
def test_any_panel_width(precision, m, n, width, seed):
    a = normal(seed, 2, m, n)
    h, tau = factor_by_panels(a, width, precision)
    assert as_good_as_lapack(a, measures(a, h, tau)).all()
    scale = np.exp2(np.random.default_rng(seed).integers(-20, 20, n, endpoint=True)).astype(np.float32)
    assert_same_bits(
        factor_by_panels(a * scale, width, precision), (np.where(np.tri(m, n, -1, dtype=bool), h, h * scale), tau)
    )
