"""Device memory by the compiler's own account: small workspace, no copy of A, and in place when A is given away."""

import functools
import re

import jax
import numpy as np
import pytest

import jaxqr

blocked = functools.partial(jaxqr.geqrf, implementation="blocked")
SHAPES = [(8, 24, 24), (4, 130, 130), (3, 300, 200), (2, 100, 333), (512, 512), (2, 3, 130, 130)]
Q_SHAPES = [(4, 300, 300), (2, 1000, 200), (100, 200, 160)]
ALIGNMENT = 64

# The CPU compiler of jaxlib 0.10 copies an operand of an FFI call that a reshape, an update of a slice or a broadcast
# makes.
COPIES_OPERANDS = jax.__version_info__ < (0, 11)
copies_no_operands = pytest.mark.skipif(COPIES_OPERANDS, reason="jaxlib 0.10 copies some operands on a CPU")


def compiled(function, shape: tuple[int, ...], **jit_options):
    return jax.jit(function, **jit_options).lower(jax.ShapeDtypeStruct(shape, np.float32)).compile()


def q_and_r(mode: str):
    return functools.partial(jaxqr.qr, mode=mode, implementation="blocked")


def input_bytes(shape: tuple[int, ...]) -> int:
    return 4 * int(np.prod(shape))


def copies_of_a(text: str, shape: tuple[int, ...]) -> list[str]:
    """Copies in the program of anything of the size of A."""
    copies = re.findall(r"(?:= | )f32\[([\d,]+)\]\S* copy\(", text)
    return [dims for dims in copies if np.prod([int(d) for d in dims.split(",")]) >= np.prod(shape)]


def schedule_of(shape: tuple[int, ...]) -> jaxqr.Schedule:
    *batch, m, n = shape
    return jaxqr.schedule_for(m, n, int(np.prod(batch)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_workspace(shape):
    program = compiled(blocked, shape)
    memory = program.memory_analysis()
    assert memory.temp_size_in_bytes <= input_bytes(shape) / 2
    slack = ALIGNMENT * (2 * len(schedule_of(shape).steps) + 4)
    assert memory.temp_size_in_bytes <= schedule_of(shape).workspace_bytes + slack
    assert copies_of_a(program.as_text(), shape) == []


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_place_with_overwrite_a_and_donation(shape):
    if COPIES_OPERANDS and len(shape) != 3:
        pytest.skip("jaxlib 0.10 copies some operands on a CPU")
    program = compiled(functools.partial(blocked, overwrite_a=True), shape, donate_argnums=0)
    memory = program.memory_analysis()
    assert memory.alias_size_in_bytes == input_bytes(shape)
    assert memory.temp_size_in_bytes <= input_bytes(shape) / 2
    assert copies_of_a(program.as_text(), shape) == []
    calls = [line for line in program.as_text().splitlines() if 'custom_call_target="jaxqr_panel"' in line]
    assert len(calls) == len(schedule_of(shape).steps)
    assert all("output_to_operand_aliasing={{0}: (0, {})}" in call for call in calls)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_first_step_reads_a_and_every_later_one_is_in_place(shape):
    text = compiled(blocked, shape).as_text()
    calls = [line for line in text.splitlines() if 'custom_call_target="jaxqr_panel"' in line]
    aliased = ["output_to_operand_aliasing" in call for call in calls]
    assert sum(aliased) == len(calls) - 1
    [first] = [call for call in calls if "output_to_operand_aliasing" not in call]
    assert "offset = 0 : i64" in first


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", Q_SHAPES, ids=str)
def test_workspace_of_q(shape, mode):
    """V as pairs of halves, as much as its columns of the matrix, and T, 64 columns of it at most."""
    batch, _, n = shape
    workspace = compiled(q_and_r(mode), shape).memory_analysis().temp_size_in_bytes
    assert workspace <= 1.01 * (2 * input_bytes(shape) + 4 * batch * 64 * n)


@copies_no_operands
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", Q_SHAPES, ids=str)
def test_q_copies_no_a(shape, mode):
    assert copies_of_a(compiled(q_and_r(mode), shape).as_text(), shape) == []


@copies_no_operands
def test_a_mapped_and_jitted_factorization_is_in_place_too():
    shape = (2, 2, 130, 130)
    function = jax.vmap(jax.jit(jax.vmap(functools.partial(blocked, overwrite_a=True))))
    program = compiled(function, shape, donate_argnums=0)
    assert program.memory_analysis().alias_size_in_bytes == input_bytes(shape)
    assert copies_of_a(program.as_text(), shape) == []


@copies_no_operands
def test_matmul_updates_copy_no_a():
    """They need room for the trailing matrix, but never copy all of H to write a part of it."""
    shape = (2, 300, 300)
    program = compiled(functools.partial(blocked, precision="highest"), shape)
    assert copies_of_a(program.as_text(), shape) == []


def test_a_chain_of_factorizations_reuses_its_buffers():
    """In a loop, each factorization of the last one's H works in that buffer."""
    shape = (2, 130, 130)

    def chain(a):
        step = functools.partial(blocked, overwrite_a=True)
        return jax.lax.fori_loop(0, 5, lambda _, h: step(h)[0], a)

    program = compiled(chain, shape, donate_argnums=0)
    assert program.memory_analysis().temp_size_in_bytes <= input_bytes(shape)
    assert copies_of_a(program.as_text(), shape) == []
