"""Every compiled panel kernel, through its FFI target, at the edges of what it covers, against float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxqr import Step, _targets
from tests import matrices, panels
from tests.gpu.tools import into_poison, launched_kernels, own_kernels, scheduled_kernel
from tests.panels import NAMES, ONE_EACH, PANELS, Panel
from tests.reference import assert_same_bits

pytestmark = pytest.mark.gpu


@functools.partial(jax.jit, static_argnames=("panel", "in_place"))
def factor_on_gpu(a: jax.Array, panel: Panel, in_place: bool) -> tuple[jax.Array, ...]:
    """H, tau, T and the halves of V. Wide kernels do not work in place."""
    h, tau, reflectors = _targets.panel(
        a,
        offset=panel.offset,
        width=panel.width,
        regime=panel.regime,
        variant=panel.variant,
        with_reflectors=panel.with_t,
        in_place=in_place and panel.regime != "wide",
    )
    return h, tau, *reflectors


def factor(a: np.ndarray, panel: Panel, in_place: bool) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(x) for x in factor_on_gpu(a, panel, in_place))


@pytest.mark.parametrize("panel", PANELS, ids=str)
def test_panel(panel: Panel):
    panels.assert_fp32_grade(panel, factor)


@pytest.mark.parametrize("panel", ONE_EACH, ids=str)
def test_panel_at_any_scale(panel: Panel):
    panels.assert_any_scale(panel, factor)


@pytest.mark.parametrize("panel", ONE_EACH, ids=str)
def test_denormal_tails(panel: Panel):
    panels.assert_denormal_tails(panel, factor)


@pytest.mark.parametrize("panel", [panel for panel in PANELS if panel.right == 3 and panel.regime != "wide"], ids=str)
def test_panel_in_and_out_of_place_are_the_same(panel: Panel):
    panels.assert_same_in_and_out_of_place(panel, factor)


@pytest.mark.parametrize("panel", ONE_EACH, ids=str)
def test_bad_values_stay_in_their_matrix_and_right_of_their_column(panel: Panel):
    panels.assert_bad_values_stay(panel, factor)


@pytest.mark.parametrize("panel", [panel for panel in PANELS if panel.place[2] == slice(0, panel.shape[1])], ids=str)
def test_panel_writes_all_of_its_results(panel: Panel):
    """A whole matrix is a panel: every element of H, tau and T is written, into memory that held NaN."""
    a = jnp.asarray(matrices.batch(panel.rows, panel.columns, NAMES))
    expected = jax.block_until_ready(factor_on_gpu(a, panel, False))
    found = into_poison(lambda: factor_on_gpu(a, panel, False), *(x.nbytes for x in expected if x.nbytes))
    assert_same_bits(found, expected)
    assert not any(jnp.isnan(x).any() for x in found)


def test_each_kernel_launches_itself():
    smallest = {(panel.regime, panel.variant): panel for panel in PANELS if panel.rows == panel.width == 1}
    runs = [*smallest.values(), *ONE_EACH]
    matrices_of = {panel: jnp.zeros((2, *panel.shape), jnp.float32) for panel in runs}

    def run():
        return [jax.block_until_ready(factor_on_gpu(matrices_of[panel], panel, panel.offset > 0)) for panel in runs]

    run()
    expected: list[object] = []
    for panel in runs:
        update = "fused" if panel.with_t else None
        step = Step(0, panel.width, panel.rows, panel.regime, panel.variant, update)
        expected += [scheduled_kernel(step)] + ["reflectors"] * (step.launches == 3)
        expected += ["wide_apply"] * (panel.regime == "wide" and step.launches == 2)
    assert own_kernels(launched_kernels(run)) == expected
