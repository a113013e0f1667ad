"""Runs the GPU tests and records which sources they were run on.

    python tests/gpu_report.py [pytest options]   runs `pytest -m gpu` and writes tests/gpu_report.json
    python tests/gpu_report.py --check            says whether that report was made from the sources of this checkout

The sources are named by git's tree hashes of `ffi/` and `jaxqr/`, computed here from the files themselves: on a clean
checkout they are what `git rev-parse HEAD:ffi HEAD:jaxqr` prints, and neither git nor a commit is needed where the
tests run. A run that failed, or was stopped (SIGINT, SIGTERM), is recorded too. `--check` exits non-zero if the report
is missing, was made from other sources, has failures, or is of a run that did not end.
"""

import datetime
import hashlib
import json
import platform
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "tests" / "gpu_report.json"
TREES = ("ffi", "jaxqr")
NOT_SOURCES = {".so", ".pyc", ".pyd"}


def git_object(kind: str, content: bytes) -> bytes:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).digest()


def git_tree(folder: Path) -> bytes:
    """Git's hash of a folder of plain, non-executable files, without build products and empty folders."""
    entries = []
    for path in folder.iterdir():
        if path.is_dir():
            if path.name != "__pycache__" and (digest := git_tree(path)) != git_object("tree", b""):
                entries.append((path.name + "/", b"40000 " + path.name.encode() + b"\0" + digest))
        elif path.suffix not in NOT_SOURCES:
            entries.append((path.name, b"100644 " + path.name.encode() + b"\0" + git_object("blob", path.read_bytes())))
    return git_object("tree", b"".join(entry for _, entry in sorted(entries)))


def sources() -> dict[str, str]:
    return {tree: git_tree(ROOT / tree).hex() for tree in TREES}


def committed() -> dict[str, str] | None:
    """The same hashes as HEAD has them, or None where git cannot tell."""
    command = ["git", "-C", str(ROOT), "rev-parse", *(f"HEAD:{tree}" for tree in TREES)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return dict(zip(TREES, answer.stdout.split(), strict=True))


def device() -> dict[str, str]:
    import jax

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = "unknown"
    return {
        "device": jax.devices()[0].device_kind,
        "driver": driver,
        "jax": jax.__version__,
        "python": platform.python_version(),
    }


class Recorder:
    """A pytest plugin that counts outcomes and keeps the names of the tests that did not pass."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.not_passed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (
            report.when == "call"
            or (report.when == "setup" and not report.passed)
            or (report.when == "teardown" and report.failed)
        ):
            self.counts[report.outcome] += 1
            if not report.passed:
                self.not_passed[report.nodeid] = report.outcome

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.counts["failed"] += 1
            self.not_passed[report.nodeid] = "failed"


def run(options: list[str]) -> int:
    machine = device()
    if machine["driver"] == "unknown":
        print("GPU report: no NVIDIA driver here, nothing run")
        return 1
    recorder, before, start = Recorder(), sources(), time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # pytest ends in an orderly way, as on SIGINT
    status = int(pytest.main(["-m", "gpu", "--rootdir", str(ROOT), str(ROOT / "tests"), *options], plugins=[recorder]))
    in_git = committed()
    report = {
        "sources": before,
        "clean": None if in_git is None else in_git == before,
        **machine,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - start, 1),
        "ended": status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED),
        "counts": {outcome: recorder.counts[outcome] for outcome in ("passed", "failed", "skipped")},
        "not_passed": recorder.not_passed,
    }
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{REPORT.relative_to(ROOT)}: {report['counts']} on {report['device']}")
    return status


def check() -> int:
    if not REPORT.exists():
        print("GPU report: none committed")
        return 1
    report, now = json.loads(REPORT.read_text()), sources()
    stale = [tree for tree in TREES if report["sources"].get(tree) != now[tree]]
    counts = report["counts"]
    ended = report.get("ended", True)
    made = f"GPU report of {report['date']} on {report['device']}, jax {report['jax']}: {counts}"
    made += "" if ended else ", stopped before its end"
    print(
        f"{made}; " + (f"made from other sources: {', '.join(stale)} changed since" if stale else "made from this tree")
    )
    return int(bool(stale) or not ended or counts["failed"] > 0 or counts["passed"] == 0)


if __name__ == "__main__":
    sys.exit(check() if sys.argv[1:] == ["--check"] else run(sys.argv[1:]))
