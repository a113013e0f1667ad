"""One process of tests/test_distributed.py: `python -m tests.distributed_worker ADDRESS PROCESSES INDEX`.

Eight devices in all. Every process checks what it holds and what it compiled; a failure ends it with a traceback.
"""

import os
import sys
import traceback

ADDRESS, PROCESSES, INDEX = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
DEVICES = 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES // PROCESSES}"

import functools  # noqa: E402 - XLA reads its flags when JAX starts a backend

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import jaxqr  # noqa: E402
from benchmarks.explicit import explicit_measures  # noqa: E402
from jaxqr.verify import fp32_grade, lapack_measures  # noqa: E402
from tests import matrices  # noqa: E402


def start() -> jax.sharding.Mesh:
    """Joins the others, and returns a mesh of all devices. What was installed before takes part."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jaxqr.install()
    jaxqr.install(False)
    jax.distributed.initialize(ADDRESS, PROCESSES, INDEX, initialization_timeout=60)
    assert jax.process_count() == PROCESSES
    assert jax.device_count() == DEVICES
    assert jax.local_device_count() == DEVICES // PROCESSES
    return jax.make_mesh((DEVICES,), ("x",), axis_types=(AxisType.Auto,))


def spread(mesh: jax.sharding.Mesh, a: np.ndarray, *spec: str | None) -> jax.Array:
    """The global array, of which this process gives its own parts."""
    return jax.make_array_from_callback(a.shape, NamedSharding(mesh, P(*spec)), lambda index: a[index])


def compiled(function, *args: jax.Array):
    """The results, and the program's text."""
    program = jax.jit(function).lower(*args).compile()
    return program(*args), program.as_text()


def assert_parts(found: jax.Array, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    assert len(found.addressable_shards) == DEVICES // PROCESSES
    for shard in found.addressable_shards:
        np.testing.assert_allclose(shard.data, expected[shard.index], rtol=1e-4, atol=1e-4)


def check_sharded_batches(mesh: jax.sharding.Mesh) -> None:
    """Each process factors its own matrices: nothing is sent, whichever function it is."""
    whole = np.random.default_rng(1).standard_normal((16, 20, 12), dtype=np.float32)
    a, (q, r) = spread(mesh, whole, "x"), np.linalg.qr(whole)
    h, tau = (spread(mesh, np.asarray(x), "x") for x in jaxqr.geqrf(whole))
    functions = {
        "geqrf": (lambda a: (jnp.triu(jaxqr.geqrf(a, implementation="blocked")[0][:, :12]),), (a,), (r,)),
        "qr": (lambda a: tuple(jaxqr.qr(a)), (a,), (q, r)),
        "householder_product": (lambda h, tau: (jaxqr.householder_product(h, tau),), (h, tau), (q,)),
        "jnp.linalg.qr": (lambda a: tuple(jax.vmap(jnp.linalg.qr)(a)), (a,), (q, r)),
    }
    for name, (function, args, expected) in functions.items():
        with jaxqr.installed(name == "jnp.linalg.qr"):
            found, text = compiled(function, *args)
        for collective in ("all-gather", "all-to-all", "all-reduce", "collective-permute"):
            assert collective not in text, (name, collective)
        for x, y in zip(found, expected, strict=True):
            assert_parts(x, y)


def check_tsqr(mesh: jax.sharding.Mesh) -> None:
    """FP32-grade on every class of matrices; only triangles are sent."""
    whole = matrices.batch(128, 12)
    local = functools.partial(jaxqr.tsqr, axis_name="x")
    factor = jax.shard_map(local, mesh=mesh, in_specs=P(None, "x"), out_specs=(P(None, "x"), P()))
    (q, r), text = compiled(factor, spread(mesh, whole, None, "x"))
    assert "all-gather" not in text
    assert "collective-permute" in text
    assert len({shard.data.tobytes() for shard in r.addressable_shards}) == 1
    q, r = (np.asarray(multihost_utils.process_allgather(x, tiled=True)) for x in (q, r))
    good = fp32_grade(explicit_measures(whole, q, r), lapack_measures(whole))
    assert good.all(), [name for name, ok in zip(matrices.CLASSES, good, strict=True) if not ok]
    np.testing.assert_allclose(r[0], np.linalg.qr(whole[0], mode="r"), rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    try:
        mesh = start()
        check_sharded_batches(mesh)
        check_tsqr(mesh)
        jax.distributed.shutdown()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # an ordinary exit would wait for the other processes
    print("done")
