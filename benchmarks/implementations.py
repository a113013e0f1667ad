"""The factorizations that are timed: jaxqr with its public default, and its peers where they are installed."""

import importlib
import importlib.util
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxqr

Factors = tuple[Any, Any]


@dataclass(frozen=True)
class Implementation:
    """One way to factor batches.

    Attributes:
      name: as in tables and JSON.
      load: puts an input on the device.
      factor_all: factors any number of loaded inputs one after the other, blocks, and returns their factors.
      as_jax: one result of `factor_all` as JAX arrays `(h, tau)`, for the check.
    """

    name: str
    load: Callable[[np.ndarray], Any]
    factor_all: Callable[..., Sequence[Factors]]
    as_jax: Callable[[Factors], Factors]


def chained(factor: Callable[[jax.Array], Factors]) -> Callable[..., list[Factors]]:
    """A function of any number of inputs that starts each factorization when the one before is done."""

    def factor_all(*inputs: jax.Array) -> list[Factors]:
        outputs: list[Factors] = []
        for a in inputs:
            if outputs:
                a, outputs[-1] = lax.optimization_barrier((a, outputs[-1]))
            outputs.append(factor(a))
        return outputs

    return factor_all


def _in_jax(name: str, factor: Callable[[jax.Array], Factors], as_jax: Callable[[Factors], Factors]) -> Implementation:
    compiled = jax.jit(chained(factor))

    def factor_all(*inputs: jax.Array) -> list[Factors]:
        outputs = compiled(*inputs)
        # A program's results are complete together. Asking a hundred of them takes 150 µs.
        jax.block_until_ready(outputs[-1])
        return outputs

    return Implementation(name, jax.device_put, factor_all, as_jax)


JAXQR = _in_jax("jaxqr", jaxqr.geqrf, lambda factors: factors)
# Raw mode's first result is H transposed. That is what JAX's geqrf computes; another transpose would only slow it down.
JAX = _in_jax("jax", lambda a: jnp.linalg.qr(a, mode="raw"), lambda factors: (factors[0].mT, factors[1]))


def _torch() -> Implementation:
    torch = importlib.import_module("torch")

    def factor_all(*inputs: Any) -> list[Factors]:
        outputs = [torch.geqrf(a) for a in inputs]
        torch.cuda.synchronize()
        return outputs

    def as_jax(factors: Factors) -> Factors:
        h, tau = factors
        return jax.device_put(h.cpu().numpy()), jax.device_put(tau.cpu().numpy())

    return Implementation("torch", lambda a: torch.from_numpy(a).cuda(), factor_all, as_jax)


def _cupy() -> Implementation:
    cupy = importlib.import_module("cupy")

    def factor_all(*inputs: Any) -> list[Factors]:
        outputs = [cupy.linalg.qr(a, mode="raw") for a in inputs]
        cupy.cuda.Device().synchronize()
        return outputs

    def as_jax(factors: Factors) -> Factors:
        h_transposed, tau = factors
        return jax.device_put(cupy.asnumpy(h_transposed).mT), jax.device_put(cupy.asnumpy(tau))

    return Implementation("cupy", cupy.asarray, factor_all, as_jax)


PEERS = ("jax", "torch", "cupy")


def installed_peers(wanted: Collection[str] = PEERS) -> list[Implementation]:
    """JAX always; on a CUDA GPU also those of PyTorch and CuPy that are wanted, installed and see it."""
    peers = [JAX]
    if jax.default_backend() == "gpu":
        for name, make in (("torch", _torch), ("cupy", _cupy)):
            if name in wanted and importlib.util.find_spec(name):
                module = importlib.import_module(name)
                if module.cuda.is_available():
                    peers.append(make())
    return peers
