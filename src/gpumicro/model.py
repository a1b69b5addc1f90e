"""The roofline model: ceilings, ridge points, attainable performance and points, as pure numbers.

Everything here takes and gives JSON-shaped records (see schema/result-1.json), so it works on a file from another
machine. The model is that of Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52(4), 2009: attainable = min(peak, bandwidth x arithmetic intensity).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from .errors import UsageError
from .peaks.sheet import Promise, Sheet

Record = dict[str, Any]

# A ceiling's kernel reads as a roof for GEMM and the sweep, which fuse multiply and add; see docs/methods.md.
VECTOR_RECIPES = ("peak.fma", "peak.dot")
TENSOR_RECIPES = ("peak.mma", "peak.wgmma", "peak.tcgen05")  # three generations of tensor-core instructions
ROOF_RECIPES = VECTOR_RECIPES + TENSOR_RECIPES
BANDWIDTH_FAMILIES = ("stream", "cache")  # judged by bytes; their best is a memory level's ceiling
CEILING_RATES = {"memory": "bandwidth_bytes_per_s", "arithmetic": "flop_per_s"}
LEVEL_ORDER = ("register", "shared", "l1", "l2", "l3", "dram", "host", "peer", "network", "storage")

ABOVE_SPEC_OVER = 0.01  # a wide interval is no excuse to be further above a physical bound; clocks are read this well
UNSTABLE_OVER = 0.05  # two measurements of one ceiling in one run that differ by more say that the machine moved

CAUSES_ABOVE = (
    "the working set stays in a nearer cache than the level it is set against",
    "the data are constant and the hardware compresses or skips them",
    "the byte or FLOP count is too high",
    "the ceiling was measured while the machine was slower than during this point",
)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95% interval, in the unit of whatever it measures.

    Without a known width (`bounded` False: another tool's figure, imported) both ends are the estimate itself, so that
    arithmetic goes on; `ci95` is None then, and `above` asks for a margin instead.
    """

    estimate: float
    low: float
    high: float
    bounded: bool = True

    @classmethod
    def of(cls, figure: Mapping[str, Any], key: str = "estimate") -> Interval:
        """From a record's `{"estimate": ..., "ci95": [low, high]}`, or a ceiling (`key` "achieved")."""
        ci95 = figure["ci95"]
        low, high = ci95 or (figure[key], figure[key])
        return cls(figure[key], low, high, ci95 is not None)

    @property
    def ci95(self) -> list[float] | None:
        """Both ends, None where the width is not known."""
        return [self.low, self.high] if self.bounded else None

    def scaled(self, factor: float) -> Interval:
        return replace(self, estimate=self.estimate * factor, low=self.low * factor, high=self.high * factor)

    def lesser(self, other: Interval) -> Interval:
        """The minimum of two, end by end."""
        low, high = min(self.low, other.low), min(self.high, other.high)
        return Interval(min(self.estimate, other.estimate), low, high, self.bounded and other.bounded)

    def above(self, other: Interval) -> bool:
        """Whether it is higher by more than both intervals, or by more than 5% where one of them is not known."""
        margin = 1.0 if self.bounded and other.bounded else 1 + UNSTABLE_OVER
        return self.low > other.high * margin


def with_ci95(interval: Interval) -> Record:
    """`ci95` of a record that is made, with its reason where there is none."""
    found: Record = {"ci95": interval.ci95}
    return found if interval.bounded else found | {"ci95_why": "a figure it rests on was imported without an interval"}


def threads_of(record: Record) -> Record:
    """`threads` of a record that is made from another, with its reason where an imported one has none."""
    return {key: record[key] for key in ("threads", "threads_why") if key in record}


def rate(record: Record) -> Interval | None:
    """What the record's kernel is judged by: FLOP/s where its ceiling is arithmetic, else bytes/s."""
    return figure_of(record, "bandwidth_bytes_per_s" if record["family"] in BANDWIDTH_FAMILIES else "flop_per_s")


def figure_of(record: Record, key: str) -> Interval | None:
    """A record's rate, where it is resolved; an imported one needs no interval."""
    figure = record.get(key)
    usable = resolved(figure) or (record.get("imported") and figure and figure["estimate"] is not None)
    return Interval.of(figure) if figure and usable else None


def resolved(figure: Mapping[str, Any] | None) -> bool:
    """Whether a rate has a value and both ends of its interval; a time not above the timer's overhead has not."""
    return bool(figure and figure["estimate"] is not None and figure["ci95"] is not None)


def measured(records: Iterable[Record]) -> list[Record]:
    """Those that gave a figure."""
    return [record for record in records if record["status"] == "ok" and record.get("time_s")]


def _recipe(record: Record) -> str:
    """The kernel and how it went about it: store mode and element type, or an arithmetic peak's instruction mix."""
    name = f"{record['kernel']} {record.get('variant') or ''}".strip()
    if record["family"] in BANDWIDTH_FAMILIES:
        return f"{name} ({record['dtype']})"
    mix = (record.get("facts") or {}).get("recipe") if record["family"] == "peak" else None
    return f"{name} ({mix})" if mix else name


def grouped(records: Iterable[Record], key: Callable[[Record], tuple[Any, ...]]) -> list[tuple[Any, list[Record]]]:
    return [(name, list(group)) for name, group in groupby(sorted(records, key=key), key)]


def ceiling_of(kind: str, best: Record, others: Sequence[Record], scope: str) -> Record:
    """The ceiling ("memory" or "arithmetic") that the best record sets; the others are its alternatives."""
    key = CEILING_RATES[kind]
    achieved = figure_of(best, key)
    assert achieved is not None
    name = best["level"] if kind == "memory" else best["dtype"]
    threads = f"/threads={best['threads']}" if best["threads"] else ""  # an imported file may not say how many
    recipe_tail = f"/{best['kernel']}" if scope == "shown" and kind == "arithmetic" else ""
    return {
        "id": f"{best['device']}/{name}{threads}{recipe_tail}",
        "kind": kind,
        "device": best["device"],
        "level": best["level"] if kind == "memory" else None,
        "dtype": best["dtype"] if kind == "arithmetic" else None,
        "unit": "B/s" if kind == "memory" else "FLOP/s",
        "achieved": achieved.estimate,
        **with_ci95(achieved),
        "spec": None,
        "spec_why": "no spec was given or found for this figure",
        "fraction_of_spec": None,
        "fraction_of_spec_why": "no spec",
        "measurement": best["id"],
        **threads_of(best),
        "kernel": best["kernel"],
        "recipe": _recipe(best),
        **({} if best.get("imported") else {"operands": best.get("operands", "uniform")}),
        "alternatives": [
            {"recipe": _recipe(other), "achieved": figure.estimate, **with_ci95(figure), "measurement": other["id"]}
            for other in others
            if (figure := figure_of(other, key))
        ],
        "scope": scope,
        "flags": flags_of(best),
    }


def flags_of(record: Mapping[str, Any]) -> list[str]:
    """A measurement's flags: those of its samples, then those of the record itself (of an imported one)."""
    return [*(record["timing"] or {}).get("flags", []), *record.get("flags", [])]


def level_rank(level: str) -> int:
    return LEVEL_ORDER.index(level) if level in LEVEL_ORDER else len(LEVEL_ORDER)


def by_rate(records: Sequence[Record], kind: str) -> list[Record]:
    """Those that have the rate of that kind of ceiling, fastest first."""
    key = CEILING_RATES[kind]
    with_rate = [(figure.estimate, index) for index, record in enumerate(records) if (figure := figure_of(record, key))]
    return [records[index] for _, index in sorted(with_rate, key=lambda pair: (-pair[0], pair[1]))]


def memory_ceilings(records: Sequence[Record]) -> list[Record]:
    """One ceiling for each device, memory level and thread count: the best kernel, the rest as alternatives."""
    streams = [r for r in measured(records) if r["family"] in BANDWIDTH_FAMILIES and r.get("level")]
    most = {device: max(r["threads"] for r in group) for device, group in grouped(streams, lambda r: (r["device"],))}
    ceilings = []
    for (device, _, threads), group in grouped(streams, lambda r: (r["device"], r["level"], r["threads"])):
        if ranked := by_rate(group, "memory"):
            scope = "roof" if threads == most[(device,)] else "shown"
            ceilings.append(ceiling_of("memory", ranked[0], ranked[1:], scope))
    return sorted(ceilings, key=lambda c: (c["scope"] != "roof", c["device"], level_rank(c["level"])))


def arithmetic_ceilings(records: Sequence[Record]) -> list[Record]:
    """One roof for each device, dtype and thread count: the fastest of the roof's recipes; others are shown beside it.

    Where tensor cores make the roof, the plain units' best is shown as a ceiling of its own.
    """
    peaks = [record for record in measured(records) if record["family"] == "peak"]
    most = {device: max(r["threads"] for r in group) for device, group in grouped(peaks, lambda r: (r["device"],))}
    ceilings = []
    for (device, _, threads), group in grouped(peaks, lambda r: (r["device"], r["dtype"], r["threads"])):
        roofs_scope = "roof" if threads == most[(device,)] else "shown"
        tensor, vector, other = (
            by_rate([record for record in group if pick(record["kernel"])], "arithmetic")
            for pick in (TENSOR_RECIPES.__contains__, VECTOR_RECIPES.__contains__, lambda k: k not in ROOF_RECIPES)
        )
        for ranked, scope in ((tensor or vector, roofs_scope), (vector if tensor else [], "shown"), (other, "shown")):
            if ranked:
                ceilings.append(ceiling_of("arithmetic", ranked[0], ranked[1:], scope))
    return sorted(ceilings, key=lambda c: (c["scope"] != "roof", c["device"], c["dtype"], -c["threads"], c["kernel"]))


def roofs(ceilings: Iterable[Record], kind: str, device: str | None = None) -> list[Record]:
    """The ceilings that form the roof, of one kind and, where given, of one device."""
    return [
        ceiling
        for ceiling in ceilings
        if ceiling["scope"] == "roof" and ceiling["kind"] == kind and device in (None, ceiling["device"])
    ]


def ridge_points(ceilings: Sequence[Record]) -> list[Record]:
    """Where each memory roof meets each arithmetic roof: from that intensity (FLOP/B) on, the peak can be reached."""
    ridges = []
    for peak in roofs(ceilings, "arithmetic"):
        for memory in roofs(ceilings, "memory", peak["device"]):
            top, slope = Interval.of(peak, "achieved"), Interval.of(memory, "achieved")
            ridge = Interval(
                top.estimate / slope.estimate, top.low / slope.high, top.high / slope.low, top.bounded and slope.bounded
            )
            ridges.append({
                "device": peak["device"], "memory": memory["level"], "arithmetic": peak["dtype"],
                **threads_of(peak), "intensity_flop_per_byte": ridge.estimate, **with_ci95(ridge),
            })  # fmt: skip
    return ridges


@dataclass(frozen=True, slots=True)
class Bound:
    """What holds a kernel of some intensity: the attainable FLOP/s and the ceiling that sets it."""

    attainable: Interval
    bound_by: str  # "dram", "float64"
    ceiling: Record


def attainable(
    ceilings: Sequence[Record], intensity: float | None, *, level: str = "dram", dtype: str = "float64",
    device: str | None = None,
) -> Bound:  # fmt: skip
    """The roof over `intensity` (FLOP/B; None: no memory is touched) under a level's bandwidth and a dtype's peak."""
    peaks = {ceiling["dtype"]: ceiling for ceiling in roofs(ceilings, "arithmetic", device)}
    memories = {ceiling["level"]: ceiling for ceiling in roofs(ceilings, "memory", device)}
    if dtype not in peaks:
        raise UsageError(f"no arithmetic ceiling for {dtype!r}; measured: {', '.join(peaks) or 'none'}")
    peak = peaks[dtype]
    flat = Interval.of(peak, "achieved")
    if intensity is None:
        return Bound(flat, dtype, peak)
    if level not in memories:
        raise UsageError(f"no bandwidth ceiling for {level!r}; measured: {', '.join(memories) or 'none'}")
    memory = memories[level]
    slope = Interval.of(memory, "achieved").scaled(intensity)
    limit, name = (memory, level) if slope.estimate < flat.estimate else (peak, dtype)
    return Bound(slope.lesser(flat), name, limit)


def point(ceilings: Sequence[Record], record: Record, *, level: str | None, name: str, kind: str) -> Record | None:
    """A measurement on the chart, with what holds it; None where its dtype or level has no roof or it does no FLOP."""
    achieved = figure_of(record, "flop_per_s")
    if achieved is None:
        return None
    intensity = record.get("intensity_flop_per_byte")
    try:
        bound = attainable(
            ceilings, intensity, level=level or "dram", dtype=record["dtype"], device=record.get("device")
        )
    except UsageError:
        return None
    above = achieved.above(bound.attainable) and not within_another_recipe(ceilings, bound, achieved)
    flags = [*flags_of(record), *(["above-ceiling"] if above else [])]
    out: Record = {
        "name": name, "kind": kind, "device": record["device"], "dtype": record["dtype"], "level": level,
        **threads_of(record), "intensity_flop_per_byte": intensity, "flop_per_s": achieved.estimate,
        **with_ci95(achieved), "time_s": record["time_s"]["estimate"], "bound_by": bound.bound_by,
        "attainable_flop_per_s": bound.attainable.estimate,
        "fraction_of_attainable": achieved.estimate / bound.attainable.estimate,
        "measurement": record["id"], "flags": flags,
    }  # fmt: skip
    if above:
        out["causes"] = list(CAUSES_ABOVE)
    return out


def within_another_recipe(ceilings: Sequence[Record], bound: Bound, achieved: Interval) -> bool:
    """An FMA peak is no bound for code that mixes FMAs with adds: a faster recipe of the same dtype may cover it."""
    same = (c for c in ceilings if c["kind"] == "arithmetic" and c["dtype"] == bound.bound_by)
    same_threads = (c for c in same if c["threads"] == bound.ceiling["threads"])
    return any(not achieved.above(Interval.of(c, "achieved")) for c in same_threads)


def points(ceilings: Sequence[Record], records: Sequence[Record]) -> list[Record]:
    """GEMM, stream and mixed-intensity measurements with as many threads as the roof, as points on the chart.

    Of the variants of one GEMM (tiles) the fastest is shown.
    """
    threads = {ceiling["device"]: ceiling["threads"] for ceiling in roofs(ceilings, "arithmetic")}
    placed = []
    for record in _fastest_gemms(measured(records)):
        if record["family"] not in ("gemm", "stream", "mixed") or record.get("repeat_of"):
            continue
        if record["threads"] == threads.get(record["device"]) and (
            found := point(ceilings, record, level=record["level"], name=_point_name(record), kind=record["family"])
        ):
            placed.append(found)
    return placed


def _fastest_gemms(records: Sequence[Record]) -> Iterator[Record]:
    """All records, but of a GEMM's variants at one problem only the fastest."""
    fastest: dict[tuple[Any, ...], Record] = {}
    for record in records:
        if record["family"] == "gemm" and not record.get("repeat_of"):
            key = _gemm_key(record)
            if key not in fastest or record["time_s"]["estimate"] < fastest[key]["time_s"]["estimate"]:
                fastest[key] = record
    for record in records:
        if record["family"] != "gemm" or record is fastest.get(_gemm_key(record)):
            yield record


def _gemm_key(record: Record) -> tuple[Any, ...]:
    return (*(record[key] for key in ("device", "kernel", "dtype", "threads")), *record["problem"].values())


def _point_name(record: Record) -> str:
    kernel, dtype = record["kernel"], record["dtype"]
    if record["family"] == "gemm":
        kernel = f"{kernel} {record.get('variant') or ''}".strip()
        return f"{kernel} {dtype} {'x'.join(str(size) for size in dict.fromkeys(record['problem'].values()))}"
    if record["family"] == "mixed":
        return f"{kernel} {dtype} at {record['intensity_flop_per_byte']:g} FLOP/B"
    return " ".join(f"{kernel} {record.get('variant') or ''} {dtype} {record['level']}".split())


def ceilings(records: Sequence[Record]) -> list[Record]:
    """All ceilings that the records give, memory first, with the closing repeat beside each that was measured twice."""
    first = [record for record in records if not record.get("repeat_of")]
    found = [*memory_ceilings(first), *arithmetic_ceilings(first)]
    again = {record["repeat_of"]: record for record in measured(records) if record.get("repeat_of")}
    for ceiling in found:
        second = again.get(ceiling["measurement"])
        if second and (figure := rate(second)):
            ceiling["repeat"] = {
                "achieved": figure.estimate, "ci95": [figure.low, figure.high], "measurement": second["id"],
                "ratio": figure.estimate / ceiling["achieved"],
            }  # fmt: skip
            if abs(ceiling["repeat"]["ratio"] - 1) > UNSTABLE_OVER:
                ceiling["flags"].append("unstable")
    return found


def attach_spec(found: Sequence[Record], sheet: Sheet, clock_hz: float | None) -> None:
    """Set spec peaks beside the ceilings, in place; a figure above its physical bound is flagged, never passed.

    `clock_hz` is what was measured; with it the flag can say which of spec and measurement is wrong.
    """
    for ceiling in found:
        promise = promise_for(ceiling, sheet)
        value = promise.value
        if value is not None and ceiling["kind"] == "arithmetic" and sheet.cores:  # of a CPU: one thread a core
            value *= min(1.0, ceiling["threads"] / sheet.cores)
        ceiling["spec"] = value
        if value is None:
            ceiling["spec_why"] = ceiling["fraction_of_spec_why"] = promise.why
            continue
        ceiling["fraction_of_spec"] = ceiling["achieved"] / value
        del ceiling["spec_why"], ceiling["fraction_of_spec_why"]
        if ceiling["ci95"][0] > value or ceiling["achieved"] > value * (1 + ABOVE_SPEC_OVER):
            ceiling["flags"].append("above-spec")
            ceiling["causes"] = [_which_is_wrong(ceiling, promise.per_cycle, clock_hz)]


# Of a kernel, what the spec promises for it.
RECIPES = {
    "peak.fma_add": "fma_add", "peak.mma_half": "tensor_half", **dict.fromkeys(TENSOR_RECIPES, "tensor"),
}  # fmt: skip


def promise_for(ceiling: Record, sheet: Sheet) -> Promise:
    """The spec peak that this ceiling is held to."""
    if ceiling["kind"] == "memory":
        return sheet.bandwidth(ceiling["level"])
    return sheet.arithmetic(ceiling["dtype"], RECIPES.get(ceiling["kernel"], "fma"))


def _which_is_wrong(ceiling: Record, per_cycle: float | None, clock_hz: float | None) -> str:
    if per_cycle and clock_hz:
        at_clock = per_cycle * clock_hz * ceiling["threads"]
        if ceiling["achieved"] <= at_clock * (1 + ABOVE_SPEC_OVER):
            return (
                f"the spec is wrong: the core runs at {clock_hz / 1e9:.2f} GHz, above the clock that the spec assumes"
            )
        return "the measurement or the spec's width is wrong: it is above what the measured clock allows"
    return "the spec is too low (a clock below the real one, or another model), or the count is too high"
