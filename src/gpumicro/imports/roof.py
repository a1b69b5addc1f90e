"""The roof that imported figures give: bandwidth of DRAM from stream kernels and sweeps, peaks from a sweep's top."""

from __future__ import annotations

from collections.abc import Sequence

from .. import model
from ..model import Record, ridge_points

__all__ = ["ceilings", "points", "ridge_points"]

SWEEP = "mixed"
MEMORY_FAMILIES = ("stream", SWEEP)


def ceilings(records: Sequence[Record]) -> list[Record]:
    """For each device its DRAM bandwidth (the fastest kernel) and, of a sweep over intensities, each dtype's peak.

    A sweep's top is a peak only where it has left the slope: a point that DRAM still holds back is no peak.
    """
    good = model.measured(records)
    found = []
    streams = [r for r in good if r["family"] in MEMORY_FAMILIES and r.get("level") == "dram"]
    for _, group in model.grouped(streams, lambda r: (r["device"],)):
        if ranked := _best_of_each(model.by_rate(group, "memory")):
            found.append(model.ceiling_of("memory", ranked[0], ranked[1:], "roof"))
    sweeps = [r for r in good if r["family"] == SWEEP]
    for (device, _), group in model.grouped(sweeps, lambda r: (r["device"], r["dtype"])):
        ranked = _best_of_each(model.by_rate(group, "arithmetic"))
        memory = next(iter(model.roofs(found, "memory", device)), None)
        if ranked and not _on_the_slope(ranked[0], memory):
            found.append(model.ceiling_of("arithmetic", ranked[0], ranked[1:], "roof"))
    return found


ON_SLOPE = 0.9  # of the bandwidth's roof: within 10% of it, memory is what holds the point


def _on_the_slope(record: Record, memory: Record | None) -> bool:
    bandwidth = model.figure_of(record, "bandwidth_bytes_per_s")
    return bool(memory and bandwidth and bandwidth.estimate > ON_SLOPE * memory["achieved"])


def _best_of_each(ranked: Sequence[Record]) -> list[Record]:
    """The fastest row of each kernel and dtype: a sweep's other rows are no alternatives."""
    return list({(r["kernel"], r["dtype"]): r for r in reversed(ranked)}.values())[::-1]


def points(roofs: Sequence[Record], records: Sequence[Record]) -> list[Record]:
    """Whatever states a rate of operations and an intensity, under the roof of its device."""
    return model.points(roofs, records)
