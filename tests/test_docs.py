"""The examples in the docstrings of what the package exports."""

import doctest
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxqr

FUNCTIONS = [name for name in jaxqr.__all__ if inspect.isfunction(getattr(jaxqr, name))]
NAMES = {"jax": jax, "jnp": jnp, "np": np, "jaxqr": jaxqr, "functools": functools}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples(name):
    function = getattr(jaxqr, name)
    tests = doctest.DocTestFinder(recurse=False).find(function, f"jaxqr.{name}", globs=dict(NAMES))
    examples = sum(len(test.examples) for test in tests)
    assert examples > 0, f"jaxqr.{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test)
    assert runner.failures == 0
