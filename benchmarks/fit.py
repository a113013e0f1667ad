"""Fits the constants of the cost model, `jaxqr/_costs.py`, to the times that `jaxqr_driver sweep` prints."""

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.report import Table
from jaxqr._costs import Costs
from jaxqr._kernels import Device, Panel, fused_update_seconds, kernels, lift_seconds, reflectors_seconds
from jaxqr.schedule import device_of_kind

COSTS_FILE = Path(__file__).resolve().parent.parent / "jaxqr" / "_costs.py"
_WRITTEN = "# `python -m benchmarks fit` rewrites what follows, which is from: "
_NARROW = 16  # panels of fewer columns are the exception: only narrow and tiny kernels are fitted to them
_PULL = 0.01  # weight of a change of a constant, relative to that of an error of a time


@dataclass(frozen=True)
class Point:
    """One time of a sweep.

    Attributes:
      kernel: as the driver names it.
      shape: what it was given, as text.
      model: the field of `Costs` that its time depends on.
      seconds: measured.
      predicted: by the cost model, on a device.
    """

    kernel: str
    shape: str
    model: str
    seconds: float
    predicted: Callable[[Device], float]


def read(path: Path) -> tuple[Device, list[Point]]:
    """A sweep's device and its points, without those of kernels that planning leaves out, and of narrow panels.

    Raises:
      ValueError: the file is no sweep, or of a device that planning does not know.
    """
    first, *lines = path.read_text().splitlines() or [""]
    try:
        points = [point for row in csv.DictReader(lines) if (point := _point(row))]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a sweep: {error!r}") from error
    if not first.startswith("# ") or not points:
        raise ValueError(f"{path} is not a sweep")
    return device_of_kind(first.removeprefix("# ")), points


def _point(row: dict[str, str]) -> Point | None:
    name, seconds = row["kernel"], 1e-6 * float(row["microseconds"])
    rows, width, with_t, columns, batch = (int(row[key]) for key in ("rows", "width", "t", "columns", "batch"))
    if width < _NARROW and not name.startswith(("narrow", "tiny")):
        return None
    shape = f"{batch}x{rows}x{width}" + (", T" if with_t else "") + (f", {columns} columns" if columns else "")
    panel = Panel(rows, width, bool(with_t), not with_t)
    others: dict[str, Callable[[Device], float]] = {
        "update": lambda device: fused_update_seconds(rows, width, columns, batch, device),
        "reflectors": lambda device: reflectors_seconds(panel, batch, device),
        "lift": lambda device: lift_seconds(rows, width, batch, device),
    }
    if name in others:
        return Point(name, shape, name, seconds, others[name])
    regime, _, numbers = name.partition(" ")
    by_name = {(kernel.regime, kernel.variant): kernel for kernel in kernels()}
    kernel = by_name.get((regime, tuple(map(int, numbers.split("x")))))
    return kernel and Point(name, shape, regime, seconds, lambda device: kernel.seconds(panel, batch, device))


def fit(points: Sequence[Point], device: Device) -> Costs:
    """The device's costs with those of every kernel of the points fitted to them, to four digits."""
    costs = device.costs
    for model in costs._fields:
        own = [point for point in points if point.model == model]
        if own:
            costs = costs._replace(**{model: _fit_model(model, own, device)})
    return costs


def _fit_model(model: str, points: Sequence[Point], device: Device) -> Any:
    """Relative errors are what counts, and constants are positive: both by their logarithms. A weak pull to the present
    constants keeps those that the times say nothing of."""
    before, structure = jax.tree.flatten(getattr(device.costs, model))
    start = np.log(before)

    def residuals(x: np.ndarray) -> np.ndarray:
        values = jax.tree.unflatten(structure, np.exp(x).tolist())
        errors = _errors(points, replace(device, costs=device.costs._replace(**{model: values})))
        return np.concatenate([errors, _PULL * (x - start)])

    fitted = np.exp(_least_squares(residuals, start))
    return jax.tree.unflatten(structure, [float(f"{value:.4g}") for value in fitted])


def _errors(points: Sequence[Point], device: Device) -> np.ndarray:
    """Logarithms of predicted over measured times."""
    with np.errstate(invalid="ignore"):  # a difference of constants may be negative on the way
        return np.log([point.predicted(device) / point.seconds for point in points])


def _least_squares(residuals: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """A local minimum of ‖residuals(x)‖ from x on, by Levenberg's and Marquardt's method."""
    step, damping, found = 1e-4, 1e-2, residuals(x)
    for _ in range(100):
        jacobian = np.stack([(residuals(x + step * unit) - found) / step for unit in np.eye(len(x))], axis=1)
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ found
        scale = np.diag(np.diag(normal))
        for _ in range(12):
            move = np.clip(-np.linalg.solve(normal + damping * scale, gradient), -1, 1)
            trial = residuals(x + move)
            if trial @ trial < found @ found:
                break
            damping *= 4
        else:
            return x
        gain = 1 - trial @ trial / (found @ found)
        x, found, damping = x + move, trial, damping / 8
        if gain < 1e-7:
            return x
    return x


def table(points: Sequence[Point], device: Device, fitted: Costs) -> Table:
    """For every kernel how far the model is from its times with the present constants and with the fitted ones."""
    rows = [["kernel", "points", "rms before", "worst before", "rms after", "worst after", "at"]]
    for kernel in dict.fromkeys(point.kernel for point in points):
        own = [point for point in points if point.kernel == kernel]
        cells = [kernel, str(len(own))]
        for costs in (device.costs, fitted):
            errors = abs(np.expm1(_errors(own, replace(device, costs=costs))))
            cells += [f"{100 * value:.1f}%" for value in (math.sqrt(np.mean(errors**2)), errors.max())]
        rows.append([*cells, own[errors.argmax()].shape])
    return rows


def write(costs: Costs, source: str, path: Path) -> None:
    """Replaces the values in a `_costs.py`; `source` says where the new ones are from."""
    definitions, written, _ = path.read_text().partition(_WRITTEN)
    if not written:
        raise ValueError(f"{path} lacks the line {_WRITTEN!r}")
    path.write_text(f"{definitions}{_WRITTEN}{source}\nCOSTS = {''.join(_text(costs))}\n")


def _text(value: Any, indent: str = "") -> Iterator[str]:
    """A named tuple as Python source, a field a line."""
    if not hasattr(value, "_asdict"):
        yield repr(value)
        return
    yield f"{type(value).__name__}(\n"
    for name, field in value._asdict().items():
        yield f"{indent}    {name}="
        yield from _text(field, indent + "    ")
        yield ",\n"
    yield f"{indent})"
