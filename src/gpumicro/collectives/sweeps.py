"""Sweeps of sizes in a result document: what one model of time over size may be fitted to.

Two measurements belong to one sweep where everything but the size is the same. Nothing here measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

Record = Mapping[str, Any]
IN_A_ROW = "runs in a row"
IN_A_ROW_UNDER = 0.9  # of the time after a barrier, at the smaller sizes: less of a difference changes no conclusion
_ROOTED = ("broadcast", "reduce", "scatter", "gather")


@dataclass(frozen=True, slots=True)
class Timed:
    """One size with its time in seconds and the ends of the interval that the samples gave (None: no samples);
    `average_s`: of a run in a row of them, without barriers (None: not measured)."""

    size_bytes: int
    time_s: float
    low_s: float | None = None
    high_s: float | None = None
    average_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """Times over sizes, ascending, one a size. `ranks` is None where the file does not say; `factor` is busbw over
    algbw as the file has it (None: the file has no busbw). `ids` name the measurements, in the file's order."""

    collective: str
    dtype: str | None
    op: str | None
    ranks: int | None
    how: str  # "out-of-place", transport, algorithm, device where there are several
    points: tuple[Timed, ...]
    factor: float | None = None
    ids: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """ "all_reduce, float32 sum, 8 ranks, out-of-place"."""
        ranks = f"{self.ranks} rank{'s' if self.ranks != 1 else ''}" if self.ranks else ""
        kind = " ".join(filter(None, (self.dtype, self.op)))
        return ", ".join(filter(None, (self.collective, kind, ranks, self.how)))

    def in_a_row(self) -> Sweep | None:
        """The sweep by its runs in a row, where they tell something else; None else, or where they were not measured.

        Over a network the ranks leave a barrier up to a delay apart, and the longest rank's time counts its wait for
        the last one: alpha comes out one delay or two too long. In a row, without barriers, that wait comes once.
        A rooted collective overlaps with the next one there, so its runs in a row say something else again.
        """
        averages = [point.average_s for point in self.points]
        if self.collective in _ROOTED or None in averages or not averages:
            return None
        small = self.points[: -(-len(self.points) // 2)]
        if median((point.average_s or 0.0) / point.time_s for point in small) > IN_A_ROW_UNDER:
            return None
        points = tuple(Timed(point.size_bytes, point.average_s or 0.0) for point in self.points)
        return replace(self, how=", ".join(filter(None, (self.how, IN_A_ROW))), points=points)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes, ascending."""
        return tuple(point.size_bytes for point in self.points)


def sweeps_of(doc: Record) -> tuple[Sweep, ...]:
    """The sweeps of a result document, in the order of their first measurement.

    A failed measurement (wrong elements) and a size of 0 bytes are no points of a sweep, nor is a repeat; several runs
    of one size count as one point, their median, with the hull of their intervals. Algorithms that a library picks by
    size stay in one sweep; where one size came out with several, each has its own.
    """
    together: dict[tuple[Any, ...], list[Record]] = {}
    for item in doc["measurements"]:
        if item["family"] == "collective" and not item.get("repeat_of"):
            together.setdefault(_key(item), []).append(item)
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for key, items in together.items():
        apart = _forced(items)
        for item in items:
            groups.setdefault((*key, item.get("algorithm") if apart else None), []).append(item)
    several = len({item["device"] for items in groups.values() for item in items}) > 1
    return tuple(_sweep(items, several) for items in groups.values())


def _key(item: Record) -> tuple[Any, ...]:
    names = ("collective", "kernel", "dtype", "op", "root", "ranks", "variant", "device", "backend", "transport")
    labels = tuple(sorted((item.get("labels") or {}).items()))
    pair = tuple(item.get("pair") or ())
    return (*(item.get(name) for name in names), pair, labels)


def _forced(items: Sequence[Record]) -> bool:
    """Whether one size was run by several algorithms: then they were asked for, and not picked by size."""
    by_size: dict[Any, set[Any]] = {}
    for item in items:
        by_size.setdefault(item.get("size_bytes"), set()).add(item.get("algorithm"))
    return any(len(found) > 1 for found in by_size.values())


def _sweep(items: Sequence[Record], several: bool) -> Sweep:
    first = items[0]
    labels = [f"{name}={value}" for name, value in (first.get("labels") or {}).items() if name != "op"]
    how = [str(first.get(key) or "") for key in ("variant", "transport")]
    named = {str(item.get("algorithm") or "") for item in items}
    how += [named.pop()] if len(named) == 1 else []
    how += ["--".join(map(str, first["pair"]))] if first.get("pair") else []
    where = [first["device"]] if several else []
    by_size: dict[int, list[Record]] = {}
    for item in items:
        if item["status"] == "ok" and item.get("size_bytes") and _positive(item.get("time_s")):
            by_size.setdefault(item["size_bytes"], []).append(item)
    return Sweep(
        collective=first.get("collective") or first["kernel"],
        dtype=first.get("dtype"),
        op=first.get("op"),
        ranks=first.get("ranks"),
        how=", ".join(filter(None, (*how, *labels, *where))),
        points=tuple(_point(size, times) for size, times in sorted(by_size.items())),
        factor=_factor(items),
        ids=tuple(item["id"] for item in items),
    )


def _positive(figure: Record | None) -> bool:
    return bool(figure and figure["estimate"] is not None and figure["estimate"] > 0)


def _point(size: int, items: Sequence[Record]) -> Timed:
    middle = median(item["time_s"]["estimate"] for item in items)
    ends = [item["time_s"]["ci95"] for item in items]
    rows = [item["nccl_tests_average_s"] for item in items if item.get("nccl_tests_average_s")]
    average = median(rows) if len(rows) == len(items) else None
    if any(end is None for end in ends):
        return Timed(size, middle, average_s=average)
    return Timed(size, middle, min(low for low, _ in ends), max(high for _, high in ends), average)


def _factor(items: Sequence[Record]) -> float | None:
    """busbw over algbw at the largest size that states both: small sizes are printed with too few digits."""
    stated = [
        (item["size_bytes"], item["busbw_bytes_per_s"]["estimate"] / item["algbw_bytes_per_s"]["estimate"])
        for item in items
        if item.get("size_bytes")
        and _positive(item.get("algbw_bytes_per_s"))
        and _positive(item.get("busbw_bytes_per_s"))
    ]
    return max(stated)[1] if stated else None
