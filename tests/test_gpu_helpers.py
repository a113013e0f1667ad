"""What the GPU tests and their report stand on, as far as it can be checked without a GPU."""

import json
import types
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from jaxqr import Step
from tests import gpu_report
from tests.gpu import stress_worker, tools


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("void jaxqr::panel_kernel<4, 12, 16>(float const*, float*, long, int)", ("cta", (4, 12))),
        ("void jaxqr::panel_kernel<(int)4, (int)12, (int)16>(const float *, int)", ("cta", (4, 12))),
        ("_ZN5jaxqr12panel_kernelILi4ELi12ELi16EEEvPKfPfS3_S3_P6__halfllNS_8RowSplitEi", ("cta", (4, 12))),
        ("void jaxqr::cluster_panel_kernel<16, 4, 8>(float const*, float*)", ("cluster", (16, 4))),
        ("_ZN5jaxqr11tiny_kernelILi8ELi2ELi1ELi1ELi16EEEvPKfPfS3_", ("tiny", (8, 2, 1, 1, 16))),
        ("_ZN5jaxqr11wide_kernelILi8ELi4EEEvPKfPfS3_", ("wide", (8, 4))),
        ("_ZN5jaxqr13narrow_kernelILi2ELi32ELi8ELi8EEEvPKfPfS3_li", ("narrow", (32, 8, 8))),
    ],
)
def test_panel_kernel_is_read_from_its_name(name, kernel):
    assert tools.panel_kernel(name) == kernel
    others = ["void jaxqr::update::block_reflector_kernel<32, true, false>(float*)", "loop_add_fusion", name]
    others.append("_ZN5jaxqr17reflectors_kernelILi64EEEv")
    others.append("jaxqr::(anonymous namespace)::narrow_reflectors_kernel(jaxqr::(anonymous namespace)::Blocks)")
    others.append("void jaxqr::update::block_reflector_bulk_kernel<(int)64, (bool)1>(float *, jaxqr::update::BulkMaps)")
    others.append("void jaxqr::update::two::two_block_reflectors_kernel<(bool)0>(jaxqr::update::two::Arguments)")
    others += ["void jaxqr::(anonymous namespace)::lift_kernel<32>(float*)", "_ZN5jaxqr12stack_kernelEPKf"]
    others += [
        "void jaxqr::(anonymous namespace)::tall_project_kernel<32>(Operands)",
        "_ZN5jaxqr15tall_sum_kernelILi64",
    ]
    others.append("void jaxqr::(anonymous namespace)::tall_subtract_kernel<(int)64>(Operands)")
    expected = ["block_reflector", kernel, "reflectors", "reflectors", *["block_reflector"] * 2, "lift", "stack"]
    others.append("void jaxqr::wide_apply_kernel<(int)64, (int)2>(float const*)")
    expected += ["tall_project", "tall_sum", "tall_subtract", "wide_apply"]
    assert tools.own_kernels(others) == expected


def test_a_steps_kernel():
    assert tools.scheduled_kernel(Step(0, 32, 900, "cluster", (16, 4, 2), None)) == ("cluster", (16, 4))
    assert tools.scheduled_kernel(Step(0, 32, 90, "cta", (4, 8), None)) == ("cta", (4, 8))


def test_a_steps_kernels_in_order():
    cluster, cta, leaves = ("cluster", (16, 4)), ("cta", (4, 8)), ("cta", (4, 16))
    root = Step(0, 32, 900, "cluster", (16, 4, 2), None)
    tall = Step(0, 32, 20_000, "tall", (4, 16), "matmul", 42, root)
    assert tools.scheduled_kernels(tall) == [leaves, "stack", cluster, "lift"]
    update = ["reflectors", "block_reflector"]
    of_tall = ["tall_project", "tall_sum", "tall_subtract"]
    assert tools.scheduled_kernels(replace(tall, update="fused")) == [leaves, "stack", cluster, "lift", *of_tall]
    assert tools.scheduled_kernels(replace(root, update="fused")) == [cluster, *update]
    assert tools.scheduled_kernels(Step(0, 8, 90, "cta", (4, 8), "fused")) == [cta, *update]
    assert tools.scheduled_kernels(Step(0, 9, 90, "cta", (4, 8), "fused")) == [cta, "block_reflector"]
    ahead = replace(root, update="fused", look_ahead=True)
    assert tools.scheduled_kernels(ahead) == [cluster, *update, "block_reflector"]
    assert tools.scheduled_kernels(replace(ahead, early=2)) == [cluster, *update, *["block_reflector"] * 2]
    assert tools.scheduled_kernels(replace(root, update="fused", pairs=True)) == [cluster, *update, "block_reflector"]
    in_turns = Step(0, 64, 900, "cta", (4, 32), "fused")
    assert tools.scheduled_kernels(in_turns) == [("cta", (4, 32)), *update]
    assert tools.scheduled_kernels(Step(0, 5, 20_000, "jax", None, None)) == []
    assert tools.scheduled_kernels(Step(0, 2, 66, "loops", None, None)) == []
    assert tools.scheduled_kernels(Step(0, 20, 20, "wide", (32, 2), None)) == [("wide", (32, 2))]
    assert tools.scheduled_kernels(Step(0, 50, 50, "wide", (64, 2), None)) == [("cta", (4, 4)), "wide_apply"]


def test_results_are_put_into_poison(monkeypatch):
    """Tried again while they lie elsewhere, which takes up what is free there; an error if they always do."""
    tries: list[list[jax.Array]] = []

    class Poison:
        def __init__(self, *sizes):
            assert sizes == (12, 8)

        def covers(self, array):
            return len(tries) == 3

    def run():
        assert not any(x.is_deleted() for found in tries for x in found)
        tries.append([jnp.ones(3), jnp.ones(2), jnp.ones((0, 3))])
        return tries[-1]

    monkeypatch.setattr(tools, "Poison", Poison)
    assert tools.into_poison(run, 12, 8) is tries[2]
    monkeypatch.setattr(Poison, "covers", lambda self, array: False)
    with pytest.raises(AssertionError, match="no poison"):
        tools.into_poison(run, 12, 8)


def test_the_stress_shapes_are_of_kernels_that_wait():
    """Clusters, before fused updates and beside them too, and tall panels; more blocks than two on each of 132
    multiprocessors."""
    steps = [
        (step, shape[0])
        for shape in stress_worker.SHAPES
        for step in jaxqr.schedule_for(*shape[1:], shape[0], "H200").steps
    ]
    clusters = [(step, batch) for step, batch in steps if step.regime == "cluster"]
    assert {step.variant[2] for step, _ in clusters} >= {4, 8}
    assert max(step.variant[2] * batch for step, batch in clusters) > 2 * 2 * 132
    assert {step.update for step, _ in clusters} == {"fused", None}
    assert {step.look_ahead for step, _ in clusters} == {True, False}
    assert any(
        step.regime == "tall" and step.root.regime == "cluster" and step.leaves * batch > 500 for step, batch in steps
    )


def test_the_stress_worker_on_a_cpu(monkeypatch, capsys):
    """With small shapes and no other stream."""

    class Idle:
        launches = 100

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

    monkeypatch.setattr(stress_worker, "BusyStream", Idle)
    monkeypatch.setattr(stress_worker, "REPLAYS", 3)
    monkeypatch.setattr(stress_worker, "SHAPES", [(13, 10, 6), (12, 9, 9)])
    stress_worker.main()
    assert capsys.readouterr().out.endswith("done\n")
    runs = []

    def changes(a):
        runs.append(a)
        return a, a[..., 0] if len(runs) < 3 else a[..., 0] + 1

    monkeypatch.setattr(stress_worker, "jaxqr", types.SimpleNamespace(geqrf=changes))
    monkeypatch.setattr(jax, "jit", lambda function, **options: function)
    with pytest.raises(AssertionError, match=r"replay 0: .* are not what they were"):
        stress_worker.main()


def test_the_stress_matrices_are_mixed():
    a, finite = stress_worker.mixed(40, 12)
    np.testing.assert_array_equal(np.isfinite(a).all((1, 2)), finite)
    assert np.isnan(a).any()
    assert np.isinf(a).any()
    assert (a == 0).all((1, 2)).any()
    assert finite.sum() > 2


def test_source_hashes_are_gits(tmp_path):
    """The hash of a tree with a nested folder, as `git rev-parse HEAD:` printed it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "empty" / "__pycache__").mkdir(parents=True)
    (tmp_path / "a.py").write_text("hi\n")
    (tmp_path / "sub" / "b.py").write_text("yo\n")
    (tmp_path / "sub.py").write_text("c\n")
    (tmp_path / "native.abi3.so").write_bytes(b"\0")
    (tmp_path / "empty" / "__pycache__" / "a.pyc").write_bytes(b"\0")
    assert gpu_report.git_tree(tmp_path).hex() == "29fbb5f29dd06c6e31105ae4a19b6c586af2f151"


def test_check_of_the_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_report, "REPORT", tmp_path / "report.json")
    assert gpu_report.check() == 1
    report = {
        "sources": gpu_report.sources(),
        "device": "H",
        "jax": "0",
        "date": "d",
        "counts": {"passed": 3, "failed": 0},
    }
    gpu_report.REPORT.write_text(json.dumps(report))
    assert gpu_report.check() == 0
    assert "made from this tree" in capsys.readouterr().out
    gpu_report.REPORT.write_text(json.dumps(report | {"ended": False}))
    assert gpu_report.check() == 1
    assert "stopped before its end" in capsys.readouterr().out
    report["sources"]["ffi"] = "0" * 40
    gpu_report.REPORT.write_text(json.dumps(report))
    assert gpu_report.check() == 1
    assert "ffi changed since" in capsys.readouterr().out
