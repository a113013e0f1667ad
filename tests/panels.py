"""Panels at the edges of what each compiled kernel covers, and what holds for every one of them, against float64."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jaxqr import _native
from jaxqr.verify import as_good_as_lapack, fp32_grade, measures
from tests import matrices
from tests.drivers import CTA_KERNELS, takes
from tests.reference import EPS, assert_good_at_any_scale, assert_same_bits, block_measures, larft

MAX_T_WIDTH = 64
SHARED_KIB = 227
NAMES = (
    "dense", "graded_columns", "rank_deficient", "duplicate_columns", "near_rank", "row_graded", "near_collinear",
    "upper_triangular", "zero_column", "min_index", "exponential", "squared_exponential",
)  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """A panel of `rows` × `width` whose first pivot is at (offset, offset) of a matrix with `right` more columns.

    Narrow, tiny and wide kernels factor these too.
    """

    regime: str
    variant: tuple[int, ...]
    rows: int
    width: int
    offset: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.offset + self.rows, self.offset + self.width + self.right

    @property
    def with_t(self) -> bool:
        return not self.is_whole and self.width <= MAX_T_WIDTH

    @property
    def is_whole(self) -> bool:
        return self.regime in ("narrow", "tiny", "wide")

    @property
    def columns(self) -> int:
        return self.width + (self.right if self.is_whole else 0)

    @property
    def place(self) -> tuple[slice, slice, slice]:
        return slice(None), slice(self.offset, None), slice(self.offset, self.offset + self.columns)

    def __str__(self) -> str:
        variant = "x".join(map(str, self.variant))
        return f"{self.regime}-{variant}-{self.rows}rows-{self.width}columns-at{self.offset}-{self.right}more"


def panels() -> list[Panel]:
    sizes: list[tuple[str, tuple[int, ...], list[tuple[int, int, int, int]]]] = []  # rows, width, offset, columns right
    kernels = _native.kernels()
    for variant in kernels["narrow"]:
        most = math.prod(variant)
        edges = [(rows, n) for n in (1, 2, 3, 4) for rows in (most, most // 2 + 1, n)]
        sizes.append(("narrow", variant, [(rows, n, 0, 0) for rows, n in edges]))
    for variant in kernels["tiny"]:
        column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane = variant
        capacity = row_lanes * warps * rows_per_lane
        widest = min(column_lanes * cols_per_lane, capacity)
        edges = [(capacity, widest), (capacity - 1, widest - 1), (widest, widest), (capacity, 1), (3, 2), (1, 1)]
        wide = [(1, widest), (5, widest), (widest - 1, widest), (widest // 2, widest - 1), (2, 5)]
        sizes.append(("tiny", variant, [(rows, width, 0, 0) for rows, width in edges]))
        wide = [(rows, columns) for rows, columns in wide if rows < columns <= widest]
        sizes.append(("tiny", variant, [(rows, rows, 0, columns - rows) for rows, columns in wide]))
    for rows, cols_per_lane in kernels["wide"]:
        chunk = rows * (cols_per_lane - 1)  # columns, after the first `rows`
        most = [rows + 1, rows + chunk, rows + chunk + 1, 5 * chunk + 3]
        edges = [(rows, columns) for columns in most] + [(rows - 1, most[3]), (5, 8), (2, most[2]), (1, 3)]
        sizes.append(("wide", (rows, cols_per_lane), [(rows, rows, 0, columns - rows) for rows, columns in edges]))
    for kernel in CTA_KERNELS:
        capacity, of_a_warp = kernel.rows, kernel.cols_per_warp
        for columns in (of_a_warp * kernel.max_warps, kernel.columns):  # in one turn, and in turns if those are more
            widest = min(capacity, columns)
            while not takes(kernel, capacity, widest, SHARED_KIB):
                widest -= 1
            edges = edges_of(capacity, widest, of_a_warp) + cta_edges_of(capacity, widest, of_a_warp)
            sizes.append(("cta", kernel.variant, edges))
    for (rows_per_lane, cols_per_lane, max_warps), blocks in zip(
        kernels["cluster"], itertools.cycle((2, 8, 4)), strict=False
    ):
        widest = cols_per_lane * max_warps
        below_the_pivots = 32 * rows_per_lane * blocks  # rows that a cluster holds
        edges = [
            (min(rows, below_the_pivots + width), width, *place)
            for rows, width, *place in edges_of(below_the_pivots + widest, widest, cols_per_lane)
        ]
        sizes.append(("cluster", (rows_per_lane, cols_per_lane, blocks), edges))
    found = [
        Panel(regime, variant, rows, min(rows, width), offset, right)
        for regime, variant, edges in sizes
        for rows, width, offset, right in edges
    ]
    return list(dict.fromkeys(found))


def edges_of(capacity: int, widest: int, of_a_warp: int) -> list[tuple[int, int, int, int]]:
    """Rows, width, offset and columns right of the panel at the edges of a kernel, and far inside."""
    with_t = min(widest, MAX_T_WIDTH)
    return [
        (capacity, widest, 0, 0),
        (capacity, with_t, 0, 3),
        (capacity, with_t, 4, 8),
        (capacity, 1, 2, 4),
        (capacity - 1, min(with_t, of_a_warp + 1), 3, 1),
        (capacity - 16, with_t - 1, 9, 0),
        (with_t, with_t, 1, 0),
        (min(capacity, with_t + 1), with_t, 7, 9),
        (1, 1, 5, 3),
        (2, 2, 0, 0),
        (min(capacity, 3 * of_a_warp), max(1, min(with_t, 2 * of_a_warp - 1)), 8, 5),
    ]


def cta_edges_of(capacity: int, widest: int, of_a_warp: int) -> list[tuple[int, int, int, int]]:
    """More of the same: rows and columns that are no whole words, and widths about where the kernel makes T itself."""
    with_t = min(widest, MAX_T_WIDTH)
    return [
        (capacity, with_t, 2, 2),  # whole words in every row, but at no multiples of 16 bytes
        (capacity, with_t - 3, 4, 7),  # whole words in the matrix, but not in the panel
        (capacity - 5, with_t - 3, 0, 0),
        (capacity // 2 + 1, with_t - 2, 5, 2),
        (capacity // 2, with_t - 4, 8, 4),  # whole words, and in the halves the last one half empty
        (capacity, 8, 4, 0),
        (capacity - 1, 9, 6, 1),
        (capacity - 33, 12, 4, 4),
        (capacity // 2 - 1, 4 * of_a_warp, 3, 2),
        (capacity - 2, of_a_warp, 1, 3),
        (capacity, widest - 1, 4, 1),  # as wide as any, without T where that is more than get it
        (widest, widest, 3, 2),
        (min(capacity, widest + 1), widest - 3, 4, 3),
    ]


PANELS = panels()
# One of each kernel, in a matrix with more columns where the regime allows it.
ONE_EACH = [panel for panel in PANELS if panel.right == 8 or (panel.is_whole and panel.rows > 3 < panel.width)]


Factor = Callable[[np.ndarray, Panel, bool], tuple[np.ndarray, ...]]
"""Of matrices, a panel of them, and whether in place: H, tau, and T and the halves of V, which are empty if the kernel
makes none."""


def embedded(panel: Panel, columns: np.ndarray) -> np.ndarray:
    """Matrices that hold `columns` where the panel is, and NaN everywhere else: nothing else may be read."""
    a = np.full((len(columns), *panel.shape), np.nan, np.float32)
    a[panel.place] = columns
    return a


def assert_fp32_grade(panel: Panel, factor: Factor):
    """Of H, tau, T and the halves; and nothing outside of the panel is written."""
    columns = matrices.batch(panel.rows, panel.columns, NAMES)
    a = embedded(panel, columns)
    h, tau, t, halves = factor(a, panel, panel.offset > 0)
    measured = measures(columns, h[panel.place], tau)
    good = as_good_as_lapack(columns, measured)
    assert good.all(), {NAMES[i]: measured[i] for i in np.nonzero(~good)[0]}
    if panel.with_t:
        ours, theirs = (block_measures(columns, h[panel.place], x) for x in (t, larft(h[panel.place], tau)))
        good = fp32_grade(ours, theirs)
        assert good.all(), {NAMES[i]: (ours[i], theirs[i]) for i in np.nonzero(~good)[0]}
        assert (np.tril(t, -1) == 0).all()
        v = np.tril(h[panel.place], -1) + np.eye(panel.rows, panel.width, dtype=np.float32)
        found = halves.astype(np.float64).sum(axis=2) / 2**14
        assert abs(found[..., : panel.width] - v).max() <= EPS / 2  # 22 bits
        assert (found[..., panel.width :] == 0).all()
    else:
        assert t.shape == (len(a), 0, 0)
    if panel.offset > 0:
        expected = a.copy()
        expected[panel.place] = h[panel.place]
        assert_same_bits([h], [expected])


def assert_any_scale(panel: Panel, factor: Factor):
    columns = matrices.scaled_batch(panel.rows, panel.columns)
    h, tau, *_ = factor(embedded(panel, columns), panel, True)
    assert_good_at_any_scale(columns, h[panel.place], tau, panels=1)


def assert_denormal_tails(panel: Panel, factor: Factor):
    """Tails that are denormal beside their columns' largest element: 1/(alpha − beta) is beyond float32's range."""
    columns = np.ones((3, panel.rows, panel.columns), np.float32)
    tails = np.random.default_rng(5).standard_normal((panel.rows - 1, panel.columns - 1))
    columns[:, 1:, 1:] = np.array([1e-31, 1e-38, 1e-42])[:, None, None] * tails
    columns[:, 1:, 0] = 0
    h, tau, *_ = factor(embedded(panel, columns), panel, True)
    assert_good_at_any_scale(columns, h[panel.place], tau, panels=1)


def assert_same_in_and_out_of_place(panel: Panel, factor: Factor):
    a = embedded(panel, matrices.batch(panel.rows, panel.columns, NAMES[:11]))  # some lanes of a warp have none
    results = [factor(a, panel, in_place) for in_place in (False, True)]
    assert_same_bits(*((h[panel.place], *rest) for h, *rest in results))


def assert_bad_values_stay(panel: Panel, factor: Factor):
    """In their matrix, and right of their column."""
    good = np.random.default_rng(3).standard_normal((8, panel.rows, panel.columns), dtype=np.float32)
    bad = good.copy()
    places = {1: (0, 0), 2: (panel.rows - 1, 0), 4: (panel.rows // 2, panel.columns // 2), 6: (0, panel.columns - 1)}
    for (matrix, (row, column)), value in zip(places.items(), [np.nan, np.inf, -np.inf, np.nan], strict=True):
        bad[matrix, row, column] = value
    (h, tau, t, _), (good_h, good_tau, good_t, _) = (factor(embedded(panel, x), panel, True) for x in (bad, good))
    h, good_h = h[panel.place], good_h[panel.place]
    untouched = [0, 3, 5, 7]
    assert_same_bits([x[untouched] for x in (h, tau, t)], [x[untouched] for x in (good_h, good_tau, good_t)])
    for matrix, (_, column) in places.items():
        assert_same_bits(
            [h[matrix, :, :column], tau[matrix, :column]], [good_h[matrix, :, :column], good_tau[matrix, :column]]
        )
        # The last column of a square panel has nothing to eliminate: tau is 0 there, whatever alpha is.
        eliminated = min(panel.width, panel.rows - 1)
        assert np.isnan(tau[matrix, column:eliminated]).all()
        assert not np.isfinite(np.diagonal(h[matrix])[column:]).any()
        assert not np.isfinite(h[matrix, :, column]).all()
