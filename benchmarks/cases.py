"""The cases of the six suites, and their inputs: seeded NumPy float32, the same bits on every machine."""

import math
import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

EPS = 2.0**-23
# Inputs are drawn in blocks of about this many elements, each with its own seed, so that threads can share the work.
_BLOCK_ELEMENTS = 2**21


@dataclass(frozen=True)
class Case:
    """A batch of matrices to factor.

    Attributes:
      name: unique within its suite.
      batch, m, n: the input is float32 `[batch, m, n]`.
      kind: a key of `KINDS`, or "statistics", or "mixed": each matrix draws its own.
      condition: columns are scaled by logspace(0, -condition, n).
      timed: whether the suite times the case, or only checks it.
      operation: what is done to the batch: "geqrf", or in the family suite a key of `family.OPERATIONS`.
    """

    name: str
    batch: int
    m: int
    n: int
    kind: str = "dense"
    condition: int = 0
    timed: bool = True
    operation: str = "geqrf"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.batch, self.m, self.n

    @property
    def input_bytes(self) -> int:
        return 4 * math.prod(self.shape)

    @property
    def flops(self) -> float:
        """Multiplications and additions of a Householder factorization, highest-order terms."""
        long, short = max(self.m, self.n), min(self.m, self.n)
        return self.batch * 2.0 * short**2 * (long - short / 3)

    @property
    def traffic_bytes(self) -> int:
        """Read A, write H and tau, once each."""
        return 2 * self.input_bytes + 4 * self.batch * min(self.m, self.n)

    def inputs(self, index: int) -> np.ndarray:
        """The case's `index`-th input, float32 `[batch, m, n]`. Different indices give different matrices."""
        size = max(1, _BLOCK_ELEMENTS // max(1, self.m * self.n))
        out = np.empty(self.shape, np.float32)

        def fill(start: int) -> None:
            rng = np.random.default_rng([zlib.crc32(self.name.encode()), index, start])
            block = out[start : start + size]
            rng.standard_normal(out=block, dtype=np.float32)
            block *= np.logspace(0, -self.condition, self.n, dtype=np.float32)
            _shape_kind(self, rng, block)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(fill, range(0, self.batch, size)))
        return out


def _shape_kind(case: Case, rng: np.random.Generator, block: np.ndarray) -> None:
    """Turns a block of dense matrices into the case's kind, in place."""
    if case.kind != "mixed":
        _ALL_KINDS[case.kind](rng, block, case.condition)
        return
    names = list(MIXED_WEIGHTS)
    weights = np.array([MIXED_WEIGHTS[name] for name in names], float)
    for matrix, choice in zip(block, rng.choice(len(names), size=len(block), p=weights / weights.sum()), strict=True):
        KINDS[names[choice]](rng, matrix[None], case.condition)


def _noise(rng: np.random.Generator, like: np.ndarray, scale: float) -> np.ndarray:
    return rng.standard_normal(like.shape, dtype=np.float32) * np.float32(scale)


def _dense(rng: np.random.Generator, a: np.ndarray, condition: int) -> None:
    pass


def _rankdef(rng: np.random.Generator, a: np.ndarray, condition: int) -> None:
    a[..., 3 * a.shape[-1] // 4 :] = 0


def _nearrank(rng: np.random.Generator, a: np.ndarray, condition: int) -> None:
    copies = a[..., 3 * a.shape[-1] // 4 :]
    copies[:] = a[..., : copies.shape[-1]] + _noise(rng, copies, 1e-5)


def _clustered(rng: np.random.Generator, a: np.ndarray, condition: int) -> None:
    middle = a.shape[-1] // 2
    scale = np.ones(a.shape[-1], np.float32)
    scale[middle:] = 4 * EPS
    scale[max(middle - 2, 0) : middle + 2] = math.sqrt(EPS)
    a *= scale


def _band(rng: np.random.Generator, a: np.ndarray, condition: int) -> None:
    m, n = a.shape[-2:]
    half_width = max(2, min(32, n // 32))
    a *= abs(np.arange(m)[:, None] - np.arange(n)) <= half_width
    _add_to_diagonal(a, 0.5)


def _rowscale(rng: np.random.Generator, a: np.ndarray, condition: int) -> None:
    a *= np.logspace(0, -max(condition, 4), a.shape[-2], dtype=np.float32)[:, None]


def _nearcollinear(rng: np.random.Generator, a: np.ndarray, condition: int) -> None:
    a[:] = a[..., :1] + _noise(rng, a, 1e-4)


def _upper(rng: np.random.Generator, a: np.ndarray, condition: int) -> None:
    a *= np.triu(np.ones(a.shape[-2:], np.float32))
    _add_to_diagonal(a, 0.25)


def _statistics(rng: np.random.Generator, a: np.ndarray, condition: int) -> None:
    """What optimizers of second order keep: a Gram matrix of low rank, damped."""
    n = a.shape[-1]
    gradient = a[..., : max(1, n // 4)]
    a[:] = gradient @ gradient.mT / np.float32(n) + np.float32(1e-4) * np.eye(n, dtype=np.float32)


def _add_to_diagonal(a: np.ndarray, last: float) -> None:
    k = min(a.shape[-2:])
    a[..., range(k), range(k)] += np.linspace(1, last, k, dtype=np.float32)


KINDS: dict[str, Callable[[np.random.Generator, np.ndarray, int], None]] = {
    "dense": _dense,
    "rankdef": _rankdef,
    "nearrank": _nearrank,
    "clustered": _clustered,
    "band": _band,
    "rowscale": _rowscale,
    "nearcollinear": _nearcollinear,
    "upper": _upper,
}
_ALL_KINDS = {**KINDS, "statistics": _statistics}  # the contest has no such matrices
MIXED_WEIGHTS = {"dense": 6, "rankdef": 1, "nearrank": 1, "clustered": 1, "band": 1, "rowscale": 1, "nearcollinear": 1}


def contest() -> list[Case]:
    """The public contest "batched square compact-Householder QR": 12 timed cases, then 22 that are only checked."""
    timed = [
        (20, 32, "dense", 1),
        (40, 176, "dense", 1),
        (40, 352, "dense", 1),
        (640, 512, "dense", 2),
        (60, 1024, "dense", 2),
        (8, 2048, "dense", 1),
        (2, 4096, "dense", 1),
        (640, 512, "mixed", 2),
        (60, 1024, "mixed", 2),
        (640, 512, "rankdef", 0),
        (640, 512, "clustered", 0),
        (60, 1024, "nearrank", 0),
    ]
    checked = [
        (20, 32, "dense", 1),
        (40, 176, "dense", 1),
        (40, 352, "dense", 1),
        (16, 512, "dense", 2),
        (4, 1024, "dense", 2),
        (1, 4096, "dense", 1),
        (16, 512, "dense", 4),
        *((16, 512, kind, 0) for kind in ("rankdef", "clustered", "band", "rowscale", "nearcollinear")),
        (4, 1024, "dense", 4),
        *((4, 1024, kind, 0) for kind in ("rankdef", "nearrank", "clustered")),
        (2, 2048, "dense", 2),
        (2, 2048, "rankdef", 0),
        (1, 4096, "upper", 0),
        (16, 512, "mixed", 2),
        (4, 1024, "mixed", 2),
        (2, 2048, "mixed", 2),
    ]
    return [Case(f"{batch}x{n}-{kind}", batch, n, n, kind, c) for batch, n, kind, c in timed] + [
        Case(f"gate-{batch}x{n}-{kind}-c{c}", batch, n, n, kind, c, timed=False) for batch, n, kind, c in checked
    ]


def users() -> list[Case]:
    """Shapes that filters, optimizers, sketches and single factorizations send."""
    shapes = [
        (10000, 7, 7),
        (8192, 16, 16),
        (16384, 32, 32),
        (4096, 64, 64),
        (1000, 64, 16),
        (10000, 256, 32),
        (12, 768, 768),
        (48, 1024, 1024),
        (37, 300, 200),
        (5, 777, 1000),
        (100, 129, 65),
        (1, 65536, 128),
        (1, 1000000, 32),
        (1, 256, 256),
        (1, 512, 512),
        (1, 1024, 1024),
        (1, 2048, 2048),
        (1, 4096, 4096),
        (1, 8192, 8192),
        (3, 50, 4000),
    ]
    return [Case("x".join(map(str, shape)), *shape) for shape in shapes]


def random_shapes(count: int = 200, seed: int = 0) -> list[Case]:
    """Seeded shapes: m and n log-uniform in 1…3000, the batch log-uniform up to 256 MB of input."""
    rng = np.random.default_rng(seed)

    def log_uniform(limit: int) -> int:
        return int((limit + 1) ** rng.uniform())

    cases = []
    for i in range(count):
        m, n = log_uniform(3000), log_uniform(3000)
        batch = log_uniform(256 * 10**6 // (4 * m * n))
        cases.append(Case(f"{i:03}-{batch}x{m}x{n}", batch, m, n))
    return cases


def family() -> list[Case]:
    """Q, QᵀC and gradients on the contest's shapes, and the QR of a SOAP-like optimizer's step."""
    shapes = [(40, 176), (40, 352), (640, 512), (60, 1024), (8, 2048), (2, 4096)]
    cases = [
        Case(f"{operation}-{batch}x{n}", batch, n, n, condition=1, operation=operation)
        for operation in ("householder_product", "qr", "ormqr")
        for batch, n in shapes
    ]
    gradient = Case("gradient-48x512", 48, 512, 512, operation="gradient")
    return [*cases, gradient, Case("soap-24x512", 24, 512, 512, "statistics", operation="installed")]


def scaling() -> list[Case]:
    """Square matrices: single ones of growing size, and growing batches of two sizes."""
    sizes = [32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192]
    doublings = [(512, 10), (2048, 4)]
    shapes = [(1, n) for n in sizes] + [(2**i, n) for n, most in doublings for i in range(1, most + 1)]
    return [Case(f"{batch}x{n}", batch, n, n) for batch, n in shapes]


def schedules(count: int = 16, seed: int = 1) -> list[Case]:
    """Seeded shapes that no sweep has: n log-uniform in 9…1000, m in 9…3000, the batch up to 64 MB of input."""
    rng = np.random.default_rng(seed)

    def log_uniform(least: int, most: int) -> int:
        return int(least * ((most + 1) / least) ** rng.uniform())

    cases = []
    for i in range(count):
        m, n = log_uniform(9, 3000), log_uniform(9, 1000)
        batch = log_uniform(1, 64 * 10**6 // (4 * m * n))
        cases.append(Case(f"{i:02}-{batch}x{m}x{n}", batch, m, n))
    return cases


SUITES: dict[str, Callable[[], list[Case]]] = {
    "contest": contest,
    "users": users,
    "random": random_shapes,
    "family": family,
    "scaling": scaling,
    "schedules": schedules,
}
