"""An operation on batches of matrices: how a function of the matrices of one device works under ``vmap`` and on sharded
arrays.

From the outside in: ``custom_vmap`` makes a mapped axis one more leading batch axis, before anything is scheduled;
``auto_axes`` leaves meshes with explicit axes; ``custom_partitioning`` gives every device the matrices that it holds.
Derivative rules belong outside of all this, to the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

Arrays = tuple[jax.Array, ...]

DTYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.complex64), np.dtype(np.complex128))
"""What JAX factors."""

_IMPLEMENTATIONS = (None, "blocked", "jax")


def operation(
    local: Callable[..., Arrays], name: str, operands: Sequence[str], results: Sequence[str]
) -> Callable[..., Arrays]:
    """``local`` for mapped and for sharded arrays.

    Args:
      local: takes and returns arrays whose leading batch axes are the same; called for the matrices of one device.
      name: of the public function, for messages.
      operands, results: the axes behind the batch of each array, such as ``"m n"``; letters of equal
        sizes may be equal, but not within one array.

    Returns:
      A function of the same arrays. An operand that a ``vmap`` does not map is broadcast. Batch axes stay sharded as
      they are in the operand that is sharded most; the other axes are gathered.
    """
    partitioned = _partitioned(local, name, operands, results)
    ranks = [len(axes.split()) for axes in operands], [len(axes.split()) for axes in results]

    @custom_vmap
    def batched(*arrays: jax.Array) -> Arrays:
        return _in_auto_mode(partitioned, arrays, *ranks)

    @batched.def_vmap
    def _fold(axis_size: int, in_batched: list[bool], *arrays: jax.Array) -> tuple[Arrays, tuple[bool, ...]]:
        stacked = (
            array if is_batched else jnp.broadcast_to(array, (axis_size, *array.shape))
            for array, is_batched in zip(arrays, in_batched, strict=True)
        )
        return batched(*stacked), (True,) * len(results)

    return batched


def check_implementation(implementation: str | None) -> None:
    """Raises ValueError if ``implementation`` names none."""
    if implementation not in _IMPLEMENTATIONS:
        raise ValueError(f"implementation={implementation!r} is not one of {', '.join(map(repr, _IMPLEMENTATIONS))}")


def check_dtype(a: jax.Array, name: str, implementation: str | None = None) -> None:
    """Raises TypeError if ``a`` cannot be factored, or not by ``implementation``."""
    if a.dtype not in DTYPES:
        cast = ": cast with a.astype(jnp.float32)" if jnp.issubdtype(a.dtype, jnp.floating) else ""
        raise TypeError(
            f"{name} takes {', '.join(dtype.name for dtype in DTYPES)}, got {a.dtype.name}{list(a.shape)}{cast}"
        )
    if implementation == "blocked" and a.dtype != jnp.float32:
        raise TypeError(
            f'{name}(implementation="blocked") takes float32, got {a.dtype.name}{list(a.shape)}: '
            f"cast with a.astype(jnp.float32), or leave the implementation out"
        )


def _in_auto_mode(
    function: Callable[..., Arrays], arrays: Arrays, ranks: Sequence[int], result_ranks: Sequence[int]
) -> Arrays:
    """Calls ``function`` where the compiler propagates shardings; results have the batch sharding of the operands."""
    shardings = [jax.typeof(array).sharding for array in arrays]
    mesh = shardings[0].mesh
    if not mesh.explicit_axes:
        return function(*arrays)
    batch = _most_sharded(mesh, [sharding.spec[:-rank] for sharding, rank in zip(shardings, ranks, strict=True)])
    out = tuple(_batch_sharding(mesh, batch, rank) for rank in result_ranks)
    return jax.sharding.auto_axes(function, axes=mesh.explicit_axes, out_sharding=out)(*arrays)


def _most_sharded(mesh: Any, specs: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """The specification that splits into the most parts, the first of several."""

    def parts(spec: Sequence[Any]) -> int:
        names = [name for axes in spec if axes for name in (axes if isinstance(axes, tuple) else (axes,))]
        return math.prod(mesh.shape[name] for name in names)

    return max(specs, key=parts)


def _batch_sharding(mesh: Any, batch: Sequence[Any], rank: int) -> NamedSharding:
    """The batch axes sharded as ``batch`` says, the ``rank`` axes behind them whole."""
    return NamedSharding(mesh, PartitionSpec(*batch, *(None,) * rank))


def _partitioned(
    local: Callable[..., Arrays], name: str, operands: Sequence[str], results: Sequence[str]
) -> custom_partitioning:
    """``local`` for arrays sharded over devices: each one gets the matrices that it holds of the batch."""
    ranks = [len(axes.split()) for axes in operands]

    def on_one_device(*arrays: jax.Array) -> Arrays:
        # The mesh of the caller's context says nothing here, but its explicit axes would want shardings.
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
            return local(*arrays)

    def partition(mesh: Any, arguments: Any, outputs: Any) -> Any:
        shardings = [argument.sharding for argument in arguments]
        if all(isinstance(sharding, NamedSharding) for sharding in shardings):
            specs = [sharding.spec[:-rank] for sharding, rank in zip(shardings, ranks, strict=True)]
            batch = _most_sharded(mesh, specs)
            wanted = [tuple(_batch_sharding(mesh, batch, len(axes.split())) for axes in x) for x in (results, operands)]
            return mesh, on_one_device, *wanted
        # Inside a shard_map over some of the mesh's axes, the others' shardings come without a mesh.
        shards = [argument.sharding.shard_shape(argument.shape) for argument in arguments]
        for argument, shard, rank in zip(arguments, shards, ranks, strict=True):
            if shard[-rank:] != argument.shape[-rank:] or shard[:-rank] != shards[0][: -ranks[0]]:
                raise NotImplementedError(
                    f"{name} cannot gather the sharded rows or columns of {list(argument.shape)} inside a shard_map "
                    "over only some of the mesh's axes, nor spread a batch there"
                )
        return mesh, on_one_device, tuple(output.sharding for output in outputs), tuple(shardings)

    partitioned = custom_partitioning(local)
    whole = tuple(dict.fromkeys(" ".join((*operands, *results)).split()))
    rule = " -> ".join(", ".join(f"... {axes}" for axes in x) for x in (operands, results))
    partitioned.def_partition(partition, sharding_rule=rule, need_replication_factors=whole)
    return partitioned
