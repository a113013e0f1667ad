"""The benchmarks package: what the cases are, that only a right result has a time, and what is made of a report."""

import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from benchmarks import __main__ as command
from benchmarks import cases, implementations, plots, protocol, report, suite, targets
from benchmarks.cases import Case
from benchmarks.implementations import JAX, JAXQR, Implementation, chained
from benchmarks.protocol import Protocol, measure, measured_ceilings

SMALL = Case("small", 3, 12, 8)
QUICK = Protocol(max_calls=4, repeats=3)


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch):
    """Flushing caches and measuring the machine would take seconds on a CPU."""
    monkeypatch.setattr(protocol, "_FLUSH_BYTES", 2**10)
    monkeypatch.setattr(protocol, "_PRODUCT_SIDE", 2**5)
    monkeypatch.setattr(suite, "measured_ceilings", lambda: {"bytes_per_s": 1e12, "flops_per_s": 1e12})


# Cases


def test_suites():
    contest = cases.contest()
    assert [case.timed for case in contest] == [True] * 12 + [False] * 22
    assert len(cases.users()) == 20
    for make in cases.SUITES.values():
        names = [case.name for case in make()]
        assert len(set(names)) == len(names)


def test_random_shapes():
    shapes = [case.shape for case in cases.random_shapes()]
    assert len(shapes) == 200
    assert shapes == [case.shape for case in cases.random_shapes()]
    assert shapes != [case.shape for case in cases.random_shapes(seed=1)]
    assert all(1 <= m <= 3000 and 1 <= n <= 3000 and b >= 1 and 4 * b * m * n <= 256e6 for b, m, n in shapes)
    # Log-uniform: half of the sides are below √3000.
    assert 70 < sum(m < 55 for _, m, _ in shapes) < 130
    assert 70 < sum(n < 55 for _, _, n in shapes) < 130


def test_inputs_are_seeded_and_differ():
    first, second = SMALL.inputs(0), SMALL.inputs(1)
    assert first.dtype == np.float32
    assert first.shape == SMALL.shape
    np.testing.assert_array_equal(first, SMALL.inputs(0))
    assert not np.isclose(first, second).any()
    assert not np.isclose(first[0], first[1]).any()
    assert not np.isclose(first, Case("other", *SMALL.shape).inputs(0)).any()


def test_every_block_is_filled_by_a_seed_of_its_own(monkeypatch):
    monkeypatch.setattr(cases, "_BLOCK_ELEMENTS", 2 * 12 * 8)
    a = Case("blocks", 7, 12, 8).inputs(0)
    assert len(np.unique(a)) == a.size


def test_condition():
    a = Case("graded", 4, 64, 32, condition=2).inputs(0)
    norms = np.linalg.norm(a, axis=1).mean(0)
    np.testing.assert_allclose(norms / norms[0], np.logspace(0, -2, 32), rtol=0.4)


def norms_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    a = Case(kind, 2, 64, 64, kind).inputs(0)
    return a, np.linalg.norm(a, axis=1)


def test_kinds():
    _, norms = norms_of("rankdef")
    assert (norms[:, :48] > 4).all()
    assert (norms[:, 48:] == 0).all()

    a, _ = norms_of("nearrank")
    noise = a[..., 48:] - a[..., :16]
    assert 0.9e-5 < noise.std() < 1.1e-5

    _, norms = norms_of("clustered")
    eps = 2.0**-23
    scales = np.r_[np.ones(30), np.full(4, np.sqrt(eps)), np.full(30, 4 * eps)]
    assert (abs(norms / scales - 8) < 3).all()

    a, _ = norms_of("band")
    distance = abs(np.subtract.outer(np.arange(64), np.arange(64)))
    assert (a[:, distance > 2] == 0).all()
    assert (a[:, distance <= 2] != 0).all()
    assert 0.5 < np.einsum("bii->bi", a).mean() < 1

    a, _ = norms_of("rowscale")
    np.testing.assert_allclose(np.linalg.norm(a, axis=2) / np.logspace(0, -4, 64), 8, atol=3)

    a, _ = norms_of("nearcollinear")
    assert 0.9e-4 < (a[..., 1:] - a.mean(-1, keepdims=True)).std() < 1.1e-4

    a, _ = norms_of("upper")
    assert (a == np.triu(a)).all()
    assert 0.2 < np.einsum("bii->bi", a).mean() < 1


def test_mixed_draws_every_class_mostly_dense():
    a = Case("mixed", 240, 32, 32, "mixed", 2).inputs(0)
    rankdef = (a[..., 24:] == 0).all((1, 2))
    band = (a[:, 0, 8:] == 0).all(1) & ~rankdef
    assert 8 < rankdef.sum() < 35
    assert 8 < band.sum() < 35
    assert sum(cases.MIXED_WEIGHTS.values()) == 12
    assert set(cases.MIXED_WEIGHTS) == set(cases.KINDS) - {"upper"}


def test_every_target_has_its_case():
    for name, wanted in targets.CASES.items():
        assert set(wanted) <= {case.name for case in cases.SUITES[name]() if case.timed}


# Times


def test_ceilings():
    ceilings = measured_ceilings()
    assert ceilings.keys() == {"bytes_per_s", "flops_per_s"}
    assert min(ceilings.values()) > 0


def test_a_chain_runs_every_factorization_in_order():
    compiled = jax.jit(chained(lambda a: (a + 1, a[..., 0])))
    inputs = [jnp.full((2, 2), float(i)) for i in range(4)]
    outputs = compiled(*inputs)
    assert [float(h[0, 0]) for h, _ in outputs] == [1, 2, 3, 4]
    assert compiled.lower(*inputs).as_text().count("optimization_barrier") == 3


@pytest.mark.parametrize(("input_bytes", "calls"), [(4 * 10**3, 50), (25 * 10**6, 10), (10**9, 3)])
def test_calls_fill_256_megabytes(input_bytes, calls):
    assert Protocol().calls(Case("any", input_bytes // 40, 10, 1)) == calls


def counting(seconds: float) -> tuple[Implementation, list[int]]:
    """An implementation that takes a known time for each input, and the numbers of inputs that it was called with."""
    calls: list[int] = []

    def factor_all(*inputs):
        calls.append(len(inputs))
        time.sleep(seconds * len(inputs))
        return [(a, a) for a in inputs]

    return Implementation("counting", lambda a: a, factor_all, lambda factors: factors), calls


def test_a_fast_implementation_gets_all_inputs_and_repeats():
    implementation, calls = counting(0.002)
    timing, outputs = measure(implementation, ["a", "b", "c"], Protocol(repeats=5, seconds=10))
    assert calls == [1, 1] + [3] * 7
    assert (timing.calls, len(timing.samples_ms), len(outputs)) == (3, 5, 3)
    assert 2 <= timing.milliseconds < 20


def test_a_slow_implementation_gets_less():
    implementation, calls = counting(0.05)
    timing, outputs = measure(implementation, ["a", "b", "c"], Protocol(repeats=20, seconds=0.2))
    assert set(calls) == {1}
    assert 2 <= len(timing.samples_ms) <= 4
    assert (timing.calls, len(outputs)) == (1, 1)


# Results


def stub(name: str, factor) -> Implementation:
    return Implementation(name, jnp.asarray, lambda *inputs: [factor(a) for a in inputs], lambda factors: factors)


def wrong(a):
    h, tau = jaxqr.geqrf(a)
    return h.at[-1, 0, 0].multiply(1.001), tau


def broken(a):
    raise RuntimeError("out of memory\nand much more")


def test_a_right_result_has_a_time():
    entry = suite.run_case(SMALL, [JAX], QUICK)
    for name in ("jaxqr", "jax"):
        result = entry["results"][name]
        assert result["milliseconds"] == np.median(result["samples_ms"]) > 0
        assert result["first_call_s"] > 0
        assert result["check"]["gate"]
        assert result["check"]["fp32_grade"]
        assert result["check"]["matrices"] == result["calls"] * 3
        assert 0 < result["check"]["scaled_factor"] < 0.5


def test_a_wrong_result_has_none(monkeypatch):
    monkeypatch.setattr(suite, "JAXQR", stub("jaxqr", wrong))
    entry = suite.run_case(SMALL, [stub("peer", wrong), stub("other", broken)], QUICK)
    for name in ("jaxqr", "peer"):
        assert entry["results"][name]["milliseconds"] is None
        assert "samples_ms" not in entry["results"][name]
        assert not entry["results"][name]["check"]["gate"]
    assert entry["results"]["other"] == {"error": "RuntimeError: out of memory"}
    assert report.case_line(entry) == "small: jaxqr wrong, peer wrong, other error"
    assert len(suite.failures({"cases": [entry]})) == 1


def test_a_gate_only_case_is_checked_and_not_timed():
    entry = suite.run_case(Case("gate", 2, 6, 6, timed=False), [], QUICK)
    assert entry["results"]["jaxqr"].keys() == {"check"}
    assert report.case_line(entry) == "gate: jaxqr passes"


def test_nan_is_reported_as_strict_json(monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "JAXQR", stub("jaxqr", lambda a: tuple(x * jnp.nan for x in jaxqr.geqrf(a))))
    entry = suite.run_case(SMALL, [], QUICK)
    assert entry["results"]["jaxqr"]["check"]["scaled_factor"] == "nan"
    suite.write_json(entry, tmp_path / "new" / "report.json")
    assert json.loads((tmp_path / "new" / "report.json").read_text()) == entry


def test_a_killed_run_keeps_its_results(monkeypatch, tmp_path):
    path = tmp_path / "report.json"
    entries = suite.run(
        "users", [SMALL, Case("more", 2, 4, 4)], [], QUICK, lambda so_far: suite.write_json(so_far, path)
    )
    next(entries)
    kept = json.loads(path.read_text())
    assert [entry["name"] for entry in kept["cases"]] == ["small"]
    assert kept["environment"]["versions"]["jax"] == jax.__version__


def test_peers():
    assert implementations.installed_peers()[0] is JAX
    a = SMALL.inputs(0)
    for mine, jax_s in zip(JAXQR.as_jax(JAXQR.factor_all(a)[0]), JAX.as_jax(JAX.factor_all(a)[0]), strict=True):
        np.testing.assert_allclose(mine, jax_s, rtol=1e-4, atol=1e-5)


# Reports


def synthetic(suite_name: str, times: dict[str, tuple[float | None, float]], device: str = "NVIDIA H200") -> dict:
    """A report with these times of jaxqr and JAX."""
    by_name = {case.name: case for case in cases.SUITES[suite_name]()}
    check = {"gate": True, "fp32_grade": True, "scaled_factor": 0.1, "scaled_orthogonality": 1.0, "columnwise": 4.0}
    return {
        "suite": suite_name,
        "environment": {
            "device": device,
            "driver": "1.2",
            "versions": {"jax": "0.11.2"},
            "commit": "0123456789abcdef",
            "date": "2026-01-02T03:04:05+00:00",
        },
        "ceilings": {"bytes_per_s": 4e12, "flops_per_s": 6e13},
        "cases": [
            {
                **vars(by_name[name]),
                "flops": by_name[name].flops,
                "traffic_bytes": by_name[name].traffic_bytes,
                "results": {
                    "jaxqr": {"milliseconds": ours, "first_call_s": 1.0, "check": check},
                    "jax": {"milliseconds": theirs, "first_call_s": 1.0, "check": check},
                },
            }
            for name, (ours, theirs) in times.items()
        ],
    }


def at_must(**changed: tuple[float | None, float]) -> dict:
    times = {name: (target.must, 20 * target.must) for name, target in targets.CASES["contest"].items()}
    return synthetic("contest", times | {name.replace("_", "-"): pair for name, pair in changed.items()})


def test_table_compares_with_the_targets():
    header, first, *_ = report.table(at_must(**{"20x32_dense": (0.006, 0.6)}))
    cells = dict(zip(header, first, strict=True))
    assert (cells["jaxqr ms"], cells["jax ms"], cells["× JAX"], cells["must"], cells["met"]) == (
        *("0.006", "0.6", "100", "0.012"),
        "aim",
    )
    rows = report.table(at_must(**{"20x32_dense": (0.024, 0.6)}))
    assert rows[1][-1] == "2.00 × must"
    assert rows[2][-1] == "must"
    elsewhere = synthetic("contest", {"20x32-dense": (1.0, 2.0)}, device="cpu")
    assert "must" not in report.table(elsewhere)[0]
    assert len({len(row) for row in report.table(elsewhere)}) == 1


def test_verdicts_of_the_contest():
    lines = "\n".join(report.verdicts(at_must(**{"20x32_dense": (0.006, 0.24)})))
    assert "geometric mean of the 12: 1.23 ms (must 1.3, aim 0.72): must" in lines
    assert "slowest class of 640x512: dense, 1.000 of dense" in lines
    assert "0 of 12 cases above 1.05: met" in lines
    assert "least speed-up over JAX, n ≤ 1024: 20.0" in lines
    assert "MISSED" not in lines

    lines = "\n".join(
        report.verdicts(
            at_must(**{"640x512_mixed": (3.9, 490.0), "2x4096_dense": (9.0, 8.5), "20x32_dense": (0.1, 0.6)})
        )
    )
    assert "slowest class of 640x512: mixed, 1.182 of dense (at most 1.1): MISSED" in lines
    assert "1.06 of its time, at 2x4096-dense; 1 of 12 cases above 1.05: MISSED" in lines
    assert "least speed-up over JAX, n ≤ 1024: 6.0, at 20x32-dense (at least 10): MISSED" in lines


def test_verdicts_do_not_average_over_what_is_missing():
    lines = report.verdicts(at_must(**{"20x32_dense": (None, 0.6)}))
    assert "geometric mean: 11 of the 12 cases have a time" in lines[0]


def test_readme_tables(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{report.README_BEGIN}\nold\n{report.README_END}\n\nafter\n")
    old = synthetic("contest", {"20x32-dense": (99.0, 2.0)})
    old["environment"]["date"] = "2025-01-01T00:00:00+00:00"
    random = synthetic("random", {cases.random_shapes()[0].name: (1.0, 3.0)})
    report.update_readme(readme, [random, at_must(), old])
    text = readme.read_text()
    assert text.startswith("before\n\n")
    assert text.endswith("\n\nafter\n")
    assert "old" not in text
    assert "| 40x176-dense | 0.11 | 2.2 | 20 |" in text
    assert "99" not in text
    assert "**random** on NVIDIA H200, driver 1.2, jax 0.11.2, 2026-01-02, commit 0123456789ab." in text
    report.update_readme(readme, [random, at_must(), old])
    assert readme.read_text() == text

    with pytest.raises(ValueError, match="no reports"):
        report.update_readme(readme, [])
    readme.write_text("nothing")
    with pytest.raises(ValueError, match="lacks the lines"):
        report.update_readme(readme, [old])


def test_the_readme_has_its_markers():
    text = (command._ROOT / "README.md").read_text()
    assert text.index(report.README_BEGIN) < text.index(report.README_END)


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    paths = plots.plot(at_must(**{"20x32_dense": (None, 0.6)}), tmp_path / "plots")
    assert [path.name for path in paths] == ["contest-n.png", "contest-batch.png"]
    assert all(path.stat().st_size > 10_000 for path in paths)


# The command


def test_command_runs_a_case(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(
        cases.SUITES, "contest", lambda: [SMALL, Case("gate-a", 2, 5, 5, timed=False), Case("not", 1, 1, 1)]
    )
    path = tmp_path / "report.json"
    assert command.main(["contest", "--case", "small", "gate-*", "--repeats", "2", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "[1/2, " in out
    assert "] small: jaxqr " in out
    assert "gate-a: jaxqr passes" in out
    kept = json.loads(path.read_text())
    assert [entry["name"] for entry in kept["cases"]] == ["small", "gate-a"]
    assert kept["protocol"]["repeats"] == 2

    assert command.main(["compare", str(path)]) == 0
    assert "worst ratio to JAX" in capsys.readouterr().out


def test_command_fails_on_a_wrong_result(monkeypatch, capsys):
    monkeypatch.setattr(suite, "JAXQR", stub("jaxqr", wrong))
    monkeypatch.setitem(cases.SUITES, "users", lambda: [SMALL])
    assert command.main(["users", "--repeats", "1"]) == 1
    assert "FAILED small" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["contest", "--case", "nothing"], "no case is named 'nothing'"),
        (["contest", "--repeats", "0"], "at least 1"),
        (["compare", "missing.json"], "missing.json"),
        (["fast"], "invalid choice"),
    ],
)
def test_command_refuses(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
