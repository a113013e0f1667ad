"""What JAX's own test suite asks, with `jaxqr.install()` active, on the GPU."""

import pytest

from tests.test_jax_suite import *  # noqa: F403 - the tests, to be collected here too

pytestmark = pytest.mark.gpu
