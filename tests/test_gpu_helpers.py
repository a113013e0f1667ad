"""What the GPU tests and their report stand on, as far as it can be checked without a GPU."""

import json
from dataclasses import replace

import pytest

from jaxqr import Step
from tests import gpu_report
from tests.gpu import tools


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("void jaxqr::panel_kernel<8, 24, 3, 16>(float const*, float*, long, int)", ("cta", (8, 24, 3))),
        ("void jaxqr::panel_kernel<(int)8, (int)24, (int)3, (int)16>(const float *, int)", ("cta", (8, 24, 3))),
        ("_ZN5jaxqr12panel_kernelILi8ELi24ELi3ELi16EEEvPKfPfS3_S3_llii", ("cta", (8, 24, 3))),
        ("void jaxqr::cluster_panel_kernel<16, 4, 8>(float const*, float*)", ("cluster", (16, 4))),
        ("void jaxqr::rows_panel_kernel<4, 32, 8>(float const*, float*)", ("rows", (4, 32, 8))),
        ("_ZN5jaxqr11tiny_kernelILi8ELi2ELi1ELi1ELi16EEEvPKfPfS3_", ("tiny", (8, 2, 1, 1, 16))),
    ],
)
def test_panel_kernel_is_read_from_its_name(name, kernel):
    assert tools.panel_kernel(name) == kernel
    others = ["void jaxqr::(anonymous namespace)::block_reflector_kernel<32>(float*)", "loop_add_fusion", name]
    others.append("_ZN5jaxqr17reflectors_kernelILi64EEEv")
    others.append("void jaxqr::resident::resident_reflector_kernel<(int)64, (int)4>(jaxqr::resident::Arguments)")
    others += ["void jaxqr::(anonymous namespace)::lift_kernel<32>(float*)", "_ZN5jaxqr12stack_kernelEPKf"]
    expected = ["block_reflector", kernel, "reflectors", "block_reflector", "lift", "stack"]
    assert tools.own_kernels(others) == expected


def test_a_steps_kernel():
    assert tools.scheduled_kernel(Step(0, 32, 900, "cluster", (16, 4, 2), None)) == ("cluster", (16, 4))
    assert tools.scheduled_kernel(Step(0, 32, 90, "cta", (8, 16, 2), None)) == ("cta", (8, 16, 2))


def test_a_steps_kernels_in_order():
    cluster, cta, leaves = ("cluster", (16, 4)), ("cta", (8, 16, 2)), ("rows", (4, 16, 4))
    root = Step(0, 32, 900, "cluster", (16, 4, 2), None)
    tall = Step(0, 32, 20_000, "tall", (4, 16, 4), "matmul", 80, root)
    assert tools.scheduled_kernels(tall) == [leaves, "stack", cluster, "lift"]
    update = ["reflectors", "block_reflector"]
    assert tools.scheduled_kernels(replace(tall, update="fused")) == [leaves, "stack", cluster, "lift", *update]
    assert tools.scheduled_kernels(replace(root, update="fused")) == [cluster, "block_reflector"]
    assert tools.scheduled_kernels(Step(0, 32, 90, "cta", (8, 16, 2), "fused")) == [cta, *update]
    assert tools.scheduled_kernels(Step(0, 5, 20_000, "jax", None, None)) == []


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
    report["sources"]["ffi"] = "0" * 40
    gpu_report.REPORT.write_text(json.dumps(report))
    assert gpu_report.check() == 1
    assert "ffi changed since" in capsys.readouterr().out
