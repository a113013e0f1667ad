"""Command line: `python -m benchmarks` and a suite's name runs the suite; `compare` and `readme` read reports, `fit`
reads a sweep."""

import argparse
import dataclasses
import fnmatch
import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import jax

from benchmarks import cases, fit, report, schedules, trends
from benchmarks.cases import Case
from benchmarks.console import print_table, progress
from benchmarks.implementations import JAX, PEERS, installed_peers
from benchmarks.plots import plot
from benchmarks.protocol import Protocol
from benchmarks.suite import failures, run, write_json

_ROOT = Path(__file__).resolve().parent.parent
_RESULTS = _ROOT / "benchmarks" / "results"

# The random and the scaling suite are many shapes: short programs, because compiling takes most of their time.
_PROTOCOLS = {
    "contest": Protocol(),
    "users": Protocol(),
    "random": Protocol(max_calls=10, seconds=0.5),
    "family": Protocol(),
    "scaling": Protocol(max_calls=10, repeats=10, seconds=0.3),
    "schedules": Protocol(max_calls=16, repeats=10, seconds=0.2),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Times jaxqr and its peers; checks every timed result."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for suite in cases.SUITES:
        command = commands.add_parser(suite, help=f"time and check the {suite} suite")
        command.add_argument("--json", type=Path, metavar="FILE", help="keep the report here; written after every case")
        command.add_argument("--plot", type=Path, metavar="DIR", help="write plots into this folder (needs matplotlib)")
        command.add_argument("--case", nargs="+", metavar="NAME", help="only these cases; * and ? match as in a shell")
        command.add_argument(
            "--peers",
            nargs="+",
            choices=PEERS,
            default=() if suite in ("scaling", "schedules") else PEERS,
            help="where installed; JAX is always among them, in the scaling suite if any is named",
        )
        command.add_argument(
            "--repeats", type=int, default=_PROTOCOLS[suite].repeats, metavar="N", help="timed runs of a case"
        )
    compare = commands.add_parser("compare", help="print a report's table and how it stands against the targets")
    compare.add_argument("report", type=Path, nargs="+")
    compare.add_argument("--plot", type=Path, metavar="DIR", help="write plots into this folder (needs matplotlib)")
    commands.add_parser("readme", help="rewrite the README's tables from benchmarks/results/*.json")
    costs = commands.add_parser("fit", help="fit the cost model's constants to what `jaxqr_driver sweep` printed")
    costs.add_argument("sweep", type=Path, metavar="CSV")
    costs.add_argument("--write", action="store_true", help="put them into jaxqr/_costs.py")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0, or 1 if jaxqr failed a check or its time has a cliff. Exits with 2 on a usage error."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        if options.command == "readme":
            report.update_readme(_ROOT / "README.md", [_read(path) for path in sorted(_RESULTS.glob("*.json"))])
            return 0
        if options.command == "fit":
            _fit(options.sweep, options.write)
            return 0
        if options.plot and importlib.util.find_spec("matplotlib") is None:
            raise ValueError("--plot needs matplotlib: pip install 'jaxqr[bench]'")
        if options.command == "compare":
            for path in options.report:
                _show(_read(path), options.plot)
            return 0
        selected = _select(cases.SUITES[options.command](), options.case)
        if options.repeats < 1:
            raise ValueError(f"--repeats takes at least 1, got {options.repeats}")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return _run(options.command, selected, options.peers, options.repeats, options.json, options.plot)


def _fit(sweep: Path, write: bool) -> None:
    device, points = fit.read(sweep)
    fitted = fit.fit(points, device)
    print_table(fit.table(points, device, fitted))
    if write:
        fit.write(fitted, f"{sweep.name}, {device.kind}", fit.COSTS_FILE)
        print(f"wrote {fit.COSTS_FILE}")


def _run(
    suite: str,
    selected: Sequence[Case],
    wanted: Sequence[str],
    repeats: int,
    json_path: Path | None,
    plots: Path | None,
) -> int:
    peers = [JAX] if suite in ("random", "family") else installed_peers(wanted) if wanted else []
    peers += schedules.UNIFORM if suite == "schedules" else []
    protocol = dataclasses.replace(_PROTOCOLS[suite], repeats=repeats)
    names = ", ".join(["jaxqr", *(peer.name for peer in peers)])
    print(f"{suite}: {len(selected)} cases on {jax.devices()[0].device_kind}; {names}", flush=True)
    done: report.Report = {}

    def save(so_far: report.Report) -> None:
        done.update(so_far)
        if json_path:
            write_json(so_far, json_path)

    start = time.monotonic()
    entries = run(suite, selected, peers, protocol, save)
    for number, entry in enumerate(progress(entries, len(selected), suite), start=1):
        elapsed = f"{time.monotonic() - start:.0f} s"
        print(f"[{number}/{len(selected)}, {elapsed}] {report.case_line(entry)}", flush=True)
    _show(done, plots)
    failed = failures(done) + (trends.cliffs(done) if suite == "scaling" else [])
    for line in failed:
        print(f"FAILED {line}")
    return int(bool(failed))


def _select(suite: Sequence[Case], patterns: Sequence[str] | None) -> list[Case]:
    """The cases that match any of the patterns; all of them without patterns.

    Raises:
      ValueError: a pattern matches none.
    """
    if patterns is None:
        return list(suite)
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(case.name, pattern) for case in suite):
            raise ValueError(f"no case is named {pattern!r}; there are {', '.join(case.name for case in suite)}")
    return [case for case in suite if any(fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns)]


def _read(path: Path) -> report.Report:
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not a report: {error}") from error


def _show(shown: report.Report, plots: Path | None) -> None:
    print_table(report.table(shown))
    for line in report.verdicts(shown):
        print(line)
    if plots:
        print("plots:", ", ".join(str(path) for path in plot(shown, plots)))


if __name__ == "__main__":
    sys.exit(main())
