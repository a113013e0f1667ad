"""``geqrf``: the public function, its refusal of derivatives, and the factorization of the matrices of one device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxqr import _blocked, _targets
from jaxqr._operation import check_dtype, check_implementation, operation
from jaxqr.precision import Policy, PrecisionLike, Products, policy_for
from jaxqr.schedule import Schedule, plan

Factors = tuple[jax.Array, jax.Array]

_OPEN_BATCH = 1024
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
        (``donate_argnums``), the factorization then runs in place, unless ``jaxqr.schedule_for`` says regime
        ``"wide"``, ``"loops"`` or ``"jax"``.
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

    >>> h, tau = jaxqr.geqrf(jnp.array([[1.0, 3.0], [2.0, 3.0], [2.0, 0.0]]))
    >>> print(jnp.round(jnp.triu(h[:2])), tau.shape)
    [[-3. -3.]
     [ 0.  3.]] (2,)
    """
    policy = policy_for(precision)
    check_implementation(implementation)
    a = as_matrices(a, "jaxqr.geqrf")
    check_dtype(a, "jaxqr.geqrf", implementation)
    return _operation(policy, bool(overwrite_a), implementation)(a)


def as_matrices(a: Any, name: str) -> jax.Array:
    """``a`` as an array of at least two dimensions with a dtype that can be factored; ``name`` is for messages."""
    if not (isinstance(a, jax.Array | np.ndarray) or hasattr(a, "__jax_array__")):
        raise TypeError(f"{name} takes an array of shape [..., m, n], got {type(a).__name__}")
    a = jnp.asarray(a)
    if a.ndim < 2:
        raise ValueError(f"{name} takes an array of shape [..., m, n], got shape {list(a.shape)}")
    if max(a.shape[-2:]) > _MAX_SIDE:
        raise ValueError(f"{name} takes matrices of at most {_MAX_SIDE} rows and columns, got shape {list(a.shape)}")
    if jnp.issubdtype(a.dtype, jnp.integer) or a.dtype == jnp.bool_:
        return a.astype(jax.eval_shape(jnp.sqrt, a).dtype)  # what every jnp function of real numbers promotes to
    check_dtype(a, name)
    return lax.convert_element_type(a, a.dtype)  # also makes a weakly typed array a strongly typed one


@functools.cache
def _operation(policy: Policy, overwrite_a: bool, implementation: str | None) -> Callable[[jax.Array], Factors]:
    """The operation on ``[..., m, n]``, one for each choice of the static arguments."""

    def local(a: jax.Array) -> Factors:
        return _local_geqrf(a, policy, overwrite_a, implementation)

    batched = operation(local, "jaxqr.geqrf", ("m n",), ("m n", "k"))

    @jax.custom_jvp
    def geqrf(a: jax.Array) -> Factors:
        h, tau = batched(a)
        return h, tau

    @geqrf.defjvp
    def _no_derivative(primals: Any, tangents: Any) -> Any:
        raise NotImplementedError(
            "jaxqr.geqrf has no derivative: derivatives belong to Q and R, not to their compact form. "
            "Differentiate jaxqr.qr (or jnp.linalg.qr)"
        )

    return jax.jit(geqrf)


def _local_geqrf(a: jax.Array, policy: Policy, overwrite_a: bool, implementation: str | None) -> Factors:
    """Factors the matrices ``[..., m, n]`` of one device."""
    *batch, m, n = a.shape
    reflectors = min(m, n)
    if a.size == 0:
        # tau has no elements either; made from a it varies over the same mesh axes.
        return a, jnp.sum(a, axis=-1)[..., :reflectors]

    def own(matrices: jax.Array, schedule: Schedule, products: Products) -> Factors:
        return _blocked.factor(matrices, schedule, precision=products, overwrite_a=overwrite_a)

    h, tau = on_platform(a.reshape(-1, m, n), policy, implementation, own, _blocked.jax_geqrf)
    return h.reshape(a.shape), tau.reshape(*batch, reflectors)


def on_platform(
    matrices: jax.Array,
    policy: Policy,
    implementation: str | None,
    own: Callable[[jax.Array, Schedule, Products], tuple[jax.Array, ...]],
    in_jax: Callable[[jax.Array], tuple[jax.Array, ...]],
) -> tuple[jax.Array, ...]:
    """What the implementation chooses for ``[batch, m, n]``: ``own``, by the schedule, on this package's platforms."""
    batch, m, n = matrices.shape

    @functools.cache  # platforms with the same products share one branch
    def blocked(products: Products) -> Callable[[jax.Array], tuple[jax.Array, ...]]:
        def call(matrices: jax.Array) -> tuple[jax.Array, ...]:
            # Every schedule is right for every batch; one that an export leaves open is taken to be large.
            batch_size = batch if isinstance(batch, int) else _OPEN_BATCH
            return own(matrices, plan(m, n, batch_size, policy), products)

        return call

    matrices = _blocked.as_operand(matrices)
    if implementation == "blocked":
        return lax.platform_dependent(
            matrices, cpu=blocked(policy.products("cpu")), cuda=blocked(policy.products("cuda"))
        )
    if implementation is None and matrices.dtype == jnp.float32 and _targets.HAS_CUDA:
        return lax.platform_dependent(matrices, cuda=blocked(policy.products("cuda")), default=in_jax)
    return in_jax(matrices)
