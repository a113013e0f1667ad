"""Reads reports: the table and the verdicts of one, and the README's tables of those that are kept."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import targets, trends
from benchmarks.targets import Target

Report = dict[str, Any]
Table = list[list[str]]
"""Rows of cells; the first row is the header."""

README_BEGIN = "<!-- benchmarks: written by `python -m benchmarks readme`, do not edit -->"
README_END = "<!-- benchmarks: end -->"


def table(report: Report) -> Table:
    """Every case: times, speed-up, checks; on the targets' device also these, and the best that was met."""
    peers = _peers(report)
    with_targets = bool(_case_targets(report))
    header = ["case", "jaxqr ms", *(f"{peer} ms" for peer in peers), "× JAX", "first call s", "factor", "orth.", "col."]
    rows = [header + ["must", "aim", "met"] * with_targets]
    for entry in report["cases"]:
        result = entry["results"]["jaxqr"]
        check = result.get("check", {})
        row = [entry["name"], _time(result), *(_time(entry["results"].get(peer, {})) for peer in peers)]
        row += [_number(_speedup(entry)), _number(result.get("first_call_s"))]
        row += [_number(check.get(name)) for name in ("scaled_factor", "scaled_orthogonality", "columnwise")]
        if with_targets:
            target = _case_targets(report).get(entry["name"])
            row += (
                [_number(target.must), _number(target.aim), _met(_milliseconds(entry), target)]
                if target
                else ["", "", ""]
            )
        rows.append(row)
    return rows


def case_line(entry: Report) -> str:
    """One line about one case, for progress."""
    return f"{entry['name']}: " + ", ".join(f"{name} {_time(result)}" for name, result in entry["results"].items())


def verdicts(report: Report) -> list[str]:
    """What the report says about the suite as a whole, one line each. Only complete figures are compared."""
    entries = [entry for entry in report["cases"] if entry["timed"]]
    lines = [_mean_line(report, entries)] if report["suite"] == "contest" else []
    lines += _class_lines(entries) if report["suite"] == "contest" else []
    lines += trends.verdicts(report) if report["suite"] == "scaling" else []
    lines += _choice_lines(entries) if report["suite"] == "schedules" else []
    speedups = [(speedup, entry) for entry in entries if (speedup := _speedup(entry))]
    if not speedups:
        return lines
    worst, entry = min(speedups, key=lambda pair: pair[0])
    slower = sum(speedup * targets.SLOWEST_TO_JAX < 1 for speedup, _ in speedups)
    lines.append(
        f"worst ratio to JAX: {1 / worst:.3g} of its time, at {entry['name']}; {slower} of {len(speedups)} cases above "
        f"{targets.SLOWEST_TO_JAX}: {_verdict(slower == 0)}"
    )
    small = [(speedup, entry) for speedup, entry in speedups if entry["n"] <= 1024]
    if report["suite"] == "contest" and small:
        worst, entry = min(small, key=lambda pair: pair[0])
        wanted = targets.SPEEDUP_UP_TO_1024
        lines.append(
            f"least speed-up over JAX, n ≤ 1024: {worst:.1f}, at {entry['name']} (at least {wanted}): "
            f"{_verdict(worst >= wanted)}"
        )
    return lines


def update_readme(readme: Path, reports: Sequence[Report]) -> None:
    """Replaces the README's tables by those of the newest report of each suite.

    Raises:
      ValueError: there is no report, or the README lacks the markers.
    """
    if not reports:
        raise ValueError("no reports to make tables from")
    text = readme.read_text()
    if README_BEGIN not in text or README_END not in text:
        raise ValueError(f"{readme} lacks the lines {README_BEGIN!r} and {README_END!r}")
    newest = {report["suite"]: report for report in sorted(reports, key=lambda report: report["environment"]["date"])}
    sections = [_markdown(newest[suite]) for suite in targets.CASES if suite in newest]
    before, rest = text.split(README_BEGIN)
    _, after = rest.split(README_END)
    readme.write_text("\n\n".join([before + README_BEGIN, *sections, README_END]) + after)


def _markdown(report: Report) -> str:
    """A suite's section of the README: where it was measured, the timed cases (not of "random"), the verdicts."""
    where = report["environment"]
    versions = where["versions"]
    title = (
        f"**{report['suite']}** on {where['device']}, driver {where['driver']}, jax {versions['jax']}, "
        f"{where['date'][:10]}, commit {(where['commit'] or 'unknown')[:12]}. Milliseconds a call."
    )
    peers = _peers(report)
    header = ["case", "jaxqr", *peers, *["× JAX"] * ("jax" in peers)]
    rows = [header, ["---", *["---:"] * (len(header) - 1)]]
    for entry in report["cases"]:
        if entry["timed"]:
            times = [_time(entry["results"].get(name, {})) for name in ("jaxqr", *peers)]
            rows.append([entry["name"], *times, *[_number(_speedup(entry))] * ("jax" in peers)])
    lines = [] if report["suite"] == "random" else ["| " + " | ".join(row) + " |" for row in rows]
    parts = (title, "\n".join(lines), "\n".join(f"- {line}" for line in verdicts(report)))
    return "\n\n".join(part for part in parts if part)


def _mean_line(report: Report, entries: Sequence[Report]) -> str:
    wanted = list(targets.CASES["contest"])
    times = {entry["name"]: _milliseconds(entry) for entry in entries}
    present = [time for name in wanted if (time := times.get(name))]
    if len(present) < len(wanted):
        return f"geometric mean: {len(present)} of the {len(wanted)} cases have a time"
    mean = math.exp(sum(map(math.log, present)) / len(present))
    goal = targets.CONTEST_MEAN
    line = f"geometric mean of the {len(wanted)}: {_number(mean)} ms"
    return line + (f" (must {goal.must}, aim {goal.aim}): {_met(mean, goal)}" if _case_targets(report) else "")


def _class_lines(entries: Sequence[Report]) -> list[str]:
    """For each shape that was timed with several classes, the slowest against the dense one."""
    lines = []
    by_shape: dict[str, dict[str, float]] = {}
    for entry in entries:
        if time := _milliseconds(entry):
            by_shape.setdefault(f"{entry['batch']}x{entry['n']}", {})[entry["kind"]] = time
    for shape, times in by_shape.items():
        if "dense" in times and len(times) > 1:
            slowest = max(times, key=lambda kind: times[kind])
            ratio = times[slowest] / times["dense"]
            lines.append(
                f"slowest class of {shape}: {slowest}, {ratio:.3f} of dense (at most {targets.SLOWEST_TO_DENSE}): "
                f"{_verdict(ratio <= targets.SLOWEST_TO_DENSE)}"
            )
    return lines


def _choice_lines(entries: Sequence[Report]) -> list[str]:
    """The time of the schedules that were chosen over that of the best which were tried."""
    ratios = []
    for entry in entries:
        if ours := _milliseconds(entry):
            tried = [time for name in entry["results"] if (time := _milliseconds(entry, name))]
            ratios.append((ours / min(tried), entry["name"]))
    if not ratios:
        return []
    worst, name = max(ratios)
    mean = math.exp(sum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
    above = sum(ratio > targets.CHOICE for ratio, _ in ratios)
    return [
        f"chosen schedule to the best that was tried: {worst:.3f} of its time at most, at {name}; {mean:.3f} in the "
        f"geometric mean; {above} of {len(ratios)} cases above {targets.CHOICE}: {_verdict(above == 0)}"
    ]


def _case_targets(report: Report) -> dict[str, Target]:
    """The suite's targets, if they are for the device of the report."""
    return targets.CASES[report["suite"]] if targets.DEVICE in report["environment"]["device"] else {}


def _peers(report: Report) -> list[str]:
    return list(dict.fromkeys(name for entry in report["cases"] for name in entry["results"] if name != "jaxqr"))


def _milliseconds(entry: Report, name: str = "jaxqr") -> float | None:
    return entry["results"].get(name, {}).get("milliseconds")


def _speedup(entry: Report) -> float | None:
    """JAX's time over jaxqr's, if both have one."""
    ours, jax = _milliseconds(entry), _milliseconds(entry, "jax")
    return jax / ours if ours and jax else None


def _time(result: Report) -> str:
    """A time, or why there is none: not run, an error, a wrong result, or a case that is only checked."""
    if not result:
        return ""
    if "error" in result:
        return "error"
    if result.get("milliseconds") is not None:
        return _number(result["milliseconds"])
    return "passes" if result["check"]["gate"] and result["check"]["fp32_grade"] else "wrong"


def _number(value: float | str | None) -> str:
    """Three significant digits; "" for no value; "nan" and "inf", which JSON lacks, come as strings and stay."""
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _met(milliseconds: float | None, target: Target) -> str:
    if milliseconds is None:
        return "-"
    if milliseconds <= target.aim:
        return "aim"
    return "must" if milliseconds <= target.must else f"{milliseconds / target.must:.2f} × must"


def _verdict(good: bool) -> str:
    return "met" if good else "MISSED"
