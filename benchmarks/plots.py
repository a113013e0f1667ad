"""Plots of a report: time against n and against the batch, with the hardware's floors drawn in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Report = dict[str, Any]

_AXES: dict[str, tuple[str, Callable[[Report], int]]] = {
    "n": ("columns n", lambda entry: entry["n"]),
    "batch": ("matrices in the batch", lambda entry: entry["batch"]),
}


def plot(report: Report, directory: Path) -> list[Path]:
    """Writes `<suite>-n.png` and `<suite>-batch.png`; returns their paths.

    The memory floor is the time to read A and write H and tau once, the arithmetic floor that of a Householder
    factorization's operations; both at the rates measured in the same run.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    entries = [entry for entry in report["cases"] if entry["timed"]]
    names = list(dict.fromkeys(name for entry in entries for name in entry["results"]))
    ceilings = report["ceilings"]
    floors = {
        "memory floor": lambda entry: 1e3 * entry["traffic_bytes"] / ceilings["bytes_per_s"],
        "arithmetic floor": lambda entry: 1e3 * entry["flops"] / ceilings["flops_per_s"],
    }
    paths = []
    for axis, (label, position) in _AXES.items():
        figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
        for name, marker in zip(names, "osD^vP*X", strict=False):
            timed = [entry for entry in entries if entry["results"].get(name, {}).get("milliseconds") is not None]
            times = [entry["results"][name]["milliseconds"] for entry in timed]
            axes.plot(
                list(map(position, timed)), times, marker, label=name, alpha=0.7, zorder=3 if name == "jaxqr" else 2
            )
        for (name, floor), marker in zip(floors.items(), "_x", strict=True):
            axes.plot(list(map(position, entries)), list(map(floor, entries)), marker, color="black", label=name)
        if report["suite"] != "random":
            for entry in entries:
                if (time := entry["results"]["jaxqr"].get("milliseconds")) is not None:
                    axes.annotate(
                        entry["name"], (position(entry), time), fontsize=6, xytext=(5, 0), textcoords="offset points"
                    )
        axes.set(xscale="log", yscale="log", xlabel=label, ylabel="milliseconds a call")
        axes.set_title(f"{report['suite']} on {report['environment']['device']}")
        axes.grid(alpha=0.3)
        axes.legend()
        path = directory / f"{report['suite']}-{axis}.png"
        figure.savefig(path, dpi=150)
        pyplot.close(figure)
        paths.append(path)
    return paths
