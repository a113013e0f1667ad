"""Fast batched QR factorization for JAX."""

from jaxqr._geqrf import geqrf
from jaxqr.schedule import Schedule, Step, schedule_for

__all__ = ["Schedule", "Step", "geqrf", "schedule_for"]
