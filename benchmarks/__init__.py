"""Benchmarks of jaxqr and its peers, gate-checked: `python -m benchmarks --help`."""
