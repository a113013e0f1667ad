"""Where a result comes from: device, driver, versions, commit."""

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import jax

from jaxqr import _native

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("jaxqr", "jax", "jaxlib", "numpy", "torch", "cupy-cuda13x", "cupy-cuda12x")
_DESCRIBE = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def environment() -> dict[str, object]:
    """The environment of a run, as it goes into the JSON.

    The commit is that of the checkout, with "-dirty" appended if tracked files differ from it. Where the files were
    copied to a machine without their repository, the variable JAXQR_COMMIT says it.
    """
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "platform": device.client.platform_version,
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "cuda_architectures": _native.cuda_architectures(),
        "host": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "commit": os.environ.get("JAXQR_COMMIT") or _output("git", "-C", str(_ROOT), *_DESCRIBE),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _output(*command: str) -> str | None:
    """The first line that a command prints, or None if it cannot be run or fails."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(answer.stdout.splitlines()), "").strip() or None
