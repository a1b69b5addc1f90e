"""A caller's own work under the roof: the point, what holds it, and why it cannot be true where it is above.

Pure numbers: JSON-shaped ceilings and devices in, a JSON-shaped point out. Nothing is timed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from . import model
from .counts import Counts
from .errors import UsageError
from .model import Bound, Interval, Record
from .result import or_why
from .units import format_fraction, format_quantity, format_size

Unit = Literal["auto", "vector", "tensor"]
UNITS: tuple[Unit, ...] = ("auto", "vector", "tensor")
ASIDE = frozenset({"event-wall", "sync", "side-stream"})  # flags that say that work escaped the events
SHORT_S = 5e-6  # a call of Python that starts nothing takes a good part of a microsecond


class Timed(Protocol):
    """What a point needs of a measurement. `ci95_s` is None where too few calls were seen for an interval."""

    @property
    def estimate_s(self) -> float: ...

    @property
    def ci95_s(self) -> tuple[float, float] | None: ...

    @property
    def flags(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Roofs:
    """The ceilings of one device, and its record."""

    device: Record
    memory: tuple[Record, ...]  # nearest first
    arithmetic: tuple[Record, ...]  # roofs, and the plain units' own where tensor cores make the roof
    ceilings: tuple[Record, ...]

    @classmethod
    def of(cls, document: Mapping[str, Any], device: str | None = None) -> Roofs:
        """Of a result document; `device` may be left out where it has only one with ceilings."""
        first = document["devices"][0]["id"] if document["devices"] else "cpu"
        usual = {"device": first, "scope": "roof", "threads": 1}  # what the schema lets a file leave out
        ceilings = [usual | ceiling for ceiling in document["ceilings"] if ceiling["achieved"]]
        known = list(dict.fromkeys(ceiling["device"] for ceiling in ceilings))
        if not known:
            raise UsageError("this roofline has no ceilings: nothing was measured")
        if device is None and len(known) > 1:
            raise UsageError(f"this roofline has several devices; say which with device=: {', '.join(known)}")
        if device is not None and device not in known:
            raise UsageError(f"no device {device!r} in this roofline; it has {', '.join(known)}")
        name = device or known[0]
        facts = next((one for one in document["devices"] if one["id"] == name), {"id": name, "kind": "cpu"})
        mine = tuple(ceiling for ceiling in ceilings if ceiling["device"] == name)
        memory = tuple(sorted(model.roofs(mine, "memory"), key=lambda c: model.level_rank(c["level"])))
        threads = max(ceiling["threads"] or 0 for ceiling in mine)
        peaks = (c for c in mine if c["kind"] == "arithmetic" and (c["scope"] == "roof" or _plain(c, threads)))
        return cls(facts, memory, tuple(peaks), mine)

    def level(self, name: str) -> Record:
        """The bandwidth of a level. UsageError names those there are."""
        return _named(self.memory, "level", name, "bandwidth")

    def peak(self, dtype: str, unit: Unit = "auto") -> Record:
        """The arithmetic peak: the roof's, or that of the units named."""
        if unit not in UNITS:
            raise UsageError(f"unit is {unit!r}; one of {', '.join(UNITS)}")
        found = [peak for peak in self.arithmetic if unit in ("auto", unit_of(peak))]
        kind = "arithmetic" if unit == "auto" else f"{unit} arithmetic"
        return _named([*(c for c in found if c["scope"] == "roof"), *found], "dtype", dtype, kind)

    def capacity(self, level: str) -> int | None:
        """Bytes that all caches of that level hold, None for memory and what is not known."""
        sizes = (c for c in self.device.get("caches") or () if c.get("level") == level)
        return sum(int(cache["size_bytes"]) * int(cache.get("count") or 1) for cache in sizes) or None

    def nearest(self, moved: float) -> str:
        """The nearest measured level that holds so many bytes: where a call that is repeated finds them."""
        names = [str(memory["level"]) for memory in self.memory]
        if not names:
            raise UsageError("this roofline has no bandwidth ceiling, so no level can be chosen")
        return next((name for name in names if moved <= (self.capacity(name) or 0)), names[-1])


def _plain(peak: Record, threads: int) -> bool:
    """Whether it is the plain units' peak, of all of them, that stands beside a tensor roof."""
    return (peak["threads"] or 0) == threads and peak.get("kernel") in model.VECTOR_RECIPES


def unit_of(ceiling: Record) -> str:
    """ "memory", "tensor" or "vector": what a ceiling is made of."""
    if ceiling["kind"] == "memory":
        return "memory"
    return "tensor" if ceiling.get("kernel") in model.TENSOR_RECIPES else "vector"


def _named(ceilings: Sequence[Record], key: str, name: str, kind: str) -> Record:
    for ceiling in ceilings:
        if ceiling[key] == name:
            return ceiling
    known = ", ".join(dict.fromkeys(str(ceiling[key]) for ceiling in ceilings)) or "none"
    raise UsageError(f"no {kind} ceiling for {name!r}; measured: {known}")


def _interval(ceiling: Record) -> Interval:
    """A ceiling's, as high as it came out when it was measured again."""
    achieved = Interval.of(ceiling, "achieved")
    again = (ceiling.get("repeat") or {}).get("ci95")
    return replace(achieved, high=max(achieved.high, again[1])) if again else achieved


@dataclass(frozen=True, slots=True)
class Place:
    """Where a work belongs before it is timed: the ceilings it is set against. Building one raises UsageError."""

    roofs: Roofs
    counts: Counts
    level: str | None  # None where no bytes are counted
    bound: Bound  # in B/s where no FLOP is counted, else in FLOP/s
    memory: Record | None
    peak: Record | None

    @classmethod
    def find(cls, roofs: Roofs, counts: Counts, *, level: str = "dram", unit: Unit = "auto") -> Place:
        """`level`: where the data come from; "auto" is the nearest that holds them. `unit`: whose arithmetic."""
        memory = peak = None
        if counts.bytes:
            memory = roofs.level(roofs.nearest(counts.bytes) if level == "auto" else level)
        if counts.flops:
            peak = roofs.peak(counts.dtype, unit)
        return cls(roofs, counts, memory["level"] if memory else None, _bound(counts, memory, peak), memory, peak)


def _bound(counts: Counts, memory: Record | None, peak: Record | None) -> Bound:
    if peak is None:
        assert memory is not None  # Counts are not both zero
        return Bound(_interval(memory), memory["level"], memory)
    flat = Bound(_interval(peak), peak["dtype"], peak)
    if memory is None:
        return flat
    slope = Bound(_interval(memory).scaled(counts.flops / counts.bytes), memory["level"], memory)
    lower = slope if slope.attainable.estimate < flat.attainable.estimate else flat
    return Bound(slope.attainable.lesser(flat.attainable), lower.bound_by, lower.ceiling)


def user_point(place: Place, timed: Timed, name: str) -> Record:
    """The point of the schema: a work at its place, having taken so long.

    Raises UsageError where one run is too short for the timer to see.
    """
    counts, bound = place.counts, place.bound
    ci95_s = None if FEW in timed.flags else timed.ci95_s
    ends_s = ci95_s or (timed.estimate_s, timed.estimate_s)
    if not timed.estimate_s > 0 or ends_s[0] <= 0:
        raise UsageError(f"{name}: one call takes no time that the timer can see; let a call do more work")
    work = counts.flops or counts.bytes
    achieved = Interval(work / timed.estimate_s, work / ends_s[1], work / ends_s[0])
    above = achieved.above(bound.attainable)
    if above and bound.ceiling["kind"] == "arithmetic":
        same_units = [c for c in place.roofs.ceilings if unit_of(c) == unit_of(bound.ceiling)]
        above = not model.within_another_recipe(same_units, bound, achieved)
    out: Record = {
        "name": name, "kind": "user", "device": bound.ceiling["device"], "dtype": counts.dtype, "level": place.level,
        **model.threads_of(bound.ceiling), "flops": counts.flops, "bytes_moved": counts.bytes,
        "counted": counts.what, **or_why("intensity_flop_per_byte", counts.intensity, "no memory traffic is counted"),
        **_rates(counts, timed.estimate_s, ci95_s), "time_s": timed.estimate_s,
        **or_why("time_ci95_s", list(ci95_s) if ci95_s else None, NO_INTERVAL),
        "bound_by": bound.bound_by, "bound_unit": unit_of(bound.ceiling), "ceiling": bound.ceiling.get("id"),
        **_attainable(counts, bound, achieved, bool(ci95_s)), **_spec(place, achieved, bool(ci95_s)),
        "measurement": None, "measurement_why": "the caller's own work, not part of the survey",
        "flags": [*dict.fromkeys((*timed.flags, *(["impossible"] if above else [])))],
    }  # fmt: skip
    if above:
        out["causes"] = causes(place, timed, achieved)
    return out


FEW = "few-samples"  # the flag of a time whose interval does not reach 95%
NO_INTERVAL = "fewer than 6 samples give no 95% interval"


def _rates(counts: Counts, estimate_s: float, ci95_s: tuple[float, float] | None) -> Record:
    """FLOP/s and B/s, each with its interval; null where none is counted."""
    out: Record = {}
    for key, ends, work, why in (
        ("flop_per_s", "ci95", counts.flops, "no arithmetic is counted"),
        ("bandwidth_bytes_per_s", "bandwidth_ci95", counts.bytes, "no memory traffic is counted"),
    ):
        out |= or_why(key, work / estimate_s if work else None, why)
        interval = [work / ci95_s[1], work / ci95_s[0]] if work and ci95_s else None
        out |= or_why(ends, interval, NO_INTERVAL if work else why)
    return out


def _attainable(counts: Counts, bound: Bound, achieved: Interval, interval: bool) -> Record:
    by_flops = bool(counts.flops)
    limit = bound.attainable
    share = [achieved.low / limit.high, achieved.high / limit.low]
    no_share = NO_INTERVAL if limit.bounded else "the ceiling has no interval"
    return {
        **or_why("attainable_flop_per_s", limit.estimate if by_flops else None, "no arithmetic is counted"),
        **or_why("attainable_bytes_per_s", None if by_flops else limit.estimate, "judged by its FLOP/s"),
        "time_at_roof_s": (counts.flops or counts.bytes) / limit.estimate,
        "fraction_of_attainable": achieved.estimate / limit.estimate,
        **or_why("fraction_ci95", share if interval and limit.bounded else None, no_share),
    }


def _spec(place: Place, achieved: Interval, interval: bool) -> Record:
    """The fraction of what the spec peaks would allow; null where the one that binds is not known."""
    counts, limits, least_unknown, why = place.counts, [], [], ""
    for ceiling, factor in ((place.memory, counts.intensity if counts.flops else 1.0), (place.peak, 1.0)):
        if ceiling is None or factor is None:
            continue
        if ceiling.get("spec"):
            limits.append(ceiling["spec"] * factor)
        else:  # it is at least what was measured
            least_unknown.append(ceiling["achieved"] * factor)
            why = ceiling.get("spec_why") or "no spec peak is known"
    limit = min(limits, default=None)
    if limit is not None and any(limit > least for least in least_unknown):
        limit = None
    share = [achieved.low / limit, achieved.high / limit] if limit and interval else None
    why = why or "no spec peak is known"
    return {
        **or_why("fraction_of_spec", achieved.estimate / limit if limit else None, why),
        **or_why("fraction_of_spec_ci95", share, why if limit is None else NO_INTERVAL),
    }


# --- above the roof -----------------------------------------------------------------------------------------------


def causes(place: Place, timed: Timed, achieved: Interval) -> list[str]:
    """Why a point may be above its roof, the likeliest first by what is known of it."""
    skipped = "the call returns before its work is done, or skips it (a lazy, cached or asynchronous result)"
    side = "part of the work runs on another stream than the one that is timed"
    slow = "the ceiling was measured while the machine was slower than during this work"
    aside, short = sorted(ASIDE.intersection(timed.flags)), timed.estimate_s < SHORT_S
    shaky = _shaky(place.bound, achieved)
    barely = not shaky and achieved.low <= place.bound.attainable.high * (1 + model.UNSTABLE_OVER)
    sure, maybe = _nearer(place, achieved)
    ranked = (
        (shaky, slow),
        (bool(aside), f"{side} ({', '.join(aside)})"),
        (short, f"{skipped}: one call takes only {format_quantity(timed.estimate_s, 's')}"),
        *((True, cause) for cause in (*sure, *_faster_arithmetic(place, achieved))),
        (barely, slow),
        (True, "the flops or bytes given are more than one call does"),
        *((True, cause) for cause in maybe),
        (not short, skipped),
        (not aside and place.roofs.device.get("kind") != "cpu", side),
        (not shaky and not barely, slow),
    )
    return [cause for applies, cause in ranked if applies]


def _shaky(bound: Bound, achieved: Interval) -> bool:
    """Whether the machine moved while the ceiling was measured (it was not the same again, or its interval is wide),
    and the point is not further above than by as much again."""
    limit = bound.attainable
    wide = (limit.high - limit.low) / 2 > model.UNSTABLE_OVER * limit.estimate
    moved = max(limit.high / limit.low, 1 + model.UNSTABLE_OVER) if limit.low > 0 else 1.0
    return (wide or "unstable" in bound.ceiling.get("flags", ())) and achieved.low <= limit.high * moved


def _nearer(place: Place, achieved: Interval) -> tuple[list[str], list[str]]:
    """A nearer level that makes the point plausible: where the data fit it, and where they would have to be reused."""
    counts = place.counts
    if place.memory is None or place.bound.ceiling["kind"] != "memory":
        return [], []
    rank = model.level_rank(place.memory["level"])
    for memory in reversed(place.roofs.memory):
        if model.level_rank(memory["level"]) >= rank:
            continue
        limit = _bound(counts, memory, place.peak).attainable
        if achieved.low > limit.estimate * (1 + model.UNSTABLE_OVER):
            continue
        size, level = place.roofs.capacity(memory["level"]), memory["level"].upper()
        share = format_fraction(achieved.estimate / limit.estimate)
        then = f"against {level} this is {share} of attainable (level={memory['level']!r})"
        if size and counts.bytes <= size:
            return [f"the {format_size(counts.bytes)} of a call fit {level} ({format_size(size)}) and stay there "
                    f"between calls; {then}"], []  # fmt: skip
        return [], [f"part of the data is found again in {level}, though a call moves more than it holds; {then}"]
    return [], []


def _faster_arithmetic(place: Place, achieved: Interval) -> list[str]:
    """Another arithmetic that would be fast enough, where arithmetic is what holds it."""
    if place.bound.ceiling["kind"] != "arithmetic":
        return []
    for peak in sorted(place.roofs.arithmetic, key=lambda c: float(c["achieved"])):
        limit = _bound(place.counts, place.memory, peak).attainable
        if achieved.low <= limit.high:
            unit = f"{unit_of(peak)} " if peak["dtype"] == place.counts.dtype else ""
            return [f"it computes with {unit}{peak['dtype']} arithmetic and not with {unit_of(place.bound.ceiling)} "
                    f"{place.counts.dtype}; against that it is at {format_fraction(achieved.estimate / limit.estimate)}"
                    ]  # fmt: skip
    return [f"no arithmetic measured on this device is so fast: {format_quantity(achieved.estimate, 'FLOP/s')}; "
            "the flops are counted too high or the work is not done"]  # fmt: skip
