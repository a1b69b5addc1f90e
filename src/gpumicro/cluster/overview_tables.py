"""The sections of the cluster's page as tables, each from one file. A file of another version gives what it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..report.collectives import collective_tables
from ..report.fleet import fleet_tables
from ..report.tables import Table, ceilings_table, clean, columns_of, points_table
from ..units import format_fraction, format_quantity, format_size
from .overview import Advice, Finding, Overview, Part

Record = Mapping[str, Any]


def section_tables(part: Part, kind: str) -> list[Table]:
    """What a file says under a section; a table that says so where its shape is not the one that is known."""
    try:
        return [table.without_empty() for table in _TABLES[kind](part.doc) if table.rows]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}; written by gpumicro {clean(part.doc.get('gpumicro_version'))}"
        return [Table(kind, "Cannot be shown", columns_of("what this gpumicro does not find in it"), ((clean(why),),))]


def facts_table(overview: Overview) -> Table:
    """A row a file."""
    rows = []
    for part in overview.parts:
        doc = part.doc
        environment = doc.get("environment") if isinstance(doc.get("environment"), Mapping) else {}
        host = (environment.get("host") or {}).get("hostname_hash") if environment else None
        devices = ", ".join(
            clean(d.get("name")) for d in doc.get("devices") or () if isinstance(d, Mapping) and "name" in d
        )
        argv = doc.get("argv")
        rows.append((
            clean(part.file), ", ".join(kind for kind in part.kinds if kind != "facts") or "facts",
            devices if "facts" in part.kinds else "", clean(host or ""),
            clean(_driver(doc, environment) or ""), clean(doc.get("created") or ""),
            f"gpumicro {' '.join(map(clean, argv))}" if isinstance(argv, list) else "",
        ))  # fmt: skip
    columns = columns_of("file", "what", "/devices", "/host", "/driver", "/made", "/command")
    return Table("facts", "Facts", columns, tuple(rows)).without_empty()


def _driver(doc: Record, environment: Record | None) -> str | None:
    seen = next((c for c in doc.get("conditions") or () if (c.get("gpu") or {}).get("driver")), None)
    return str(seen["gpu"]["driver"]) if seen else (environment or {}).get("driver")


def findings_table(findings: Sequence[Finding]) -> Table:
    """Verdicts, those that failed first."""
    rows = tuple((f.state.upper() if f.state == "failed" else f.state, clean(f.name), clean(f.text), clean(f.file))
                 for f in findings)  # fmt: skip
    return Table("verdicts", "Verdicts", columns_of("state", "verdict", "/text", "/file"), rows)


def advice_table(advice: Sequence[Advice]) -> Table:
    """What to do next, numbered."""
    rows = tuple(
        (f"{i}. {clean(a.what)}", gain_text(a), clean(a.why), _basis(a), a.command) for i, a in enumerate(advice, 1)
    )
    return Table("next", "What to do next", columns_of("what", "gain", "/why", "/basis", "/command"), rows)


def _basis(advice: Advice) -> str:
    return ", ".join(filter(None, (advice.basis, clean(advice.file))))


def gain_text(advice: Advice) -> str:
    """ "+47%", "x12.4"; "first" for what all else rests on."""
    if advice.of == "trust":
        return "first"
    if advice.gain is None:
        return ""
    return f"x{1 + advice.gain:.3g}" if advice.gain >= 1 else f"+{100 * advice.gain:.0f}%"


# -- a section each ----------------------------------------------------------------------------------------------------


def _roofline(doc: Record) -> Iterator[Table]:
    yield ceilings_table(doc)
    yield points_table(doc)


def _scale(doc: Record) -> Iterator[Table]:
    rates = doc["setting"]["rates"]
    for curve in doc["curves"]:
        rows = tuple(
            (f"{row['gpus']:,}", format_quantity(row["step_s"], "s"), _grouped(row["samples_per_s"]),
             _grouped(row["speedup"]), format_fraction(row["efficiency"]), clean(row["bound"]), _fits(row["fits"]))
            for row in curve["rows"]
        )  # fmt: skip
        origins = ", ".join(dict.fromkeys(clean(rates[key]["origin"]) for key in ("flop_per_s", "dram_bytes_per_s")))
        stop = curve.get("stop")
        ends = f"Adding GPUs stops paying at {stop['gpus']:,}." if stop else "Adding GPUs pays as far as was asked."
        remarks = (f"A model of {clean(rates['device'])}'s figures ({origins}), {clean(rates['dtype'])}. {ends}",)
        columns = columns_of(">GPUs", ">step", ">samples/s", ">speed-up", ">efficiency", "held by", "fits")
        yield Table("scale", f"Over {clean(curve['fabric']['name'])}", columns, rows, remarks)


def _grouped(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _fits(fits: bool | None) -> str:
    return "not known" if fits is None else "yes" if fits else "no"


def _storage(doc: Record) -> Iterator[Table]:
    storage = doc["storage"]
    parts = tuple(
        (clean(p["name"]), format_size(p["block_bytes"]), str(p["depth"]), format_quantity(p["bytes_per_s"], "B/s"))
        for p in storage["parts"]
    )
    yield Table("storage", f"Storage under {clean(storage['place']['directory'])}",
                columns_of("part", ">block", ">depth", ">rate"), parts)  # fmt: skip
    need = storage["need"]
    wanted = need["gpus"] * need["samples_per_s"] if need else None
    rows = tuple(
        (clean(s["what"]), f"{s['samples_per_s']:,.0f}", "" if wanted is None else f"{wanted:,.0f}",
         "" if not wanted else format_fraction(s["judged_samples_per_s"] / wanted))
        for s in storage["supplies"]
    )  # fmt: skip
    size = format_size(storage["sample_bytes"])
    yield Table("feeds", f"What it feeds, in samples of {size}",
                columns_of("samples from", ">samples/s", ">needed", ">share"), rows)  # fmt: skip


def _monitor(doc: Record) -> Iterator[Table]:
    watched = doc["monitor"]
    command = (watched.get("command") or {}).get("argv")
    title = f"Host over {watched['duration_s']:.3g} s" + (f" of {' '.join(map(clean, command))}" if command else "")
    yield _watched(title, watched["host"]["metrics"])
    for index, gpu in enumerate(watched["gpus"]):
        yield _watched(f"GPU {index}: {clean(gpu.get('name') or '')}", gpu["metrics"])


def _watched(title: str, metrics: Record) -> Table:
    rows = tuple(
        (clean(m["title"]), *(_shown(m[key], m["unit"]) for key in ("p5", "p50", "p95", "max", "average")))
        for m in metrics.values() if isinstance(m, Mapping)
    )  # fmt: skip
    return Table("monitor", title, columns_of("quantity", ">5%", ">50%", ">95%", ">most", ">average"), rows)


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return format_quantity(value, unit) if unit else format_fraction(value)


def _cost(doc: Record) -> Iterator[Table]:
    rows = [
        (clean(machine["instance"]), clean(unit["what"]), _rate(unit["rate"]), _usd(unit["usd"]), clean(unit["unit"]),
         clean(unit["rate"]["origin"]))
        for machine in doc["machines"] for unit in machine["units"]
    ]  # fmt: skip
    yield Table(
        "cost", "Price of the work", columns_of("machine", "work", ">rate", ">price", "of", "origin"), tuple(rows)
    )
    runs = tuple(
        (clean(run["instance"]), str(run["nodes"]), format_quantity(run["wall_s"]["value"] / 86400, "") + " d",
         f"{run['device_hours']['value']:,.0f}", _usd(run["usd"]))
        for run in doc["runs"]
    )  # fmt: skip
    yield Table("run", "The run", columns_of("machine", ">nodes", ">time", ">device hours", ">cost"), runs)


def _rate(rate: Record) -> str:
    return format_quantity(rate["estimate"], rate["unit"], rate["ci95"])


def _usd(usd: Record | None) -> str:
    """ "$16,800 ($15,000 to $19,300)", the ends only where they differ in what is shown."""
    if not usd or usd.get("value") is None:
        return "no price"
    value, low, high = (_money(usd[key]) for key in ("value", "low", "high"))
    return value if low == high else f"{value} ({low} to {high})"


def _money(usd: float) -> str:
    return f"${usd:,.0f}" if usd >= 1000 else f"${usd:.3g}"


def _precision(doc: Record) -> Iterator[Table]:
    for device in doc["devices"]:
        rows = tuple(
            (clean(row["dtype"]), _rate(row["rate"]), _times(row["speedup"]), _times(row["step"]), clean(row["kernel"]),
             clean(row["rate"]["origin"]))
            for row in device["rows"]
        )  # fmt: skip
        columns = columns_of("type", ">GEMM", ">over float32", ">step", "kernel", "origin")
        yield Table("precision", clean(device["name"]), columns, rows, tuple(map(clean, device["advice"])))


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}x"


def _memory(doc: Record) -> Iterator[Table]:
    for device in doc["devices"]:
        rows = tuple(
            (format_size(one["size_bytes"]), *(_seconds(one.get(key)) for key in ("malloc_s", "pool_s")))
            for one in device["allocations"]
        )
        columns = columns_of("size", ">cudaMalloc", ">pool")
        yield Table("memory", clean(device["device"]), columns, rows, tuple(map(clean, device["advice"])))


def _seconds(figure: Record | None) -> str:
    return format_quantity(figure["estimate"], "s", figure["ci95"]) if figure else ""


_TABLES: Mapping[str, Callable[[Record], Iterator[Table] | list[Table]]] = {
    "roofline": _roofline, "collectives": collective_tables, "scale": _scale, "storage": _storage,
    "monitor": _monitor, "cost": _cost, "precision": _precision, "memory": _memory, "fleet": fleet_tables,
}  # fmt: skip
