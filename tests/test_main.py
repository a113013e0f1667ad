"""`python -m jaxqr`: the table, the files, the exit status, and one line for whatever cannot be used."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from jaxqr import __main__, verify


@pytest.fixture(autouse=True)
def _restore_x64():
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def run(capsys, *arguments: object) -> tuple[int, str]:
    """The exit status and everything that was printed."""
    try:
        status = __main__.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        status = stop.code
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def saved(tmp_path, a: np.ndarray):
    path = tmp_path / "a.npy"
    np.save(path, a)
    return path


def test_the_readmes_examples(capsys):
    text = (Path(__file__).parent.parent / "README.md").read_text()
    first, *others = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    # What the examples after the first take for granted; `a` is the first one's.
    square = jnp.eye(3) + 0.1
    names = {"factors": jnp.stack([square] * 4), "b": jnp.ones((8, 4, 64))}
    names |= dict.fromkeys(("factor", "transition", "noise"), square)
    for example in (first, *others):
        exec(compile(example, "README.md", "exec"), names)
    assert names["x"].shape == (8, 4, 32)
    assert jnp.isfinite(names["gradient"]).all()
    residual, difference = map(float, capsys.readouterr().out.split())
    assert 0 < residual < 1e-4
    assert difference == 0


def test_as_a_module():
    answer = subprocess.run([sys.executable, "-m", "jaxqr", "--shape", "3,8,5"], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert "jaxqr on" in answer.stdout
    assert "3×8×5" in answer.stdout


def test_shapes_table(capsys):
    status, out = run(capsys, "--shape", "6,5", "--shape", "2,3,4,9", "--shape", "0,4,4", "--shape", "3,0")
    assert status == 0
    rows = [line.split() for line in out.splitlines() if "×" in line and line[0].isdigit()]
    assert [row[0] for row in rows] == ["6×5", "2×3×4×9", "0×4×4", "3×0"]
    assert all(row[1] == "float32" and row[6] == "yes" for row in rows)
    assert all(float(row[3]) < 0.5 and float(row[4]) < 2 for row in rows)


def test_default_shapes_fit(monkeypatch, capsys):
    monkeypatch.setattr(__main__, "_CPU_SHAPES", ((2, 4, 4),))
    monkeypatch.setattr(__main__, "_GPU_SHAPES", ((2, 4, 4),))
    assert run(capsys)[0] == 0


@pytest.mark.parametrize(
    "a",
    [
        np.random.default_rng(0).standard_normal((3, 9, 5)).astype(np.float32),
        np.asfortranarray(np.random.default_rng(0).standard_normal((6, 8)).astype(">f4")),
        np.random.default_rng(0).standard_normal((2, 4, 4)),
        np.random.default_rng(0).standard_normal((4, 3)).astype(np.complex64),
        np.arange(12, dtype=np.int32).reshape(4, 3),
        np.zeros((0, 3), np.float32),
    ],
    ids=["float32", "big-endian Fortran", "float64", "complex64", "int32", "empty"],
)
def test_file(tmp_path, capsys, a):
    status, out = run(capsys, "--input", saved(tmp_path, a), "--output", tmp_path / "out")
    assert status == 0, out
    h, tau = np.load(tmp_path / "out_h.npy"), np.load(tmp_path / "out_tau.npy")
    assert h.shape == a.shape
    assert tau.shape == (*a.shape[:-2], min(a.shape[-2:]))
    assert h.dtype == tau.dtype == (np.float32 if a.dtype.kind == "i" else a.dtype.newbyteorder("="))
    assert verify.contest_gate(verify.measures(a, h, tau)).all()


def test_wrong_result_is_status_1(monkeypatch, capsys):
    right = jaxqr.geqrf

    def wrong(a):
        h, tau = right(a)
        return h.at[-1, 0, 0].multiply(1 + 1e-3), tau

    monkeypatch.setattr(jaxqr, "geqrf", wrong)
    status, out = run(capsys, "--shape", "4,8,8")
    assert status == 1
    assert "NO" in out


def unusable_files():
    nan = np.ones((2, 3, 3), np.float32)
    nan[1, 2, 0] = np.nan
    return {
        "NaN or Inf, at index [1, 2, 0]": nan,
        "float16[2, 2]": np.ones((2, 2), np.float16),
        "shape [5]": np.ones(5, np.float32),
        "Python objects": np.array([[1, None]], object),
        "not numbers": np.array([["a", "b"]]),
        "holds float128": np.ones((2, 2), np.longdouble),
    }


@pytest.mark.parametrize("message", unusable_files())
def test_unusable_array(tmp_path, capsys, message):
    path = tmp_path / "a.npy"
    np.save(path, unusable_files()[message], allow_pickle=True)
    status, out = run(capsys, "--input", path)
    assert_one_line_error(status, out, message)


def test_unusable_files(tmp_path, capsys):
    whole = saved(tmp_path, np.ones((4, 4), np.float32)).read_bytes()
    for name, content in {"text": b"1 2 3\n", "empty": b"", "truncated": whole[:-4], "header": whole[:20]}.items():
        path = tmp_path / f"{name}.npy"
        path.write_bytes(content)
        assert_one_line_error(*run(capsys, "--input", path), "cannot read")
    np.savez(tmp_path / "two.npz", np.ones(2))
    assert_one_line_error(*run(capsys, "--input", tmp_path / "two.npz"), "cannot read")
    assert_one_line_error(*run(capsys, "--input", tmp_path), "cannot read")
    assert_one_line_error(*run(capsys, "--input", tmp_path / "missing.npy"), "cannot read")
    assert_one_line_error(
        *run(capsys, "--input", tmp_path / "a.npy", "--output", tmp_path / "no" / "where"), "no folder"
    )


@pytest.mark.parametrize("shape", ["", "5", "a,b", "3,-1", "2,3.5", "4,,4"])
def test_not_a_shape(capsys, shape):
    assert_one_line_error(*run(capsys, f"--shape={shape}"), "not a shape")


def test_too_large(capsys):
    assert_one_line_error(*run(capsys, "--shape", "1000000,1000,1000"), "GiB")
    assert_one_line_error(*run(capsys, "--shape", f"{10**30},1,1"), "GiB")


def test_bad_options(tmp_path, capsys):
    assert_one_line_error(*run(capsys, "--output", "x"), "--output needs --input")
    assert_one_line_error(*run(capsys, "--input", "a.npy", "--shape", "3,3"), "not allowed with")
    assert_one_line_error(*run(capsys, "--colour"), "unrecognized")


def assert_one_line_error(status: int, out: str, message: str) -> None:
    errors = [line for line in out.splitlines() if line and not line.startswith("jaxqr on")]
    assert status == 2
    assert len(errors) == 1, out
    assert message in errors[0]
    assert errors[0].startswith("python -m jaxqr: error: ")
