"""`python -m jaxqr`: says which device and backend are in use, and how accurate and fast they are on a few batches.

Exit status: 0; 1 if a result fails the contest's gate or is not FP32-grade; 2 if an argument or the file is unusable.
"""

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

import jaxqr
from jaxqr import _native, _targets, verify

Factors = tuple[jax.Array, jax.Array]

# What is factored when nothing is asked for.
_CPU_SHAPES = ((1000, 16, 16), (40, 64, 64), (20, 176, 176), (100, 256, 32), (4, 512, 512), (1, 1024, 1024))
_GPU_SHAPES = ((10000, 16, 16), (40, 176, 176), (10000, 256, 32), (640, 512, 512), (12, 768, 768), (1, 4096, 4096))

_TIMED_RUNS = 5
_TIMED_SECONDS = 1.0  # after which there are no more runs

_HEADER = ("shape", "dtype", "by", "residual", "orthog.", "column", "good", "jaxqr ms", "jnp ms", "speed-up")
_WIDTHS = (18, 10, 7, 8, 8, 8, 4, 9, 9, 8)
_NOTES = """
The worst of each batch: residual ‖R - QᵀA‖₁/(n·eps·‖A‖₁), at most 20; orthog. ‖QᵀQ - I‖₁/(n·eps), at most 100;
column max_j ‖(R - QᵀA)_j‖₂/(eps·‖A_j‖₂). good: within these limits and as accurate as LAPACK (see jaxqr.verify).
jnp: jnp.linalg.qr(a, mode="raw"), the same work by JAX."""


class UnusableError(Exception):
    """An argument or a file that cannot be used; the message says why in one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Says what is wrong in one line."""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status, 0 or 1; exits with 2 on a usage error."""
    parser = _Parser(prog="python -m jaxqr", description="Factors batches, checks the results, times them beside JAX.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--shape", action="append", metavar="B,M,N", help="random matrices; may be given several times")
    what.add_argument("--input", type=Path, metavar="A.npy", help="the matrices in this file, [..., m, n]")
    parser.add_argument("--output", metavar="PREFIX", help="with --input: write PREFIX_h.npy and PREFIX_tau.npy")
    options = parser.parse_args(arguments)
    if options.output is not None and options.input is None:
        parser.error("--output needs --input")
    if options.output is not None and not os.access(folder := Path(options.output).parent, os.W_OK):
        parser.error(f"--output {options.output}: {folder} is no folder that can be written to")
    try:
        shapes = [_parse_shape(text) for text in options.shape or ()]
        device = _device()
        print(f"jaxqr on {device.device_kind}: {_backend(device)}\n", flush=True)
        if options.input is not None:
            good = _run([_load(options.input, device)], device, options.output)
        else:
            shapes = shapes or list(_GPU_SHAPES if device.platform == "gpu" else _CPU_SHAPES)
            for shape in shapes:
                _require_room(shape, np.dtype(np.float32), device)
            good = _run(map(_random, shapes), device, None)
    except (UnusableError, OSError, jax.errors.JaxRuntimeError) as error:
        parser.error(str(error))
    return 0 if good else 1


def _run(batches: Iterable[np.ndarray], device: Any, output: str | None) -> bool:
    """Prints a row for each batch as it is done; returns whether all are good."""
    print(_row(_HEADER), flush=True)
    good = True
    for a in batches:
        good &= _factor_and_report(a, device, output)
    print(_NOTES)
    return good


def _factor_and_report(a: np.ndarray, device: Any, output: str | None) -> bool:
    name = "×".join(map(str, a.shape))
    _status(f"{name}: factoring")
    on_device = jax.device_put(a)
    (h, tau), milliseconds = _timed(jax.jit(jaxqr.geqrf), on_device)
    if output is not None:
        np.save(f"{output}_h.npy", np.asarray(h))
        np.save(f"{output}_tau.npy", np.asarray(tau))
    _status(f"{name}: checking")
    measured = verify.measures(a, h, tau)
    good = bool((verify.contest_gate(measured) & verify.as_good_as_lapack(a, measured)).all())
    _status(f"{name}: timing jnp.linalg.qr")
    _, peer_milliseconds = _timed(jax.jit(lambda x: jnp.linalg.qr(x, mode="raw")), on_device)
    _status("")
    figures = (f"{value:.3g}" for value in measured.worst().values())
    times = f"{milliseconds:.4g}", f"{peer_milliseconds:.4g}", f"{peer_milliseconds / milliseconds:.3g}"
    print(_row((name, h.dtype.name, _route(a, device), *figures, "yes" if good else "NO", *times)), flush=True)
    return good


def _timed(function: Callable[[jax.Array], Factors], a: jax.Array) -> tuple[Factors, float]:
    """The result, and the median of a few blocking calls after the first, in milliseconds."""
    factors = jax.block_until_ready(function(a))
    samples: list[float] = []
    while len(samples) < _TIMED_RUNS and sum(samples) < _TIMED_SECONDS:
        start = time.perf_counter()
        jax.block_until_ready(function(a))
        samples.append(time.perf_counter() - start)
    return factors, 1e3 * statistics.median(samples)


def _device() -> Any:
    try:
        return jax.devices()[0]
    except RuntimeError as error:
        raise UnusableError(f"JAX finds no device: {error}") from error


def _is_cuda(device: Any) -> bool:
    return device.platform == "gpu" and "cuda" in device.client.platform_version.lower()


def _backend(device: Any) -> str:
    """Who factors float32 on this device."""
    if device.platform == "cpu":
        return "LAPACK through JAX (jaxqr's own kernels are for CUDA devices)"
    if not _is_cuda(device):
        return f"JAX's geqrf (jaxqr has no kernels for {device.platform})"
    if not _targets.HAS_CUDA:
        return "JAX's geqrf, because this jaxqr was built without CUDA"
    return f"jaxqr's CUDA kernels, compiled for {', '.join(_native.cuda_architectures())}"


def _route(a: np.ndarray, device: Any) -> str:
    """Who factors this batch, for its row of the table."""
    if device.platform == "cpu":
        return "LAPACK"
    if not (_is_cuda(device) and _targets.HAS_CUDA and a.dtype == np.float32):
        return "JAX"
    *batch, m, n = a.shape
    regimes = {step.regime for step in jaxqr.schedule_for(m, n, math.prod(batch)).steps}
    return "JAX" if regimes == {"jax"} else "loops" if regimes == {"loops"} else "kernels"


def _random(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _parse_shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if len(shape) < 2 or min(shape) < 0:
        raise UnusableError(f"--shape {text}: not a shape such as 640,512,512 (batch, rows, columns)")
    return shape


def _load(path: Path, device: Any) -> np.ndarray:
    """The matrices in a .npy file, in native byte order; 64-bit types switch JAX's 64-bit mode on.

    Raises:
      UnusableError: no such file, not a .npy file, not a batch that `geqrf` takes, NaN or Inf in it, or no room for it.
    """
    try:
        mapped = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise UnusableError(f"cannot read {path} as a .npy file: {error}") from error
    if mapped.dtype.kind not in "biufc":
        raise UnusableError(f"{path} holds {mapped.dtype}, not numbers")
    if mapped.dtype.kind != "b" and mapped.dtype.itemsize >= 8:
        jax.config.update("jax_enable_x64", True)
    try:
        jax.eval_shape(jaxqr.geqrf, jax.ShapeDtypeStruct(mapped.shape, mapped.dtype.newbyteorder("=")))
    except (TypeError, ValueError) as error:
        raise UnusableError(f"{path} holds {mapped.dtype}{list(mapped.shape)}: {error}") from error
    _require_room(mapped.shape, mapped.dtype, device)
    a = np.array(mapped, mapped.dtype.newbyteorder("="), order="C")
    if not np.isfinite(a).all():
        raise UnusableError(f"{path} holds NaN or Inf, at index {[int(i) for i in np.argwhere(~np.isfinite(a))[0]]}")
    return a


def _require_room(shape: tuple[int, ...], dtype: np.dtype, device: Any) -> None:
    """Refuses what cannot fit: the input, both results and a spare, and the float64 copies of the check.

    Raises:
      UnusableError: there is not that much memory on the device or the host.
    """
    elements = math.prod(shape)
    needed = elements * 4 * dtype.itemsize + min(elements, 2**26) * 80
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    room = min(host, (device.memory_stats() or {}).get("bytes_limit", host))
    if needed > room:
        size = "×".join(map(str, shape))
        raise UnusableError(f"{size} {dtype.name} needs about {needed / 2**30:.3g} GiB, there are {room / 2**30:.3g}")


def _row(cells: Sequence[str]) -> str:
    """A line of the table; the first column is aligned left."""
    first, *rest = (cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    return "  ".join([first.strip().ljust(_WIDTHS[0]), *rest])


def _status(text: str) -> None:
    """Shows what is going on, on the terminal's last line; nothing if there is no terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
