"""Every bandwidth kernel at every memory level: the figures behind the memory ceilings, a table a dtype and threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..model import BANDWIDTH_FAMILIES
from ..units import format_quantity
from .tables import Column, Doc, Table, clean, level_name, threads_text

LEVELS = ("shared", "l1", "l2", "l3", "dram")


def bandwidth_tables(doc: Doc) -> Iterator[Table]:
    """Rows are kernels, columns are levels; most threads first."""
    records = [
        m for m in doc["measurements"] if m["family"] in BANDWIDTH_FAMILIES and not m.get("repeat_of") and _value(m)
    ]
    devices = {m["device"] for m in records}
    for device, threads, dtype in dict.fromkeys(
        sorted(((m["device"], m["threads"], m["dtype"]) for m in records), key=_order)
    ):
        mine = [m for m in records if (m["device"], m["threads"], m["dtype"]) == (device, threads, dtype)]
        where = f"{clean(device)}, " if len(devices) > 1 else ""
        title = f"Bandwidth by level: {where}{clean(dtype or 'unknown type')}, {threads_text(mine[0])}".rstrip(", ")
        yield _table(f"bandwidth-{device}-{threads}-{dtype}", title, mine)


def _order(group: tuple[str, int | None, str | None]) -> tuple[str, int, bool, str]:
    """By device, most threads first (an imported file may not say), float64 first."""
    device, threads, dtype = group
    return device, -(threads or 0), dtype != "float64", dtype or ""


def _value(record: dict[str, Any]) -> float | None:
    figure = record.get("bandwidth_bytes_per_s")
    return figure["estimate"] if figure else None


def _table(key: str, title: str, records: list[dict[str, Any]]) -> Table:
    levels = sorted({m["level"] for m in records if m["level"]}, key=lambda v: LEVELS.index(v) if v in LEVELS else 9)
    cells: dict[str, dict[str, str]] = {}
    for m in records:
        name = f"{clean(m['kernel'])} {clean(m.get('variant') or '')}".strip()
        figure = m["bandwidth_bytes_per_s"]
        cells.setdefault(name, {})[m["level"]] = format_quantity(figure["estimate"], "B/s", figure["ci95"])
    rows = tuple((name, *(found.get(level, "") for level in levels)) for name, found in cells.items())
    return Table(key, title, (Column("kernel"), *(Column(level_name(level), right=True) for level in levels)), rows)
