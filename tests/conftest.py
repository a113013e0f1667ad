"""Eight CPU devices for every test, and no other platform unless tests on a GPU were asked for."""

import os

import pytest

# Read when JAX starts its CPU backend, which no import does.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"


def pytest_configure(config: pytest.Config) -> None:
    if "not gpu" in config.option.markexpr:
        import jax

        jax.config.update("jax_platforms", "cpu")
