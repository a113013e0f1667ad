"""How a time is taken.

One program factors K different inputs, each when the one before is done. The caches are flushed before every repeat; a
repeat's time is the wall time of the blocking call divided by K, so it includes a K-th of the host's cost of a call.
The time of a case is the median of its repeats after a warm-up. An implementation that is too slow for its share of the
run gets fewer calls and repeats; how many is recorded.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.cases import Case
from benchmarks.implementations import Factors, Implementation

_FLUSH_BYTES = 256 * 2**20  # more than any device's caches
_PRODUCT_SIDE = 2048  # enough to fill a device


@dataclass(frozen=True)
class Protocol:
    """What one implementation may spend on one case.

    Attributes:
      max_calls: the most inputs in one program.
      repeats: timed runs of that program.
      seconds: the aim for all timed runs together; beyond it there are fewer inputs, then fewer repeats, but at least
        two.
    """

    max_calls: int = 50
    repeats: int = 20
    seconds: float = 2.0

    def calls(self, case: Case) -> int:
        """Inputs of one program: 256 MB of them, at least 3, at most `max_calls`."""
        return min(self.max_calls, max(3, 256 * 10**6 // max(1, case.input_bytes)))


@dataclass(frozen=True)
class Timing:
    """Milliseconds a call; and the first call, which traces and compiles if its shape is new to the run."""

    samples_ms: list[float]
    calls: int
    first_call_s: float

    @property
    def milliseconds(self) -> float:
        return statistics.median(self.samples_ms)


def measure(
    implementation: Implementation, inputs: Sequence[Any], protocol: Protocol
) -> tuple[Timing, Sequence[Factors]]:
    """Times `implementation` on loaded inputs; also returns the last timed run's results, one for each input it had."""

    def run(calls: int) -> tuple[float, Sequence[Factors]]:
        _flush_caches()
        start = time.perf_counter()
        outputs = implementation.factor_all(*inputs[:calls])
        return time.perf_counter() - start, outputs

    first_call, _ = run(1)
    single, outputs = run(1)
    calls = max(1, min(len(inputs), int(protocol.seconds / (single * protocol.repeats))))
    repeats = max(2, min(protocol.repeats, int(protocol.seconds / (single * calls))))
    samples = [single]
    if calls > 1:
        for _ in range(2):  # compiles; then lets XLA capture its command buffers
            run(calls)
        samples = []
    while len(samples) < repeats:
        del outputs  # its memory is free for the next run
        seconds, outputs = run(calls)
        samples.append(seconds / calls)
    return Timing([1e3 * sample for sample in samples], calls, first_call), outputs


def _flush_caches() -> None:
    jax.block_until_ready(jnp.zeros(_FLUSH_BYTES // 4, jnp.float32))


def measured_ceilings() -> dict[str, float]:
    """What the device reaches: bytes a second (read and written) of copies, float32 operations a second of products."""
    copies, products, side = 20, 8, _PRODUCT_SIDE
    copy = jax.jit(lambda x: lax.fori_loop(0, copies, lambda _, y: y + 1, x))
    product = jax.jit(lambda x: lax.fori_loop(0, products, lambda _, y: jnp.matmul(x, y, precision="highest"), x))
    return {
        "bytes_per_s": copies * 2 * _FLUSH_BYTES / _best_seconds(copy, jnp.zeros(_FLUSH_BYTES // 4, jnp.float32)),
        "flops_per_s": products * 2 * side**3 / _best_seconds(product, jnp.full((side, side), 1 / side, jnp.float32)),
    }


def _best_seconds(function: Any, argument: jax.Array, repeats: int = 3) -> float:
    def once() -> float:
        start = time.perf_counter()
        jax.block_until_ready(function(argument))
        return time.perf_counter() - start

    once()
    return min(once() for _ in range(repeats))
