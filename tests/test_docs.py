"""The docstrings of what the package exports: their examples run, and they say what they must."""

import doctest
import functools
import inspect
import re

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


@pytest.mark.parametrize("name", ["geqrf", "qr", "householder_product", "ormqr", "lstsq", "tsqr"])
def test_shapes_dtypes_errors_and_source(name):
    function = getattr(jaxqr, name)
    doc = inspect.getdoc(function)
    arguments, results = re.split("Returns:", doc.split("Args:")[1])
    assert "[..., m, n]" in arguments
    assert re.search("float32, float64, complex64 (or|and) complex128|dtypes of `jaxqr.qr`", arguments)
    assert all(re.search(rf"\b{parameter}\b", arguments) for parameter in inspect.signature(function).parameters)
    assert "Raises:" in results
    assert re.search(r"``\?[a-z]+``|LAPACK's ``\w+``|arXiv:|, \d{4}\.", doc), "neither a routine nor a paper"
