"""The fused block-reflector update on the GPU, reached through its FFI target, against float64."""

import functools

import jax
import numpy as np
import pytest

from jaxqr import _targets
from tests import matrices
from tests.reference import DENORMAL, EPS, assert_same_bits, larft

pytestmark = pytest.mark.gpu
SHAPES = [  # m, n, offset, width, first, last
    (1, 2, 0, 1, 1, 2),
    (5, 9, 2, 1, 3, 9),
    (40, 70, 0, 8, 8, 70),
    (64, 65, 0, 64, 64, 65),
    (65, 300, 1, 64, 65, 300),
    (130, 129, 3, 31, 40, 111),
    (200, 200, 64, 32, 96, 200),
    (333, 101, 5, 33, 38, 101),
    (512, 512, 0, 64, 64, 512),
    (777, 90, 7, 16, 23, 90),
    (2048, 130, 0, 16, 16, 130),
    (2048, 96, 3, 61, 64, 96),
    (1100, 212, 0, 40, 40, 212),
    (4096, 80, 0, 32, 32, 80),
    (4100, 132, 0, 64, 64, 132),
    (4101, 50, 2, 16, 18, 50),
]
# With copies of the batch: more strips than an H200 has room for at once.
MANY = [((60, 300, 0, 20, 20, 300), 25), ((512, 212, 0, 64, 64, 212), 15), ((600, 110, 0, 24, 24, 110), 7)]
at_every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@functools.partial(jax.jit, static_argnames=("offset", "width", "first", "last", "transpose", "remake", "known"))
def update(h, halves, t, scales, source, *, offset, width, first, last, transpose=True, remake=False, known=0):
    operands = [x for x in (h, halves, t, scales, source) if x is not None]
    results = [jax.ShapeDtypeStruct(h.shape, np.float32), jax.ShapeDtypeStruct((len(h), h.shape[-1]), np.float32)]
    call = jax.ffi.ffi_call(_targets.BLOCK_REFLECTOR, results, input_output_aliases={0: 0})
    attributes = {"offset": offset, "width": width, "first": first, "last": last, "known": known}
    values = {name: np.int64(value) for name, value in attributes.items()}
    flags = {"transpose": transpose, "has_scales": scales is not None, "has_src": source is not None}
    return call(*operands, **values, **flags, remake_scales=remake)


class Update:
    """V and T of `batch` panels, with C to be set, in matrices that are NaN wherever the update must not look."""

    def __init__(self, m: int, n: int, offset: int, width: int, first: int, last: int, copies: int = 1):
        names = ("dense", "min_index", "near_collinear", "exponential", "lower_ones", "upper_triangular") * copies
        self.attributes = {"offset": offset, "width": width, "first": first, "last": last}
        self.rows, self.columns, self.batch = m - offset, last - first, len(names)
        self.place = slice(None), slice(offset, None), slice(first, last)
        self.panel = slice(None), slice(offset, None), slice(offset, offset + width)
        factored = [np.linalg.qr(matrices.matrix(name, self.rows, width), mode="raw") for name in names]
        reflectors = np.stack([h.T for h, _ in factored])
        tau = np.stack([tau for _, tau in factored])
        self.t = larft(reflectors, tau)
        self.h = np.full((self.batch, m, n), np.nan, np.float32)
        self.h[self.panel] = np.where(np.tri(self.rows, width, -1, dtype=bool), reflectors, np.nan)
        self.v = np.tril(reflectors, -1) + np.eye(self.rows, width, dtype=np.float32)
        scaled = np.zeros((self.batch, self.rows, -(-width // 8) * 8), np.float32)
        scaled[..., :width] = 2.0**14 * self.v
        high = scaled.astype(np.float16)
        self.halves = np.stack([high, (scaled - high.astype(np.float32)).astype(np.float16)], axis=2)

    def run(
        self, c: np.ndarray, in_place: bool, scales: np.ndarray | None = None, *, remake: bool = False
    ) -> np.ndarray:
        """The updated columns; asserts that nothing else was written. `scales`: of an earlier update, or made here."""
        before = self.h.copy()
        source = None
        if in_place:
            before[self.place] = c
        else:
            source = np.full_like(before, np.nan)
            source[self.place] = c
        after, made = map(
            np.array, update(before, self.halves, self.t, scales, source, **self.attributes, remake=remake)
        )
        self.scales = made
        expected = before.copy()
        expected[self.place] = after[self.place]
        assert_same_bits([after], [expected])
        return after[self.place]

    def apply(self, c: np.ndarray, dtype: type) -> np.ndarray:
        v, t, c = (x.astype(dtype) for x in (self.v, self.t, c))
        return c - v @ (t.mT @ (v.mT @ c))

    def errors(self, found: np.ndarray, c: np.ndarray) -> np.ndarray:
        return np.linalg.norm(found - self.apply(c, np.float64), axis=-2)


def in_every_class(rows: int, columns: int, batch: int) -> np.ndarray:
    names = ("dense", "min_index", "graded_columns", "near_collinear", "zero_column", "clustered")
    return matrices.batch(rows, columns, names[:batch], seed=1)


def scales_of(written: np.ndarray, m: int) -> np.ndarray:
    """From the columns' largest magnitudes, as ``ffi/scales.h`` says."""
    largest = np.fmax.reduce(abs(written), axis=1, initial=0)
    exponent = np.where((largest == 0) | np.isinf(largest), 0, np.clip(1 - np.frexp(largest)[1], -126, 126))
    return np.exp2(np.clip(exponent + np.log2(_targets.scale_of_unit_columns(m)), -126, 126)).astype(np.float32)


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "from a source"])
@at_every_shape
def test_update(shape, in_place):
    """Column-wise, at most 10 eps or five times the error of the same three products in float32 by BLAS."""
    job = Update(*shape)
    c = in_every_class(job.rows, job.columns, job.batch)
    errors, norms = job.errors(job.run(c, in_place), c), np.linalg.norm(c.astype(np.float64), axis=-2)
    yardstick = job.errors(job.apply(c, np.float32), c)
    assert (errors <= np.maximum(10 * EPS * norms, 5 * yardstick)).all()


@pytest.mark.parametrize(("shape", "copies"), MANY, ids=str)
def test_update_of_many_matrices(shape, copies):
    job = Update(*shape, copies)
    c = np.tile(in_every_class(job.rows, job.columns, 6), (copies, 1, 1))
    errors, norms = job.errors(job.run(c, True), c), np.linalg.norm(c.astype(np.float64), axis=-2)
    yardstick = job.errors(job.apply(c, np.float32), c)
    assert (errors <= np.maximum(10 * EPS * norms, 5 * yardstick)).all()


@at_every_shape
def test_update_by_t_as_it_is(shape):
    """Of columns that need not lie right of a panel."""
    job = Update(*shape)
    c = in_every_class(job.rows, job.columns, job.batch)
    m, _, offset, width, *_ = shape
    before = np.full((job.batch, m, job.columns), np.nan, np.float32)
    before[:, offset:] = c
    place = {"offset": offset, "width": width, "first": 0, "last": job.columns}
    found = np.array(update(before, job.halves, job.t, None, None, **place, transpose=False)[0])
    assert_same_bits([found[:, :offset]], [before[:, :offset]])
    job.t = job.t.mT
    errors, norms = job.errors(found[:, offset:], c), np.linalg.norm(c.astype(np.float64), axis=-2)
    yardstick = job.errors(job.apply(c, np.float32), c)
    assert (errors <= np.maximum(10 * EPS * norms, 5 * yardstick)).all()


@pytest.mark.parametrize(
    ("shape", "copies"), [*((shape, 1) for shape in SHAPES), *MANY, ((60, 301, 1, 20, 21, 301), 25)], ids=str
)
def test_update_of_what_is_in_part_the_identity(shape, copies):
    """Poison in its place, which is not read, changes nothing."""
    job = Update(*shape, copies)
    c = np.tile(in_every_class(job.rows, job.columns, 6), (copies, 1, 1))
    rows, columns = np.indices((job.rows, job.columns))
    aligned = all(x % 4 == 0 for x in (shape[1], shape[4], shape[5]))
    for known in sorted({x for x in (1, 4, 32, 64, job.attributes["width"]) if x < job.columns} | {job.columns}):
        from_identity = np.minimum(rows, columns) < known
        partly = np.where(from_identity, (rows == columns).astype(np.float32), c)
        expected = job.run(partly, True)
        job.attributes["known"] = known
        found = job.run(np.where(from_identity, np.nan, c), True)
        del job.attributes["known"]
        if known % 4 == 0 or known >= min(job.rows, job.columns) or not aligned:  # else by another kernel
            assert_same_bits([found], [expected])
        errors, norms = job.errors(found, partly), np.linalg.norm(partly.astype(np.float64), axis=-2)
        yardstick = job.errors(job.apply(partly, np.float32), partly)
        assert (errors <= np.maximum(10 * EPS * norms, 5 * yardstick)).all()


@at_every_shape
def test_update_with_scales_of_larger_columns(shape):
    """Elimination leaves a column smaller than it was when its scale was made."""
    job = Update(*shape)
    v, t, c = (x.astype(np.float64) for x in (job.v, job.t, in_every_class(job.rows, job.columns, job.batch)))
    c = job.run((c - v @ (t @ (v.mT @ c))).astype(np.float32), True)  # as in every class again
    scales = job.scales
    assert_same_bits([scales[:, slice(job.attributes["first"], job.attributes["last"])]], [scales_of(c, shape[0])])
    for shrink in (1.0, 2.0**-12):
        found = job.run(c * np.float32(shrink), True, scales)
        norms = np.linalg.norm(c.astype(np.float64), axis=-2)
        yardstick = job.errors(job.apply(c * np.float32(shrink), np.float32), c * np.float32(shrink))
        assert (job.errors(found, c * np.float32(shrink)) <= np.maximum(10 * EPS * shrink * norms, 5 * yardstick)).all()


@at_every_shape
@pytest.mark.parametrize("apart", [True, False])
def test_scales_made_again(shape, apart):
    """Of the updated columns, from what was written; the others keep theirs."""
    job = Update(*shape)
    columns = slice(job.attributes["first"], job.attributes["last"])
    c = in_every_class(job.rows, job.columns, job.batch)
    c *= np.exp2(np.linspace(-85, 100, job.columns).round()).astype(np.float32)
    c[0, job.rows // 2, job.columns // 2] = np.nan
    made = job.run(c, not apart)
    scales = job.scales
    assert_same_bits([scales[:, columns]], [scales_of(made, shape[0])])
    given = np.exp2(np.arange(scales.size) % 41 - 20).astype(np.float32).reshape(scales.shape)
    given[:, columns] = scales[:, columns]
    for operand in (None, given):
        expected = job.run(c, not apart, operand)
        found = job.run(c, not apart, operand, remake=True)
        assert_same_bits([found, job.scales[:, columns]], [expected, scales_of(expected, shape[0])])
    given[:, columns] = job.scales[:, columns]
    assert_same_bits([job.scales], [given])


@at_every_shape
def test_update_at_any_scale(shape):
    job = Update(*shape)
    for start in range(0, len(matrices.SCALES), job.batch):
        c = np.zeros((job.batch, job.rows, job.columns), np.float32)
        part = matrices.scaled_batch(job.rows, job.columns)[start : start + job.batch]
        c[: len(part)] = part
        found, norms = job.run(c, True), np.linalg.norm(c.astype(np.float64), axis=-2)
        assert np.isfinite(found).all()
        assert (job.errors(found, c) <= 10 * EPS * norms + np.sqrt(job.rows) * DENORMAL).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["NaN", "Inf"])
@at_every_shape
def test_bad_values_stay_in_their_column(shape, bad):
    job = Update(*shape)
    good = in_every_class(job.rows, job.columns, job.batch)
    c = good.copy()
    row, column = job.rows // 2, job.columns // 2
    c[1, row, column] = bad
    found, expected = job.run(c, True), job.run(good, True)
    assert not np.isfinite(found[1, :, column]).all()
    found[1, :, column] = expected[1, :, column]
    assert_same_bits([found], [expected])


@pytest.mark.parametrize("m", [1, 2, 4, 5, 64, 65, 1000])
def test_the_scale_of_unit_columns(m):
    """What forming Q takes for granted is what the kernel makes."""
    identity, v, t = (
        np.eye(m, dtype=np.float32)[None],
        np.zeros((1, m, 2, 8), np.float16),
        np.zeros((1, 1, 1), np.float32),
    )
    _, scales = update(identity, v, t, None, None, offset=0, width=1, first=0, last=m)
    np.testing.assert_array_equal(scales, _targets.scale_of_unit_columns(m))
