"""``geqrf``: the public function, and the one operation behind it with its batching, partitioning and derivative rules.

From the outside in: the arguments are checked; ``custom_jvp`` refuses derivatives; ``custom_vmap`` makes a mapped axis
  one more
leading batch axis, before anything is scheduled; ``custom_partitioning`` gives every device the matrices that it holds;
there the batch is flattened, the platform chosen, and the work planned for what is local.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from jaxqr import _blocked, _targets
from jaxqr.precision import Policy, PrecisionLike, Products, policy_for
from jaxqr.schedule import plan

Factors = tuple[jax.Array, jax.Array]

_IMPLEMENTATIONS = (None, "blocked", "jax")
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.complex64), np.dtype(np.complex128))
_MAX_SIDE = 2**31 - 1  # LAPACK and cuSOLVER count rows and columns in 32 bits


def geqrf(
    a: Any, *, precision: PrecisionLike = None, overwrite_a: bool = False, implementation: str | None = None
) -> Factors:
    """QR factorization in LAPACK's compact form: ``A = Q R`` with ``Q = H_0 H_1 … H_{k-1}``, ``H_i = I − tau_i v_i
    v_iᵀ``.

    Signs and ``tau`` are LAPACK's (``?geqrf``, ``?larfg``): ``R_ii = −sign(alpha)·‖x‖``, and a column that is zero
    below the diagonal has ``tau = 0`` and keeps its diagonal entry. NaN and Inf stay in their own matrix. The same
    compiled program gives the same bits on every run.

    float32 on a CUDA device runs on this package's kernels; other dtypes and platforms run on JAX's own geqrf. Under
    ``jax.vmap`` mapped axes join the batch; matrices that are sharded over devices along batch axes are factored where
    they are, and rows or columns that are sharded are gathered.

    Args:
      a: ``[..., m, n]``, any m, n ≥ 0 and any leading batch shape; float32, float64, complex64 or complex128. Integers
        and booleans are converted as in ``jnp.linalg.qr``.
      precision: of the trailing updates' matrix products on this package's kernels. None is float32-grade whatever
        ``jax_default_matmul_precision`` says; ``"highest"``, ``"high"``, ``"default"``, a ``jax.lax.Precision`` or a
        ``jax.lax.DotAlgorithmPreset`` choose others, with the error bounds listed in ``jaxqr.precision``.
      overwrite_a: promise that ``a`` is not needed afterwards. Where the enclosing ``jax.jit`` also donates it
        (``donate_argnums``), the factorization then runs in place.
      implementation: None chooses the fastest; ``"blocked"`` is this package's blocked driver, float32 only, on a CUDA
        device or on a CPU (by plain reference kernels, for tests); ``"jax"`` is JAX's own geqrf.

    Returns:
      ``(h, tau)``: ``h [..., m, n]`` holds R on and above the diagonal and the vectors v_i below it (their unit
      diagonal is implied), ``tau [..., min(m, n)]``.

    Raises:
      TypeError: if ``a`` is no array, or its dtype is none of the above (float16 and bfloat16 have to be cast), or is
        not float32 with ``implementation="blocked"``.
      ValueError: if ``a`` has fewer than two dimensions or a side over 2³¹ − 1, or ``precision`` or ``implementation``
        is unknown.
      NotImplementedError: when differentiated.
    """
    policy = policy_for(precision)
    if implementation not in _IMPLEMENTATIONS:
        raise ValueError(f"implementation={implementation!r} is not one of {', '.join(map(repr, _IMPLEMENTATIONS))}")
    a = _as_matrices(a)
    if implementation == "blocked" and a.dtype != jnp.float32:
        raise TypeError(
            f'jaxqr.geqrf(implementation="blocked") takes float32, got {a.dtype.name}{list(a.shape)}: '
            f"cast with a.astype(jnp.float32), or leave the implementation out"
        )
    return _operation(policy, bool(overwrite_a), implementation)(a)


def _as_matrices(a: Any) -> jax.Array:
    """``a`` as an array of at least two dimensions with a dtype that can be factored."""
    if not (isinstance(a, jax.Array | np.ndarray) or hasattr(a, "__jax_array__")):
        raise TypeError(f"jaxqr.geqrf takes an array of shape [..., m, n], got {type(a).__name__}")
    a = jnp.asarray(a)
    if a.ndim < 2:
        raise ValueError(f"jaxqr.geqrf takes an array of shape [..., m, n], got shape {list(a.shape)}")
    if max(a.shape[-2:]) > _MAX_SIDE:
        raise ValueError(
            f"jaxqr.geqrf takes matrices of at most {_MAX_SIDE} rows and columns, got shape {list(a.shape)}"
        )
    if jnp.issubdtype(a.dtype, jnp.integer) or a.dtype == jnp.bool_:
        return a.astype(jax.eval_shape(jnp.sqrt, a).dtype)  # what every jnp function of real numbers promotes to
    if a.dtype not in _DTYPES:
        cast = ": cast with a.astype(jnp.float32)" if jnp.issubdtype(a.dtype, jnp.floating) else ""
        raise TypeError(
            f"jaxqr.geqrf takes {', '.join(dtype.name for dtype in _DTYPES)}, got {a.dtype.name}{list(a.shape)}{cast}"
        )
    return lax.convert_element_type(a, a.dtype)  # also makes a weakly typed array a strongly typed one


@functools.cache
def _operation(policy: Policy, overwrite_a: bool, implementation: str | None) -> Callable[[jax.Array], Factors]:
    """The operation on ``[..., m, n]``, one for each choice of the static arguments."""

    def local(a: jax.Array) -> Factors:
        return _local_geqrf(a, policy, overwrite_a, implementation)

    partitioned = _partitioned(local)

    @custom_vmap
    def batched(a: jax.Array) -> Factors:
        return _in_auto_mode(partitioned, a)

    @batched.def_vmap
    def _fold(axis_size: int, in_batched: list[bool], a: jax.Array) -> tuple[Factors, tuple[bool, bool]]:
        del axis_size, in_batched  # the mapped axis is the first of a, and so one more batch axis
        return batched(a), (True, True)

    @jax.custom_jvp
    def geqrf(a: jax.Array) -> Factors:
        return batched(a)

    @geqrf.defjvp
    def _no_derivative(primals: Any, tangents: Any) -> Any:
        raise NotImplementedError(
            "jaxqr.geqrf has no derivative: derivatives belong to Q and R, not to their compact form. "
            "Differentiate a QR factorization with a derivative rule, such as jnp.linalg.qr"
        )

    return jax.jit(geqrf)


def _in_auto_mode(function: Callable[[jax.Array], Factors], a: jax.Array) -> Factors:
    """Calls ``function`` where the compiler propagates shardings; results have an explicit ``a``'s batch sharding."""
    sharding = jax.typeof(a).sharding
    explicit = sharding.mesh.explicit_axes
    if not explicit:
        return function(a)
    out = _batch_shardings(sharding)
    return jax.sharding.auto_axes(function, axes=explicit, out_sharding=out)(a)


def _batch_shardings(sharding: NamedSharding) -> tuple[NamedSharding, NamedSharding]:
    """Shardings of h and tau: the batch axes as ``sharding`` has them, the matrices whole."""
    batch = sharding.spec[:-2]
    h, tau = PartitionSpec(*batch, None, None), PartitionSpec(*batch, None)
    return NamedSharding(sharding.mesh, h), NamedSharding(sharding.mesh, tau)


def _partitioned(local: Callable[[jax.Array], Factors]) -> custom_partitioning:
    """``local`` for arrays sharded over devices: each one factors the matrices that it holds of the batch."""

    def on_one_device(a: jax.Array) -> Factors:
        # The mesh of the caller's context says nothing here, but its explicit axes would want shardings.
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
            return local(a)

    def partition(mesh: Any, operands: Any, results: Any) -> Any:
        (a,), (h, tau) = operands, results
        if isinstance(a.sharding, NamedSharding):
            h_sharding, tau_sharding = _batch_shardings(a.sharding)
            return mesh, on_one_device, (h_sharding, tau_sharding), (h_sharding,)
        # Inside a shard_map over some of the mesh's axes, the others' shardings come without a mesh.
        if a.sharding.shard_shape(a.shape)[-2:] != a.shape[-2:]:
            raise NotImplementedError(
                f"jaxqr.geqrf cannot gather the sharded rows or columns of {list(a.shape)} inside a shard_map over "
                "only some of the mesh's axes"
            )
        return mesh, on_one_device, (h.sharding, tau.sharding), (a.sharding,)

    operation = custom_partitioning(local)
    operation.def_partition(
        partition, sharding_rule="... m n -> ... m n, ... k", need_replication_factors=("m", "n", "k")
    )
    return operation


def _local_geqrf(a: jax.Array, policy: Policy, overwrite_a: bool, implementation: str | None) -> Factors:
    """Factors the matrices ``[..., m, n]`` of one device."""
    *batch, m, n = a.shape
    reflectors = min(m, n)
    if a.size == 0:
        # tau has no elements either; made from a it varies over the same mesh axes.
        return a, jnp.sum(a, axis=-1)[..., :reflectors]

    @functools.cache  # platforms with the same products share one branch
    def blocked(products: Products) -> Callable[[jax.Array], Factors]:
        def factor(matrices: jax.Array) -> Factors:
            schedule = plan(m, n, matrices.shape[0], policy)
            return _blocked.factor(matrices, schedule, precision=products, overwrite_a=overwrite_a)

        return factor

    matrices = _blocked.as_operand(a.reshape(-1, m, n))
    if implementation == "blocked":
        h, tau = lax.platform_dependent(
            matrices, cpu=blocked(policy.products("cpu")), cuda=blocked(policy.products("cuda"))
        )
    elif implementation is None and a.dtype == jnp.float32 and _targets.HAS_CUDA:
        h, tau = lax.platform_dependent(matrices, cuda=blocked(policy.products("cuda")), default=_blocked.jax_geqrf)
    else:
        h, tau = _blocked.jax_geqrf(matrices)
    return h.reshape(a.shape), tau.reshape(*batch, reflectors)
