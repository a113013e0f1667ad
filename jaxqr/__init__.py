"""Fast batched QR factorization for JAX."""

from jaxqr._geqrf import geqrf
from jaxqr._install import install, installed
from jaxqr._lstsq import lstsq
from jaxqr._products import householder_product, ormqr
from jaxqr._qr import qr
from jaxqr._tsqr import tsqr
from jaxqr.schedule import Schedule, Step, schedule_for

__all__ = [
    "Schedule",
    "Step",
    "geqrf",
    "householder_product",
    "install",
    "installed",
    "lstsq",
    "ormqr",
    "qr",
    "schedule_for",
    "tsqr",
]
