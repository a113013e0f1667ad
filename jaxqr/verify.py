"""How good a factorization is: float64 measures, the contest's gate, and the FP32-grade limits against LAPACK.

For A (m×n) and its compact factor (H, tau), with k = min(m, n) and eps the spacing of the factor's dtype (2⁻²³ for
float32), Q₁ (the first k columns of Q) and QᴴA are formed from (H, tau) in float64; R = triu(H):

- scaled factor: ‖R - QᴴA‖₁ / (n·eps·‖A‖₁)
- scaled orthogonality: ‖Q₁ᴴQ₁ - I‖₁ / (n·eps)
- column-wise: max_j ‖(R - QᴴA)_j‖₂ / (eps·‖A_j‖₂), which sees a lost graded column where the first does not

A zero column of A whose column of R is not zero measures inf; NaN in a matrix measures NaN. Both fail every limit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = np.ndarray | jax.Array

# At most this many elements at a time are held in float64, about ten times over.
_CHUNK_ELEMENTS = 2**26

# Roundings of a few columns do not average out: LAPACK with the rows of 100 000 normal n×n matrices reversed is outside
# fp32_grade of LAPACK itself for 465, 121, 29 and 4 of them at n = 6, 7, 8 and 9, and for none from 10 on.
_FEW = 9

# So many results of LAPACK for so few columns say what its roundings can be. A single normal matrix with its rows
# reversed is outside fp32_grade of LAPACK itself in 26, 17 and 6 of 100 cases at n = 1, 2 and 4, and in one of ten
# in 7, 3 and 0.2; of a hundred, in none of 200.
_SAMPLE = 100


@dataclass(frozen=True)
class Measures:
    """The three measures of the module's docstring, each a float64 array over the batch."""

    scaled_factor: np.ndarray
    scaled_orthogonality: np.ndarray
    columnwise: np.ndarray

    def __getitem__(self, index: Any) -> "Measures":
        return Measures(*(getattr(self, field.name)[index] for field in fields(self)))

    def worst(self) -> dict[str, float]:
        """The largest value of each measure over the batch: NaN if there is one, 0 for an empty batch."""
        return {field.name: float(np.max(getattr(self, field.name), initial=0.0)) for field in fields(self)}


def measures(a: Array, h: Array, tau: Array) -> Measures:
    """Measures `h, tau = geqrf(a)` in float64, on the accelerator if `h` lies on one, else by NumPy.

    Args:
      a: `[..., m, n]`, real or complex.
      h: `[..., m, n]`, as returned by `geqrf`.
      tau: `[..., min(m, n)]`, as returned by `geqrf`.

    Returns:
      `Measures` with arrays of shape `[...]`. The float64 reference has a rounding of its own: for a float64 factor the
      figures are good to about one unit, for float32 to all printed digits.

    Raises:
      ValueError: the shapes do not belong together.
    """
    *batch, m, n = a.shape
    if h.shape != a.shape or tau.shape != (*batch, min(m, n)):
        raise ValueError(f"a {a.shape}, h {h.shape} and tau {tau.shape} are not a matrix and its compact factorization")
    on_accelerator = isinstance(h, jax.Array) and next(iter(h.devices())).platform != "cpu"
    measure: Callable[..., np.ndarray] = _measure_on_accelerator if on_accelerator else _measure_on_host
    count, size = math.prod(batch), max(1, _CHUNK_ELEMENTS // max(1, m * n))
    stacks = [x.reshape(count, *x.shape[len(batch) :]) for x in (a, h, tau)]
    parts = [measure(*(x[start : start + size] for x in stacks)) for start in range(0, count, size)]
    return Measures(*np.concatenate([np.zeros((3, 0)), *parts], axis=1).reshape(3, *batch))


def _measure_on_host(a: Array, h: Array, tau: Array) -> np.ndarray:
    eps, wide = float(np.finfo(h.dtype).eps), np.result_type(h.dtype, np.float64)
    # Widened by NumPy, because XLA on the CPU would take a denormal for zero.
    a, h, tau = (np.asarray(x).astype(wide) for x in (a, h, tau))
    with np.errstate(all="ignore"):
        return _measure(np, np.linalg.solve, eps, a, h, tau)


def _measure_on_accelerator(a: Array, h: Array, tau: Array) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(_measure_compiled(a, h, tau))


# What checks a result runs a few times: trying out algorithms for its products would take longer than they do.
jit_reference = partial(jax.jit, compiler_options={"xla_gpu_autotune_level": 0})


@jit_reference
def _measure_compiled(a: Array, h: Array, tau: Array) -> jax.Array:
    eps, wide = float(jnp.finfo(h.dtype).eps), jnp.promote_types(h.dtype, jnp.float64)
    solve = partial(jax.lax.linalg.triangular_solve, left_side=True, unit_diagonal=True)
    return _measure(jnp, solve, eps, a.astype(wide), h.astype(wide), tau.astype(wide))


def _measure(xp: Any, solve_unit_upper: Callable[[Any, Any], Any], eps: float, a: Any, h: Any, tau: Any) -> Any:
    """The measures of stacks `[batch, …]` in the precision they come in, as `[3, batch]`; `xp` is numpy or jax.numpy.

    All k reflectors are one compact-WY block: Q = I - V·T·Vᴴ, T = (I + diag(tau)·striu(VᴴV))⁻¹·diag(tau). In float64
    one block is accurate enough (T would have to grow by 10⁸ to be seen), and it is a handful of products for any n.
    """
    m, n = a.shape[-2:]
    k = min(m, n)
    v = xp.tril(h[..., :k], -1) + xp.eye(m, k)
    vh = v.conj().mT
    t = solve_unit_upper(xp.eye(k) + xp.triu(tau[..., None] * (vh @ v), 1), tau[..., None] * xp.eye(k))
    residual = xp.triu(h) - a + v @ (t.conj().mT @ (vh @ a))
    q1 = xp.eye(m, k) - v @ (t @ vh[..., :k])
    defect = q1.conj().mT @ q1 - xp.eye(k)

    def ratio(error: Any, size: Any) -> Any:
        return xp.where(error == 0, 0.0, error / size)

    def norm1(x: Any) -> Any:
        return abs(x).sum(-2).max(-1, initial=0)

    def column_norms(x: Any) -> Any:
        return xp.sqrt((abs(x) ** 2).sum(-2))

    return xp.stack(
        [
            ratio(norm1(residual), n * eps * norm1(a)),
            ratio(norm1(defect), n * eps),
            ratio(column_norms(residual), eps * column_norms(a)).max(-1, initial=0),
        ]
    )


def contest_gate(measured: Measures) -> np.ndarray:
    """Whether each matrix passes the contest's gate: scaled factor at most 20, scaled orthogonality at most 100."""
    return (measured.scaled_factor <= 20) & (measured.scaled_orthogonality <= 100)


def fp32_grade(measured: Measures, lapack: Measures) -> np.ndarray:
    """Whether each matrix is FP32-grade, given LAPACK's measures for the same input.

    The limits are max(0.5, 2 × LAPACK's) for the scaled factor, max(2, 2 × LAPACK's) for the scaled orthogonality and
    max(10, 5 × LAPACK's) column-wise.
    """
    return (
        (measured.scaled_factor <= np.maximum(0.5, 2 * lapack.scaled_factor))
        & (measured.scaled_orthogonality <= np.maximum(2, 2 * lapack.scaled_orthogonality))
        & (measured.columnwise <= np.maximum(10, 5 * lapack.columnwise))
        & np.isfinite(measured.columnwise)
    )


def as_good_as_lapack(a: Array, measured: Measures) -> np.ndarray:
    """`fp32_grade` for the input `a`, running LAPACK only where a matrix is above the absolute limits.

    Every matrix is compared with LAPACK's result for it; up to `_FEW` columns with LAPACK's worst in the batch, of
    which there are `_SAMPLE` results at least, of the same matrices with other roundings too.
    """
    flat = Measures(*(getattr(measured, field.name).ravel() for field in fields(Measures)))
    grade = fp32_grade(flat, Measures(*np.zeros((3, flat.columnwise.size))))
    (above,) = np.nonzero(~grade)
    if len(above):
        matrices = a.reshape(-1, *a.shape[-2:])
        if a.shape[-1] > _FEW:
            grade[above] = fp32_grade(flat[above], lapack_measures(matrices[above]))
        else:
            grade[above] = _as_good_as_the_worst(np.asarray(matrices), above, flat[above])
    return grade.reshape(measured.columnwise.shape)


def _as_good_as_the_worst(matrices: np.ndarray, above: np.ndarray, measured: Measures) -> np.ndarray:
    """`fp32_grade` of the matrices `above`, given the worst of LAPACK's results for all matrices: or for some of them,
    which asks for more, as far as that is met."""
    others = np.setdiff1d(np.arange(len(matrices)), above, assume_unique=True)
    ordered, size = matrices[np.concatenate([above, others])], 10 * _SAMPLE
    while True:
        sample = np.concatenate([ordered[:size], *_with_other_roundings(ordered[:size])])
        worst = Measures(*(np.asarray(worst) for worst in lapack_measures(sample).worst().values()))
        grade = fp32_grade(measured, worst)
        if grade.all() or size >= len(ordered):
            return grade
        size *= 10


def _with_other_roundings(matrices: Array) -> list[np.ndarray]:
    """The matrices with rows in another order, times factors in [1/2, 1), as often as with them it is `_SAMPLE`."""
    random, count = np.random.default_rng(0), len(matrices)
    factors = random.uniform(0.5, 1, (-(-_SAMPLE // count) - 1, count, 1, 1))
    matrices = np.asarray(matrices)
    return [(random.permutation(matrices, axis=1) * factor).astype(matrices.dtype) for factor in factors]


def lapack_measures(a: Array) -> Measures:
    """The measures of LAPACK's geqrf for `a: [..., m, n]`; wholly on the CPU, whichever device is the default."""
    a = np.asarray(a)
    return measures(a, *lapack_geqrf(a))


def lapack_geqrf(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """LAPACK's `(h, tau)` of `a: [..., m, n]`, through JAX on the CPU, which flushes denormal numbers to zero."""
    h_transposed, tau = jnp.linalg.qr(jax.device_put(a, jax.local_devices(backend="cpu")[0]), mode="raw")
    return np.asarray(h_transposed).mT, np.asarray(tau)
