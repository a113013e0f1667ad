"""``install`` and ``installed``: JAX's own QR functions on this package's kernels, for code that is not to be changed.

`jnp.linalg.qr` and `jax.lax.linalg.{qr, householder_product, ormqr}` each bind a primitive. The first call here puts a
switch in front of the ``bind`` of these primitives, for good; which way it points is a user context of JAX
(`jaxqr._jax_rules`), read when a function is traced. So the caches of ``jax.jit`` keep the two ways apart by
themselves. A patch that came and went would not be seen by functions that are compiled already, nor taken back.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import ir

from jaxqr._geqrf import geqrf
from jaxqr._jax_rules import replace_everywhere, replaced
from jaxqr._products import householder_product, ormqr
from jaxqr._qr import qr

_TESTED = (0, 10), (0, 13)  # the first version of JAX, and the first one beyond


def install(active: bool = True) -> None:
    """Makes JAX's own QR functions use this package, in all threads, from now on.

    ``jnp.linalg.qr`` and ``jax.lax.linalg.{qr, householder_product, ormqr}``, and with them ``vmap(jnp.linalg.qr)``,
    ``jax.scipy.linalg.qr_multiply``, orthogonal initialisers, optimizers and solvers, become `jaxqr.qr`,
    `jaxqr.householder_product` and `jaxqr.ormqr` for float32 arrays. These run on this package's kernels on a CUDA
    device and on JAX's own elsewhere. Results keep JAX's shapes, signs and errors; the derivative is `jaxqr.qr`'s,
    which stays finite where JAX's is not. Other dtypes, pivoting, an explicit ``use_magma`` and symbolic shapes stay
    with JAX altogether.

    What counts is when a function is traced. Functions that ``jax.jit`` compiled before are traced anew when they are
    called; what was traced by hand (``jax.make_jaxpr``, ``jax.jit(f).trace``, ``jax.export``) stays what it is.

    Args:
      active: False takes it back, and JAX's own rules hold again.

    Raises:
      RuntimeError: this version of JAX is not one where that is known to work. Nothing is changed then.

    >>> jaxqr.install()
    >>> q, r = jax.vmap(jnp.linalg.qr)(jnp.ones((3, 4, 2)))
    >>> jaxqr.install(False)
    """
    _put_switches()
    replace_everywhere(active)


@contextlib.contextmanager
def installed(active: bool = True) -> Iterator[None]:
    """`install` for the body of a ``with`` statement, or for a function that it decorates, in this thread only.

    On exit the rules that held before hold again, also for functions that were compiled inside.

    Args:
      active: False is for JAX's own rules, where `install` has replaced them.

    Raises:
      RuntimeError: as `install` does.

    >>> with jaxqr.installed():
    ...     q, r = jax.vmap(jnp.linalg.qr)(jnp.ones((3, 4, 2)))
    """
    _put_switches()
    with replaced(active):
        yield


@dataclass(frozen=True)
class _Replacement:
    """One primitive of JAX, found as the one that ``example`` binds, and what stands for it."""

    primitive: str
    params: frozenset[str]
    example: Callable[..., Any]
    example_ranks: tuple[int, ...]
    function: Callable[..., Any]

    def example_arguments(self) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct((1,) * rank, np.float32) for rank in self.example_ranks]


def _qr(a: jax.Array, *, pivoting: bool, full_matrices: bool, use_magma: None) -> tuple[jax.Array, jax.Array]:
    del pivoting, use_magma
    q, r = qr(a, mode="complete" if full_matrices else "reduced")
    return q, r


_REPLACEMENTS = (
    _Replacement("geqrf", frozenset(), functools.partial(jnp.linalg.qr, mode="raw"), (2,), geqrf),
    _Replacement("qr", frozenset({"pivoting", "full_matrices", "use_magma"}), jax.lax.linalg.qr, (2,), _qr),
    _Replacement("householder_product", frozenset(), jax.lax.linalg.householder_product, (2, 1), householder_product),
    _Replacement("ormqr", frozenset({"left", "transpose"}), jax.lax.linalg.ormqr, (2, 1, 2), ormqr),
)


def _put_switches() -> None:
    """Puts the switches in front of JAX's primitives, once, if this JAX is one where that works."""
    with _lock:
        if _switched:
            return
        first, beyond = _TESTED
        if not first <= jax.__version_info__[:2] < beyond:
            raise _unknown()
        found = [(_primitive(replacement), replacement) for replacement in _REPLACEMENTS]
        for primitive, replacement in found:
            _check_switch(primitive, replacement)
        for primitive, replacement in found:
            primitive.bind = _switch(primitive.bind, _checked(replacement, primitive.bind))
            _switched.append(primitive)


_lock = threading.Lock()
_switched: list[Any] = []


def _primitive(replacement: _Replacement) -> Any:
    """The one primitive of this name that the example binds."""
    with replaced(False):
        jaxpr = jax.make_jaxpr(replacement.example)(*replacement.example_arguments())
    found = [equation for equation in _equations(jaxpr) if equation.primitive.name == replacement.primitive]
    if len(found) != 1 or found[0].params.keys() != replacement.params:
        raise _unknown(f", whose {replacement.primitive} is not the primitive known by that name")
    return found[0].primitive


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a closed jaxpr, those of nested jits included."""
    for equation in jaxpr.eqns:
        yield equation
        if "jaxpr" in equation.params:
            yield from _equations(equation.params["jaxpr"])


class _SwitchReached(Exception):
    pass


def _check_switch(primitive: Any, replacement: _Replacement) -> None:
    """Raises RuntimeError unless a switch is reached, also from functions that were traced without one."""

    def reached(*args: Any, **params: Any) -> None:
        raise _SwitchReached

    primitive.bind = _switch(primitive.bind, reached)
    try:
        with replaced(True):
            jax.make_jaxpr(replacement.example)(*replacement.example_arguments())
    except _SwitchReached:
        return
    finally:
        del primitive.bind
    raise _unknown(f", whose {replacement.primitive} cannot be replaced")


def _unknown(what: str = "") -> RuntimeError:
    first, beyond = _TESTED
    return RuntimeError(
        f"jaxqr.install() knows the internals of JAX {first[0]}.{first[1]} to {beyond[0]}.{beyond[1] - 1}, and not of "
        f"JAX {jax.__version__}{what}: call jaxqr.qr, jaxqr.householder_product and jaxqr.ormqr by name instead"
    )


def _switch(by_jax: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The ``bind`` of a primitive that has two ways to go."""

    @functools.wraps(by_jax)
    def bind(*args: Any, **params: Any) -> Any:
        if not replaced.value or _is_lowering() or not _is_replaceable(args, params):
            return by_jax(*args, **params)
        # What this package asks of JAX in there must not come back here.
        with replaced(False):
            return replacement(*args, **params)

    return bind


def _is_lowering() -> bool:
    """Whether a program is being made of what was traced before. JAX's own rules make one primitive of others there:
    that is no place for this package's, which need to know the devices, and the choice was made at tracing."""
    return ir.Context.current is not None


def _is_replaceable(args: tuple[Any, ...], params: dict[str, Any]) -> bool:
    if params.get("pivoting") or params.get("use_magma") is not None:
        return False
    return all(
        getattr(array, "dtype", None) == np.float32 and all(isinstance(side, int) for side in array.shape)
        for array in args
    )


def _checked(replacement: _Replacement, by_jax: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement, raising what JAX raises for wrong shapes."""

    @functools.partial(jax.jit, static_argnames=tuple(replacement.params))
    def call(*args: jax.Array, **params: Any) -> Any:
        shapes = (jax.ShapeDtypeStruct(array.shape, array.dtype) for array in args)
        jax.eval_shape(functools.partial(by_jax, **params), *shapes)
        return replacement.function(*args, **params)

    return call
