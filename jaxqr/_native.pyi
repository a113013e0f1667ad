from typing import Any

def registrations() -> dict[str, dict[str, Any]]:
    """FFI handlers as PyCapsules: ``{platform: {target: capsule}}``; no ``"CUDA"`` key in a build without CUDA."""

def panel_variants() -> list[tuple[int, int, int, int]]:
    """Variants of the CUDA panel kernel: ``(row_lanes, rows_per_lane, cols_per_lane, max_warps)``."""

def cuda_architectures() -> list[str]:
    """CUDA architectures compiled in, such as ``"90a"``; empty in a build without CUDA."""
