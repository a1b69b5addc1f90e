"""Plateaus and knees in a sweep of latency over footprint, named by the caches of the device. Pure numbers, no clock.

A plateau is a run of neighbouring sizes whose latencies agree; a knee lies between two plateaus, where the smaller
memory is full. Sizes in bytes, times in any one unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .device import Cache

TOLERANCE = 0.08  # how much the latencies of one plateau may differ beyond their intervals, relative
LEAST_STEP = 1.2  # neighbouring plateaus closer than this are one
LEAST_POINTS = 3  # of a plateau: two neighbours may agree on any slope


@dataclass(frozen=True, slots=True)
class Point:
    """One measured latency with the ends of its interval."""

    size_bytes: int
    latency: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Plateau:
    """Sizes that one memory answers. `level` is the cache that holds them by the device's facts, "dram" beyond all."""

    level: str
    latency: float  # median of its points
    low: float  # least and greatest end of their intervals
    high: float
    from_bytes: int
    to_bytes: int


@dataclass(frozen=True, slots=True)
class Knee:
    """Where the plateau before it ends: between the last size that is on it and the first that is not.

    `level` is the memory that is full there, "" where both plateaus lie in one (a split L2, the reach of a TLB);
    `stated_bytes` is that cache's size by the device's facts.
    """

    level: str
    low_bytes: int
    high_bytes: int
    stated_bytes: int | None

    @property
    def size_bytes(self) -> float:
        """The best single guess, the geometric middle."""
        return math.sqrt(self.low_bytes * self.high_bytes)


@dataclass(frozen=True, slots=True)
class Stairs:
    """All that was found, smallest sizes first; one knee fewer than plateaus, none without plateaus."""

    plateaus: tuple[Plateau, ...]
    knees: tuple[Knee, ...]


def find(points: Sequence[Point], caches: Sequence[Cache], tolerance: float = TOLERANCE) -> Stairs:
    """The stairs in a sweep. Points in any order; two of one size are both used."""
    ordered = sorted(points, key=lambda point: point.size_bytes)
    runs = _joined(_runs(ordered, tolerance))
    plateaus = tuple(_plateau(run, caches) for run in runs)
    knees = []
    for before, after in pairwise(plateaus):
        beyond = next(point.size_bytes for point in ordered if point.size_bytes > before.to_bytes)
        level = before.level if before.level != after.level else ""
        stated = next((cache.size_bytes for cache in caches if cache.level == level), None)
        knees.append(Knee(level, before.to_bytes, beyond, stated))
    return Stairs(plateaus, tuple(knees))


def _agree(run: Sequence[Point], tolerance: float) -> bool:
    """Whether one latency lies within the tolerance of every interval."""
    return max(point.low for point in run) <= min(point.high for point in run) * (1 + tolerance)


def _runs(points: Sequence[Point], tolerance: float) -> list[Sequence[Point]]:
    """The longest run that agrees, and the same on both sides of it; slopes between plateaus belong to none."""
    best: tuple[int, int] = (0, 0)
    for start in range(len(points)):
        end = start + 1
        while end < len(points) and _agree(points[start : end + 1], tolerance):
            end += 1
        if end - start > best[1] - best[0]:
            best = (start, end)
    if best[1] - best[0] < LEAST_POINTS:
        return []
    return [*_runs(points[: best[0]], tolerance), points[best[0] : best[1]], *_runs(points[best[1] :], tolerance)]


def _median(run: Sequence[Point]) -> float:
    values = sorted(point.latency for point in run)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def _joined(runs: Sequence[Sequence[Point]]) -> list[Sequence[Point]]:
    """Neighbours that differ by less than a step as one: noise may have cut a plateau in two."""
    joined: list[Sequence[Point]] = []
    for run in runs:
        if joined and max(_median(run), _median(joined[-1])) < LEAST_STEP * min(_median(run), _median(joined[-1])):
            joined[-1] = [*joined[-1], *run]
        else:
            joined.append(run)
    return joined


def _plateau(run: Sequence[Point], caches: Sequence[Cache]) -> Plateau:
    middle = math.sqrt(run[0].size_bytes * run[-1].size_bytes)
    level = next((cache.level for cache in caches if middle <= cache.size_bytes), "dram")
    low, high = min(point.low for point in run), max(point.high for point in run)
    return Plateau(level, _median(run), low, high, run[0].size_bytes, run[-1].size_bytes)
