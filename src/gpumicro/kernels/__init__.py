"""The catalogue: what each kernel computes, moves and must equal. Records and pure functions; nothing runs here."""

from __future__ import annotations

from ..errors import UsageError, nearest
from ..spec import KernelSpec
from . import alloc, atomics, cache, copy, gemm, latency, launch, mixed, peak, peak_tensor, stream

CATALOGUE: tuple[KernelSpec, ...] = (
    *stream.SPECS,
    *peak.SPECS,
    *peak_tensor.SPECS,
    *gemm.SPECS,
    *latency.SPECS,
    *mixed.SPECS,
    *cache.SPECS,
    *atomics.SPECS,
    *launch.SPECS,
    *copy.SPECS,
    *alloc.SPECS,
)


def find(name: str) -> KernelSpec:
    """The kernel of that name. Raises UsageError with the nearest names."""
    for spec in CATALOGUE:
        if spec.name == name:
            return spec
    raise UsageError(f"no kernel is named {name!r}{nearest(name, (spec.name for spec in CATALOGUE))}")
