"""Several processes on JAX's distributed runtime, on this machine, each with several devices."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROCESSES = 2
SECONDS = 300  # for a slow machine; a fast one takes ten


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_together(logs: list[Path]) -> list[tuple[int | None, str]]:
    """Exit status and output of each process; as soon as one fails, or when time is up, the others are killed."""
    address = f"127.0.0.1:{free_port()}"
    environment = {name: value for name, value in os.environ.items() if name not in ("JAX_PLATFORMS", "XLA_FLAGS")}
    workers = []
    for index, log in enumerate(logs):
        command = [sys.executable, "-m", "tests.distributed_worker", address, str(len(logs)), str(index)]
        with log.open("w") as output:
            workers.append(
                subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
            )
    deadline = time.monotonic() + SECONDS
    try:
        while any(worker.poll() is None for worker in workers) and time.monotonic() < deadline:
            if any(worker.poll() for worker in workers):
                break
            time.sleep(0.1)
    finally:
        statuses = [worker.poll() for worker in workers]
        for worker in workers:
            worker.kill()
            worker.wait()
    return [(status, log.read_text()) for status, log in zip(statuses, logs, strict=True)]


def test_processes(tmp_path):
    """No collectives for sharded batches; `tsqr` over all devices of all processes, to FP32 grade."""
    results = run_together([tmp_path / f"{index}.log" for index in range(PROCESSES)])
    report = "\n".join(f"process {i}, exit status {status}:\n{text}" for i, (status, text) in enumerate(results))
    assert [status for status, _ in results] == [0] * PROCESSES, report
    assert all(text.rstrip().endswith("done") for _, text in results), report
