from typing import Any

def registrations() -> dict[str, dict[str, Any]]:
    """FFI handlers as PyCapsules: ``{platform: {target: capsule}}``; no ``"CUDA"`` key in a build without CUDA."""

def kernels() -> dict[str, list[tuple[int, ...]]]:
    """Variants of the CUDA panel kernels by regime: the rows of ``ffi/narrow_variants.h`` (``"narrow"``),
    ``ffi/tiny_variants.h`` (``"tiny"``), ``ffi/wide_variants.h`` (``"wide"``), ``ffi/panel_variants.h`` (``"cta"``)
    and ``ffi/cluster_variants.h`` (``"cluster"``)."""

def cuda_architectures() -> list[str]:
    """CUDA architectures compiled in, such as ``"90a"``; empty in a build without CUDA."""
