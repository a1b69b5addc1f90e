"""Latencies: of memory, by a pointer chase, and of a parallel region."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..spec import KernelSpec, Operand, Problem

LINE_WORDS = 8  # a line of 64 bytes holds one pointer and 7 unused words


def _nothing(_: Problem) -> int:
    return 0


def _lap(lines: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Line numbers in the order of the walk; `lines[i, 0]` is the address that line i points to, line 0 lies first."""
    if len(lines) == 0:
        return np.zeros(0, np.int64)
    addresses = lines[:, 0].astype(np.int64)
    follow = (addresses - addresses.min()) // (8 * lines.shape[1])
    order = np.zeros(len(lines), np.int64)
    for hop in range(1, len(lines)):
        order[hop] = follow[order[hop - 1]]
    return order


SPECS = (
    KernelSpec(
        name="latency.chase",
        summary="p = *p over a random cycle of n lines; one run is one hop",
        dtypes=("int64",),
        sizes=("n",),
        operands=(Operand("next", "in", lambda p: LINE_WORDS * p["n"]),),
        bytes_moved=_nothing,
        traffic="none",
        flops=_nothing,
        reference=_lap,
        unit="s",
    ),
    KernelSpec(
        name="launch.empty",
        summary="an empty parallel region",
        dtypes=("int64",),
        sizes=(),
        operands=(),
        bytes_moved=_nothing,
        traffic="none",
        flops=_nothing,
        unit="s",
    ),
)
