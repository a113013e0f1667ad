"""The CUDA code of the panel kernels, emulated on the CPU, held to what their tests on a GPU ask."""

import ctypes
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from jaxqr._kernels import makes_t
from tests import panels
from tests.panels import Factor, Panel

EMULATION = Path(__file__).resolve().parent.parent / "ffi" / "emulation"
GUARD = 64  # elements behind a result that nobody may write


OTHERS = {("cta", (4, 4)), ("cta", (4, 20)), ("cluster", (8, 4)), ("cluster", (4, 8))}


class OwnPanel(Panel):
    """A panel whose T and halves are made by its own kernel, or by none."""

    @property
    def with_t(self) -> bool:
        return super().with_t and makes_t(self.regime, self.variant, self.width)


def emulated(of_all: Iterable[Panel]) -> list[OwnPanel]:
    """Those of the narrow, tiny and wide kernels, and of some others, of which one takes columns in turns too."""
    chosen = [panel for panel in of_all if panel.is_whole or (panel.regime, panel.variant[:2]) in OTHERS]
    return [OwnPanel(**vars(panel)) for panel in chosen]


PANELS, ONE_EACH = emulated(panels.PANELS), emulated(panels.ONE_EACH)


@pytest.fixture(scope="module")
def factor(tmp_path_factory) -> Factor:
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    library = tmp_path_factory.mktemp("emulation") / "kernels.so"
    options = ["-std=c++17", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC"]
    if "clang" not in subprocess.run([*shlex.split(compiler), "--version"], capture_output=True, text=True).stdout:
        options.append("-fno-extern-tls-init")  # GCC would look for an initialization that nobody defines
    paths = ["-I", str(EMULATION / "include"), "-o", str(library), str(EMULATION / "kernels.cc")]
    subprocess.run([*shlex.split(compiler), *options, *paths], check=True)
    emulate = ctypes.CDLL(str(library)).emulate
    emulate.restype = ctypes.c_bool

    def factor(a: np.ndarray, panel: Panel, in_place: bool) -> tuple[np.ndarray, ...]:
        (batch, m, n), width, rows = a.shape, panel.width, panel.rows
        side, pitch, halves_rows = (width, -(-width // 8) * 8, rows) if panel.with_t else (0, 0, 0)
        shapes = a.shape, (batch, width), (batch, side, side), (batch, halves_rows, 2, pitch)
        dtypes = np.float32, np.float32, np.float32, np.float16
        guarded = [np.full(np.prod(x) + GUARD, np.nan, dtype) for x, dtype in zip(shapes, dtypes, strict=True)]
        a, in_place = np.ascontiguousarray(a), in_place and panel.regime != "wide"
        if in_place:
            guarded[0][: a.size] = a.ravel()
        variant = np.array(panel.variant, np.int64)
        results = [x.ctypes.data if i < 2 or panel.with_t else None for i, x in enumerate(guarded)]
        pointers = (ctypes.c_void_p(x) for x in (results[0] if in_place else a.ctypes.data, *results))
        sizes = map(ctypes.c_int64, (batch, m, n, panel.offset, width))
        kernel = panel.regime.encode(), ctypes.c_void_p(variant.ctypes.data), len(variant)
        assert emulate(*kernel, *pointers, *sizes)
        assert all(np.isnan(x[-GUARD:]).all() for x in guarded)
        return tuple(x[:-GUARD].reshape(shape) for x, shape in zip(guarded, shapes, strict=True))

    return factor


@pytest.mark.parametrize("panel", PANELS, ids=str)
def test_panel(panel: Panel, factor: Factor):
    panels.assert_fp32_grade(panel, factor)


@pytest.mark.parametrize("panel", ONE_EACH, ids=str)
def test_panel_at_any_scale(panel: Panel, factor: Factor):
    panels.assert_any_scale(panel, factor)


@pytest.mark.parametrize("panel", ONE_EACH, ids=str)
def test_denormal_tails(panel: Panel, factor: Factor):
    panels.assert_denormal_tails(panel, factor)


@pytest.mark.parametrize("panel", [panel for panel in ONE_EACH if panel.regime != "wide"], ids=str)
def test_panel_in_and_out_of_place_are_the_same(panel: Panel, factor: Factor):
    panels.assert_same_in_and_out_of_place(panel, factor)


@pytest.mark.parametrize("panel", ONE_EACH, ids=str)
def test_bad_values_stay_in_their_matrix_and_right_of_their_column(panel: Panel, factor: Factor):
    panels.assert_bad_values_stay(panel, factor)
