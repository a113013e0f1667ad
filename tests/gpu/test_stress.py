"""Kernels whose thread blocks wait for each other do not hang on a busy device, nor change a bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parent.parent.parent
SECONDS = 180  # a fast device takes fifteen


def test_1000_replays_beside_a_busy_stream():
    """NaN, Inf, zero and ordinary matrices in one batch, in a process of its own: one that hangs can only be killed."""
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # the parent may hold most of the memory
    command = [sys.executable, "-m", "tests.gpu.stress_worker"]
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.rstrip().endswith("done"), run.stdout
