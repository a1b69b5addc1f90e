"""What a report says, as plain rows of text: the one description that console, Markdown and page all render.

Takes the result document alone; formats, but computes nothing beyond ratios of two figures that stand in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..model import flags_of
from ..units import format_fraction, format_interval, format_quantity, format_size, shown_unit

Doc = Mapping[str, Any]

LEVEL_NAMES = {"l1": "L1", "l2": "L2", "l3": "L3", "dram": "DRAM", "shared": "shared memory"}

FLAG_WORDS: Mapping[str, str] = {
    "correlated": "samples depend on their predecessors; the interval was widened for it",
    "drift": "the time moved steadily while it was measured",
    "bimodal": "the times fall into two separate groups (clock states, or a neighbour on the machine)",
    "target-missed": "the interval was still wider than asked for when the time or sample limit was reached",
    "few-samples": "fewer than 6 samples, so no 95% interval: the work is slower than the whole time budget, or it was "
    "interrupted",
    "changes-inputs": "the work changes its own inputs, so later runs saw other data than the first",
    "prints": "the work prints, and its printing is timed with it",
    "side-stream": "the work left something running on another stream, which its time does not include",
    "not-steady": "the times had not settled when the warm-up limit was reached",
    "throttled": "the clock was held down by a power or thermal limit",
    "below-resolution": "too short for the timer to resolve",
    "unstable": "came out more than 5% different when it was measured again at the end of the run",
    "above-ceiling": "above the measured ceiling by more than both intervals: either the footprint fits a nearer "
    "cache, the operations are counted wrongly, or the ceiling's kernel is not the best one",
    "above-spec": "above the spec peak: either the spec or the count is wrong",
    "impossible": "above a physical bound: the count, the timer or the output must be wrong",
    "launch-bound": "most of the time is the cost of starting the work",
    "gate-timeout": "the gate that holds the stream until everything is queued ran into its time limit",
    "sync": "the work waits for the device itself, so it could not be queued behind a gate",
    "nonlinear": "the time of a graph does not grow in proportion to its nodes",
    "event-wall": "event time and wall time disagree by more than the known overhead",
    "hung": "the work did not end within the watchdog's limit",
    "power-capped": "the power limit held the clock down",
    "clock-low": "the clock was below what it should be under load",
    "other-process": "another process used the device while it was measured",
    "shared-device": "another gpumicro run used the device at the same time",
    "shared-power": "a MIG instance: clock and power are shared with other instances",
    "smaller-size": "memory was short: a smaller problem than planned was measured",
    "best-run": "the tool states its best run; the others were slower",
    "cache-resident": "much or all of the data fits into a nearer cache, so this is not a figure of that memory alone",
}
RATES = (("bandwidth_bytes_per_s", "B/s"), ("flop_per_s", "FLOP/s"))  # of a measurement
SUSPICIOUS = frozenset({"above-ceiling", "above-spec", "impossible", "launch-bound", "cache-resident"})


@dataclass(frozen=True, slots=True)
class Column:
    """`under`: shown as a second line of the first column where there is little room."""

    name: str
    right: bool = False
    under: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table of texts, with remarks below it."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...] = field(default=())

    def without_empty(self) -> Table:
        """The table without the columns that no row fills (never the first)."""
        keep = [i for i in range(len(self.columns)) if i == 0 or any(row[i] for row in self.rows)]
        columns = tuple(self.columns[i] for i in keep)
        return Table(
            self.key, self.title, columns, tuple(tuple(row[i] for i in keep) for row in self.rows), self.remarks
        )


def columns_of(*names: str) -> tuple[Column, ...]:
    """ ">achieved" is set flush right, "/flags" may go under the first column."""
    return tuple(Column(name.lstrip(">/"), name[0] == ">", name[0] == "/") for name in names)


def clean(text: object) -> str:
    """One printable line: names come from the file, and a file may hold terminal escapes."""
    return re.sub(
        r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+|[\ud800-\udfff]", " ", str(text)
    ).strip()


def level_name(level: str | None) -> str:
    """ "DRAM" for "dram"."""
    return LEVEL_NAMES.get(level or "", clean(level or "?"))


def quantity(value: float | None, unit: str, ci95: Sequence[float] | None = None) -> str:
    """The formatted value, "unknown" for None."""
    return "unknown" if value is None else format_quantity(value, unit, ci95)


def suspicious(point: Doc) -> bool:
    """Whether a flag says that the figure itself may be wrong, and not only how sure it is."""
    return bool(SUSPICIOUS & set(point["flags"]))


def interval(value: float | None, ci95: Sequence[float] | None, unit: str) -> str:
    """The formatted 95% interval without its unit, "-" where there is none."""
    return "-" if value is None or ci95 is None else format_interval(ci95, value, unit)


def fraction(value: float | None) -> str:
    """A percentage, "-" for None."""
    return "-" if value is None else format_fraction(value)


def threads_text(record: Doc) -> str:
    """ "1 thread", "8 threads" of a record; nothing for a GPU, which is always measured whole."""
    threads = record.get("threads")
    if threads is None or str(record.get("device", "cpu")) != "cpu":
        return ""
    return f"{threads} thread{'s' if threads != 1 else ''}"


def ceiling_name(ceiling: Doc) -> str:
    """ "DRAM", "float64": what the roof is, without the threads."""
    if ceiling["kind"] == "network":
        return f"network {clean(ceiling.get('transport') or '')}".strip()
    return level_name(ceiling["level"]) if ceiling["kind"] == "memory" else clean(ceiling["dtype"])


def describe_recipe(ceiling: Doc) -> str:
    """The recipe and the operand class, which both belong to an arithmetic figure."""
    parts = [clean(ceiling.get("recipe") or "")]
    if ceiling["kind"] == "arithmetic" and ceiling.get("operands"):
        parts.append(f"{clean(ceiling['operands'])} operands")
    return ", ".join(part for part in parts if part)


def ceilings_table(doc: Doc) -> Table:
    """Every ceiling with its interval and spec peak; other recipes of an arithmetic peak stand in the remarks."""
    rows, others = [], []
    reasons: dict[str, list[str]] = {}
    for ceiling in doc["ceilings"]:
        unit = shown_unit(ceiling["unit"], ceiling["dtype"])
        name = f"{ceiling_name(ceiling)}, {threads_text(ceiling)}".rstrip(", ")
        achieved, ci95 = ceiling["achieved"], ceiling["ci95"]
        spec = quantity(ceiling["spec"], unit)
        if ceiling["spec"] is None:
            reasons.setdefault(clean(ceiling.get("spec_why") or "no reason given"), []).append(ceiling_name(ceiling))
        flags = ", ".join(map(clean, ceiling["flags"]))
        share = fraction(ceiling["fraction_of_spec"])
        rows.append(
            (
                name,
                describe_recipe(ceiling),
                quantity(achieved, unit, ci95),
                interval(achieved, ci95, unit),
                spec,
                share,
                flags,
            )
        )
        if ceiling["kind"] == "arithmetic":  # those of memory have tables of their own
            others += [_alternative(name, other, unit) for other in ceiling.get("alternatives", [])]
    unknown = [f"Spec peak unknown ({', '.join(dict.fromkeys(names))}): {why}." for why, names in reasons.items()]
    columns = columns_of("ceiling", "/recipe", ">achieved", ">95% interval", ">spec peak", ">of spec", "/flags")
    return Table("ceilings", "Ceilings", columns, tuple(rows), (*unknown, *others)).without_empty()


def _alternative(name: str, other: Doc, unit: str) -> str:
    value = quantity(other["achieved"], unit, other.get("ci95"))
    return f"{name}, also measured: {clean(other['recipe'])} {value}."


def ridge_table(doc: Doc) -> Table:
    """Ridge points: the intensity from which on arithmetic bounds."""
    rows = []
    for ridge in doc.get("ridge_points", []):
        value, ci95 = ridge["intensity_flop_per_byte"], ridge.get("ci95")
        rows.append((level_name(ridge["memory"]), clean(ridge["arithmetic"]), threads_text(ridge).partition(" ")[0],
                     quantity(value, "FLOP/B", ci95), interval(value, ci95, "FLOP/B")))  # fmt: skip
    columns = columns_of("memory", "arithmetic", ">threads", ">ridge point", ">95% interval")
    return Table("ridge", "Ridge points", columns, tuple(rows)).without_empty()


def achieved_of(point: Doc) -> tuple[float | None, Sequence[float] | None, str]:
    """A point's rate, its interval and unit: FLOP/s, or B/s where it has bytes alone."""
    if point["flop_per_s"] is None and point.get("bandwidth_bytes_per_s") is not None:
        return point["bandwidth_bytes_per_s"], point.get("bandwidth_ci95"), "B/s"
    return point["flop_per_s"], point.get("ci95"), shown_unit("FLOP/s", point.get("dtype"))


def intensity_text(point: Doc) -> str:
    """FLOP/B of a point, "no bytes" for pure arithmetic."""
    value = point["intensity_flop_per_byte"]
    return "no bytes" if value is None else quantity(value, "FLOP/B")


def points_table(doc: Doc) -> Table:
    """Points against what they could attain at their intensity; of the stream kernels only those that are flagged.

    A stream kernel is its level's bandwidth over again, which has a table of its own.
    """
    rows = []
    for point in doc["points"]:
        if point.get("kind") == "stream" and not suspicious(point):
            continue
        value, ci95, unit = achieved_of(point)
        bound = point["bound_by"]
        rows.append((
            clean(point["name"]),
            intensity_text(point).removesuffix(" FLOP/B"),
            quantity(value, unit, ci95),
            interval(value, ci95, unit),
            LEVEL_NAMES.get(bound, clean(bound)) if bound else "-",
            fraction(point["fraction_of_attainable"]),
            ", ".join(map(clean, point["flags"])),
        ))  # fmt: skip
    columns = columns_of("point", ">FLOP/B", ">achieved", ">95% interval", "bound by", ">of roof", "/flags")
    remarks = tuple(_user_remark(point) for point in doc["points"] if point.get("time_at_roof_s"))
    return Table("points", "Points under the roof", columns, tuple(rows), remarks).without_empty()


def _user_remark(point: Doc) -> str:
    """What a caller's own work took, and what it would at the roof; where it is faster, the likeliest cause."""
    took, best = (quantity(point.get(key), "s") for key in ("time_s", "time_at_roof_s"))
    causes = [clean(cause) for cause in point.get("causes", ())]
    return f"{clean(point['name'])}: {took} a call, {best} at the roof{f'; {causes[0]}' if causes else ''}."


def sustained_table(doc: Doc) -> Table:
    """First seconds beside the settled figure."""
    rows, remarks = [], []
    ceilings = {c.get("id"): c for c in doc["ceilings"]}
    for held in doc.get("sustained", []):
        ceiling = ceilings.get(held["ceiling"])
        unit = shown_unit(ceiling["unit"], ceiling["dtype"]) if ceiling else ""
        name = ceiling_name(ceiling) if ceiling else clean(held["ceiling"])
        first, settled = held["first"], held["settled"]
        change = settled["value"] / first["value"] - 1 if first["value"] else None
        rows.append((
            name, format_quantity(held["seconds"], "s"), quantity(first["value"], unit, first["ci95"]),
            quantity(settled["value"], unit, settled["ci95"]), interval(settled["value"], settled["ci95"], unit),
            "-" if change is None else f"{100 * change:+.1f}%",
        ))  # fmt: skip
        remarks += [
            f"{what} unknown: {clean(held[key])}."
            for key, what in (("clock_hz_why", "Clock"), ("power_w_why", "Power"))
            if held.get(key)
        ]
    columns = columns_of("ceiling", ">held for", ">first seconds", ">settled", ">95% interval", ">change")
    return Table("sustained", "Sustained", columns, tuple(rows), tuple(dict.fromkeys(remarks)))


def latency_table(doc: Doc) -> Table:
    """What is judged by its time: the pointer chase at each level, the cost of a launch."""
    rows = []
    for item in doc["measurements"]:
        latency = item.get("latency_s")
        if latency and latency["estimate"] is not None and not item.get("imported"):
            flags = ", ".join(map(clean, flags_of(item)))
            value, ci95 = latency["estimate"], latency["ci95"]
            where = level_name(item["level"]) if item.get("level") else ""
            size = ", ".join(f"{clean(name)}={count}" for name, count in item["problem"].items())
            times = (quantity(value, "s", ci95), interval(value, ci95, "s"))
            name = f"{clean(item['kernel'])} {clean(item.get('variant') or '')}".strip()
            rows.append((name, where, size, threads_text(item), *times, flags))
    columns = columns_of("kernel", "level", "problem", "threads", ">time", ">95% interval", "/flags")
    return Table("latency", "Latency", columns, tuple(rows)).without_empty()


RATE_FAMILIES = ("copy", "atomics")  # judged by a rate that is no ceiling of the roofline


def rates_table(doc: Doc) -> Table:
    """Copies between memories, and atomic operations."""
    rows = []
    for item in doc["measurements"]:
        shown = next(((key, unit) for key, unit in RATES if item.get(key)), None)
        if item["family"] not in RATE_FAMILIES or item.get("imported") or shown is None:
            continue
        if item[shown[0]]["estimate"] is None:
            continue
        key, unit = shown
        value, ci95 = item[key]["estimate"], item[key]["ci95"]
        name = f"{clean(item['kernel'])} {clean(item.get('variant') or '')}".strip()
        unit = "OP/s" if item["family"] == "atomics" else unit
        rows.append((
            name, clean(item["dtype"]), ", ".join(f"{clean(name)}={count}" for name, count in item["problem"].items()),
            quantity(value, unit, ci95), interval(value, ci95, unit),
            ", ".join(map(clean, flags_of(item))),
        ))  # fmt: skip
    columns = columns_of("kernel", "dtype", "problem", ">rate", ">95% interval", "/flags")
    return Table("rates", "Copies and atomics", columns, tuple(rows)).without_empty()


def measurements_table(doc: Doc) -> Table:
    """Every measurement, timed or not."""
    rows = []
    for item in doc["measurements"]:
        time, timing = item["time_s"], item["timing"] or {}
        rate = _headline(item)
        rows.append((
            clean(item["id"]),
            quantity(time["estimate"], "s", time["ci95"]) if time else "-",
            interval(time["estimate"], time["ci95"], "s") if time else "-",
            rate, str(timing.get("n", "-")), clean(timing.get("stop_reason", "-")),
            item["status"] if item["status"] != "ok" else ", ".join(map(clean, flags_of(item))),
        ))  # fmt: skip
    columns = columns_of("measurement", ">time", ">95% interval", ">rate", ">samples", "stopped by", "status, flags")
    return Table("measurements", "Measurements", columns, tuple(rows)).without_empty()


def _headline(item: Doc) -> str:
    """The rate that the kernel is judged by: bytes where it streams, FLOP where it computes."""
    for key, unit in reversed(RATES) if item["traffic"] != "exact" else RATES:
        rate = item[key]
        if rate and rate["estimate"] is not None:
            return format_quantity(rate["estimate"], shown_unit(unit, item["dtype"]), rate["ci95"])
    return "-"


def unmeasured(doc: Doc) -> list[str]:
    """One line for each failed measurement, and for those that were skipped for one reason."""
    alike: dict[tuple[str, str], list[str]] = {}
    for item in doc["measurements"]:
        if item["status"] != "ok":
            why = clean(item.get("error") or item.get("reason") or "no reason given")
            alike.setdefault((item["status"], why), []).append(clean(item["id"]))
    lines = []
    for (status, why), (first, *others) in alike.items():
        if status == "failed" or len(others) < 2:
            lines += [f"{name}: {status}: {why}" for name in (first, *others)]
        else:
            kernels = dict.fromkeys(name.partition("[")[0] for name in (first, *others))
            lines.append(f"{', '.join(kernels)} ({len(others) + 1} measurements): {status}: {why}")
    return lines


def flags_used(doc: Doc) -> list[str]:
    """Every flag in the document, in the order of the vocabulary, then unknown ones."""
    seen: set[str] = set()
    for item in (*doc["ceilings"], *doc["points"]):
        seen.update(item["flags"])
    for item in doc["measurements"]:
        seen.update(flags_of(item))
    return [flag for flag in FLAG_WORDS if flag in seen] + sorted(seen - set(FLAG_WORDS))


def flag_words(doc: Doc) -> list[tuple[str, str]]:
    """(flag, what it means) for the flags that occur."""
    return [(clean(flag), FLAG_WORDS.get(flag, "not known to this version of gpumicro")) for flag in flags_used(doc)]


def headline(doc: Doc) -> list[str]:
    """What was measured, when, by what: two or three lines."""
    devices = "; ".join(_device_words(device) for device in doc["devices"]) or "no device"
    mode = (doc.get("settings") or {}).get("mode")
    when = f"{clean(doc['created'])}, gpumicro {clean(doc['gpumicro_version'])}{f', {clean(mode)} run' if mode else ''}"
    return [devices, when, *warnings(doc)]


def warnings(doc: Doc) -> list[str]:
    """What a reader must know before any figure."""
    lines = []
    if doc["emulated"]:
        lines.append("EMULATED: no real hardware was measured; the times mean nothing.")
    if doc.get("imported"):
        lines.append(f"IMPORTED from {imported_from(doc)}, not measured by gpumicro.")
    if doc.get("synthetic"):
        lines.append("SYNTHETIC: a recording made up by a model was played back; nothing here was ever measured.")
    elif doc.get("replayed"):
        lines.append("REPLAYED: a recording was played back; nothing was measured now.")
    if doc["interrupted"]:
        lines.append("INTERRUPTED: the run was stopped; only what was measured until then is shown.")
    return lines


def document_title(doc: Doc) -> str:
    """What a document shows: a roofline, collectives, or what another tool measured."""
    if shows_roofline(doc):
        return "Roofline"
    for key in ("storage", "monitor"):
        if doc.get(key):
            return key.capitalize()
    return "Collectives" if has_collectives(doc) else "Results"


def shows_roofline(doc: Doc) -> bool:
    """A document without ceilings has none to show where it holds collectives or what another tool measured."""
    return bool(doc["ceilings"]) or not (
        doc.get("imported") or doc.get("storage") or doc.get("monitor") or has_collectives(doc)
    )


def has_collectives(doc: Doc) -> bool:
    """Whether a collective was measured."""
    return any(item["family"] == "collective" for item in doc["measurements"])


def imported_from(doc: Doc) -> str:
    """ "nvbench 0.2.0 (r.json)": the tool that measured, of an imported document."""
    imported = doc["imported"]
    version = f" {clean(imported['version'])}" if imported.get("version") else ""
    return f"{clean(imported['tool'])}{version} ({clean(imported['file'])})"


def _device_words(device: Doc) -> str:
    cores, virtual = device.get("cores"), device.get("virtual")
    what = "SM" if device["kind"] != "cpu" else "core"
    parts = [clean(device["name"])]
    if cores:
        parts.append(f"{cores} {what}{'s' if cores != 1 else ''}")
    if device.get("memory_bytes"):
        parts.append(f"{format_size(device['memory_bytes'])} memory")
    if virtual:
        parts.append(f"virtual machine ({clean(virtual)})")
    return ", ".join(parts)


def remarks(doc: Doc) -> list[str]:
    """Verdicts, then notes."""
    verdicts = [
        f"{'passed' if v['passed'] else 'FAILED'}: {clean(v['name'])}: {clean(v['text'])}"
        for v in doc.get("verdicts", [])
    ]
    return [*verdicts, *conditions(doc), *map(clean, doc.get("notes", []))]


def conditions(doc: Doc) -> list[str]:
    """What a GPU did while it was measured, in a line each: clock, power, temperature, what held it back."""
    lines = []
    for seen in doc.get("conditions", []):
        clock, power, heat = (seen.get(key) or {} for key in ("sm_clock_hz", "power_w", "temperature_c"))
        parts = []
        if clock.get("median"):
            span = f"{format_quantity(clock['min'], 'Hz')} to {format_quantity(clock['max'], 'Hz')}"
            parts.append(f"SM clock {format_quantity(clock['median'], 'Hz')} ({span})")
        if power.get("median"):
            limit = (seen.get("gpu") or {}).get("power_limit_w")
            parts.append(f"{power['median']:.0f} W{f' of {limit:.0f} W' if limit else ''} at the median")
        if heat.get("max"):
            parts.append(f"up to {heat['max']:.0f} C")
        held = [(why, share) for why, share in (seen.get("limited_fraction") or {}).items() if share and share > 0.01]
        parts += [f"held back by {clean(why)} {share:.0%} of the time" for why, share in held]
        if parts:
            lines.append(f"{clean(seen['device'])} under load: {'; '.join(parts)}")
    return lines


def all_tables(doc: Doc) -> Iterable[Table]:
    """The tables that have rows, in the order of a report."""
    from .bandwidth import bandwidth_tables
    from .collectives import collective_tables
    from .gpus import topology_table
    from .imported import imported_tables
    from .monitor import monitor_tables
    from .network import works_table
    from .storage import storage_tables

    if doc.get("storage"):  # fio's measurements stand in its own table
        return (table for table in storage_tables(doc) if table.rows)
    if doc.get("monitor"):
        return (table for table in monitor_tables(doc) if table.rows)
    made = (
        ceilings_table(doc), *bandwidth_tables(doc), ridge_table(doc), works_table(doc), points_table(doc),
        latency_table(doc), rates_table(doc), *collective_tables(doc), *imported_tables(doc),
        topology_table(doc),
    )  # fmt: skip
    return (table for table in (*made, sustained_table(doc)) if table.rows)
