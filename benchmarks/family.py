"""The family suite: Q, products with Q, gradients, an optimizer's step, each by jaxqr and by JAX on the same inputs."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxqr
from benchmarks.cases import Case
from benchmarks.explicit import explicit_measures, product_errors
from benchmarks.implementations import Implementation, chained
from benchmarks.protocol import Protocol, measure
from jaxqr import verify

Report = dict[str, Any]
Result = tuple[np.ndarray, Any, Any]
"""An input ``a``, what was loaded of it, and what the operation made of that."""

_COLUMNS = 64  # of the matrix that ormqr multiplies
_EPS = 2.0**-23


@dataclass(frozen=True)
class Operation:
    """What a case times.

    Attributes:
      load: the device's input for a matrix stack ``a``, not timed.
      ours, by_jax: the timed functions of it.
      check: whether results are right: ``gate``, ``fp32_grade`` and measures, for a sequence of `Result`s.
    """

    load: Callable[[np.ndarray], Any]
    ours: Callable[[Any], Any]
    by_jax: Callable[[Any], Any]
    check: Callable[[Sequence[Result]], Report]


def run_case(case: Case, peers: Sequence[Implementation], protocol: Protocol) -> Report:
    """One case's entry, as `suite.run_case` makes it; of the peers only JAX does these operations."""
    operation = OPERATIONS[case.operation]
    inputs = [case.inputs(index) for index in range(protocol.calls(case))]
    loaded = [operation.load(a) for a in inputs]
    functions = {"jaxqr": operation.ours, **({"jax": operation.by_jax} if peers else {})}
    results = {
        name: _result(name, function, operation, inputs, loaded, protocol) for name, function in functions.items()
    }
    return {
        **dataclasses.asdict(case),
        "flops": case.flops,
        "traffic_bytes": case.traffic_bytes,
        "results": results,
    }


def _result(
    name: str,
    function: Callable[[Any], Any],
    operation: Operation,
    inputs: Sequence[np.ndarray],
    loaded: Sequence[Any],
    protocol: Protocol,
) -> Report:
    compiled = jax.jit(chained(function))
    implementation = Implementation(name, operation.load, lambda *x: jax.block_until_ready(compiled(*x)), lambda x: x)
    try:
        timing, outputs = measure(implementation, loaded, protocol)
        check = operation.check(list(zip(inputs, loaded, outputs, strict=False)))
    except Exception as error:  # a case that cannot be done must not end the run; jaxqr's failure is reported
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    valid = check["gate"] and (check["fp32_grade"] or name != "jaxqr")
    return {
        "milliseconds": timing.milliseconds if valid else None,
        **(dataclasses.asdict(timing) if valid else {}),
        "check": check,
    }


def _check_q(results: Sequence[Result]) -> Report:
    """Of ``(Q, R)``; LAPACK, on the CPU, is asked about the matrices above the absolute limits only."""
    worst: dict[str, float] = {}
    gate = grade = True
    for a, _, (q, r) in results:
        measured = explicit_measures(a, q, r)
        gate = gate and bool(verify.contest_gate(measured).all())
        absolute = verify.fp32_grade(measured, verify.Measures(*np.zeros((3, len(a)))))
        (above,) = np.nonzero(~absolute)
        if len(above):
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                lapack = explicit_measures(a[above], *jnp.linalg.qr(a[above]))
            grade = grade and bool(verify.fp32_grade(measured[above], lapack).all())
        worst = {name: max(value, worst.get(name, 0.0)) for name, value in measured.worst().items()}
    return _checked(gate, grade, results, worst)


def _checked(gate: bool, grade: bool, results: Sequence[Result], worst: dict[str, float]) -> Report:
    return {
        "gate": gate,
        "fp32_grade": grade,
        "matrices": sum(len(a) for a, _, _ in results),
        **{name: value if np.isfinite(value) else str(value) for name, value in worst.items()},
    }


def _check_product(results: Sequence[Result]) -> Report:
    """Of ``QᵀC``: max_j ‖error_j‖/(eps·‖c_j‖) is at most 10, or 5 × LAPACK's."""
    worst, grade = 0.0, True
    for _, (h, tau, c), product in results:
        found = float(np.max(product_errors(h, tau, c, product)))
        if found > 10:
            arguments = [np.asarray(x) for x in (h, tau, c)]
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                grade = grade and found <= 5 * float(np.max(product_errors(*arguments, _jax_ormqr(arguments))))
        worst = float(np.maximum(worst, found))
    return _checked(bool(np.isfinite(worst)), grade, results, {"columnwise": worst})


def _check_gradient(results: Sequence[Result]) -> Report:
    """Relative to the exact gradient, matrix by matrix, the error is at most n·eps·κ, since a rounding of A may move it
    by κ, the condition of R."""
    worst = 0.0
    for a, _, found in results:
        diagonal = jnp.diagonal(jaxqr.qr(a, mode="r"), axis1=-2, axis2=-1)
        with jax.enable_x64(True):
            exact, condition = map(np.asarray, _exact_gradient(jnp.asarray(a), jnp.where(diagonal < 0, -1.0, 1.0)))
        errors = np.linalg.norm(np.asarray(found, np.float64) - exact, axis=(-2, -1))
        relative = errors / (a.shape[-1] * _EPS * condition * np.linalg.norm(exact, axis=(-2, -1)))
        worst = max(worst, float(np.max(relative)))
    return _checked(worst <= 1, worst <= 1, results, {"scaled_factor": worst})


@verify.jit_reference
def _exact_gradient(a: jax.Array, signs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Also the condition of R. In float64 by two Cholesky factorizations, which run by batches, as no QR there does:
    the rounding errors of the first, of κ²·2⁻⁵³, are gone after the second. ``signs`` are those of R's diagonal."""

    def qr(a: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, nearly = cholesky_qr(a)
        second, q = cholesky_qr(nearly)
        return q * signs[:, None, :], signs[:, :, None] * (second @ first)

    def cholesky_qr(a: jax.Array) -> tuple[jax.Array, jax.Array]:
        lower = jnp.linalg.cholesky(a.mT @ a)
        return lower.mT, lax.linalg.triangular_solve(lower, a, transpose_a=True, lower=True)

    a = a.astype(jnp.float64)
    _, r = qr(a)
    inverse = lax.linalg.triangular_solve(r, jnp.broadcast_to(jnp.eye(r.shape[-1]), r.shape), left_side=True)
    condition = jnp.linalg.norm(r, axis=(-2, -1)) * jnp.linalg.norm(inverse, axis=(-2, -1))
    return _gradient(qr)(a), condition


def _factors(a: Any) -> Any:
    return jax.jit(jaxqr.geqrf)(jax.device_put(a))


def _with_columns(a: np.ndarray) -> Any:
    c = np.random.default_rng(0).standard_normal((*a.shape[:-1], _COLUMNS), dtype=np.float32)
    return *_factors(a), jax.device_put(c)


def _jax_ormqr(arguments: Any) -> Any:
    h, tau, c = arguments
    return lax.linalg.ormqr(h, tau, c, transpose=True)


def _gradient(qr: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Of a scalar that weighs all elements of Q and R differently."""

    def scalar(a: jax.Array) -> jax.Array:
        q, r = qr(a)
        return jnp.sum(jnp.sin(q * q.shape[-1])) + jnp.sum(jnp.sin(r))

    return jax.grad(scalar)


def _installed_qr(a: jax.Array) -> Any:
    """As an optimizer calls it, which knows nothing of jaxqr."""
    with jaxqr.installed():
        return tuple(jnp.linalg.qr(a))


def _form_q(by: Callable[..., jax.Array]) -> Callable[[Any], Any]:
    return lambda factors: (by(*factors), jnp.triu(factors[0]))


OPERATIONS = {
    "householder_product": Operation(
        _factors, _form_q(jaxqr.householder_product), _form_q(lax.linalg.householder_product), _check_q
    ),
    "qr": Operation(jax.device_put, lambda a: tuple(jaxqr.qr(a)), lambda a: tuple(jnp.linalg.qr(a)), _check_q),
    "ormqr": Operation(
        _with_columns, lambda arguments: jaxqr.ormqr(*arguments, transpose=True), _jax_ormqr, _check_product
    ),
    "gradient": Operation(jax.device_put, _gradient(jaxqr.qr), _gradient(jnp.linalg.qr), _check_gradient),
    "installed": Operation(jax.device_put, _installed_qr, lambda a: tuple(jnp.linalg.qr(a)), _check_q),
}
