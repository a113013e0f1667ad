"""The process of tests/gpu/test_stress.py: `python -m tests.gpu.stress_worker`. A failure ends it with a traceback.

One captured program runs again and again beside a stream that keeps the multiprocessors busy. Its thread blocks wait
for each other, in clusters, and are many more than the device holds at a time.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxqr
from tests import matrices
from tests.gpu.busy import BusyStream
from tests.gpu.tools import same_bits

REPLAYS = 1000
# Clusters of several sizes for many panels; clusters for panels and, beside them, for updates; tall panels, whose
# blocks' triangles are factored by clusters.
SHAPES = [(300, 2048, 64), (100, 4096, 64), (8, 2048, 512), (40, 20000, 32)]
_ORDINARY = ("dense", "exponential", "zeros", "near_collinear", "graded_columns", "zero_column", "identity")
_BAD = (np.nan, np.inf, -np.inf, np.nan)


def mixed(m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Different matrices, and which of them are finite."""
    bad = matrices.normal(len(_BAD), m, n)
    for matrix, value, row, column in zip(bad, _BAD, (0, m - 1, m // 2, m - 1), (0, 1, n // 2, n - 1), strict=True):
        matrix[row, column] = value
    ordinary = matrices.batch(m, n, _ORDINARY)
    order = np.random.default_rng(0).permutation(len(ordinary) + len(bad))
    return np.concatenate([ordinary, bad])[order], order < len(ordinary)


def main() -> None:
    distinct = [mixed(m, n) for _, m, n in SHAPES]
    places = [jnp.arange(batch) % len(finite) for (batch, _, _), (_, finite) in zip(SHAPES, distinct, strict=True)]
    inputs = [jnp.asarray(a)[place] for (a, _), place in zip(distinct, places, strict=True)]
    program = jax.jit(
        lambda *stacks: [x for a in stacks for x in jaxqr.geqrf(a)],
        compiler_options={"xla_gpu_graph_min_graph_size": 1},
    )
    expected = program(*inputs)
    for h, tau, (_, finite), place in zip(expected[::2], expected[1::2], distinct, places, strict=True):
        np.testing.assert_array_equal(np.isfinite(h).all((1, 2)), finite[place])
        assert same_bits((h, tau), (h[place], tau[place])), f"{h.shape}: the same matrices have different factors"

    def replay(times: int) -> float:
        start = time.monotonic()
        for number in range(times):
            found = program(*inputs)
            wrong = [x.shape for x, y in zip(found, expected, strict=True) if not same_bits([x], [y])]
            assert not wrong, f"replay {number}: {wrong} are not what they were"
        return (time.monotonic() - start) / times

    alone = replay(20)
    with BusyStream() as busy:
        beside = replay(REPLAYS)
    print(f"{1e3 * alone:.2f} ms a replay alone, {1e3 * beside:.2f} ms beside {busy.launches} other kernels")
    assert busy.launches > REPLAYS
    print("done")


if __name__ == "__main__":
    main()
