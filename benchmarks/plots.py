"""Plots of a report: time against n and against the batch, with the hardware's floors drawn in."""

from pathlib import Path
from typing import Any

from benchmarks import trends

Report = dict[str, Any]

_AXES = {"n": "columns n", "batch": "matrices in the batch"}


def plot(report: Report, directory: Path) -> list[Path]:
    """Writes `<suite>-n.png` and `<suite>-batch.png`; returns their paths.

    The memory floor is the time to read A and write H and tau once, the arithmetic floor that of a Householder
    factorization's operations; both at the rates measured in the same run. The scaling suite's points are joined:
    single matrices, and batches of one n.
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
    scaling = report["suite"] == "scaling"
    for axis, label in _AXES.items():
        figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
        for common, group in (trends.series(report, axis) if scaling else {"": entries}).items():
            style, suffix = ("-", f", {common}") if scaling else ("", "")
            color = "black"
            for name, marker in zip(names, "osD^vP*X", strict=False):
                timed = [entry for entry in group if entry["results"].get(name, {}).get("milliseconds") is not None]
                [line] = axes.plot(
                    [entry[axis] for entry in timed],
                    [entry["results"][name]["milliseconds"] for entry in timed],
                    marker + style,
                    label=name + suffix,
                    alpha=0.7,
                    zorder=3 if name == "jaxqr" else 2,
                )
                if scaling and name == "jaxqr":
                    color = line.get_color()
            for (name, floor), marker in zip(floors.items(), "_x", strict=True):
                axes.plot(
                    [entry[axis] for entry in group],
                    list(map(floor, group)),
                    marker,
                    color=color,
                    label=name + suffix,
                )
        if report["suite"] not in ("random", "scaling"):
            for entry in entries:
                if (time := entry["results"]["jaxqr"].get("milliseconds")) is not None:
                    axes.annotate(
                        entry["name"], (entry[axis], time), fontsize=6, xytext=(5, 0), textcoords="offset points"
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
