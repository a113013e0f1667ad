"""`install` and `installed` through every cache of JAX: no function keeps the rules of another context.

Here what takes the place of JAX's functions is JAX's result times 1024: so the results show, on every platform and in
every build, by which rules a program was made, and its derivatives show it too.
"""

import contextlib
import dataclasses
import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr
from jaxqr import _install

MARK = 1024.0
A = jnp.asarray(np.random.default_rng(6).standard_normal((2, 4, 3), dtype=np.float32))


def marked(call):
    def times_mark(*args, **params):
        return jax.tree.map(lambda x: MARK * x, call(*args, **params))

    return times_mark


@pytest.fixture(autouse=True, scope="module")
def marks():
    with pytest.MonkeyPatch.context() as patch:
        for primitive in _install._switched:
            patch.delattr(primitive, "bind")
        patch.setattr(_install, "_switched", [])
        calls = {"qr": jax.lax.linalg.qr_p.bind, "ormqr": jax.lax.linalg.ormqr_p.bind}
        replacements = (
            dataclasses.replace(x, function=marked(calls[x.primitive])) if x.primitive in calls else x
            for x in _install._REPLACEMENTS
        )
        patch.setattr(_install, "_REPLACEMENTS", tuple(replacements))
        yield
        for primitive in _install._switched:
            del primitive.bind
    jax.clear_caches()


def own(function) -> bool:
    """Whether the results are marked: all of them, or none."""
    results = {bool(jnp.max(jnp.abs(x)) > MARK / 8) for x in jax.tree.leaves(function(A))}
    assert len(results) == 1
    return results.pop()


def r_factor(a):
    return jnp.linalg.qr(a, mode="r")


def loss(a):
    return r_factor(a).sum()


def multiply(a):
    return jax.lax.linalg.ormqr(a, a[..., 0, :], a)


inner = jax.jit(r_factor)
PROGRAMS = {
    "eager": lambda: r_factor,
    "eager primitive": lambda: lambda a: jax.lax.linalg.qr(a)[1],
    "eager vmap": lambda: jax.vmap(r_factor),
    "eager grad": lambda: jax.grad(loss),
    "jit": lambda: jax.jit(r_factor),
    "jit of a primitive": lambda: jax.jit(multiply),
    "nested jit": lambda: jax.jit(lambda a: inner(a)),
    "jit of vmap": lambda: jax.jit(jax.vmap(r_factor)),
    "vmap of jit": lambda: jax.vmap(jax.jit(r_factor)),
    "jit of grad of jit": lambda: jax.jit(jax.grad(jax.jit(loss))),
    "jvp": lambda: jax.jit(lambda a: jax.jvp(r_factor, (a,), (a,))[1]),
    "linearize": lambda: lambda a: jax.linearize(r_factor, a)[1](a),
    "checkpoint": lambda: jax.jit(jax.grad(jax.checkpoint(loss))),
    "scan": lambda: jax.jit(lambda a: jax.lax.scan(lambda carry, a: (carry, r_factor(a)), 0, a)[1]),
    "while": lambda: jax.jit(lambda a: jax.lax.fori_loop(0, 2, lambda _, b: r_factor(a) + 0 * b, a[:, :3])),
    "cond": lambda: jax.jit(lambda a: jax.lax.cond(a[0, 0, 0] == 0, lambda a: a[:, :3], r_factor, a)),
}


@pytest.mark.parametrize("first", [False, True], ids=["first outside", "first inside"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_function_in_and_out(program, first):
    """Neither kind of rules leaks into the other, however often they change, and in either order."""
    function = PROGRAMS[program]()
    for within in (first, not first, first, not first):
        with jaxqr.installed() if within else contextlib.nullcontext():
            assert own(function) == within
    jaxqr.install()
    try:
        assert own(function)
        with jaxqr.installed(False):
            assert not own(function)
        assert own(function)
    finally:
        jaxqr.install(False)
    assert not own(function)


def test_contexts_inside_contexts():
    function = jax.jit(r_factor)
    with jaxqr.installed():
        with jaxqr.installed(False):
            with jaxqr.installed():
                assert own(function)
            assert not own(function)
        assert own(function)
    assert not own(function)


def test_an_inner_function_of_two_outer_ones():
    without, within = jax.jit(lambda a: inner(a) * 2), jax.jit(lambda a: inner(a) * 3)
    assert not own(without)
    with jaxqr.installed():
        assert own(within)
        assert own(inner)
    assert not own(inner)


def test_a_change_while_a_function_is_traced():
    @jax.jit
    def both(a):
        with jaxqr.installed():
            inside = inner(a)
        return inside, inner(a)

    for _ in range(2):
        inside, outside = both(A)
        np.testing.assert_array_equal(inside, MARK * outside)
    with jaxqr.installed():
        np.testing.assert_array_equal(*both(A))


def test_a_program_follows_the_rules_it_was_traced_under():
    outside = jax.jit(r_factor).trace(A)
    with jaxqr.installed():
        inside = jax.jit(r_factor).trace(A)
        exported = jax.export.export(jax.jit(r_factor))(A)
        assert not own(outside.lower().compile())
    assert own(inside.lower().compile())
    assert own(exported.call)


def in_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_the_context_belongs_to_its_thread():
    function = jax.jit(r_factor)
    with jaxqr.installed():
        assert own(function)
        assert not in_thread(lambda: own(function))
    assert not own(function)


def test_install_belongs_to_all_threads():
    function = jax.jit(r_factor)
    jaxqr.install()
    try:
        assert in_thread(lambda: own(function))
        with jaxqr.installed(False):
            assert in_thread(lambda: own(function))
    finally:
        jaxqr.install(False)
    assert not in_thread(lambda: own(function))


def test_threads_with_different_rules_at_a_time():
    function, barrier, wrong = jax.jit(r_factor), threading.Barrier(4, timeout=60), []

    def work(within: bool):
        for _ in range(20):
            barrier.wait()
            with jaxqr.installed(within):
                if own(function) != within:
                    wrong.append(within)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not barrier.broken


def test_an_exception_restores_the_rules():
    function = jax.jit(r_factor)
    with pytest.raises(KeyError), jaxqr.installed():
        raise KeyError
    assert not own(function)
    with pytest.raises(TypeError), jaxqr.installed():
        function(A[0, 0])
    assert not own(function)
    with jaxqr.installed():
        assert own(function)


def test_as_a_decorator():
    function = jax.jit(r_factor)
    decorated = jaxqr.installed()(functools.partial(own, function))
    assert decorated()
    assert decorated()
    assert not own(function)
