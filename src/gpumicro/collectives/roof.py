"""The network as one more ceiling of a roofline: bytes over a rank's link against FLOP, and what binds a whole work.

A work does F FLOP, moves B bytes of memory and W bytes over its link: it takes at least the longest of F / peak,
B / bandwidth and W / network rate, if all three go on at once (the roofline model of Williams, Waterman and Patterson
2009 with one more channel, as in Cardwell and Song 2019), and at most about their sum, if one waits for the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..model import Interval, flags_of, with_ci95
from ..peaks.links import Link
from ..result import or_why
from ..units import format_size, parse
from .crossing import POINT_TO_POINT, in_switch, wire
from .sizes import parse_bytes
from .sweeps import Sweep, sweeps_of

Record = dict[str, Any]
Doc = Mapping[str, Any]
NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Work:
    """What one call (a training step, say) does on one device: FLOP, bytes of memory, bytes over its link."""

    name: str
    flops: float
    bytes: float
    wire_bytes: float
    dtype: str | None = None


def parse_work(text: str) -> Work:
    """ "step=6e12,40G,2.8G" or "step=6 TFLOP,40G,2.8G,bfloat16". UsageError else."""
    name, _, rest = text.partition("=")
    parts = [part.strip() for part in rest.split(",")]
    if not name or len(parts) not in (3, 4) or not all(parts):
        raise UsageError(f"{text!r} is no work: NAME=FLOP,BYTES,WIRE_BYTES or NAME=FLOP,BYTES,WIRE_BYTES,DTYPE")
    try:
        flops = parse(parts[0], "FLOP") if parts[0].endswith("FLOP") else float(parts[0])
    except ValueError:
        raise UsageError(f"{text!r}: {parts[0]!r} is no number of FLOP, as 6e12 or 6 TFLOP") from None
    if not 0 < flops < 1e30:
        raise UsageError(f"{text!r}: the FLOP must be above 0")
    memory, over = (parse_bytes(part) for part in parts[1:3])
    return Work(name.strip(), flops, memory, over, parts[3] if len(parts) == 4 else None)


def network_ceilings(doc: Doc, link: Link | None = None) -> list[Record]:
    """The best that crossed a rank's link, a ceiling a transport: of all_reduce where it was run, else of the rest.

    Rows count whose bytes over the link are known: those of a ring, of NVLS within a host, of messages, and those that
    name no algorithm, by what must cross at least (a lower bound of the rate). Failed rows do not.
    """
    best: dict[tuple[bool, str], tuple[Interval, Record, Sweep]] = {}
    items = {item["id"]: item for item in doc["measurements"] if item["family"] == "collective"}
    for sweep in sweeps_of(doc):
        for item in (items[name] for name in sweep.ids):
            rate = wire_rate(item)
            if rate is None:
                continue
            key = (sweep.collective != "all_reduce", str(item.get("transport") or ""))
            if key not in best or rate.estimate > best[key][0].estimate:
                best[key] = (rate, item, sweep)
    first = min((key[0] for key in best), default=False)
    return [_ceiling(*found, link) for key, found in best.items() if key[0] == first]


def wire_rate(item: Record) -> Interval | None:
    """Bytes a second over one rank's busiest direction; None where the row does not tell them."""
    time, size = item.get("time_s"), item.get("size_bytes")
    if item["status"] != "ok" or not time or not size or not time["estimate"] or (item.get("ranks") or 0) < 2:
        return None
    named, collective = item.get("algorithm"), str(item.get("collective"))
    known = wire(collective, named, item["ranks"]) or (None if named else wire(collective, "Ring", item["ranks"]))
    local = (item.get("hosts") or 1) == 1 or not (named and in_switch(str(named)))
    if known is None or known.factor is None or not local:
        return None
    span = Interval.of(time)
    if span.low <= 0:
        return None
    moved = size * known.factor
    return Interval(moved / span.estimate, moved / span.high, moved / span.low, span.bounded)


def _ceiling(rate: Interval, item: Record, sweep: Sweep, link: Link | None) -> Record:
    unnamed = "" if sweep.collective in POINT_TO_POINT else "algorithm not named"
    how = "".join(f", {word}" for word in (item.get("algorithm") or unnamed, item.get("transport")) if word)
    why = "give --link NAME for the link's rate" if link is None else "the algorithm moves less than busbw counts"
    comparable = link is not None and not in_switch(str(item.get("algorithm") or ""))
    spec = link.bytes_per_s if link is not None and comparable else None
    return {
        "id": f"network/{item.get('transport') or 'link'}", "kind": NETWORK, "device": item["device"], "level": NETWORK,
        "dtype": None, "unit": "B/s", "achieved": rate.estimate, **with_ci95(rate), **or_why("spec", spec, why),
        "fraction_of_spec": rate.estimate / spec if spec else None, "measurement": item["id"],
        "flags": flags_of(item), "scope": "roof", "kernel": item["kernel"], "threads": None,
        "recipe": f"{sweep.collective} of {format_size(item['size_bytes'])}, {item['ranks']} ranks{how}",
        "transport": item.get("transport"),
    }  # fmt: skip


def with_network(doc: Doc, others: Sequence[Doc], link: Link | None, works: Sequence[Work] = ()) -> Record:
    """A roofline with the network's ceilings out of other results, its ridges, and `works` with what binds each.

    UsageError where no result holds a rate of the network, or a work asks for arithmetic that was not measured.
    """
    networks = [ceiling for other in others for ceiling in network_ceilings(other, link)]
    if not networks:
        raise UsageError("no row of these collectives tells what crossed a link: it takes two ranks, and an algorithm "
                         "whose bytes are known")  # fmt: skip
    seen: dict[str, int] = {}
    for ceiling in networks:
        seen[ceiling["id"]] = seen.get(ceiling["id"], 0) + 1
        ceiling["id"] += f"#{seen[ceiling['id']]}" if seen[ceiling["id"]] > 1 else ""
    ridges = [*doc.get("ridge_points", []), *_ridges(doc["ceilings"], networks)]
    held = [placed_work(work, doc["ceilings"], networks) for work in works]
    return {**doc, "ceilings": [*doc["ceilings"], *networks], "ridge_points": ridges, "works": held}


def _ridges(ceilings: Sequence[Record], networks: Sequence[Record]) -> Iterator[Record]:
    """From which FLOP a byte over the wire on the network no longer binds."""
    for peak in _roofs(ceilings, "arithmetic"):
        for network in networks:
            top, slope = Interval.of(peak, "achieved"), Interval.of(network, "achieved")
            both = top.bounded and slope.bounded
            ridge = Interval(top.estimate / slope.estimate, top.low / slope.high, top.high / slope.low, both)
            yield {
                "memory": network["id"].replace("network/link", NETWORK), "arithmetic": peak["dtype"],
                "threads": peak.get("threads"), "intensity_flop_per_byte": ridge.estimate, **with_ci95(ridge),
            }  # fmt: skip


def placed_work(work: Work, ceilings: Sequence[Record], networks: Sequence[Record]) -> Record:
    """What binds a work: its least time under each roof. The fastest network counts where several were measured."""
    peaks = {ceiling["dtype"]: ceiling for ceiling in _roofs(ceilings, "arithmetic")}
    drams = [ceiling for ceiling in _roofs(ceilings, "memory") if ceiling["level"] == "dram"]
    dtype = work.dtype or ("float64" if "float64" in peaks else next(iter(peaks), None))
    if dtype not in peaks or not drams:
        measured = ", ".join(peaks) or "none"
        raise UsageError(f"work {work.name!r}: no roof of {dtype or 'any dtype'} and DRAM; measured dtypes: {measured}")
    network = max(networks, key=lambda ceiling: float(ceiling["achieved"]))
    times = {
        "compute": work.flops / peaks[dtype]["achieved"], "memory": work.bytes / drams[0]["achieved"],
        "network": work.wire_bytes / network["achieved"],
    }  # fmt: skip
    bound = max(times, key=times.__getitem__)
    return {
        "name": work.name, "dtype": dtype, "flops": work.flops, "bytes": work.bytes, "wire_bytes": work.wire_bytes,
        "compute_s": times["compute"], "memory_s": times["memory"], "network_s": times["network"], "bound_by": bound,
        "least_s": times[bound], "one_by_one_s": max(times["compute"], times["memory"]) + times["network"],
        "flop_per_s": work.flops / times[bound], "network": network["id"], "origin": "model",
    }  # fmt: skip


def _roofs(ceilings: Sequence[Record], kind: str) -> list[Record]:
    """Those of one kind that form the roof, and have a figure."""
    return [c for c in ceilings if c["kind"] == kind and c.get("scope", "roof") == "roof" and c["achieved"]]


def work_of_point(doc: Doc, text: str) -> Work:
    """ "POINT=WIRE_BYTES": a point of the roofline whose FLOP and bytes the file has. UsageError else."""
    name, _, size = text.rpartition("=")
    point = next((point for point in doc["points"] if point["name"] == name), None)
    if point is None:
        raise UsageError(f"no point {name!r} in the roofline: {', '.join(p['name'] for p in doc['points']) or 'none'}")
    item = next((one for one in doc["measurements"] if one["id"] == point.get("measurement")), point)
    flops, moved = item.get("flops"), item.get("bytes_moved")
    if not flops or not moved:
        raise UsageError(f"point {name!r} has no FLOP or no bytes of a call: give it whole, as --work NAME=FLOP,B,WIRE")
    return Work(name, flops, moved, parse_bytes(size), point.get("dtype"))
