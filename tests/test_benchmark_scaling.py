"""The scaling suite: its cases, the trend of their times, and that a cliff is found and fails the run."""

import json

import pytest

from benchmarks import __main__ as command
from benchmarks import cases, plots, protocol, report, suite, trends
from benchmarks.cases import Case

ROUND = 2.0**-40


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch):
    monkeypatch.setattr(protocol, "_FLUSH_BYTES", 2**10)
    monkeypatch.setattr(suite, "measured_ceilings", lambda: {"bytes_per_s": 1e12, "flops_per_s": 1e12})


def synthetic(times: dict[str, float | None]) -> dict:
    """A report of the whole suite with these times; the others are 1 µs, and 1 µs more for every 1000 elements."""
    entries = []
    for case in cases.scaling():
        time = times.get(case.name, 1e-3 * (1 + case.n**2 * case.batch / 1000))
        check = {"gate": True, "fp32_grade": True}
        result = {"milliseconds": time, "first_call_s": 1.0, "check": check}
        sizes = {"flops": case.flops, "traffic_bytes": case.traffic_bytes}
        entries.append({**vars(case), **sizes, "results": {"jaxqr": result}})
    versions = {"jax": "0.11.2"}
    environment = {
        "device": "NVIDIA H200",
        "driver": "1.2",
        "versions": versions,
        "commit": "0123",
        "date": "2026-01-02",
    }
    ceilings = {"bytes_per_s": 4e12, "flops_per_s": 6e13}
    return {"suite": "scaling", "environment": environment, "ceilings": ceilings, "cases": entries}


def test_cases():
    scaling = cases.scaling()
    assert len(scaling) == 13 + 10 + 4
    assert all(case.m == case.n and (case.batch == 1 or case.n in (512, 2048)) for case in scaling)
    series = trends.series(synthetic({}), "batch")
    assert list(series) == ["n = 512", "n = 2048"]
    assert [entry["batch"] for entry in series["n = 512"]] == [2**i for i in range(11)]
    assert [entry["batch"] for entry in series["n = 2048"]] == [2**i for i in range(5)]
    [(label, singles)] = trends.series(synthetic({}), "n").items()
    assert (label, len(singles), singles[0]["n"], singles[-1]["n"]) == ("one matrix", 13, 32, 8192)


def point(n: int, milliseconds: float | None) -> dict:
    return {"n": n, "name": str(n), "results": {"jaxqr": {"milliseconds": milliseconds}}}


def test_powers_have_no_excess():
    for exponent in (0, 1, 2.5):
        found = trends.excesses([point(n, 3.0 * n**exponent) for n in (32, 64, 128, 192, 1000)], "n")
        assert [entry["n"] for _, entry in found] == [64, 128, 192]
        assert all(abs(ratio - 1) < ROUND for ratio, _ in found)


def test_excess_is_over_the_neighbours_that_have_a_time():
    points = [point(1, 1.0), point(2, 8.0), point(4, None), point(8, 8.0)]
    [(ratio, entry)] = trends.excesses(points, "n")
    assert entry["n"] == 2
    assert ratio == pytest.approx(4)
    step = [point(2**i, 1.0 if i < 3 else 4.0) for i in range(6)]
    assert [round(ratio, 6) for ratio, _ in trends.excesses(step, "n")] == [1, 0.5, 2, 1]
    assert trends.excesses(points[:2], "n") == []


def test_verdicts():
    smooth = synthetic({})
    assert trends.cliffs(smooth) == []
    lines = report.verdicts(smooth)
    assert [line.split(": at most")[0] for line in lines] == [
        "time against n, one matrix",
        "time against the batch, n = 512",
        "time against the batch, n = 2048",
    ]
    assert all(line.endswith("(at most 1.5): met") for line in lines)

    cliff = synthetic({"1x1536": 10.0, "64x512": None})
    lines = report.verdicts(cliff)
    assert "× the trend of its neighbours, at 1x1536 (at most 1.5): MISSED" in lines[0]
    assert "MISSED" not in lines[1] + lines[2]
    [line] = trends.cliffs(cliff)
    assert line.startswith("1x1536: ")
    assert line.endswith(" in time against n, one matrix")
    assert report.verdicts({**smooth, "cases": smooth["cases"][:2]}) == []


def test_table_of_the_readme_has_no_peers(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"{report.README_BEGIN}\n{report.README_END}\n")
    report.update_readme(readme, [synthetic({"1x32": 0.02})])
    text = readme.read_text()
    assert "| case | jaxqr |\n| --- | ---: |\n| 1x32 | 0.02 |" in text
    assert "- time against n, one matrix: at most" in text


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    paths = plots.plot(synthetic({"16x512": None}), tmp_path)
    assert [path.name for path in paths] == ["scaling-n.png", "scaling-batch.png"]
    assert all(path.stat().st_size > 10_000 for path in paths)


def test_the_command_fails_on_a_cliff(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(cases.SUITES, "scaling", lambda: [Case(f"1x{n}", 1, n, n) for n in (3, 4, 5)])
    path = tmp_path / "report.json"
    monkeypatch.setattr(trends.targets, "CLIFF", 1e9)
    assert command.main(["scaling", "--repeats", "2", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "time against n, one matrix: at most" in out
    assert "; jaxqr\n" in out
    kept = json.loads(path.read_text())
    assert [list(entry["results"]) for entry in kept["cases"]] == [["jaxqr"]] * 3
    assert kept["protocol"]["max_calls"] == 10

    monkeypatch.setattr(trends.targets, "CLIFF", 1e-9)
    assert command.main(["scaling", "--repeats", "2", "--peers", "jax"]) == 1
    out = capsys.readouterr().out
    assert "FAILED 1x4: " in out
    assert "; jaxqr, jax\n" in out
