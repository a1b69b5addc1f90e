"""The catalogue: what each kernel computes, moves and must equal. Records and pure functions; nothing runs here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ..errors import UsageError
from ..spec import KernelSpec
from . import gemm, latency, mixed, peak, stream

CATALOGUE: tuple[KernelSpec, ...] = (*stream.SPECS, *peak.SPECS, *gemm.SPECS, *latency.SPECS, *mixed.SPECS)


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean a, b?`, or the whole list where nothing is near."""
    known = tuple(known)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f"; did you mean {', '.join(close)}?" if close else f"; there are {', '.join(known)}"


def find(name: str) -> KernelSpec:
    """The kernel of that name. Raises UsageError with the nearest names."""
    for spec in CATALOGUE:
        if spec.name == name:
            return spec
    raise UsageError(f"no kernel is named {name!r}{nearest(name, (spec.name for spec in CATALOGUE))}")
