"""The same sweep over several transports, side by side: what each of them is worth here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..collectives.sweeps import Sweep, Timed
from ..units import format_quantity, format_size
from .tables import Column, Doc, Table, clean


def transport_tables(doc: Doc, sweeps: Sequence[Sweep]) -> Iterator[Table]:
    """A table for each sweep that was run over two transports or more: rows are sizes, columns transports."""
    items = {item["id"]: item for item in doc["measurements"] if item["family"] == "collective"}
    groups: dict[tuple[object, ...], dict[str, Sweep]] = {}
    for sweep in sweeps:
        item = items[sweep.ids[0]]
        if transport := item.get("transport"):
            key = (sweep.collective, sweep.dtype, sweep.op, sweep.ranks, item.get("variant"), item.get("root"))
            groups.setdefault(key, {}).setdefault(str(transport), sweep)
    for index, (named, found) in enumerate(groups.items()):
        if len(found) > 1:
            place = f", {clean(named[4])}" if named[4] else ""
            first = next(iter(found.values()))
            kind = " ".join(filter(None, (first.dtype, first.op)))
            title = f"Transports side by side: {clean(first.collective)}, {clean(kind)}, {first.ranks} ranks{place}"
            yield _table(f"transports-{index}", title, found)


def _table(key: str, title: str, sweeps: dict[str, Sweep]) -> Table:
    bus = all(sweep.factor for sweep in sweeps.values())
    points = {name: {point.size_bytes: point for point in sweep.points} for name, sweep in sweeps.items()}
    sizes = sorted({size for found in points.values() for size in found})
    rows = tuple(
        (format_size(size), *(_cell(points[name].get(size), sweep.factor if bus else 1.0)
                              for name, sweep in sweeps.items()))
        for size in sizes
    )  # fmt: skip
    columns = (Column("size", right=True), *(Column(clean(name), right=True) for name in sweeps))
    what = "busbw" if bus else "size over time"
    return Table(key, title, columns, rows, (f"Time and {what}.", *_worth(points)))


def _cell(point: Timed | None, factor: float | None) -> str:
    if point is None:
        return "-"
    rate = (factor or 1.0) * point.size_bytes / point.time_s
    return f"{format_quantity(point.time_s, 's')} {format_quantity(rate, 'B/s')}"


def _worth(points: dict[str, dict[int, Timed]]) -> Iterator[str]:
    """At the least and the largest size that all have: how many times longer each takes than the fastest."""
    common = sorted(set.intersection(*(set(found) for found in points.values())))
    for size in dict.fromkeys((common[0], common[-1])) if common else ():
        times = sorted((found[size].time_s, name) for name, found in points.items())
        best, fastest = times[0]
        others = ", ".join(f"{clean(name)} {time / best:.3g} times as long" for time, name in times[1:])
        yield f"At {format_size(size)}: {clean(fastest)} is the fastest; {others}."
