"""What the project wants to reach on an H200 with the public default, in milliseconds a call. Data only.

A case's must is what a release has to meet, its aim what is thought possible, its floor an estimate of the hardware's
limit.
"""

from dataclasses import dataclass

DEVICE = "H200"


@dataclass(frozen=True)
class Target:
    must: float
    aim: float
    floor: float | None = None


_640X512 = Target(3.3, 2.3, 1.35)
_60X1024 = Target(2.4, 1.5, 0.75)

_FAMILY_SIZES = ("40x176", "40x352", "640x512", "60x1024", "8x2048", "2x4096")


def _family(operation: str, *musts: float) -> dict[str, Target]:
    """The aim is half of the must."""
    return {f"{operation}-{size}": Target(must, must / 2) for size, must in zip(_FAMILY_SIZES, musts, strict=True)}


CASES = {
    "contest": {
        "20x32-dense": Target(0.012, 0.007, 0.006),
        "40x176-dense": Target(0.11, 0.05, 0.022),
        "40x352-dense": Target(0.33, 0.12, 0.06),
        "640x512-dense": _640X512,
        "60x1024-dense": _60X1024,
        "8x2048-dense": Target(3.7, 1.5, 0.55),
        "2x4096-dense": Target(9.0, 3.0, 1.1),
        "640x512-mixed": _640X512,
        "60x1024-mixed": _60X1024,
        "640x512-rankdef": _640X512,
        "640x512-clustered": _640X512,
        "60x1024-nearrank": _60X1024,
    },
    "users": {
        "10000x7x7": Target(0.03, 0.012),
        "8192x16x16": Target(0.04, 0.02),
        "16384x32x32": Target(0.15, 0.06),
        "4096x64x64": Target(0.25, 0.1),
        "1000x64x16": Target(0.02, 0.012),
        "10000x256x32": Target(0.9, 0.35),
        "12x768x768": Target(1.3, 0.6),
        "48x1024x1024": Target(2.0, 1.2),
        "1x256x256": Target(0.28, 0.1),
        "1x512x512": Target(0.6, 0.25),
        "1x1024x1024": Target(1.4, 0.6),
        "1x2048x2048": Target(3.6, 1.5),
        "1x4096x4096": Target(10.0, 4.0),
        "1x8192x8192": Target(28.0, 12.0),
        "1x1000000x32": Target(1.0, 0.4),
        "1x65536x128": Target(0.6, 0.25),
    },
    "random": {},
    "family": {
        **_family("householder_product", 0.11, 0.33, 3.3, 2.4, 3.7, 9.0),
        **_family("qr", 0.22, 0.66, 6.6, 4.8, 7.4, 18.0),
        **_family("ormqr", 0.08, 0.2, 1.6, 1.0, 1.2, 2.5),
        "gradient-48x512": Target(6.0, 3.0),
        "soap-24x512": Target(3.0, 1.2),
    },
    "scaling": {},
    "schedules": {},
}

CONTEST_MEAN = Target(1.3, 0.72, 0.37)
"""Of the geometric mean of the twelve timed contest cases."""

SLOWEST_TO_DENSE = 1.10
"""The slowest class of a contest shape, relative to the dense one."""

SLOWEST_TO_JAX = 1.05
"""Any shape of any suite, relative to JAX's geqrf."""

SPEEDUP_UP_TO_1024 = 10
"""Of every contest case with n ≤ 1024, over JAX's geqrf."""

CLIFF = 1.5
"""Any point of the scaling suite, relative to the trend of its neighbours."""

CHOICE = 1.10
"""Any case of the schedules suite, relative to the best schedule that was tried."""
