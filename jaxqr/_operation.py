"""An operation on batches of matrices: how a function of the matrices of one device works under ``vmap`` and on sharded
arrays.

From the outside in: ``custom_vmap`` makes a mapped axis one more leading batch axis, before anything is scheduled;
``auto_axes`` leaves meshes with explicit axes; ``custom_partitioning`` gives every device the matrices that it holds.
Derivative rules belong outside of all this, to the caller.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from jaxqr._jax_rules import replaced

Arrays = tuple[jax.Array, ...]

DTYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.complex64), np.dtype(np.complex128))
"""What JAX factors."""

_IMPLEMENTATIONS = (None, "blocked", "jax")


def operation(
    local: Callable[..., Arrays],
    name: str,
    operands: Sequence[str],
    results: Sequence[str],
    by_rows: Callable[..., Arrays] | None = None,
) -> Callable[..., Arrays]:
    """``local`` for mapped and for sharded arrays.

    Args:
      local: takes and returns arrays whose leading batch axes are the same; called for the matrices of one device.
      name: of the public function, for messages.
      operands, results: the axes behind the batch of each array, such as ``"m n"``; letters of equal
        sizes may be equal, but not within one array.
      by_rows: for one operand, ``"m n"``, takes its place where the rows of tall matrices are sharded: called with the
        rows of one device, at least n, and ``axis_name``, their mesh axes. Results with an ``m`` stay so.

    Returns:
      A function of the same arrays. An operand that a ``vmap`` does not map is broadcast. Batch axes stay sharded as
      they are in the operand that is sharded most; the other axes are gathered.
    """

    def by_jax_elsewhere(function: Callable[..., Arrays]) -> Callable[..., Arrays]:
        """What ``function`` leaves to JAX must not come back from there (``jaxqr.install``)."""

        @functools.wraps(function)
        def call(*arrays: jax.Array, **axes: Any) -> Arrays:
            with replaced(False):
                return function(*arrays, **axes)

        return call

    partitioned = _partitioned(by_jax_elsewhere(local), name, operands, results, by_rows and by_jax_elsewhere(by_rows))

    @custom_vmap
    def batched(*arrays: jax.Array) -> Arrays:
        return _in_auto_mode(partitioned, arrays, operands, results)

    @batched.def_vmap
    def _fold(axis_size: int, in_batched: list[bool], *arrays: jax.Array) -> tuple[Arrays, tuple[bool, ...]]:
        stacked = (
            array if is_batched else jnp.broadcast_to(array, (axis_size, *array.shape))
            for array, is_batched in zip(arrays, in_batched, strict=True)
        )
        return batched(*stacked), (True,) * len(results)

    return batched


def tall_rows(mesh: Any, spec: Sequence[Any], shape: Sequence[int]) -> Any:
    """The axes that rows are spread over, in the order of the mesh, if each device has at least n of them."""
    *_, rows, columns = list(spec) + [None] * (len(shape) - len(spec))
    names = () if rows is None else rows if isinstance(rows, tuple) else (rows,)
    devices = math.prod(mesh.shape[name] for name in names)
    in_order = list(names) == [name for name in mesh.axis_names if name in names]
    tall = shape[-2] % devices == 0 and shape[-2] // devices >= shape[-1]
    return names if names and in_order and tall and columns is None else None


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
    function: Callable[..., Arrays],
    arrays: Arrays,
    operands: Sequence[str],
    results: Sequence[str],
) -> Arrays:
    """Calls ``function`` where the compiler propagates shardings; results have the batch sharding of the operands."""
    shardings = [jax.typeof(array).sharding for array in arrays]
    mesh = shardings[0].mesh
    if not mesh.explicit_axes:
        return function(*arrays)
    specs = [sharding.spec[: -len(axes.split())] for sharding, axes in zip(shardings, operands, strict=True)]
    out = tuple(_sharding(mesh, _most_sharded(mesh, specs), axes) for axes in results)
    return jax.sharding.auto_axes(function, axes=mesh.explicit_axes, out_sharding=out)(*arrays)


def _most_sharded(mesh: Any, specs: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """The specification that splits into the most parts, the first of several."""

    def parts(spec: Sequence[Any]) -> int:
        names = [name for axes in spec if axes for name in (axes if isinstance(axes, tuple) else (axes,))]
        return math.prod(mesh.shape[name] for name in names)

    return max(specs, key=parts)


def _sharding(mesh: Any, batch: Sequence[Any], axes: str, rows: Any = None) -> NamedSharding:
    """The batch axes sharded as ``batch`` says, rows over the axes ``rows``, and what else is behind them whole."""
    return NamedSharding(mesh, PartitionSpec(*batch, *(rows if axis == "m" else None for axis in axes.split())))


def _partitioned(
    local: Callable[..., Arrays],
    name: str,
    operands: Sequence[str],
    results: Sequence[str],
    by_rows: Callable[..., Arrays] | None,
) -> custom_partitioning:
    """``local`` for arrays sharded over devices: each one gets the matrices that it holds of the batch."""
    ranks = [len(axes.split()) for axes in operands]

    def on_one_device(function: Callable[..., Arrays], *arrays: Any) -> Arrays:
        # The mesh of the caller's context says nothing here, but its explicit axes would want shardings.
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
            return function(*arrays)

    def partition(mesh: Any, arguments: Any, outputs: Any) -> Any:
        shardings = [argument.sharding for argument in arguments]
        if all(isinstance(sharding, NamedSharding) for sharding in shardings):
            specs = [sharding.spec[:-rank] for sharding, rank in zip(shardings, ranks, strict=True)]
            batch = _most_sharded(mesh, specs)
            rows = tall_rows(mesh, shardings[0].spec, arguments[0].shape) if by_rows else None
            wanted = [tuple(_sharding(mesh, batch, axes, rows) for axes in x) for x in (results, operands)]
            function = functools.partial(by_rows, axis_name=rows) if by_rows and rows else local
            return mesh, functools.partial(on_one_device, function), *wanted
        # Inside a shard_map over some of the mesh's axes, the others' shardings come without a mesh.
        shards = [argument.sharding.shard_shape(argument.shape) for argument in arguments]
        for argument, shard, rank in zip(arguments, shards, ranks, strict=True):
            if shard[-rank:] != argument.shape[-rank:] or shard[:-rank] != shards[0][: -ranks[0]]:
                raise NotImplementedError(
                    f"{name} cannot gather the sharded rows or columns of {list(argument.shape)} inside a shard_map "
                    "over only some of the mesh's axes, nor spread a batch there"
                )
        return (
            mesh,
            functools.partial(on_one_device, local),
            tuple(output.sharding for output in outputs),
            tuple(shardings),
        )

    partitioned = custom_partitioning(local)
    letters = dict.fromkeys(" ".join((*operands, *results)).split())
    whole = tuple(letter for letter in letters if not (by_rows and letter == "m"))
    rule = " -> ".join(", ".join(f"... {axes}" for axes in x) for x in (operands, results))
    partitioned.def_partition(partition, sharding_rule=rule, need_replication_factors=whole)
    return partitioned
