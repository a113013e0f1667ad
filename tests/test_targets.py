"""The FFI targets alone, on the CPU: values, offsets, aliasing, T, range, NaN containment and argument errors."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
import scipy.linalg

import jaxqr  # noqa: F401  (registers the targets)
from jaxqr import _native
from jaxqr._kernels import step_slots

EPS = float(np.finfo(np.float32).eps)
MAX = float(np.finfo(np.float32).max)
TINY = 2.0**-149

# (m, n, offset, width)
PANELS = [
    (1, 1, 0, 1),
    (5, 1, 0, 1),
    (1, 5, 0, 1),
    (8, 8, 0, 8),
    (8, 8, 3, 2),
    (8, 8, 7, 1),
    (40, 24, 0, 24),
    (40, 24, 8, 16),
    (12, 30, 4, 8),
    (130, 70, 33, 31),
]


@pytest.fixture(autouse=True)
def _on_cpu():
    with jax.default_device(jax.devices("cpu")[0]):
        yield


def pitch(width):
    """Halves of a row's high parts: the width in whole words of eight."""
    return -(-width // 8) * 8


def call_panel_with_halves(
    a,
    offset,
    width,
    *,
    with_t=True,
    in_place=True,
    aliased=None,
    tau_width=None,
    t_shape=None,
    h_shape=None,
    halves_shape=None,
):
    batch, side = a.shape[0], width if with_t else 0
    halves = (batch, max(a.shape[1] - offset, 0), 2, pitch(max(width, 0))) if with_t else (batch, 0, 2, 0)
    results = [
        jax.ShapeDtypeStruct(h_shape or a.shape, np.float32),
        jax.ShapeDtypeStruct((batch, width if tau_width is None else tau_width), np.float32),
        jax.ShapeDtypeStruct(t_shape or (batch, side, side), np.float32),
        jax.ShapeDtypeStruct(halves_shape or halves, np.float16),
    ]
    aliased = in_place if aliased is None else aliased
    call = jax.ffi.ffi_call("jaxqr_panel", results, input_output_aliases={0: 0} if aliased else None)
    place = {"offset": np.int64(offset), "width": np.int64(width)}
    return tuple(map(np.array, call(a, **place, regime="cta", variant=np.array([4, 4]), in_place=in_place)))


def call_panel(a, offset, width, **options):
    return call_panel_with_halves(a, offset, width, **options)[:3]


def call_block_reflector_with_scales(
    h,
    t,
    offset,
    width,
    first,
    last,
    src=None,
    scales=None,
    *,
    aliased=True,
    halves=None,
    transpose=True,
    remake=False,
    known=0,
    shape=None,
):
    """`shape`: of the result, if it is not that of `h`."""
    if halves is None:
        halves = halves_of(h, offset, width)
    shape = shape or h.shape
    results = [jax.ShapeDtypeStruct(shape, np.float32), jax.ShapeDtypeStruct((len(h), shape[-1]), np.float32)]
    aliases = {0: 0} if scales is None else {0: 0, 3: 1}
    call = jax.ffi.ffi_call("jaxqr_block_reflector", results, input_output_aliases=aliases if aliased else None)
    attributes = {"offset": offset, "width": width, "first": first, "last": last, "known": known}
    values = {name: np.int64(value) for name, value in attributes.items()}
    operands = [x for x in (h, halves, t, scales, src) if x is not None]
    flags = {"transpose": transpose, "has_scales": scales is not None, "has_src": src is not None}
    return tuple(map(np.array, call(*operands, **values, **flags, remake_scales=remake)))


def call_block_reflector(h, t, offset, width, first, last, src=None, **options):
    return call_block_reflector_with_scales(h, t, offset, width, first, last, src, **options)[0]


def call_look_ahead(
    h, t, offset, width, next_width, src=None, scales=None, *, early=0, with_t=True, variant=(4, 4), shapes=None
):
    """`(h, scales, tau, t, halves)`; `shapes` takes the place of the results' own."""
    batch, m, n = h.shape
    side, first = next_width if with_t else 0, offset + width
    halves = (batch, m - first, 2, pitch(next_width)) if with_t else (batch, 0, 2, 0)
    shapes = shapes or [h.shape, (batch, n), (batch, next_width), (batch, side, side), halves]
    results = [jax.ShapeDtypeStruct(shape, (np.float32, np.float16)[i == 4]) for i, shape in enumerate(shapes)]
    call = jax.ffi.ffi_call("jaxqr_look_ahead", results)
    operands = [x for x in (h, halves_of(h, offset, width), t, scales, src) if x is not None]
    flags = {"has_scales": scales is not None, "has_src": src is not None}
    place = {"offset": np.int64(offset), "width": np.int64(width), "early": np.int64(early)}
    return tuple(map(np.array, call(*operands, **place, regime="cta", variant=np.array(variant), **flags)))


def call_reflectors(h, tau, offset, widths, *, first=0, shapes=None):
    """`[(t, halves), …]` of the blocks; `shapes` takes the place of the results' own."""
    if shapes is None:
        firsts = np.cumsum([offset, *widths[:-1]])
        shapes = [
            shape
            for first, width in zip(firsts, widths, strict=True)
            for shape in ((len(h), width, width), (len(h), h.shape[1] - first, 2, pitch(width)))
        ]
    results = [jax.ShapeDtypeStruct(shape, (np.float32, np.float16)[i % 2]) for i, shape in enumerate(shapes)]
    call = jax.ffi.ffi_call("jaxqr_reflectors", results)
    made = list(map(np.array, call(h, tau, offset=np.int64(offset), first=np.int64(first))))
    return list(zip(made[::2], made[1::2], strict=True))


def halves_of(h, offset, width):
    """What the panel target makes of its reflectors: 2¹⁴·V as float16 high and low parts."""
    rows, width = max(h.shape[1] - offset, 0), max(width, 0)
    v = np.zeros((len(h), rows, pitch(width)), np.float32)
    panel = block(h, offset, width)
    v[:, :, : panel.shape[-1]] = 2.0**14 * (np.tril(panel, -1) + np.eye(*panel.shape[1:], dtype=np.float32))
    high = v.astype(np.float16)
    return np.stack([high, (v - high.astype(np.float32)).astype(np.float16)], axis=2)


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def bits(x):
    return np.ascontiguousarray(x, np.float32).view(np.uint32)


def block(a, offset, width):
    """The part of the matrices that a panel factors."""
    return a[..., offset:, offset : offset + width]


def lapack(x):
    """LAPACK's dgeqrf of one float32 matrix: (h, tau) in float64."""
    h, tau, _, info = scipy.linalg.lapack.dgeqrf(x.astype(np.float64))
    assert info == 0
    return h, tau


def unit_lower(h):
    """V, in float64, of the reflectors below the diagonal of h."""
    return np.tril(h.astype(np.float64), -1) + np.eye(*h.shape[-2:])


def product_of_reflectors(v, tau):
    q = np.eye(v.shape[0])
    for k in range(v.shape[1]):
        q = q - np.outer(q @ v[:, k] * tau[k], v[:, k])
    return q


# ---- panel -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "offset", "width"), PANELS)
@pytest.mark.parametrize("in_place", [True, False])
def test_panel_is_lapacks(m, n, offset, width, in_place):
    a = normal(3, m, n)
    h, tau, _ = call_panel(a, offset, width, in_place=in_place)
    for a_b, h_b, tau_b in zip(block(a, offset, width), block(h, offset, width), tau, strict=True):
        expected_h, expected_tau = lapack(a_b)
        scale = np.maximum(1, np.linalg.norm(a_b, axis=0))
        assert np.all(np.abs(h_b - expected_h) <= 100 * EPS * scale)
        np.testing.assert_allclose(tau_b, expected_tau, rtol=50 * EPS, atol=50 * EPS)


@pytest.mark.parametrize(("m", "n", "offset", "width"), PANELS)
def test_panel_in_place_touches_nothing_else(m, n, offset, width):
    a = normal(2, m, n)
    outside = np.ones((m, n), bool)
    block(outside, offset, width)[...] = False
    a[:, outside] = np.resize(np.array([np.nan, -0.0, TINY, np.inf, -MAX], np.float32), a[:, outside].shape)
    h, tau, t = call_panel(a, offset, width)
    assert np.array_equal(bits(h[:, outside]), bits(a[:, outside]))
    for result in (block(h, offset, width), tau, t):
        assert np.all(np.isfinite(result))


@pytest.mark.parametrize(("m", "n", "offset", "width"), PANELS)
def test_panel_gives_the_same_bits_in_place_and_apart_with_and_without_t(m, n, offset, width):
    a = normal(2, m, n)
    h, tau, _ = call_panel(a, offset, width)
    for options in ({"in_place": False}, {"with_t": False}, {"in_place": False, "with_t": False}):
        other_h, other_tau, other_t = call_panel(a, offset, width, **options)
        assert np.array_equal(bits(block(h, offset, width)), bits(block(other_h, offset, width)))
        assert np.array_equal(bits(tau), bits(other_tau))
        assert other_t.size == 0 or options.get("with_t", True)


@pytest.mark.parametrize(("m", "n", "offset", "width"), PANELS)
def test_halves_are_the_reflectors(m, n, offset, width):
    a = normal(2, m, n) * np.logspace(0, -8, m, dtype=np.float32)[:, None]  # down to subnormal halves
    h, _, _, halves = call_panel_with_halves(a, offset, width)
    expected = halves_of(h, offset, width)
    assert np.array_equal(halves.view(np.uint16), expected.view(np.uint16))
    assert m < 40 or (abs(expected[expected != 0]) < 2.0**-14).any()


def test_halves_of_nan_are_nan():
    a = normal(1, 9, 3)
    a[0, 4, 1] = np.nan
    halves = call_panel_with_halves(a, 0, 3)[3]
    assert np.isfinite(halves[..., 0]).all()
    assert np.isnan(halves[0, 2:, :, 1]).all()


@pytest.mark.parametrize(("m", "n", "offset", "width"), PANELS)
def test_t_is_the_compact_wy_factor(m, n, offset, width):
    a = normal(2, m, n)
    a[:, :, min(offset + 1, n - 1)] = 0  # a reflector with tau = 0, where there is room for one
    h, tau, t = call_panel(a, offset, width)
    for a_b, h_b, tau_b, t_b in zip(block(a, offset, width), block(h, offset, width), tau, t, strict=True):
        assert np.array_equal(bits(np.tril(t_b, -1)), bits(np.zeros_like(t_b)))
        assert np.array_equal(np.diag(t_b), tau_b)
        v = unit_lower(h_b)
        q = np.eye(m - offset) - v @ t_b @ v.T
        assert np.abs(q - product_of_reflectors(v, tau_b.astype(np.float64))).max() <= 4 * width * EPS
        assert np.abs(q.T @ q - np.eye(m - offset)).max() <= 4 * width * EPS
        np.testing.assert_allclose(q.T @ a_b, np.triu(h_b), atol=100 * EPS * np.abs(a_b).max())


@pytest.mark.parametrize("alpha", [3.0, -3.0, 0.0, -0.0, TINY, MAX])
def test_zero_tail_keeps_alpha_and_gives_tau_zero(alpha):
    a = np.zeros((1, 4, 2), np.float32)
    a[0, 0] = alpha, 5
    h, tau, t = call_panel(a, 0, 2)
    assert np.array_equal(bits(h), bits(a))
    assert not tau.any()
    assert not t.any()


def test_last_column_of_a_square_matrix_keeps_its_sign():
    a = normal(8, 5, 5)
    h, tau, _ = call_panel(a, 0, 5)
    assert not tau[:, -1].any()
    for a_b, h_b in zip(a, h, strict=True):
        assert np.sign(h_b[-1, -1]) == np.sign(lapack(a_b)[0][-1, -1])


def test_tiny_tail_is_a_reflector():
    a = np.array([[[1], [1e-30]]], np.float32)
    h, tau, _ = call_panel(a, 0, 1)
    assert (h[0, 0, 0], tau[0, 0]) == (-1, 2)
    assert h[0, 1, 0] == np.float32(5e-31)


@pytest.mark.parametrize("exponent", [-100, -60, -20, 20, 60, 120])
def test_panel_is_invariant_under_powers_of_two(exponent):
    """Neither a uniform nor a graded power-of-two scale of the columns is seen by the reflectors."""
    a = normal(2, 20, 6)
    h, tau, t = call_panel(a, 0, 6)
    graded = np.linspace(0, exponent, 6).astype(int)
    for exponents in (np.full(6, exponent), graded, graded[::-1]):
        scale = np.ldexp(np.float32(1), exponents).astype(np.float32)
        scaled_h, scaled_tau, scaled_t = call_panel(a * scale, 0, 6)
        assert np.array_equal(bits(np.triu(scaled_h)), bits(np.triu(h * scale)))
        assert np.array_equal(bits(np.tril(scaled_h, -1)), bits(np.tril(h, -1)))
        assert np.array_equal(bits(scaled_tau), bits(tau))
        assert np.array_equal(bits(scaled_t), bits(t))


@pytest.mark.parametrize("largest", [3 * TINY, 2.0**-140, 2.0**-126, 2.0**-64, 2.0**63, 2.0**120, MAX / 8])
def test_panel_at_the_ends_of_the_range(largest):
    a = np.random.default_rng(0).uniform(-1, 1, (2, 24, 5))
    a = (a / np.abs(a).max() * largest).astype(np.float32)
    h, tau, _ = call_panel(a, 0, 5)
    for a_b, h_b, tau_b in zip(a, h, tau, strict=True):
        expected_h, expected_tau = lapack(a_b)
        norms = np.linalg.norm(a_b.astype(np.float64), axis=0)
        assert np.all(np.abs(np.triu(h_b) - np.triu(expected_h)) <= 50 * EPS * norms + TINY)
        np.testing.assert_allclose(np.tril(h_b, -1), np.tril(expected_h, -1), atol=100 * EPS)
        np.testing.assert_allclose(tau_b, expected_tau, rtol=50 * EPS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 2, 5])
def test_panel_contains_nan_and_inf(bad, column):
    a = normal(3, 9, 6)
    clean_h, clean_tau, clean_t = call_panel(a, 0, 6)
    a[1, 4, column] = bad
    h, tau, t = call_panel(a, 0, 6)
    for clean, found in ((clean_h, h), (clean_tau, tau), (clean_t, t)):
        assert np.array_equal(bits(clean[[0, 2]]), bits(found[[0, 2]]))
    assert np.array_equal(bits(clean_h[1, :, :column]), bits(h[1, :, :column]))
    assert np.array_equal(bits(clean_tau[1, :column]), bits(tau[1, :column]))
    assert np.isnan(h[1, column:, column:]).all()
    assert np.isnan(tau[1, column:]).all()


def test_empty_batch():
    h, tau, t = call_panel(np.zeros((0, 5, 4), np.float32), 1, 2)
    assert (h.shape, tau.shape, t.shape) == ((0, 5, 4), (0, 2), (0, 2, 2))


@pytest.mark.parametrize(
    ("arguments", "options", "numbers"),
    [
        ((-1, 2), {}, r"offset = -1 and width = 2 do not fit \[2,6,4\]"),
        ((0, 0), {}, r"offset = 0 and width = 0 do not fit \[2,6,4\]"),
        ((2, 3), {}, r"offset = 2 and width = 3 do not fit \[2,6,4\]: .* <= 4"),
        ((np.iinfo(np.int64).max, 1), {}, r"offset = 9223372036854775807 and width = 1 do not fit"),
        ((0, 2), {"tau_width": 3}, r"tau is \[2,3\], expected \[2,2\]"),
        ((0, 2), {"t_shape": (2, 2, 3)}, r"t is \[2,2,3\], expected \[2,2,2\]"),
        ((0, 2), {"t_shape": (1, 0, 0)}, r"t is \[1,0,0\], expected \[2,2,2\]"),
        ((0, 2), {"h_shape": (2, 4, 6), "in_place": False}, r"h is \[2,4,6\], expected \[2,6,4\]"),
    ],
)
def test_panel_errors_carry_the_numbers(arguments, options, numbers):
    with pytest.raises(jax.errors.JaxRuntimeError, match=numbers):
        call_panel(normal(2, 6, 4), *arguments, **options)


def test_panel_refuses_other_dtypes():
    with pytest.raises(jax.errors.JaxRuntimeError, match="F32"):
        call_panel(np.zeros((1, 3, 2), np.int32), 0, 2, in_place=False)


# ---- leaves and lift -------------------------------------------------------------------------------------------------

# (m, n, offset, width, leaves)
LEAVES = [(40, 8, 0, 8, 4), (41, 8, 0, 8, 2), (60, 30, 5, 9, 3), (12, 3, 0, 3, 3), (7, 20, 2, 1, 4), (20, 10, 1, 9, 1)]


def call_leaves(a, offset, width, leaves, *, in_place=True, stack_rows=None):
    batch = len(a)
    shapes = a.shape, (batch, leaves, width), (batch, (1 + leaves) * width if stack_rows is None else stack_rows, width)
    results = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    call = jax.ffi.ffi_call("jaxqr_leaves", results, input_output_aliases={0: 0} if in_place else None)
    return tuple(map(np.array, call(a, offset=np.int64(offset), variant=np.array([4, 8]), in_place=in_place)))


def call_lift(h, tau, stack, offset):
    result = jax.ShapeDtypeStruct(h.shape, np.float32)
    call = jax.ffi.ffi_call("jaxqr_lift", result, input_output_aliases={0: 0})
    return np.array(call(h, tau, stack, offset=np.int64(offset)))


def rows_of_leaves(m, offset, width, leaves):
    """Multiples of the width, nearly equal, and the rest with the last one."""
    units = np.array_split(np.arange((m - offset - width) // width), leaves)
    ends = offset + width + width * np.cumsum([len(part) for part in units])
    ends[-1] = m
    return [slice(start, end) for start, end in zip([offset + width, *ends[:-1]], ends, strict=True)]


@pytest.mark.parametrize(("m", "n", "offset", "width", "leaves"), LEAVES)
@pytest.mark.parametrize("in_place", [True, False])
def test_leaves_are_panels_and_their_triangles_are_stacked(m, n, offset, width, leaves, in_place):
    a = normal(2, m, n)
    h, tau, stack = call_leaves(a, offset, width, leaves, in_place=in_place)
    columns = slice(offset, offset + width)
    assert np.array_equal(stack[:, :width], a[:, offset : offset + width, columns])
    for leaf, rows in enumerate(rows_of_leaves(m, offset, width, leaves)):
        expected_h, expected_tau, _ = call_panel(np.ascontiguousarray(a[:, rows, columns]), 0, width)
        assert np.array_equal(h[:, rows, columns], expected_h)
        assert np.array_equal(tau[:, leaf], expected_tau)
        assert np.array_equal(stack[:, (1 + leaf) * width : (2 + leaf) * width], np.triu(expected_h)[:, :width])
    outside = np.ones((m, n), bool)
    outside[offset + width :, columns] = False
    assert not in_place or np.array_equal(h[:, outside], a[:, outside])


@pytest.mark.parametrize(("m", "n", "offset", "width", "leaves"), LEAVES)
def test_the_lifted_stack_is_the_panel(m, n, offset, width, leaves):
    a = normal(2, m, n)
    h, tau_of_leaves, stack = call_leaves(a, offset, width, leaves)
    factored, tau, _ = call_panel(stack, 0, width)
    read = np.array(factored)
    for leaf in range(leaves):  # the parts are upper triangular, and the rest is not read
        assert not np.tril(factored[:, (1 + leaf) * width : (2 + leaf) * width], -1).any()
        read[:, (1 + leaf) * width : (2 + leaf) * width][:, np.tril(np.ones((width, width), bool), -1)] = np.nan
    found = call_lift(h, tau_of_leaves, read, offset)
    expected, expected_tau, _ = call_panel(a, offset, width)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tau, expected_tau, rtol=1e-5, atol=1e-6)
    outside = np.ones((m, n), bool)
    block(outside, offset, width)[...] = False
    assert np.array_equal(found[:, outside], a[:, outside])


@pytest.mark.parametrize(
    ("arguments", "options", "numbers"),
    [
        ((5, 4, 1), {}, r"offset = 5 and width = 4 do not fit \[2,20,8\]"),
        ((0, 4, 0), {}, r"0 leaves of at least 4 of 16 rows"),
        ((0, 4, 5), {}, r"5 leaves of at least 4 of 16 rows"),
        ((0, 4, 2), {"stack_rows": 8}, r"stack is \[2,8,4\], expected \[2,12,4\]"),
    ],
)
def test_leaves_errors_carry_the_numbers(arguments, options, numbers):
    with pytest.raises(jax.errors.JaxRuntimeError, match=numbers):
        call_leaves(normal(2, 20, 8), *arguments, **options)


# ---- tall update -----------------------------------------------------------------------------------------------------

# (m, n, offset, width)
TALL_UPDATES = [(40, 24, 0, 8), (40, 24, 8, 15), (300, 70, 0, 32), (260, 80, 3, 33), (513, 7, 0, 1), (64, 100, 0, 64)]


def tall_update_floats(m, n, offset, width):
    """Chunks of 256 rows and their sum: a row for each reflector, in whole sets, and one more; V's columns and C's."""
    side = 32 if width <= 32 else 64
    return (-(-(m - offset) // 256) + 1) * (side + 1) * (side + 32 * -(-(n - offset - width) // 32))


def call_tall_update(h, tau, offset, src=None, *, aliased=True, workspace=None):
    if workspace is None:
        workspace = tall_update_floats(*h.shape[1:], offset, tau.shape[1])
    results = [jax.ShapeDtypeStruct(shape, np.float32) for shape in (h.shape, (len(h), workspace))]
    call = jax.ffi.ffi_call("jaxqr_tall_update", results, input_output_aliases={0: 0} if aliased else None)
    operands = (h, tau) if src is None else (h, tau, src)
    return np.array(call(*operands, offset=np.int64(offset), has_src=src is not None)[0])


@pytest.mark.parametrize(("m", "n", "offset", "width"), TALL_UPDATES)
@pytest.mark.parametrize("apart", [False, True])
def test_tall_update_is_the_block_reflector(m, n, offset, width, apart):
    """Of the reflectors below the diagonal, whatever lies on and above it; nothing else is touched."""
    h, tau, t = call_panel(normal(2, m, n), offset, width)
    first, src = offset + width, normal(2, m, n, seed=1) if apart else None
    expected = call_block_reflector(h, t, offset, width, first, n, src)
    block(h, offset, width)[:, np.triu(np.ones((m - offset, width), bool))] = np.nan
    found = call_tall_update(h, tau, offset, src)
    np.testing.assert_allclose(found[:, offset:, first:], expected[:, offset:, first:], atol=20 * EPS * np.sqrt(m))
    outside = np.ones((m, n), bool)
    outside[offset:, first:] = False
    assert np.array_equal(bits(found[:, outside]), bits(h[:, outside]))
    assert np.array_equal(bits(call_tall_update(h, tau, offset, src, aliased=False)), bits(found))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_tall_update_contains_nan_in_its_column(bad):
    h, tau, _ = call_panel(normal(2, 300, 12), 0, 4)
    clean = call_tall_update(h, tau, 0)
    h[1, 270, 9] = bad
    out = call_tall_update(h, tau, 0)
    others = np.arange(12) != 9
    assert np.array_equal(bits(out[0]), bits(clean[0]))
    assert np.array_equal(bits(out[1][:, others]), bits(clean[1][:, others]))
    assert not np.isfinite(out[1, :, 9]).any()
    h[1, 5, 2] = np.nan
    out = call_tall_update(h, tau, 0)
    assert np.isnan(out[1, 2:, 4:]).all()
    assert np.array_equal(bits(out[0]), bits(clean[0]))


@pytest.mark.parametrize(
    ("offset", "width", "options", "numbers"),
    [
        (-1, 2, {}, r"offset = -1 and width = 2 do not fit \[2,8,6\]"),
        (5, 2, {}, r"offset = 5 and width = 2 do not fit \[2,8,6\]: .* <= 6"),
        (0, 2, {"workspace": 4223}, r"the workspace is \[2,4223\], expected \[2,4224\]"),
        (0, 2, {"src": np.zeros((2, 8, 5), np.float32)}, r"src is \[2,8,5\], expected \[2,8,6\]"),
    ],
)
def test_tall_update_errors_carry_the_numbers(offset, width, options, numbers):
    with pytest.raises(jax.errors.JaxRuntimeError, match=numbers):
        call_tall_update(normal(2, 8, 6), normal(2, width), offset, **options)


# ---- reflectors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "offset", "width"), PANELS)
def test_reflectors_are_the_panels(m, n, offset, width):
    """From H and tau alone, whatever lies on and above the diagonal."""
    h, tau_of_panel, t, halves = call_panel_with_halves(normal(2, m, n), offset, width)
    h[:, np.triu(np.ones((m, n), bool))] = np.nan
    tau = np.full((2, min(m, n)), np.nan, np.float32)
    tau[:, offset : offset + width] = tau_of_panel
    ((found_t, found_halves),) = call_reflectors(h, tau, offset, [width])
    assert np.array_equal(bits(found_t), bits(t))
    assert np.array_equal(found_halves.view(np.uint16), halves.view(np.uint16))
    ((found_t, _),) = call_reflectors(h, tau_of_panel, offset, [width], first=offset)
    assert np.array_equal(bits(found_t), bits(t))


def test_reflectors_of_several_blocks_are_those_of_each():
    h, tau, _ = call_panel(normal(2, 40, 30), 0, 30)
    together = call_reflectors(h, tau, 3, [9, 16, 1])
    for offset, width, block_of_them in zip((3, 12, 28), (9, 16, 1), together, strict=True):
        ((t, halves),) = call_reflectors(h, tau, offset, [width])
        assert np.array_equal(bits(block_of_them[0]), bits(t))
        assert np.array_equal(block_of_them[1].view(np.uint16), halves.view(np.uint16))


def test_reflectors_beyond_the_range_of_halves_are_scaled():
    """Any v and tau = 2/‖v‖² are a reflection: a power of two goes from V to T."""
    exponents = np.array([0, 1, 5, 40, -40, 0])
    h = np.tril(normal(2, 20, 6) * np.exp2(exponents), -1).astype(np.float32)
    tau = (2 / (1 + np.sum(h.astype(np.float64) ** 2, axis=1))).astype(np.float32)
    ((t, halves),) = call_reflectors(h, tau, 0, [6])
    v = halves.astype(np.float64).sum(axis=2)[..., :6] / 2.0**14
    assert (abs(v) < 2).all()
    for b in range(2):
        expected = product_of_reflectors(unit_lower(h[b]), tau[b].astype(np.float64))
        np.testing.assert_allclose(np.eye(20) - v[b] @ t[b] @ v[b].T, expected, atol=100 * EPS)
    identity = np.broadcast_to(np.eye(20, dtype=np.float32), (2, 20, 20))
    q = call_block_reflector(identity, t, 0, 6, 0, 20, halves=halves, transpose=False)
    np.testing.assert_allclose(q, np.eye(20) - v @ t @ v.mT, atol=10 * EPS)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_reflectors_contain_nan_in_their_matrix(bad):
    h, tau, _ = call_panel(normal(2, 16, 6), 0, 6)
    ((clean, _),) = call_reflectors(h, tau, 0, [6])
    h[1, 7, 2] = bad
    ((t, halves),) = call_reflectors(h, tau, 0, [6])
    assert np.array_equal(bits(t[0]), bits(clean[0]))
    assert not np.isfinite(t[1]).all()
    assert not np.isfinite(halves[1, 7, :, 2]).all()
    assert np.isfinite(halves[0]).all()


@pytest.mark.parametrize(
    ("arguments", "shapes", "numbers"),
    [
        ((-1, [2]), None, r"offset = -1 and width = 2 do not fit \[2,8,6\]"),
        ((5, [2]), None, r"offset = 5 and width = 2 do not fit \[2,8,6\]"),
        ((3, [2]), None, r"offset = 3 and width = 2 do not fit tau \[2,4\] of the columns from 0 on"),
        ((0, [2, 3]), None, r"offset = 2 and width = 3 do not fit tau"),
        ((0, [2]), [(2, 2, 3), (2, 8, 2, 8)], r"t is \[2,2,3\], expected \[2,2,2\]"),
        ((0, [2]), [(2, 2, 2), (2, 7, 2, 8)], r"halves is \[2,7,2,8\], expected \[2,8,2,8\]"),
    ],
)
def test_reflectors_errors_carry_the_numbers(arguments, shapes, numbers):
    with pytest.raises(jax.errors.JaxRuntimeError, match=numbers):
        call_reflectors(normal(2, 8, 6), normal(2, 4), *arguments, shapes=shapes)


# ---- block reflector -------------------------------------------------------------------------------------------------

# (m, n, offset, width, first, last)
UPDATES = [
    (6, 6, 0, 2, 2, 6),
    (40, 24, 0, 8, 8, 24),
    (40, 24, 8, 8, 16, 24),
    (40, 24, 8, 8, 18, 21),
    (40, 24, 8, 8, 24, 24),
    (12, 30, 4, 8, 12, 30),
    (130, 70, 33, 31, 64, 70),
]


def updated(h, t, c, offset, width):
    """C − V Tᵀ Vᵀ C in float64 of one matrix; rows from ``offset`` on."""
    v = unit_lower(block(h, offset, width))
    c = c[offset:].astype(np.float64)
    return c - v @ (t.astype(np.float64).T @ (v.T @ c))


@pytest.mark.parametrize(("m", "n", "offset", "width", "first", "last"), UPDATES)
@pytest.mark.parametrize("apart", [False, True])
def test_block_reflector_updates_its_columns_and_nothing_else(m, n, offset, width, first, last, apart):
    h, _, t = call_panel(normal(2, m, n), offset, width)
    src = normal(2, m, n, seed=1) if apart else None
    out = call_block_reflector(h, t, offset, width, first, last, src)
    for b in range(2):
        c = (h if src is None else src)[b, :, first:last]
        expected = updated(h[b], t[b], c, offset, width)
        np.testing.assert_allclose(out[b, offset:, first:last], expected, atol=20 * EPS * np.sqrt(m), rtol=0)
    outside = np.ones((m, n), bool)
    outside[offset:, first:last] = False
    assert np.array_equal(bits(out[:, outside]), bits(h[:, outside]))


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize(("columns", "first", "last"), [(3, 0, 3), (30, 0, 30), (30, 5, 21)])
def test_block_reflector_of_other_columns(columns, first, last, transpose):
    """C need not lie beside its reflectors, and T may be taken as it is."""
    h, _, t, halves = call_panel_with_halves(normal(2, 40, 24), 4, 17)
    c = normal(2, 40, columns, seed=1)
    out = call_block_reflector(c, t, 4, 17, first, last, halves=halves, transpose=transpose)
    for b in range(2):
        expected = updated(h[b], t[b] if transpose else t[b].T, c[b, :, first:last], 4, 17)
        np.testing.assert_allclose(out[b, 4:, first:last], expected, atol=20 * EPS * np.sqrt(40), rtol=0)
    outside = np.ones(c.shape[1:], bool)
    outside[4:, first:last] = False
    assert np.array_equal(bits(out[:, outside]), bits(c[:, outside]))


@pytest.mark.parametrize("known", [1, 17, 25, 26, 40])
def test_block_reflector_of_columns_that_are_in_part_the_identity(known):
    """What is known is not read, and without anything else no matrices are needed."""
    *_, t, halves = call_panel_with_halves(normal(2, 40, 24), 4, 17)
    c = normal(2, 40, 30, seed=1)
    rows, columns = np.indices((36, 25))
    from_identity = np.minimum(rows, columns) < known
    c[:, 4:, 5:] = np.where(from_identity, rows == columns, c[:, 4:, 5:])
    expected = call_block_reflector(c, t, 4, 17, 5, 30, halves=halves, transpose=False)
    scales = np.ones((2, 30), np.float32)
    if known < 25:
        c[:, 4:, 5:][:, from_identity] = np.nan
        found = call_block_reflector(c, t, 4, 17, 5, 30, halves=halves, transpose=False, known=known)
        assert np.array_equal(bits(found), bits(expected))
    else:
        options = {"aliased": False, "halves": halves, "transpose": False, "known": known, "shape": c.shape}
        found = call_block_reflector(np.zeros((2, 0, 0), np.float32), t, 4, 17, 5, 30, scales=scales, **options)
        assert np.array_equal(bits(found[:, 4:, 5:]), bits(expected[:, 4:, 5:]))


def test_block_reflector_refuses_what_is_known_and_given():
    h, t = normal(2, 8, 6), normal(2, 2, 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match="known = -1, expected 0"):
        call_block_reflector(h, t, 0, 2, 2, 6, known=-1)
    with pytest.raises(jax.errors.JaxRuntimeError, match="known = 2, expected 0 or, of matrices without a src"):
        call_block_reflector(h, t, 0, 2, 2, 6, h, known=2)
    options = {"aliased": False, "halves": halves_of(h, 0, 2), "shape": h.shape}
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"h is \[2,0,0\], and known = 3 is not all"):
        call_block_reflector(h[:, :0, :0], t, 0, 2, 2, 6, known=3, **options)


def test_panel_and_update_are_the_wider_panel():
    a = normal(2, 30, 20)
    whole, whole_tau, _ = call_panel(a, 0, 20)
    h, first_tau, t = call_panel(a, 0, 12, in_place=False)
    h = call_block_reflector(h, t, 0, 12, 12, 20, a)
    h, second_tau, _ = call_panel(h, 12, 8)
    np.testing.assert_allclose(h, whole, atol=100 * EPS)
    np.testing.assert_allclose(np.concatenate([first_tau, second_tau], axis=1), whole_tau, atol=50 * EPS)


def test_block_reflector_at_the_ends_of_the_range():
    """Every column has a scale of its own, from denormals to the largest powers of two."""
    m, width = 30, 6
    exponents = np.array([-149, -140, -126, -60, 0, 60, 100, 124])
    n = width + len(exponents)
    a = np.random.default_rng(3).uniform(-1, 1, (1, m, n)).astype(np.float32)
    a[..., width:] = np.ldexp(a[..., width:].astype(np.float64), exponents).astype(np.float32)
    h, _, t = call_panel(a, 0, width)
    out = call_block_reflector(h, t, 0, width, width, n)[0, :, width:]
    c = a[0, :, width:]
    assert np.all(np.isfinite(out))
    error = np.abs(out - updated(h[0], t[0], c, 0, width)).max(axis=0)
    assert np.all(error <= 4 * EPS * np.linalg.norm(c.astype(np.float64), axis=0) + TINY)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_block_reflector_contains_nan_in_its_column(bad):
    h, _, t = call_panel(normal(2, 16, 12), 0, 4)
    clean = call_block_reflector(h, t, 0, 4, 4, 12)
    h[1, 7, 9] = bad
    out = call_block_reflector(h, t, 0, 4, 4, 12)
    others = np.arange(12) != 9
    assert np.array_equal(bits(out[0]), bits(clean[0]))
    assert np.array_equal(bits(out[1][:, others]), bits(clean[1][:, others]))
    assert not np.isfinite(out[1, :, 9]).any()


def test_block_reflector_spreads_nan_of_the_panel():
    h, _, t = call_panel(normal(2, 16, 12), 0, 4)
    h[1, 5, 2] = np.nan
    out = call_block_reflector(h, t, 0, 4, 4, 12)
    assert np.isnan(out[1, 2:, 4:]).all()
    assert np.isfinite(out[0]).all()


@pytest.mark.parametrize(
    ("attributes", "numbers"),
    [
        ((-1, 2, 2, 6), r"offset = -1 and width = 2 do not fit \[2,8,6\]"),
        ((7, 2, 6, 6), r"offset = 7 and width = 2 do not fit \[2,8,6\]: .* <= 8"),
        ((0, 2, -1, 6), r"first = -1 and last = 6 do not fit: 0 <= first <= last <= n = 6"),
        ((0, 2, 4, 3), r"first = 4 and last = 3"),
        ((0, 2, 2, 7), r"first = 2 and last = 7"),
        ((0, 3, 3, 6), r"t is \[2,2,2\], expected \[2,3,3\]"),
    ],
)
def test_block_reflector_errors_carry_the_numbers(attributes, numbers):
    h, t = normal(2, 8, 6), normal(2, 2, 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match=numbers):
        call_block_reflector(h, t, *attributes)


def test_scales_of_one_update_serve_the_next():
    a = normal(2, 30, 20)
    h, _, t = call_panel(a, 0, 8)
    h, scales = call_block_reflector_with_scales(h, t, 0, 8, 8, 20)
    mantissa, _ = np.frexp(scales[:, 8:])
    assert (mantissa == 0.5).all()  # powers of two
    h, _, t = call_panel(h, 8, 8)
    found, kept = call_block_reflector_with_scales(h, t, 8, 8, 16, 20, scales=scales)
    assert np.array_equal(bits(kept[:, 16:]), bits(scales[:, 16:]))
    for b in range(2):
        expected = updated(h[b], t[b], h[b, :, 16:], 8, 8)
        np.testing.assert_allclose(found[b, 8:, 16:], expected, atol=20 * EPS * np.sqrt(30), rtol=0)


def remade_scale(column, m):
    """Brings the largest magnitude into [1, 2), and then to where a column of m such elements may gather in one."""
    largest = np.fmax.reduce(np.abs(column), initial=0.0)
    exponent = 1 - np.frexp(largest)[1] if 0 < largest < np.inf else 0
    room = 14 - math.ceil(math.log2(m) / 2)
    return 2.0 ** np.clip(np.clip(exponent, -126, 126) + room, -126, 126)


@pytest.mark.parametrize(("m", "n", "offset", "width", "first", "last"), [(30, 20, 0, 8, 8, 20), (70, 33, 5, 9, 3, 31)])
@pytest.mark.parametrize("aliased", [True, False])
def test_scales_made_again(m, n, offset, width, first, last, aliased):
    """Of the updated columns, from what was written; the others keep theirs."""
    h, _, t = call_panel(normal(2, m, n), offset, width)
    halves = halves_of(h, offset, width)
    h[:, :, first:last] *= np.exp2(np.linspace(-120, 120, last - first).round()).astype(np.float32)
    h[0, :, first] = 0
    h[1, offset + 4, first + 1] = np.nan
    given = np.exp2(np.arange(2 * n, dtype=np.float32) - n).reshape(2, n)
    for scales in (None, given):
        options = {"scales": scales, "halves": halves, "aliased": aliased}
        expected, _ = call_block_reflector_with_scales(h, t, offset, width, first, last, **options)
        found, made = call_block_reflector_with_scales(h, t, offset, width, first, last, **options, remake=True)
        np.testing.assert_array_equal(found, expected)
        for b, j in np.ndindex(2, n):
            if first <= j < last:
                assert made[b, j] == remade_scale(found[b, offset:, j], m)
            elif scales is not None:
                assert made[b, j] == given[b, j]


def test_block_reflector_refuses_other_shapes_of_halves_and_scales():
    h, t = normal(2, 8, 6), normal(2, 2, 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"halves is \[2,7,2,8\], expected \[2,8,2,8\]"):
        call_block_reflector(h, t, 0, 2, 2, 6, halves=halves_of(h, 1, 2))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"scales is \[2,5\], expected \[2,6\]"):
        call_block_reflector(h, t, 0, 2, 2, 6, scales=normal(2, 5), aliased=False)


def test_block_reflector_refuses_another_source_shape():
    h, t = normal(2, 8, 6), normal(2, 2, 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"src is \[2,8,5\], expected \[2,8,6\]"):
        call_block_reflector(h, t, 0, 2, 2, 6, normal(2, 8, 5))


def test_a_result_of_its_own_is_as_good_as_an_alias():
    """XLA may hand over a result apart from the operand that it is aliased to, as in a scan that stacks results."""
    a, t = normal(2, 8, 6), np.triu(normal(2, 2, 2))
    for offset in (0, 3):
        aliased, apart = (call_panel(a, offset, 2, aliased=aliased) for aliased in (True, False))
        for x, y in zip(aliased, apart, strict=True):
            np.testing.assert_array_equal(x, y)
    for src in (None, normal(2, 8, 6, seed=1)):
        aliased, apart = (call_block_reflector(a, t, 1, 2, 4, 6, src, aliased=aliased) for aliased in (True, False))
        np.testing.assert_array_equal(aliased, apart)


# ---- module ----------------------------------------------------------------------------------------------------------


def test_module_says_what_it_contains():
    registrations = _native.registrations()
    assert set(registrations) - {"CUDA"} == {"cpu"}
    for handlers in registrations.values():
        assert set(handlers) == {
            "jaxqr_panel",
            "jaxqr_leaves",
            "jaxqr_lift",
            "jaxqr_tall_update",
            "jaxqr_reflectors",
            "jaxqr_block_reflector",
            "jaxqr_look_ahead",
            "jaxqr_steps",
        }
    assert bool(_native.cuda_architectures()) == ("CUDA" in registrations)
    kernels = _native.kernels()
    assert {regime: {len(row) for row in rows} for regime, rows in kernels.items()} == {
        "narrow": {3},
        "tiny": {5},
        "wide": {2},
        "cta": {3},
        "cluster": {3},
    }
    for rows in kernels.values():
        assert len(set(rows)) == len(rows) > 0
        assert min(min(row) for row in rows) >= 1


@pytest.mark.parametrize(
    ("m", "n", "offset", "width", "next_width"),
    [(8, 8, 0, 4, 4), (40, 24, 8, 8, 5), (12, 30, 4, 3, 5), (130, 70, 33, 31, 6), (9, 9, 0, 8, 1)],
)
@pytest.mark.parametrize("with_t", [True, False])
@pytest.mark.parametrize("from_source", [True, False])
def test_look_ahead_is_the_update_and_the_next_panel(m, n, offset, width, next_width, with_t, from_source):
    h, _, t = call_panel(normal(3, m, n), offset, width)
    src = normal(3, m, n, seed=1) if from_source else None
    scales = None if from_source else np.ones((3, n), np.float32)
    first = offset + width
    updated, made = call_block_reflector_with_scales(h, t, offset, width, first, n, src, scales)
    panel = call_panel_with_halves(updated, first, next_width, with_t=with_t)
    # More early matrices than there are: a plan may be for a larger batch.
    found = call_look_ahead(h, t, offset, width, next_width, src, scales, early=4, with_t=with_t)
    for x, expected in zip(found, (panel[0], made, *panel[1:]), strict=True):
        assert np.array_equal(x.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize(
    ("arguments", "shapes", "message"),
    [
        ((0, 2, 5), None, r"the next panel: offset = 2 and width = 5 do not fit \[2,8,6\]"),
        ((0, 6, 0), None, r"the next panel: offset = 6 and width = 0 do not fit \[2,8,6\]"),
        (
            (0, 2, 2),
            [(2, 8, 5), (2, 6), (2, 2), (2, 2, 2), (2, 6, 2, 8)],
            r"the result is \[2,8,5\], expected \[2,8,6\]",
        ),
        ((0, 2, 2), [(2, 8, 6), (2, 5), (2, 2), (2, 2, 2), (2, 6, 2, 8)], r"the resulting scales is \[2,5\]"),
        ((0, 2, 2), [(2, 8, 6), (2, 6), (1, 2), (2, 2, 2), (2, 6, 2, 8)], r"tau is \[1,2\], expected \[2,2\]"),
        ((0, 2, 2), [(2, 8, 6), (2, 6), (2, 2), (2, 2, 3), (2, 6, 2, 8)], r"t is \[2,2,3\], expected \[2,2,2\]"),
        (
            (0, 2, 2),
            [(2, 8, 6), (2, 6), (2, 2), (2, 2, 2), (2, 8, 2, 8)],
            r"halves is \[2,8,2,8\], expected \[2,6,2,8\]",
        ),
    ],
)
def test_look_ahead_errors_name_the_numbers(arguments, shapes, message):
    h, width = normal(2, 8, 6), arguments[1]
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        call_look_ahead(h, np.zeros((2, width, width), np.float32), *arguments, shapes=shapes)


def test_look_ahead_refuses_a_negative_number_of_matrices():
    with pytest.raises(jax.errors.JaxRuntimeError, match="early = -1, expected at least 0"):
        call_look_ahead(normal(2, 8, 6), np.zeros((2, 2, 2), np.float32), 0, 2, 2, early=-1)


def call_steps(a, widths, shapes, *, in_place=False, keep=True, in_halves=False, **flags):
    """The results of these shapes, of float16 if they have four dimensions. `flags` of steps are none by default."""
    results = [jax.ShapeDtypeStruct(shape, np.float16 if len(shape) == 4 else np.float32) for shape in shapes]
    call = jax.ffi.ffi_call("jaxqr_steps", results, input_output_aliases={0: 0} if in_place else None)
    attributes = {"kernels": "", "in_halves": in_halves, "in_place": in_place, "keep": keep}
    spans = {"widths": widths, **{name: [0] * len(widths) for name in ("pairs", "look_ahead", "early")}, **flags}
    attributes |= {name: np.array(values, np.int64) for name, values in spans.items()}
    return tuple(map(np.array, call(a, **attributes)))


STEPS = [
    (40, 24, [8, 16], {}),
    (24, 24, [8, 11, 5], {}),
    (24, 24, [8, 11, 5], {"in_halves": True}),
    (24, 24, [8, 11, 5], {"pairs": [1, 0, 0]}),
    (12, 30, [4, 3, 5], {}),
    (12, 30, [4, 3, 5], {"pairs": [0, 1, 0], "in_halves": True}),
    (12, 30, [4, 3, 5], {"look_ahead": [1, 0, 0], "early": [2, 0, 0], "pairs": [0, 1, 0]}),
    (9, 9, [9], {}),
    (130, 70, [33, 31, 6], {"pairs": [1, 0, 0], "look_ahead": [0, 1, 0]}),
    (30, 30, [6] * 5, {"pairs": [1, 0, 1, 0, 0], "look_ahead": [0, 1, 0, 1, 0]}),
]


@pytest.mark.parametrize(("m", "n", "widths", "flags"), STEPS)
@pytest.mark.parametrize("in_place", [True, False])
def test_steps_are_panels_and_updates(m, n, widths, flags, in_place):
    batch, a = 3, normal(3, m, n)
    h, taus, blocks = a, [], []
    for i, width in enumerate(widths):
        offset = sum(widths[:i])
        first, before = offset + width, h
        h, tau, t, halves = call_panel_with_halves(h, offset, width, with_t=first < n, in_place=i > 0)
        taus.append(tau)
        if first < n:
            blocks.append((t, halves))
            h = call_block_reflector(h, t, offset, width, first, n, before if i == 0 else None, halves=halves)
    slots, couplings = step_slots(*(any(flags.get(name, ())) for name in ("pairs", "look_ahead")))
    of_one = [(batch, m, n), (batch, n), (couplings, batch, 5), *((batch, width) for width in widths)]
    shapes = [*of_one, *(x.shape for block in blocks for x in block)]
    found = call_steps(a, widths, shapes, in_place=in_place, **flags)
    expected = h, *found[1:3], *taus, *(x for block in blocks for x in block)
    for x, y in zip(found, expected, strict=True):
        assert np.array_equal(x.view(np.uint8), y.view(np.uint8))
    widest = max(t.shape[1] for t, _ in blocks) if blocks else 0
    shared = [(batch, widest, widest), (batch, m, 2, pitch(widest))] * slots if blocks else []
    found = call_steps(a, widths, of_one + shared, in_place=in_place, keep=False, **flags)
    for i, (x, y) in enumerate(zip(found[: len(of_one)], expected[: len(of_one)], strict=True)):
        assert i in (1, 2) or np.array_equal(x.view(np.uint8), y.view(np.uint8))


@pytest.mark.parametrize(
    ("widths", "shapes", "message"),
    [
        ([4, 3], {}, r"offset = 4 and width = 3 do not fit \[2,8,6\]"),
        ([4, 0, 2], {}, r"offset = 4 and width = 0 do not fit"),
        ([4], {}, r"steps of 4 columns with 4 results, expected 6 columns with 3"),
        ([2, 2, 2], {}, r"steps of 6 columns with 4 results, expected 6 columns with 7"),
        ([4, 2], {0: (2, 8, 5)}, r"h is \[2,8,5\], expected \[2,8,6\]"),
        ([4, 2], {1: (2, 8)}, r"scales is \[2,8\], expected \[2,6\]"),
        ([4, 2], {2: (1, 2, 5)}, r"couplings is \[1,2,5\], expected \[0,2,5\]"),
        ([4, 2], {2: (0, 1, 5)}, r"couplings is \[0,1,5\], expected \[0,2,5\]"),
        ([4, 2], {4: (2, 3)}, r"tau is \[2,3\], expected \[2,2\]"),
        ([4, 2], {5: (2, 4, 3)}, r"t is \[2,4,3\], expected \[2,4,4\]"),
        ([4, 2], {6: (2, 7, 2, 8)}, r"halves is \[2,7,2,8\], expected \[2,8,2,8\]"),
    ],
)
@pytest.mark.parametrize("keep", [True, False])
def test_steps_errors_name_the_numbers(widths, shapes, message, keep):
    right = [(2, 8, 6), (2, 6), (0, 2, 5), (2, 4), (2, 2), (2, 4, 4), (2, 8, 2, 8)]
    if "results" in message and not keep:
        pytest.skip("there are other numbers of results")
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        call_steps(normal(2, 8, 6), widths, [shapes.get(i, shape) for i, shape in enumerate(right)], keep=keep)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"pairs": [0, 0]}, r"pairs is of 2 steps, expected 3"),
        ({"look_ahead": [0] * 4}, r"look_ahead is of 4 steps, expected 3"),
        ({"early": []}, r"early is of 0 steps, expected 3"),
        ({"pairs": [0, 0, 1]}, r"step 2 pairs, expected a next step that does not, with columns right of it"),
        ({"pairs": [1, 1, 0]}, r"step 0 pairs, expected a next step that does not"),
        ({"pairs": [0, 1, 0]}, r"step 1 pairs, .* with columns right of it"),
        ({"look_ahead": [0, 0, 1]}, r"step 2 looks ahead, expected a next step, no pair with that, and no halves"),
        ({"pairs": [1, 0, 0], "look_ahead": [1, 0, 0]}, r"step 0 looks ahead, .* no pair"),
        ({"look_ahead": [1, 0, 0], "in_halves": True}, r"step 0 looks ahead, .* and no halves"),
        ({"early": [0, -1, 0]}, r"step 1 has early = -1, expected at least 0"),
        ({"pairs": [1, 0, 0]}, r"couplings is \[0,2,5\], expected \[1,2,5\]"),
        ({"pairs": [1, 0, 0], "keep": False}, r"with 5 results, expected 6 columns with 7"),
        ({"look_ahead": [1, 0, 0], "keep": False}, r"with 5 results, expected 6 columns with 7"),
        ({"pairs": [1, 0, 0], "look_ahead": [0, 1, 0], "keep": False}, r"with 5 results, expected 6 columns with 11"),
    ],
)
def test_steps_errors_name_the_steps(flags, message):
    blocks = [(2, 2, 2), (2, 8, 2, 8)] + ([(2, 2, 2), (2, 6, 2, 8)] if flags.get("keep", True) else [])
    shapes = [(2, 8, 6), (2, 6), (0, 2, 5), *[(2, 2)] * 3, *blocks]
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        call_steps(normal(2, 8, 6), [2, 2, 2], shapes, **flags)
