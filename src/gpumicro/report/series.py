"""What a service that watches benchmarks over time is told of a result: one figure a measurement and quantity.

A service knows a benchmark by its name alone, so what is no measurement of a device here has another name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..units import from_prefix, shown_unit
from .tables import Doc, clean

# quantity -> (key of a measurement, prefix, unit, whether smaller is better); the service shows numbers as they are
_QUANTITIES = {
    "latency": ("latency_s", "n", "s", True),
    "time": ("time_s", "n", "s", True),
    "bandwidth": ("bandwidth_bytes_per_s", "G", "B/s", False),
    "flop-rate": ("flop_per_s", "G", "FLOP/s", False),
    "op-rate": ("flop_per_s", "G", "OP/s", False),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its interval, in `unit`."""

    name: str
    quantity: str  # "latency" (of one hop or run), "bandwidth", "flop-rate", of integers and atomics "op-rate"
    value: float
    ci95: tuple[float, float] | None
    unit: str
    smaller_is_better: bool
    remark: str  # samples, flags


def figures(doc: Doc) -> Iterator[Figure]:
    """Time and rates of every measurement that has them; a repeat, which only checks the first, is left out."""
    for item in doc["measurements"]:
        if item["status"] != "ok" or item.get("repeat_of"):
            continue
        floats = item["family"] != "atomics" and shown_unit("FLOP/s", item["dtype"]) == "FLOP/s"
        time, rate = "latency" if item.get("latency_s") else "time", "flop-rate" if floats else "op-rate"
        for quantity in (time, "bandwidth", rate):
            key, prefix, unit, smaller = _QUANTITIES[quantity]
            found = item.get(key)
            if found and found["estimate"] is not None:
                step = from_prefix(1.0, prefix)
                ends = found["ci95"] and (found["ci95"][0] / step, found["ci95"][1] / step)
                name = "latency" if smaller else quantity
                yield Figure(
                    _prefix(doc) + clean(item["id"]), name, found["estimate"] / step, ends, prefix + unit, smaller,
                    _remark(doc, item),
                )  # fmt: skip


def _prefix(doc: Doc) -> str:
    return next((f"{tag}: " for tag in ("emulated", "synthetic", "replayed") if doc.get(tag)), "")


def _remark(doc: Doc, item: dict[str, Any]) -> str:
    timing = item["timing"] or {}
    flags = ", ".join(map(clean, timing.get("flags", [])))
    tool = (doc.get("imported") or {}).get("tool")
    parts = (
        f"{timing['n']} samples" if timing else "no samples",
        flags and f"flags: {flags}",
        tool and f"imported from {clean(tool)}",
    )
    return "\n".join(filter(None, parts))
