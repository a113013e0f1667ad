"""The cost model's constants: a fit finds those behind synthetic times, and writes them; the schedules suite runs."""

import csv
import math
import runpy
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import cases, fit, protocol, report, schedules, suite
from benchmarks.cases import Case
from jaxqr import _costs
from jaxqr import schedule as planning
from jaxqr._kernels import kernels
from jaxqr.schedule import device_of_kind, schedule_for

H200 = device_of_kind("H200")
COLUMNS = ("kernel", "rows", "width", "t", "columns", "batch", "microseconds")


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch):
    monkeypatch.setattr(protocol, "_FLUSH_BYTES", 2**10)
    monkeypatch.setattr(suite, "measured_ceilings", lambda: {"bytes_per_s": 1e12, "flops_per_s": 1e12})
    monkeypatch.setattr(schedules, "_IN_A_ROW", 1)


def changed(costs: _costs.Costs) -> _costs.Costs:
    """Every constant is up to a third more or less."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: x * math.exp(rng.uniform(-0.3, 0.3)), costs)


def shapes():
    """Rows of a sweep, without times."""
    for batch in (1, 60, 264, 2640):
        for kernel in kernels():
            name = f"{kernel.regime} {'x'.join(map(str, kernel.variant))}"
            for width in (8, 16, 32, 48) if kernel.regime == "tiny" else (16, 32, 48):
                for t in (0, 1) if kernel.regime == "cta" else (0,):
                    yield name, width, width, t, 0, batch
        for rows in (64, 256, 1024, 4096):
            for width in (16, 64):
                yield "reflectors", rows, width, 1, 0, batch
                for columns in (64, 193, 960):
                    yield "update", rows, width, 1, columns, batch
                if rows < 1024:
                    yield "lift", rows, width, 0, 0, batch


@pytest.fixture
def sweep(tmp_path):
    """A sweep whose times the changed constants give exactly."""
    path, device = tmp_path / "sweep.csv", replace(H200, costs=changed(H200.costs))
    with path.open("w", newline="") as file:
        file.write("# NVIDIA H200\n")
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for shape in shapes():
            point = fit._point(dict(zip(COLUMNS, (*map(str, shape), "1"), strict=True)))
            writer.writerow([*shape, 1e6 * point.predicted(device)])
    return path


def test_a_fit_finds_the_constants_behind_the_times(sweep):
    device, points = fit.read(sweep)
    assert device == H200
    fitted = fit.fit(points, device)
    [header, *rows] = fit.table(points, device, fitted)
    assert len(rows) == len(kernels()) + 3
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        assert float(cells["rms after"].rstrip("%")) < 1, cells
        assert float(cells["rms before"].rstrip("%")) > 1, cells
    # One that is told from all others, as it has a time to itself: a matrix's, where they are many.
    assert fitted.tiny.issue_element == pytest.approx(changed(H200.costs).tiny.issue_element, rel=0.05)


def test_what_is_not_in_a_sweep_stays(sweep):
    device, points = fit.read(sweep)
    fitted = fit.fit([point for point in points if point.kernel == "lift"], device)
    assert fitted._replace(lift=device.costs.lift) == device.costs
    assert fitted.lift != device.costs.lift


def test_kernels_that_are_not_planned_with_and_narrow_panels_are_left_out(tmp_path):
    path, panels = tmp_path / "sweep.csv", ("cta 99x99,32,32", "cta 4x4,32,8", "cta 4x4,32,16", "tiny 8x1x1x1x8,8,4")
    lines = [",".join(COLUMNS), *(f"{panel},0,0,1,5.0" for panel in panels), "lift,64,16,0,0,1,5.0"]
    path.write_text("\n".join(("# NVIDIA H200", *lines, "")))
    _, points = fit.read(path)
    assert [point.kernel for point in points] == ["cta 4x4", "tiny 8x1x1x1x8", "lift"]


@pytest.mark.parametrize("text", ["", "# NVIDIA H200\n", "# NVIDIA H200\nkernel,rows\nlift,64\n", "# other\n"])
def test_what_is_no_sweep_is_refused(tmp_path, capsys, text):
    path = tmp_path / "sweep.csv"
    path.write_text(text)
    with pytest.raises(SystemExit):
        command.main(["fit", str(path)])
    assert "is not a sweep" in capsys.readouterr().err


def test_the_command_writes_the_constants(sweep, tmp_path, monkeypatch, capsys):
    path = tmp_path / "_costs.py"
    shutil.copy(fit.COSTS_FILE, path)
    monkeypatch.setattr(fit, "COSTS_FILE", path)
    before = path.read_text()
    assert command.main(["fit", str(sweep)]) == 0
    assert "rms after" in capsys.readouterr().out
    assert path.read_text() == before

    assert command.main(["fit", str(sweep), "--write"]) == 0
    device, points = fit.read(sweep)
    assert runpy.run_path(str(path))["COSTS"] == fit.fit(points, device)
    assert "from: sweep.csv, H200\n" in path.read_text()


def test_the_constants_are_as_the_command_writes_them(tmp_path):
    path, text = tmp_path / "_costs.py", fit.COSTS_FILE.read_text()
    path.write_text(text)
    source = text.partition(fit._WRITTEN)[2].partition("\n")[0]
    fit.write(_costs.COSTS, source, path)
    assert path.read_text() == text


def test_a_plan_follows_the_costs_of_its_device(monkeypatch):
    schedule = schedule_for(512, 512, 640, "H200")
    assert {step.update for step in schedule.steps[:-1]} == {"fused"}
    dear = H200.costs._replace(cta=_costs.Cta(*(1e6 * x for x in H200.costs.cta)))
    monkeypatch.setattr(planning, "_DEVICES", (replace(H200, costs=dear),))
    assert "cta" in {step.regime for step in schedule.steps}
    assert "cta" not in {step.regime for step in schedule_for(512, 512, 640, "H200").steps}


# The suite


def test_uniform_schedules_cover_the_columns(monkeypatch):
    asked = []
    monkeypatch.setattr(schedules, "_panel_milliseconds", lambda kernel, panel, batch: asked.append(panel) or 1.0)
    schedule = schedules.uniform.__wrapped__(3, 300, 200, 32)
    assert [step.width for step in schedule.steps] == [32] * 6 + [8]
    assert [step.update for step in schedule.steps] == ["fused"] * 6 + [None]
    assert {panel.width for panel in asked} == {32, 8}
    with pytest.raises(ValueError, match="no panels of 128 columns"):
        schedules.uniform.__wrapped__(3, 300, 200, 128)


def test_the_suite_runs(monkeypatch, capsys):
    monkeypatch.setitem(cases.SUITES, "schedules", lambda: [Case("small", 3, 40, 24)])
    assert command.main(["schedules", "--repeats", "2"]) == 0
    assert "chosen schedule to the best that was tried: " in capsys.readouterr().out


def test_the_verdict_is_over_all_that_was_tried():
    def entry(name: str, ours: float, other: float | None) -> dict:
        times = {"jaxqr": ours, "width 8": other}
        return {"name": name, "timed": True, "results": {key: {"milliseconds": time} for key, time in times.items()}}

    made = {"suite": "schedules", "cases": [entry("a", 1.2, 1.0), entry("b", 1.0, 2.0), entry("c", 1.0, None)]}
    [line] = report.verdicts(made)
    assert "1.200 of its time at most, at a" in line
    assert line.endswith("1 of 3 cases above 1.1: MISSED")
