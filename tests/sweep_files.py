"""Sweeps of collectives that never ran: known latency, time a byte and noise, as sweeps and as result documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import result_files

from gpumicro.collectives.sweeps import Sweep, Timed

SIZES = tuple(8 * 2**k for k in range(28))  # 8 B to 1 GiB
ALPHA_S, BETA_S_PER_BYTE = 12e-6, 1 / 100e9


def line(size: float) -> float:
    """The true time in seconds of a sweep without a kink."""
    return ALPHA_S + BETA_S_PER_BYTE * size


def kinked(size: float) -> float:
    """A low-latency protocol up to 64 KiB, a bandwidth protocol above."""
    return 6e-6 + size / 4e9 if size <= 65536 else 18e-6 + size / 100e9


def sweep(
    truth: Callable[[float], float] = line, *, noise: float = 0.0, seed: int = 0, sizes: Sequence[int] = SIZES,
    spikes: Mapping[int, float] | None = None, half: float | None = None, collective: str = "all_reduce",
    ranks: int | None = 8,
) -> Sweep:  # fmt: skip
    """`noise`: relative standard deviation of a time; `spikes`: size -> factor; `half`: relative half-width."""
    errors = np.random.default_rng(seed).standard_normal(len(sizes))
    points = []
    for size, error in zip(sizes, errors.tolist(), strict=True):
        time = truth(size) * (1 + noise * error) * (spikes or {}).get(size, 1.0)
        ends = () if half is None else (time * (1 - half), time * (1 + half))
        points.append(Timed(size, time, *ends))
    return Sweep(collective, "float32", "sum", ranks, "", tuple(points))


def item(size: int, time_s: float, **more: Any) -> dict[str, Any]:
    """One measurement of a collective, as an import writes it."""
    ranks = more.get("ranks", 8)
    figure = {"estimate": size / time_s, "ci95": None, "ci95_why": "stated"}
    factor = 2 * (ranks - 1) / ranks if ranks else 0.0
    bus = {**figure, "estimate": figure["estimate"] * factor} if factor else None
    nulls = ("level", "threads", "bytes_moved", "flops", "intensity_flop_per_byte", "bandwidth_bytes_per_s",
             "flop_per_s", "check", "timing")  # fmt: skip
    return {
        "id": f"nccl.all_reduce[size_bytes={size}]@ranks/{len(more)}", "status": "ok", "kernel": "nccl.all_reduce",
        "family": "collective", "variant": "out-of-place", "dtype": "float32", "device": "ranks",
        "backend": "nccl-tests", "problem": {"size_bytes": size}, "traffic": "none",
        "time_s": {"estimate": time_s, "ci95": None, "ci95_why": "stated", "location": "mean"},
        "imported": {"tool": "nccl-tests", "file": "x.txt"}, "collective": "all_reduce", "ranks": ranks, "op": "sum",
        "in_place": False, "size_bytes": size, "algbw_bytes_per_s": figure, "busbw_bytes_per_s": bus, "wrong": 0,
        **{key: value for name in nulls for key, value in ((name, None), (f"{name}_why", "not stated"))},
    } | more  # fmt: skip


def document(items: Sequence[Mapping[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """A whole result of these measurements (default: the kinked sweep)."""
    found = [item(size, kinked(size)) for size in SIZES] if items is None else items
    doc = result_files.file(*found, **more)
    doc["imported"] = {"tool": "nccl-tests", "version": "2.17.0", "file": "x.txt"}
    return doc


def between(ranks: int = 2, hosts: int = 1, **more: Any) -> dict[str, Any]:
    """A result of a straight sweep between so many ranks on so many hosts."""
    return document([item(size, line(size), ranks=ranks, hosts=hosts, **more) for size in SIZES])
