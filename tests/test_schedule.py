"""Schedules cover the matrix, fit the device, keep the workspace small, and are what the driver runs."""

import functools
import itertools
import re
import time
from dataclasses import FrozenInstanceError, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from jaxqr import Schedule, Step, _blocked, _native, schedule_for
from jaxqr import schedule as planning
from tests import drivers

KIB = 1024
SHARED_BYTES = {"H200": 227 * KIB, "A100": 163 * KIB, "L4": 99 * KIB}
# Of the narrowest panels, which no kernel but a tall panel's holds beyond.
MAX_ROWS = {"H200": 8192, "A100": 1024, "L4": 1024}
SIDES = (1, 2, 7, 8, 9, 32, 33, 65, 176, 352, 777, 1024, 2048)
MAX_BLOCK_ROWS = max(32 * rows for _, rows, _ in _native.kernels()["cta"])
MAX_CLUSTER_ROWS = max(8 * 32 * rows for rows, _, _ in _native.kernels()["cluster"])


def max_warps_of(variant: tuple[int, ...]) -> int:
    """Of a compiled CTA kernel."""
    [max_warps] = [warps for *numbers, warps in _native.kernels()["cta"] if tuple(numbers) == variant]
    return max_warps


def check_tall(step: Step):
    """That the leaves have all rows below the first `width`, and that kernels take them and what is above."""
    _, rows_per_lane = step.variant
    assert step.width <= 64
    units, rest = divmod(step.rows - step.width, step.width)
    height, higher = divmod(units, step.leaves)
    assert height >= 1
    assert max((height + (higher > 0)) * step.width, height * step.width + rest) <= 32 * rows_per_lane
    root = step.root
    assert (root.offset, root.width, root.rows, root.update) == (0, step.width, (1 + step.leaves) * step.width, None)
    assert root.rows < step.rows
    if root.regime == "tall":
        check_tall(root)
    else:
        assert root.variant is not None


def check(schedule: Schedule):
    m, n, offset = schedule.m, schedule.n, 0
    for step in schedule.steps:
        assert step.offset == offset
        assert step.rows == m - offset
        assert step.width >= 1
        offset += step.width
        factors_all = step.regime in ("narrow", "tiny", "wide", "loops", "jax")
        assert (step.update is None) == (offset == n or factors_all)
        if factors_all and step.regime != "jax":
            assert (step.offset, step.width, len(schedule.steps)) == (0, min(m, n), 1)
        floats_held = 0  # by a block in shared memory
        if step.regime == "narrow":
            assert step.variant in _native.kernels()["narrow"]
            assert n <= min(4, m)
            assert m <= np.prod(step.variant)
        elif step.regime == "tiny":
            assert step.variant in _native.kernels()["tiny"]
            column_lanes, cols_per_lane, row_lanes, warps, rows_per_lane = step.variant
            assert step.rows <= row_lanes * warps * rows_per_lane
            assert n <= column_lanes * cols_per_lane
        elif step.regime == "wide":
            assert step.variant in _native.kernels()["wide"]
            assert m < n
            assert step.rows <= step.variant[0]
        elif step.regime == "loops":
            assert m == 1 or n <= 2
        elif step.regime == "cta":
            cols_per_warp, rows_per_lane = step.variant
            assert step.rows <= 32 * rows_per_lane
            one_turn, columns = (
                cols_per_warp * max_warps_of(step.variant),
                cols_per_warp * -(-step.width // cols_per_warp),
            )
            assert step.width <= max(one_turn, 64)
            makes_t = step.update == "fused" and 8 < step.width <= one_turn
            places = max(one_turn, columns - one_turn) if step.width > one_turn else columns
            floats_held = 32 * rows_per_lane * places + makes_t * 64 * 64
        elif step.regime == "cluster":
            assert schedule.device_kind == "H200"
            rows_per_lane, cols_per_lane, blocks = step.variant
            [max_warps] = [v[2] for v in _native.kernels()["cluster"] if v[:2] == (rows_per_lane, cols_per_lane)]
            assert blocks in (2, 4, 8, 16)
            assert step.rows <= 32 * rows_per_lane * blocks + step.width
            assert step.width <= cols_per_lane * max_warps
            floats_held = 32 * (rows_per_lane + 1) * step.width
        elif step.regime == "tall":
            assert step.rows > MAX_ROWS[schedule.device_kind]
            check_tall(step)
        assert 4 * floats_held <= SHARED_BYTES[schedule.device_kind]
        assert step.update != "fused" or step.width <= 64
    assert offset == (min(m, n) if schedule.batch else 0)


@pytest.mark.parametrize("device_kind", SHARED_BYTES)
@pytest.mark.parametrize("precision", [None, "high"])
def test_steps_cover_the_columns_and_fit_the_device(device_kind, precision):
    for (m, n), batch in zip(itertools.product(SIDES, repeat=2), itertools.cycle((1, 40, 1000)), strict=False):
        schedule = schedule_for(m, n, batch, device_kind, precision)
        check(schedule)
        updates = {step.update for step in schedule.steps} - {None}
        assert updates <= {"fused" if precision is None else "matmul"}


@pytest.mark.parametrize("shape", [(64, 65), (32, 40), (100, 300), (512, 512), (1024, 1024), (2048, 64)], ids=str)
@pytest.mark.parametrize("batch", [1, 640])
def test_workspace_is_at_most_half_the_input(shape, batch):
    schedule = schedule_for(*shape, batch, "H200")
    assert schedule.workspace_bytes <= 4 * batch * np.prod(shape) / 2


@pytest.mark.parametrize("shape", [(70, 300), (129, 65), (128, 300), (1000, 128)], ids=str)
def test_few_reflectors_are_applied_in_narrow_blocks(shape):
    widths = [step.width for step in schedule_for(*shape, 3, "H200").steps if step.update == "fused"]
    assert widths
    assert max(widths) <= 32


@pytest.mark.parametrize("device_kind", SHARED_BYTES)
@pytest.mark.parametrize("m", [1025, 1030, 1500, 1700, 8193])
def test_workspace_of_tall_panels_is_at_most_half_the_input(device_kind, m):
    for n in (10, 33, 64, 70, 100, 300, 1024):
        assert schedule_for(m, n, 1, device_kind).workspace_bytes <= 4 * m * n / 2, n


@pytest.mark.parametrize(("device_kind", "max_rows"), [("H200", MAX_CLUSTER_ROWS), ("A100", MAX_BLOCK_ROWS)])
def test_own_panels_wherever_a_kernel_holds_the_rows(device_kind, max_rows):
    for m in (1, 100, max_rows):
        assert {"tall", "jax"}.isdisjoint(step.regime for step in schedule_for(m, 64, 10, device_kind).steps)


@pytest.mark.parametrize("device_kind", SHARED_BYTES)
@pytest.mark.parametrize("precision", [None, "high"])
def test_taller_matrices_have_tall_panels(device_kind, precision):
    for (m, n), batch in itertools.product([(9000, 20), (20000, 500), (65536, 128), (10**6, 32)], (1, 64)):
        schedule = schedule_for(m, n, batch, device_kind, precision)
        check(schedule)
        assert schedule.steps[0].regime == "tall"
        assert {step.update for step in schedule.steps} <= {"fused" if precision is None else "matmul", None}
        by_products = "matmul" in {step.update for step in schedule.steps}
        assert schedule.workspace_bytes <= (3.2 if by_products else 0.5) * 4 * batch * m * n


def test_a_tall_panel_says_how_it_is_made():
    schedule = schedule_for(10**6, 32, 1, "H200")
    [step] = schedule.steps
    assert step.root.regime == "tall"
    assert schedule.launches == step.launches == 7
    assert schedule.workspace_bytes <= 4 * schedule.m * schedule.n / 8
    row = str(schedule).splitlines()[-1]
    assert f"{step.leaves} by {'×'.join(map(str, step.variant))}, {step.root.rows} rows by tall" in row


@pytest.mark.parametrize("n", [3, 9])
def test_few_tall_columns_are_jaxs(n):
    [step] = schedule_for(20_000, n, 3, "H200").steps
    assert step == Step(0, n, 20_000, "jax", None, None)


@pytest.mark.parametrize(
    ("shape", "regimes"),
    [
        ((10000, 7, 7), {"tiny"}),
        ((20, 32, 32), {"tiny"}),
        ((1000, 40, 50), {"tiny"}),
        ((300_000, 66, 2), {"narrow"}),
        ((4000, 1900, 4), {"narrow"}),
        ((1, 8000, 1), {"narrow"}),
        ((80_000, 2, 154), {"wide"}),
        ((1000, 15, 31), {"wide"}),
        ((1, 30, 3000), {"wide"}),
        ((3, 50, 4000), {"wide"}),
        ((8000, 4, 160), {"wide"}),
        ((40, 176, 176), {"cta"}),
        ((640, 512, 512), {"cta"}),
        ((100, 1024, 32), {"cta"}),
        ((8, 2048, 2048), {"cluster"}),
        ((1, 8192, 32), {"cluster"}),
    ],
    ids=str,
)
def test_each_regime_where_it_is_made_for(shape, regimes):
    batch, m, n = shape
    assert {step.regime for step in schedule_for(m, n, batch, "H200").steps} >= regimes


@pytest.mark.parametrize(("m", "n", "batch"), [(0, 5, 3), (5, 0, 3), (0, 0, 1), (5, 5, 0)])
def test_nothing_to_do(m, n, batch):
    schedule = schedule_for(m, n, batch)
    assert schedule.steps == ()
    assert schedule.launches == schedule.workspace_bytes == 0
    assert "0 steps" in str(schedule)


def test_same_arguments_same_schedule():
    first = schedule_for(512, 512, 640, "H200")
    assert first == schedule_for(512, 512, 640, "H200")
    assert hash(first) == hash(schedule_for(512, 512, 640, "NVIDIA H200"))
    with pytest.raises(FrozenInstanceError):
        first.m = 3


def test_the_default_device_is_an_h200_where_there_is_none():
    assert schedule_for(300, 200, 5) == schedule_for(300, 200, 5, "H200")


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A10G", "A10"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
    ],
)
def test_device_kinds_as_jax_names_them(kind, model):
    assert schedule_for(8, 8, 1, kind).device_kind == model


def test_an_unknown_device():
    with pytest.raises(ValueError, match=r"device_kind='abacus' names none of H200, "):
        schedule_for(8, 8, 1, "abacus")


@pytest.mark.parametrize("sizes", [(-1, 2, 3), (1, -2, 3), (1, 2, -3)])
def test_negative_sizes(sizes):
    with pytest.raises(ValueError, match=r"at least 0, got m={}, n={}, batch={}".format(*sizes)):
        schedule_for(*sizes)


def test_an_unknown_precision():
    with pytest.raises(ValueError, match="precision='low' is not one of"):
        schedule_for(8, 8, 1, precision="low")


def test_the_table_shows_every_step():
    schedule = schedule_for(512, 300, 640, "H200")
    title, header, *rows = str(schedule).splitlines()
    assert title.startswith("640 × (512 × 300), H200")
    assert header.split() == ["step", "columns", "rows", "regime", "variant", "update"]
    assert len(rows) == len(schedule.steps)
    assert rows[-1].split()[1] == f"{schedule.steps[-1].offset}:300"
    ahead = schedule_for(512, 512, 64, "H200")
    assert str(ahead).splitlines()[2].endswith(f"fused, look-ahead, {ahead.steps[0].early} early")
    paired = drivers.with_pairs(ahead)
    rows = str(paired).splitlines()[2:]
    assert [row.endswith("fused, with the next") for row in rows] == [step.pairs for step in paired.steps]
    assert rows[1].endswith(f"fused, look-ahead, {paired.steps[1].early} early")


@pytest.mark.parametrize(
    ("regime", "variant", "width", "update", "launches"),
    [
        ("tiny", (32, 1, 1, 1, 32), 8, None, 1),
        ("cta", (4, 32), 8, None, 1),
        ("cta", (4, 32), 8, "fused", 3),
        ("cta", (4, 32), 9, "fused", 2),
        ("cta", (4, 32), 32, "fused", 2),
        ("cta", (4, 32), 33, "fused", 3),  # in turns
        ("cta", (4, 16), 33, "fused", 2),
        ("cta", (4, 32), 8, "matmul", 1),
        ("cluster", (16, 8, 4), 32, "fused", 3),
        ("cluster", (16, 8, 4), 32, None, 1),
        ("jax", None, 8, None, 0),
        ("narrow", (32, 1, 8), 4, None, 1),
        ("wide", (8, 4), 5, None, 1),
        ("wide", (64, 2), 40, None, 2),
        ("loops", None, 2, None, 0),
    ],
)
def test_launches_of_a_step(regime, variant, width, update, launches):
    """Some kernels leave T and V to another."""
    step = Step(0, width, 64, regime, variant, update)
    assert step.launches == launches
    assert Schedule(64, 16, 1, "H200", "None", (step, step)).launches == 2 * launches
    if update == "fused":
        assert replace(step, pairs=True).launches == launches + 1


@pytest.mark.parametrize("shape", [(40, 40, 8), (200, 200, 3), (70, 130, 2), (768, 768, 12)], ids=str)
@pytest.mark.parametrize("precision", [None, "highest"])
def test_the_driver_launches_what_the_schedule_says(shape, precision):
    m, n, batch = shape
    blocked = functools.partial(jaxqr.geqrf, implementation="blocked", precision=precision)
    text = jax.jit(blocked).lower(jax.ShapeDtypeStruct((batch, m, n), np.float32)).as_text()
    schedule = schedule_for(m, n, batch, precision=precision)
    if schedule.in_one_call:
        assert re.findall(r"@jaxqr_\w+", text) == ["@jaxqr_steps"]
        return
    ahead = sum(step.look_ahead for step in schedule.steps)
    assert text.count("@jaxqr_panel") == len(schedule.steps) - ahead
    assert text.count("@jaxqr_look_ahead") == ahead
    assert text.count("@jaxqr_block_reflector") == sum(step.update == "fused" for step in schedule.steps) - ahead
    for step, before in zip(schedule.steps, (None, *schedule.steps[:-1]), strict=True):
        if step.update == "fused" or before is None or not before.look_ahead:
            assert f"offset = {step.offset} : i64" in text


VARIANT = drivers.covering_variant(60, 16)


@pytest.mark.parametrize(
    "steps",
    [
        (Step(0, 16, 60, "cta", VARIANT, "fused"), Step(16, 24, 44, "jax", None, None)),
        (
            Step(0, 20, 60, "jax", None, "matmul"),
            Step(20, 16, 40, "cta", VARIANT, "fused"),
            Step(36, 4, 24, "jax", None, None),
        ),
        (
            Step(0, 16, 60, "cta", VARIANT, "matmul"),
            Step(16, 16, 44, "jax", None, "matmul"),
            Step(32, 8, 28, "cta", VARIANT, "matmul"),
        ),
        (Step(0, 40, 60, "jax", None, None),),
    ],
    ids=["fused-jax", "jax-fused-jax", "matmul", "jax"],
)
@pytest.mark.parametrize("overwrite_a", [False, True])
def test_the_driver_follows_any_schedule(steps, overwrite_a):
    a = np.random.default_rng(6).standard_normal((3, 60, 50), dtype=np.float32)
    if steps[-1].regime == "cta":
        steps = (*steps, Step(40, 10, 20, "cta", VARIANT, None))
    elif steps[-1].update is None:
        steps = (*steps[:-1], replace(steps[-1], width=50 - steps[-1].offset))
    schedule = Schedule(60, 50, 3, "by hand", "highest", steps)
    h, tau = jax.jit(
        lambda a: _blocked.factor(a, schedule, precision=jax.lax.Precision.HIGHEST, overwrite_a=overwrite_a)
    )(a)
    expected_h, expected_tau = jnp.linalg.qr(a, mode="raw")
    np.testing.assert_allclose(h, expected_h.mT, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(tau, expected_tau, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("m", "n", "width"), [(60, 50, 16), (60, 50, 20), (40, 70, 16), (50, 50, 9)])
@pytest.mark.parametrize("overwrite_a", [False, True])
def test_look_ahead_changes_nothing_on_the_cpu(m, n, width, overwrite_a):
    a = np.random.default_rng(8).standard_normal((3, m, n), dtype=np.float32)

    def factored(schedule):
        factor = functools.partial(_blocked.factor, precision=jax.lax.Precision.HIGHEST, overwrite_a=overwrite_a)
        return jax.jit(lambda a: factor(a, schedule))(a)

    plain = drivers.schedule_of_width(m, n, 3, width)
    ahead = drivers.with_look_ahead(plain)
    assert sum(step.look_ahead for step in ahead.steps) == sum(step.offset + 2 * width < n for step in plain.steps[:-1])
    for found, expected in zip(factored(ahead), factored(plain), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("shape", "looks", "early"),
    [
        ((768, 768, 12), True, False),
        ((2048, 2048, 2), True, False),
        ((512, 512, 64), True, True),
        ((1022, 1022, 60), True, True),  # quads of columns are not aligned
        ((512, 512, 640), False, False),
    ],
)
def test_look_ahead_where_the_panel_leaves_room_for_the_update(shape, looks, early):
    schedule = schedule_for(*shape, "H200")
    assert any(step.look_ahead for step in schedule.steps) == looks
    assert any(step.early for step in schedule.steps) == early
    launches = 0
    for step in schedule.steps:
        strips = -(-(schedule.n - step.offset - 128) // 64)
        assert step.early == 0 or (step.look_ahead and step.early * strips <= 132 <= (shape[2] - step.early) * strips)
        launches += replace(step, look_ahead=False, early=0).launches + step.look_ahead + (step.early > 0)
    assert schedule.launches == launches * (1 + schedule.in_halves)
    assert ("look-ahead" in str(schedule)) == looks


def look_ahead_in_pairs(schedule: Schedule) -> Schedule:
    return drivers.with_pairs(drivers.with_look_ahead(schedule))


IN_ONE_CALL = {
    "halves": functools.partial(replace, in_halves=True),
    "pairs": drivers.with_pairs,
    "pairs from the second step on": functools.partial(drivers.with_pairs, first=1),
    "pairs in halves": lambda schedule: drivers.with_pairs(replace(schedule, in_halves=True)),
    "pairs with look-ahead": look_ahead_in_pairs,
}


@pytest.mark.parametrize("width", [9, 12, 16])
@pytest.mark.parametrize(("batch", "m", "n"), [(5, 60, 50), (2, 40, 70), (1, 50, 50)])
@pytest.mark.parametrize("overwrite_a", [False, True])
@pytest.mark.parametrize("changed", IN_ONE_CALL.values(), ids=IN_ONE_CALL)
def test_one_call_changes_nothing_on_the_cpu(batch, m, n, width, overwrite_a, changed):
    a = np.random.default_rng(9).standard_normal((batch, m, n), dtype=np.float32)

    def factored(schedule):
        options = {"precision": jax.lax.Precision.HIGHEST, "overwrite_a": overwrite_a}
        h, tau, blocks = jax.jit(lambda a: _blocked.factor_and_blocks(a, schedule, **options))(a)
        for x, y in zip(jax.jit(lambda a: _blocked.factor(a, schedule, **options))(a), (h, tau), strict=True):
            np.testing.assert_array_equal(x, y)
        return h, tau, *(x for offset, block in blocks for x in (offset, *block))

    whole = drivers.schedule_of_width(m, n, batch, width)
    assert changed(whole).in_one_call
    for found, expected in zip(factored(changed(whole)), factored(whole), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("changed", IN_ONE_CALL.values(), ids=IN_ONE_CALL)
@pytest.mark.parametrize("shape", [(500, 300), (300, 500)], ids=str)
def test_one_call_has_the_workspace_that_the_schedule_says(shape, changed):
    """The compiler counts it: what the call returns beside H, and tau in parts."""
    schedule = changed(drivers.schedule_of_width(*shape, 3, 32))
    factor = functools.partial(
        _blocked.factor, schedule=schedule, precision=jax.lax.Precision.HIGHEST, overwrite_a=False
    )
    lowered = jax.jit(factor).lower(jax.ShapeDtypeStruct((3, *shape), np.float32))
    assert re.findall(r"@jaxqr_\w+", lowered.as_text()) == ["@jaxqr_steps"]
    workspace = lowered.compile().memory_analysis().temp_size_in_bytes
    assert abs(workspace - schedule.workspace_bytes) <= 2**12


@pytest.mark.parametrize(
    ("shape", "halves"),
    [
        ((512, 512, 640), True),
        ((700, 700, 300), True),
        ((300, 300, 200), True),
        ((1024, 1024, 130), True),
        ((1024, 1024, 60), False),  # panels leave multiprocessors free
        ((768, 768, 12), False),
        ((64, 64, 4096), False),  # no update
        ((129, 65, 300), False),  # too little time
        ((100000, 40, 200), False),
    ],
    ids=str,
)
def test_halves_where_panels_take_most_multiprocessors(shape, halves):
    schedule = schedule_for(*shape, "H200")
    assert schedule.in_halves == halves
    assert ("of two halves" in str(schedule)) == halves
    assert not schedule_for(*shape, "H200", "highest").in_halves
    if halves:
        m, n, batch = shape
        assert schedule.launches == 2 * sum(step.launches for step in schedule.steps)
        blocked = functools.partial(jaxqr.geqrf, implementation="blocked")
        lowered = jax.jit(blocked).lower(jax.ShapeDtypeStruct((batch, m, n), np.float32))
        assert re.findall(r"@jaxqr_\w+", lowered.as_text()) == ["@jaxqr_steps"]
        workspace = lowered.compile().memory_analysis().temp_size_in_bytes
        assert workspace <= schedule.workspace_bytes + 2**16 <= 4 * batch * m * n / 2


def groups_of(schedule: Schedule) -> list[list[Step]]:
    """Its steps, the two of a pair together."""
    groups: list[list[Step]] = []
    for step in schedule.steps:
        if groups and groups[-1][-1].pairs:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


@pytest.mark.parametrize(
    ("shape", "device_kind"),
    [
        ((8192, 8192, 1), "H200"),
        ((8192, 8192, 2), "H200"),
        ((8192, 4096, 4), "H200"),
        ((8000, 8004, 1), "H200"),
        ((4096, 4096, 8), "H100"),
    ],
    ids=str,
)
def test_pairs_where_the_updates_take_most_of_the_time(shape, device_kind):
    schedule = schedule_for(*shape, device_kind)
    groups = groups_of(schedule)
    assert [len(group) for group in groups].count(2) > 8
    launches = 0
    for group in groups:
        assert len(group) <= 2
        if len(group) == 2:
            first, second = group
            assert (first.look_ahead, first.early, second.early) == (False, 0, 0)
            assert (first.update, second.update) == ("fused", "fused")
            assert min(first.width, second.width) > 32
            assert all(x % 4 == 0 for x in (schedule.n, first.offset, second.offset, second.offset + second.width))
            launches += 1  # of what couples them
        launches += sum(replace(step, pairs=False).launches for step in group)
    assert schedule.launches == launches
    assert schedule.workspace_bytes <= 4 * np.prod(shape) / 2
    assert str(schedule).count("with the next") == [len(group) for group in groups].count(2)


@pytest.mark.parametrize(
    ("shape", "device_kind"),
    [
        ((8192, 8192, 1), "A100"),
        ((8192, 8192, 1), "B200"),
        ((8192, 8190, 1), "H200"),  # quads of columns are not aligned
        ((9000, 4096, 1), "H200"),  # tall panels
        ((8192, 64, 4), "H200"),  # no update
    ],
    ids=str,
)
def test_no_pairs_where_the_kernel_does_not_take_them(shape, device_kind):
    assert not any(step.pairs for step in schedule_for(*shape, device_kind).steps)


def test_no_pairs_of_matrix_products():
    assert not any(step.pairs for step in schedule_for(8192, 8192, 1, "H200", "highest").steps)


def cheap_pairs(monkeypatch):
    """Lets planning pair wherever it may."""
    update = planning._H200.costs.update
    update = update._replace(two=update.two._replace(**dict.fromkeys(update.two._fields, 1.0)))
    device = replace(planning._H200, costs=planning._H200.costs._replace(update=update))
    monkeypatch.setattr(planning, "_DEVICES", (device,))


def test_pairs_leave_the_workspace_within_half_the_input(monkeypatch):
    cheap_pairs(monkeypatch)
    paired = set()
    for n, ratio, batch in itertools.product((192, 256, 320, 384, 512, 768, 1024), (0.75, 1, 1.5, 4), (1, 60, 640)):
        m = int(n * ratio)
        schedule = schedule_for(m, n, batch, "H200")
        check(schedule)
        assert schedule.workspace_bytes <= 4 * batch * m * n / 2, (m, n, batch)
        looks = any(step.look_ahead for step in schedule.steps)
        paired.add((any(step.pairs for step in schedule.steps), looks, schedule.in_halves))
    assert paired >= {(True, True, False), (True, False, True), (True, False, False), (False, True, False)}


def test_early_matrices_beside_a_group(monkeypatch):
    """None where each thread block takes a multiprocessor to itself."""
    assert any(step.early for step in schedule_for(512, 512, 64, "H200").steps)
    cheap_pairs(monkeypatch)
    schedule = schedule_for(1024, 1024, 60, "H200")
    groups = groups_of(schedule)
    assert sum(len(group) == 2 for group in groups) > 2
    assert any(group[-1].look_ahead for group in groups if len(group) == 2)
    assert not any(step.early for group in groups if len(group) == 2 for step in group)


def test_planning_takes_no_noticeable_time():
    start = time.perf_counter()
    schedule_for(MAX_CLUSTER_ROWS, MAX_CLUSTER_ROWS - 1, 12_345, "H200")
    assert time.perf_counter() - start < 1
