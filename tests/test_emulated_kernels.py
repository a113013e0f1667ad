"""The CUDA code of the tiny and wide kernels, emulated on the CPU, held to what their tests on a GPU ask."""

import ctypes
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests import panels
from tests.panels import ONE_EACH, PANELS, Factor, Panel

SOURCE = Path(__file__).resolve().parent.parent / "ffi" / "emulation" / "kernels.cc"
WHOLE = [panel for panel in PANELS if panel.is_whole]
ONE_EACH_WHOLE = [panel for panel in ONE_EACH if panel.is_whole]
GUARD = 64  # elements behind a result that nobody may write


@pytest.fixture(scope="module")
def factor(tmp_path_factory) -> Factor:
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    library = tmp_path_factory.mktemp("emulation") / "kernels.so"
    options = ["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run([*shlex.split(compiler), *options], check=True)
    emulate = ctypes.CDLL(str(library)).emulate
    emulate.restype = ctypes.c_bool

    def factor(a: np.ndarray, panel: Panel, in_place: bool) -> tuple[np.ndarray, ...]:
        batch, m, n = a.shape
        h, tau = (np.full(size + GUARD, np.nan, np.float32) for size in (a.size, batch * panel.width))
        a, in_place = np.ascontiguousarray(a), in_place and panel.regime != "wide"
        if in_place:
            h[: a.size] = a.ravel()
        variant = np.array(panel.variant, np.int64)
        source, *results = (ctypes.c_void_p(x.ctypes.data) for x in (h if in_place else a, h, tau))
        numbers = ctypes.c_void_p(variant.ctypes.data), len(variant)
        assert emulate(*numbers, source, *results, ctypes.c_int64(batch), m, n)
        assert np.isnan(h[a.size :]).all()
        assert np.isnan(tau[-GUARD:]).all()
        no_t, no_halves = np.zeros((batch, 0, 0), np.float32), np.zeros((batch, 0, 2, 0), np.float16)
        return h[: a.size].reshape(a.shape), tau[:-GUARD].reshape(batch, -1), no_t, no_halves

    return factor


@pytest.mark.parametrize("panel", WHOLE, ids=str)
def test_panel(panel: Panel, factor: Factor):
    panels.assert_fp32_grade(panel, factor)


@pytest.mark.parametrize("panel", ONE_EACH_WHOLE, ids=str)
def test_panel_at_any_scale(panel: Panel, factor: Factor):
    panels.assert_any_scale(panel, factor)


@pytest.mark.parametrize("panel", ONE_EACH_WHOLE, ids=str)
def test_denormal_tails(panel: Panel, factor: Factor):
    panels.assert_denormal_tails(panel, factor)


@pytest.mark.parametrize("panel", [panel for panel in ONE_EACH_WHOLE if panel.regime == "tiny"], ids=str)
def test_panel_in_and_out_of_place_are_the_same(panel: Panel, factor: Factor):
    panels.assert_same_in_and_out_of_place(panel, factor)


@pytest.mark.parametrize("panel", ONE_EACH_WHOLE, ids=str)
def test_bad_values_stay_in_their_matrix_and_right_of_their_column(panel: Panel, factor: Factor):
    panels.assert_bad_values_stay(panel, factor)
