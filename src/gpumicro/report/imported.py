"""What other tools measured and neither roofline nor collectives show: messages, copies, storage, timed functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..model import flags_of
from ..units import format_size
from .tables import Doc, Table, clean, columns_of, interval, quantity


def imported_tables(doc: Doc) -> Iterator[Table]:
    """A table a kind, those that have rows."""
    items = [item for item in doc["measurements"] if item.get("imported") and item["status"] == "ok"]
    for key, title, families, columns, row in (
        ("messages", "Messages", ("network",), _MESSAGE, _message),
        ("storage", "Storage", ("storage",), _STORAGE, _storage),
        ("timed", "Timed by other tools", ("kernel", "function"), _TIMED, _timed),
    ):
        rows = tuple(row(item) for item in items if item["family"] in families)
        yield Table(key, title, columns, rows).without_empty()
    yield _pairs([item for item in items if item["family"] in ("copy", "latency")])


_MESSAGE = columns_of("test", ">size", "type", ">time", ">bandwidth", ">messages/s")
_STORAGE = columns_of("job", "/what", ">bandwidth", ">I/O a second", ">latency", ">99%")
_TIMED = columns_of("function", "on", ">time", ">95% interval", ">bandwidth", ">samples", "/flags")
_PAIRS = columns_of("test", ">figures", ">lowest", ">highest")


def _estimate(item: Doc, key: str, unit: str) -> str:
    figure = item.get(key)
    return quantity(figure["estimate"], unit, figure["ci95"]) if figure else ""


def _name(item: Doc) -> str:
    labels = [f"{clean(name)}={clean(value)}" for name, value in (item.get("labels") or {}).items()]
    sizes = [f"{clean(name)}={value}" for name, value in item["problem"].items() if name != "size_bytes"]
    return " ".join([clean(item["kernel"]), *sizes, *labels, clean(item.get("variant") or "")]).strip()


def _message(item: Doc) -> tuple[str, ...]:
    size = item.get("size_bytes")
    rate = item.get("operations_per_s")
    return (
        _name(item), "" if size is None else format_size(size), clean(item["dtype"] or ""),
        _estimate(item, "time_s", "s"), _estimate(item, "bandwidth_bytes_per_s", "B/s"),
        f"{rate['estimate']:,.0f}" if rate else "",
    )  # fmt: skip


def _storage(item: Doc) -> tuple[str, ...]:
    latency, rate = item.get("latency_s") or {}, item.get("operations_per_s")
    tail = (latency.get("percentiles") or {}).get("99")
    kind = " ".join(clean(value) for value in (item.get("labels") or {}).values())
    return (
        clean(item["kernel"]), f"{clean(item['variant'])} ({kind})" if kind else clean(item["variant"]),
        _estimate(item, "bandwidth_bytes_per_s", "B/s"), f"{rate['estimate']:,.0f}" if rate else "",
        _estimate(item, "latency_s", "s") if latency else "", "" if tail is None else quantity(tail, "s"),
    )  # fmt: skip


def _timed(item: Doc) -> tuple[str, ...]:
    time, timing = item["time_s"], item["timing"] or {}
    ci95 = time["ci95"] if time else None
    return (
        _name(item), clean(item["device"]), _estimate(item, "time_s", "s"),
        interval(time["estimate"], ci95, "s") if ci95 else "", _estimate(item, "bandwidth_bytes_per_s", "B/s"),
        str(timing.get("n", "")), ", ".join(map(clean, flags_of(item))),
    )  # fmt: skip


def _pairs(items: Sequence[Doc]) -> Table:
    """One row a test: a matrix of pairs is too wide for a table of figures."""
    tests: dict[tuple[str, str], list[float]] = {}
    for item in items:
        key, unit = ("latency_s", "s") if item.get("latency_s") else ("bandwidth_bytes_per_s", "B/s")
        figure: dict[str, Any] | None = item.get(key)
        if figure and figure["estimate"] is not None:
            tests.setdefault((clean(item["kernel"]), unit), []).append(figure["estimate"])
    rows = [
        (name, str(len(values)), quantity(min(values), unit), quantity(max(values), unit))
        for (name, unit), values in tests.items()
    ]
    return Table("pairs", "Copies and latencies between memories", _PAIRS, tuple(rows)).without_empty()
