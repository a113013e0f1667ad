"""Precision of the trailing update's matrix products: which names there are, and what each promises.

================================================  =============================  ===========  ===============
name                                              products on a CUDA device      error bound  trailing update
================================================  =============================  ===========  ===============
``None``                                          three half-precision products  2⁻¹⁷         fused kernel
``"highest"``, ``Precision.HIGHEST``              float32                        2⁻¹⁷         matrix products
``"high"``, ``Precision.HIGH``                    three TensorFloat-32 products  2⁻¹⁷         matrix products
``"default"``, ``Precision.DEFAULT``              one TensorFloat-32 product     2⁻⁹          matrix products
``DotAlgorithmPreset.F32_F32_F32``                float32                        2⁻¹⁷         matrix products
``DotAlgorithmPreset.TF32_TF32_F32_X3``           three TensorFloat-32 products  2⁻¹⁷         matrix products
``DotAlgorithmPreset.TF32_TF32_F32``              one TensorFloat-32 product     2⁻⁹          matrix products
================================================  =============================  ===========  ===============

The bound is on ``|fl(x·y) − x·y| / (‖x‖₂·‖y‖₂)`` of every entry x·y of an update's products, for panels of up to 2048
rows and 128 columns. It covers the worst vectors, constant ones; random ones stay far below. The fused kernel splits
float32 numbers, scaled by exact powers of two, into pairs of halves; that of tall panels multiplies in float32. Panels
and the triangular factors T are float32 under every name, so Q stays orthogonal; a lower precision shows in R. One
TensorFloat-32 product fails a backward-error test of 20·n·eps on banded and row-graded matrices. On other devices every
product is float32.

The ``BF16_BF16_F32_X3``, ``_X6`` and ``_X9`` presets are refused, for they do not keep what their names say: measured
on a GPU, XLA computes the first two with one bfloat16 product's error in some programs, where it simplifies away the
difference between a number and its bfloat16 rounding, and the last with TensorFloat-32's.
"""

from __future__ import annotations

from dataclasses import dataclass

from jax.lax import DotAlgorithmPreset, Precision

PrecisionLike = None | str | Precision | DotAlgorithmPreset
"""What the ``precision`` argument of ``geqrf`` takes."""

Products = Precision | DotAlgorithmPreset
"""What the ``precision`` argument of a matrix product takes."""


@dataclass(frozen=True)
class Policy:
    """How the trailing update multiplies.

    Attributes:
      name: for messages and tables.
      cuda: ``precision`` argument of the products on a CUDA device.
      error_bound: of one product, as the module defines it.
      fused: whether the update is the fused kernel rather than matrix products.
    """

    name: str
    cuda: Products
    error_bound: float
    fused: bool = False

    def products(self, platform: str) -> Products:
        """The ``precision`` argument of the products on ``platform``; only CUDA has them all."""
        return self.cuda if platform == "cuda" else Precision.HIGHEST


_FP32, _TF32 = 2.0**-17, 2.0**-9

_HIGHEST = Policy("highest", Precision.HIGHEST, _FP32)
_HIGH = Policy("high", DotAlgorithmPreset.TF32_TF32_F32_X3, _FP32)
_DEFAULT = Policy("default", DotAlgorithmPreset.TF32_TF32_F32, _TF32)

_POLICIES: dict[PrecisionLike, Policy] = {
    None: Policy("float32, fused", Precision.HIGHEST, _FP32, fused=True),
    "highest": _HIGHEST,
    "high": _HIGH,
    "default": _DEFAULT,
    Precision.HIGHEST: _HIGHEST,
    Precision.HIGH: _HIGH,
    Precision.DEFAULT: _DEFAULT,
    DotAlgorithmPreset.F32_F32_F32: Policy("F32_F32_F32", Precision.HIGHEST, _FP32),
    DotAlgorithmPreset.TF32_TF32_F32_X3: Policy("TF32_TF32_F32_X3", DotAlgorithmPreset.TF32_TF32_F32_X3, _FP32),
    DotAlgorithmPreset.TF32_TF32_F32: Policy("TF32_TF32_F32", DotAlgorithmPreset.TF32_TF32_F32, _TF32),
}


def policy_for(precision: PrecisionLike) -> Policy:
    """The policy that ``precision`` names.

    Raises:
      ValueError: if it names none; the message lists those there are.
    """
    if isinstance(precision, PrecisionLike) and precision in _POLICIES:
        return _POLICIES[precision]
    refused = isinstance(precision, DotAlgorithmPreset) and precision.name.startswith("BF16_BF16_F32_X")
    reason = ": XLA does not keep its error on GPUs; TF32_TF32_F32_X3 has float32's" if refused else ""
    raise ValueError(f"precision={_shown(precision)} is not one of {', '.join(map(_shown, _POLICIES))}{reason}")


def _shown(precision: object) -> str:
    """As a caller writes it: ``repr`` of JAX's enumerations does not say where they are from."""
    if isinstance(precision, Products):
        return f"{type(precision).__name__}.{precision.name}"
    return repr(precision)
