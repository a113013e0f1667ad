"""Every test of this folder carries the mark `gpu`; without a CUDA device they are skipped."""

import jax
import pytest

from jaxqr import _targets


@pytest.fixture(scope="session", autouse=True)
def cuda_device() -> jax.Device:
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError:
        pytest.skip("no CUDA device")
    assert _targets.HAS_CUDA, "this build of jaxqr has no CUDA kernels: install it where nvcc is found"
    assert jax.default_backend() == "gpu"
    return device
