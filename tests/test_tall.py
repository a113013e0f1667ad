"""Tall panels: row blocks, their stacked triangles and the lift give LAPACK's form, by hand and as scheduled."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxqr
from jaxqr import Schedule, Step, _blocked
from jaxqr.verify import fp32_grade, lapack_measures, measures
from tests import drivers, matrices
from tests.reference import assert_same_bits

CLASSES = tuple(matrices.CLASSES)
LEAF = (4, 8)  # the CTA kernel for leaves; the CPU has one for all


def panel_step(rows: int, width: int) -> Step:
    return Step(0, width, rows, "cta", drivers.covering_variant(1, 1), None)


def tall_step(offset: int, width: int, rows: int, update: str | None, *leaves: int) -> Step:
    """A tall panel with so many leaves a level."""
    count, *levels = leaves
    stacked = (1 + count) * width
    root = tall_step(0, width, stacked, None, *levels) if levels else panel_step(stacked, width)
    return Step(offset, width, rows, "tall", LEAF, update, count, root)


SCHEDULES = {
    "one level": (300, 24, (tall_step(0, 24, 300, None, 5),)),
    "two levels": (700, 20, (tall_step(0, 20, 700, None, 11, 4),)),
    "one leaf": (97, 32, (tall_step(0, 32, 97, None, 1),)),
    "leaves as high as wide": (240, 40, (tall_step(0, 40, 240, None, 5),)),
    "fused": (
        300,
        60,
        (
            tall_step(0, 32, 300, "fused", 4),
            tall_step(32, 16, 268, "fused", 7),
            Step(48, 12, 252, "cta", drivers.covering_variant(252, 12), None),
        ),
    ),
    "fused, wide panels": (
        520,
        150,
        (
            tall_step(0, 64, 520, "fused", 3),
            tall_step(64, 33, 456, "fused", 5),
            tall_step(97, 53, 423, None, 4),
        ),
    ),
    "matmul": (
        301,
        70,
        (
            tall_step(0, 24, 301, "matmul", 5, 2),
            Step(24, 16, 277, "jax", None, "matmul"),
            tall_step(40, 30, 261, None, 3),
        ),
    ),
    "matmul, then fused": (200, 50, (tall_step(0, 30, 200, "matmul", 3), tall_step(30, 20, 170, None, 4))),
    "wide": (130, 150, (tall_step(0, 32, 130, "fused", 2), *(
        Step(o, w, 130 - o, "cta", drivers.covering_variant(130 - o, w), "fused") for o, w in ((32, 64), (96, 34))
    ))),
}  # fmt: skip


@functools.partial(jax.jit, static_argnames=("name", "overwrite_a"))
def _factor(a, name, overwrite_a=False):
    m, n, steps = SCHEDULES[name]
    schedule = Schedule(m, n, a.shape[0], "by hand", "float32", steps)
    return _blocked.factor(a, schedule, precision=jax.lax.Precision.HIGHEST, overwrite_a=overwrite_a)


def factor(name: str, a: np.ndarray, **options) -> tuple[np.ndarray, np.ndarray]:
    h, tau = _factor(a, name, **options)
    return np.asarray(h), np.asarray(tau)


@functools.cache
def of_all_classes(name: str):
    m, n, _ = SCHEDULES[name]
    a = matrices.batch(m, n)
    h, tau = factor(name, a)
    return a, h, tau, measures(a, h, tau), lapack_measures(a)


every_schedule = pytest.mark.parametrize("name", SCHEDULES)
in_blocks = pytest.mark.parametrize("name", ["one level", "two levels", "fused, wide panels"])


@pytest.mark.parametrize("matrix", CLASSES)
@every_schedule
def test_every_class_is_fp32_grade(name, matrix):
    i = CLASSES.index(matrix)
    a, h, _, ours, theirs = of_all_classes(name)
    assert fp32_grade(ours[i], theirs[i]), f"{ours[i]}, LAPACK: {theirs[i]}"
    assert (np.triu(h[i])[:, ~a[i].any(0)] == 0).all(), "a zero column of A has a zero column of R"


@every_schedule
def test_the_form_is_lapacks(name):
    a, h, tau, *_ = of_all_classes(name)
    i = CLASSES.index("dense")
    expected_h, expected_tau = jnp.linalg.qr(a[i], mode="raw")
    np.testing.assert_allclose(h[i], expected_h.mT, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(tau[i], expected_tau, rtol=1e-4, atol=1e-5)


@every_schedule
def test_in_place_gives_the_same_bits(name):
    a, h, tau, *_ = of_all_classes(name)
    assert_same_bits(factor(name, a, overwrite_a=True), [h, tau])


@in_blocks
def test_what_is_zero_below_the_pivot_makes_no_reflector(name):
    """As in LAPACK: tau = 0, v = 0, and the diagonal entry stays, its sign too."""
    m, n, _ = SCHEDULES[name]
    a = np.triu(matrices.normal(2, m, n))
    a[0, 3, 3] = 0
    h, tau = factor(name, a)
    assert_same_bits([h, tau], [a, np.zeros_like(tau)])
    below = matrices.normal(1, m, n)
    below[:, :, 5] = 0
    h, tau = factor(name, below)
    assert tau[0, 5] == 0
    assert not h[0, :, 5].any()


@in_blocks
@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["NaN", "Inf"])
def test_bad_values_stay_in_their_matrix_and_column(name, bad):
    m, n, _ = SCHEDULES[name]
    a = matrices.normal(3, m, n)
    clean_h, clean_tau = factor(name, a)
    for row, column in ((0, 0), (m - 1, 0), (m // 2, 7), (m - 1, n - 1)):
        damaged = a.copy()
        damaged[1, row, column] = bad
        h, tau = factor(name, damaged)
        assert_same_bits([h[::2], tau[::2]], [clean_h[::2], clean_tau[::2]])
        assert_same_bits([h[1, :, :column], tau[1, :column]], [clean_h[1, :, :column], clean_tau[1, :column]])
        assert np.isnan(h[1, column:, column:]).all()
        assert np.isnan(tau[1, column:]).all()


@in_blocks
def test_powers_of_two_of_the_columns_are_not_seen(name):
    m, n, _ = SCHEDULES[name]
    a = matrices.normal(2, m, n)
    h, tau = factor(name, a)
    scale = np.exp2(np.linspace(-100, 100, n).round()).astype(np.float32)
    scaled_h, scaled_tau = factor(name, a * scale)
    assert_same_bits([np.triu(scaled_h), np.tril(scaled_h, -1), scaled_tau], [np.triu(h * scale), np.tril(h, -1), tau])


# As scheduled.

blocked = functools.partial(jaxqr.geqrf, implementation="blocked")
NAMES = ("graded_columns", "exponential", "lower_ones", "duplicate_columns")


def is_tall(m: int, n: int, batch: int) -> bool:
    return jaxqr.schedule_for(m, n, batch, "H200").steps[0].regime == "tall"


@pytest.mark.parametrize("shape", [(20000, 32), (9000, 128), (10000, 20)], ids=str)
def test_scheduled_ones_are_fp32_grade(shape):
    a = matrices.batch(*shape, NAMES)
    assert is_tall(*shape, len(a))
    h, tau = map(np.asarray, jax.jit(blocked)(a))
    ours, theirs = measures(a, h, tau), lapack_measures(a)
    assert fp32_grade(ours, theirs).all(), f"{ours}, LAPACK: {theirs}"


@pytest.mark.parametrize(("precision", "update"), [(None, "fused"), ("highest", "matmul")])
def test_own_updates_follow_tall_panels_unless_a_precision_asks_for_products(precision, update):
    a = jax.ShapeDtypeStruct((2, 9000, 80), np.float32)
    schedule = jaxqr.schedule_for(9000, 80, 2, precision=precision)
    text = jax.jit(functools.partial(blocked, precision=precision)).lower(a).as_text()
    tall = [step for step in schedule.steps if step.regime == "tall"]
    assert len(tall) == text.count("@jaxqr_lift")
    assert {step.update for step in tall} == {update, None}
    assert text.count("@jaxqr_tall_update") == sum(step.update == "fused" for step in tall)
    assert "@jaxqr_block_reflector" not in text
    assert "@jaxqr_reflectors" not in text


def test_vmap_and_sharded_batches():
    a = matrices.normal(8, 8300, 10)
    assert is_tall(8300, 10, 8)
    assert is_tall(8300, 10, 1)
    factor = jax.jit(blocked)
    expected = [np.asarray(x) for x in factor(a)]
    mapped = jax.jit(jax.vmap(jax.vmap(blocked)))(a.reshape(2, 4, 8300, 10))
    assert_same_bits([np.asarray(x).reshape(y.shape) for x, y in zip(mapped, expected, strict=True)], expected)
    mesh = jax.make_mesh((8,), ("batch",))
    alone = [factor(a[i : i + 1]) for i in range(8)]  # each device schedules what it holds
    expected = [np.concatenate(x) for x in zip(*alone, strict=True)]
    sharded_a = jax.device_put(a, jax.NamedSharding(mesh, P("batch")))
    sharded = factor(sharded_a)
    assert sharded[0].sharding.spec[0] == "batch"
    assert_same_bits([np.asarray(x) for x in sharded], expected)

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("batch"), out_specs=P("batch"))
    def by_shards(a):
        return blocked(a)

    assert_same_bits([np.asarray(x) for x in by_shards(sharded_a)], expected)


@pytest.mark.parametrize("shape", [(2, 9000, 20), (1, 9000, 80)], ids=str)
@pytest.mark.skipif(jax.__version_info__ < (0, 11), reason="jaxlib 0.10 copies some operands on a CPU")
def test_workspace(shape):
    program = jax.jit(blocked).lower(jax.ShapeDtypeStruct(shape, np.float32)).compile()
    schedule = jaxqr.schedule_for(*shape[1:], shape[0])
    assert schedule.steps[0].regime == "tall"
    temporary = program.memory_analysis().temp_size_in_bytes
    assert temporary <= min(1.1 * schedule.workspace_bytes + 4096, 3 * 4 * np.prod(shape))
    copies = re.findall(r"(?:= | )f32\[([\d,]+)\]\S* copy\(", program.as_text())
    assert all(np.prod([int(d) for d in dims.split(",")]) < np.prod(shape) for dims in copies)
