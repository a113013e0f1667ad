"""Time against n and batch in the scaling suite, and its cliffs: points far above the trend of their neighbours."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import targets

Report = dict[str, Any]

AXES = {"n": "time against n", "batch": "time against the batch"}


def series(report: Report, axis: str) -> dict[str, list[Report]]:
    """The timed entries along an axis, in order, by what they have in common: single matrices, or batches of one n."""
    timed = [entry for entry in report["cases"] if entry["timed"]]
    groups: dict[str, list[Report]] = {}
    for entry in timed:
        if axis == "batch":
            groups.setdefault(f"n = {entry['n']}", []).append(entry)
        elif entry["batch"] == 1:
            groups.setdefault("one matrix", []).append(entry)
    return {label: sorted(group, key=lambda entry: entry[axis]) for label, group in groups.items() if len(group) > 1}


def excesses(entries: Sequence[Report], axis: str) -> list[tuple[float, Report]]:
    """Times over the trend: the straight line between the two neighbours, both axes logarithmic. Ends have none.

    A step by a factor f that lasts is an excess of √f where points are evenly spaced.
    """
    points = [
        (math.log(entry[axis]), math.log(time), entry)
        for entry in entries
        if (time := entry["results"]["jaxqr"].get("milliseconds"))
    ]
    found = []
    for (x0, y0, _), (x, y, entry), (x1, y1, _) in zip(points, points[1:], points[2:], strict=False):
        trend = y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        found.append((math.exp(y - trend), entry))
    return found


def verdicts(report: Report) -> list[str]:
    """The worst point of each series, one line each."""
    lines = []
    for name, found in _all_excesses(report):
        if found:
            worst, entry = max(found, key=lambda pair: pair[0])
            verdict = "met" if worst <= targets.CLIFF else "MISSED"
            lines.append(
                f"{name}: at most {worst:.2f} × the trend of its neighbours, at {entry['name']} "
                f"(at most {targets.CLIFF}): {verdict}"
            )
    return lines


def cliffs(report: Report) -> list[str]:
    """One line for each point that is too far above its trend."""
    return [
        f"{entry['name']}: {ratio:.2f} × the trend of its neighbours in {name}"
        for name, found in _all_excesses(report)
        for ratio, entry in found
        if ratio > targets.CLIFF
    ]


def _all_excesses(report: Report) -> Iterator[tuple[str, list[tuple[float, Report]]]]:
    for axis, title in AXES.items():
        for label, entries in series(report, axis).items():
            yield f"{title}, {label}", excesses(entries, axis)
