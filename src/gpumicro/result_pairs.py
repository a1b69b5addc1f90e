"""Which measurements of two sets of result files belong together, and which of them may be compared.

Takes documents as schema/result-1.json has them. What cannot be compared has its reason, in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .result_sources import Record, Series, Source, figure_of, series_of
from .sampling import LEAST

# Of the clock, measured or set, by which two runs may differ and still be compared. A GPU's is the median under load;
# a CPU's is one reading of one core before the run, and moves by 3% from run to run on a shared machine.
CLOCK_SHARE = {"gpu": 0.02, "cpu": 0.05}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a pair is not compared; `forcible` where `force` may overrule it."""

    text: str
    forcible: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """The measurements of one name in both sets, and what speaks against comparing them."""

    id: str
    base: tuple[Series, ...]
    new: tuple[Series, ...]
    reasons: tuple[Reason, ...]
    expected: bool  # the base has a figure of it

    @property
    def replicated(self) -> bool:
        """Whether files, and not the samples of one, are what repeats."""
        return len(self.base) > 1 or len(self.new) > 1


def pairs(base: Sequence[Source], new: Sequence[Source]) -> list[Pair]:
    """Every measurement of either set, in the order of the files; one that a set lacks is a pair with a reason."""
    sides = _Grouped(base), _Grouped(new)
    names = dict.fromkeys(name for side in sides for _, found in side.groups for name in found)
    return [_pair(name, *sides) for name in names]


class _Grouped:
    """The files of one side, each with its records by name."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.groups = [(source, _grouped(source)) for source in sources]
        self._kin: dict[object, list[Record]] = {}
        for record in (one for _, found in self.groups for group in found.values() for one in group):
            self._kin.setdefault(_kind_of(record), []).append(record)

    def named(self, name: str) -> list[tuple[Source, list[Record]]]:
        """The files that have it, each with its records of it."""
        return [(source, found[name]) for source, found in self.groups if name in found]

    def alike(self, record: Record) -> list[Record]:
        """Records of the same kernel and problem, whatever else differs."""
        return self._kin.get(_kind_of(record), [])


def _kind_of(record: Record) -> object:
    return record["kernel"], frozenset(record["problem"].items())


def _grouped(source: Source) -> dict[str, list[Record]]:
    """The records of one file by name, a repeat with the first."""
    out: dict[str, list[Record]] = {}
    for record in source.document["measurements"]:
        out.setdefault(str(record.get("repeat_of") or record["id"]), []).append(record)
    return out


def _pair(name: str, base: _Grouped, new: _Grouped) -> Pair:
    before, after = base.named(name), new.named(name)
    expected = any(not _untimed(source, records) for source, records in before)
    if not before or not after:
        there, elsewhere = ("the base", new) if before else ("the new result", base)
        absent = Reason(_absent((before or after)[0][1][0], there, elsewhere))
        return Pair(name, (), (), (absent,), expected)
    untimed = dict.fromkeys(_untimed(source, records) for source, records in (*before, *after))
    if any(untimed):
        return Pair(name, (), (), tuple(Reason(text) for text in untimed if text), expected)
    first, second = (tuple(series_of(source, records) for source, records in side) for side in (before, after))
    against: dict[Reason, str] = {}  # with the first file that each holds for
    for a, b in _to_first(first, second):
        for reason in _against(a, b):
            against.setdefault(reason, b.source.name)
    if len(first) + len(second) > 2:
        against = {Reason(f"{reason.text} (in {file})", reason.forcible): file for reason, file in against.items()}
    return Pair(name, first, second, (*against, *_too_few(first, second)), expected)


def _to_first(base: tuple[Series, ...], new: tuple[Series, ...]) -> Iterator[tuple[Series, Series]]:
    """The first file of the base against every other."""
    return ((base[0], other) for other in (*base[1:], *new))


def _absent(record: Record, there: str, elsewhere: _Grouped) -> str:
    """That only one side has it, and what of its kind the other side has."""
    alike, words = elsewhere.alike(record), []
    for key in ("dtype", "operands", "device", "backend", "threads", "variant"):
        own, others = record.get(key), list(dict.fromkeys(other.get(key) for other in alike))
        if others and own not in others:
            words.append(f"{key} {', '.join(str(other or 'none') for other in others[:3])} instead of {own or 'none'}")
    return f"only in {there}" + (f"; the other has {', '.join(words)}" if words else "")


def _untimed(source: Source, records: list[Record]) -> str:
    """Why a file has no time of it, "" where it has one."""
    if any(figure_of(record) for record in records):
        return ""
    first = records[0]
    why = first.get("error") or first.get("reason") or first.get("time_s_why") or "no time in it"
    return f"{first['status']} in {source.name}: {why}" if first["status"] != "ok" else f"{source.name}: {why}"


def _too_few(base: tuple[Series, ...], new: tuple[Series, ...]) -> list[Reason]:
    """Where one file a side must do by its samples: enough of them."""
    single = len(base) == len(new) == 1
    out = []
    for one in (*base, *new):
        if one.estimate_s <= 0:
            out.append(Reason(f"{one.source.name}: no time above the timer's overhead"))
        elif single and len(one.values) < LEAST:
            seen = f"{len(one.values)} samples" if len(one.values) else "no samples"
            out.append(Reason(f"{one.source.name}: {seen}, and an interval takes {LEAST}; give several files a side"))
    return out


# --- what speaks against it ----------------------------------------------------------------------------------------


def _against(a: Series, b: Series) -> Iterator[Reason]:
    """Why these two cannot be compared. What makes the quotient mean nothing cannot be forced."""
    for key in ("dtype", "problem", "labels", "operands", "backend", "threads", "variant"):
        if a.record.get(key) != b.record.get(key):
            yield Reason(f"other {key}: {a.record.get(key)} and {b.record.get(key)}")
    first, second = a.record["timing"] or {}, b.record["timing"] or {}
    if first.get("estimand") != second.get("estimand"):
        yield Reason(f"other estimand: {first.get('estimand')} and {second.get('estimand')}")
    if a.figure != b.figure:
        yield Reason(f"other figure: {a.figure} and {b.figure}")
    elif a.location != b.location and not (len(a.values) and len(b.values)):  # samples can be located anew, both alike
        yield Reason(f"other location: {a.location or 'unknown'} and {b.location or 'unknown'}")
    for tag in dict.fromkeys((a.source.unreal, b.source.unreal)):
        if tag:
            yield Reason(f"{tag}: its times are not a device's", forcible=True)
    tools = a.source.tool(a.record), b.source.tool(b.record)
    if tools[0] != tools[1]:
        yield Reason(f"measured by other tools: {tools[0]} and {tools[1]}", forcible=True)
    for key in ("cache", "loop"):
        if first.get(key) != second.get(key):
            name = "cache state" if key == "cache" else key
            yield Reason(f"other {name}: {first.get(key)} and {second.get(key)}", forcible=True)
    other = _other_device(a.source.device(a.record), b.source.device(b.record))
    if other:
        yield Reason(other, forcible=True)
    else:
        for text in _other_clocks(a.source.condition(a.record), b.source.condition(b.record)):
            yield Reason(text, forcible=True)


def _other_device(a: Record, b: Record) -> str:
    """By uuid where both have one, else by name and facts; "" where nothing says that they differ."""
    for key in ("kind", "name"):
        if a.get(key) != b.get(key):
            return f"other device: {a.get(key)} and {b.get(key)}"
    if a.get("uuid") and b.get("uuid"):
        return "" if a["uuid"] == b["uuid"] else f"another {a['name']}: {a['uuid']} and {b['uuid']}"
    for key in ("cores", "virtual", "isa"):
        if a.get(key) != b.get(key):
            return f"other device: {key} {a.get(key)} and {b.get(key)}"
    sizes = [[(c.get("level"), c.get("size_bytes")) for c in d.get("caches", ())] for d in (a, b)]
    if sizes[0] != sizes[1]:
        return "other device: its caches differ"
    facts, others = a.get("facts") or {}, b.get("facts") or {}
    for key in ("vendor", "family", "model", "stepping", "compute_capability"):
        if key in facts and key in others and facts[key] != others[key]:
            return f"other device: {key} {facts[key]} and {others[key]}"
    return ""


def _other_clocks(a: Record, b: Record) -> Iterator[str]:
    """Clocks that both files know and that differ by more than CLOCK_SHARE."""
    share = CLOCK_SHARE["gpu" if a.get("kind") == "gpu" else "cpu"]
    found = [(f"{name} measured", a.get(key), b.get(key)) for key, name in (
        ("clock_hz", "clock"), ("memory_clock_hz", "memory clock"))]  # fmt: skip
    cards = [side.get("gpu") or {} for side in (a, b)]
    found += [(f"{name} set", cards[0].get(key), cards[1].get(key)) for key, name in (
        ("application_clock_hz", "clock"), ("application_memory_clock_hz", "memory clock"))]  # fmt: skip
    for name, one, other in found:
        first, second = _hertz(one), _hertz(other)
        if first and second and abs(second / first - 1) > share:
            yield f"other clock: {name} {first / 1e6:.0f} MHz and {second / 1e6:.0f} MHz"


def _hertz(value: Any) -> float | None:
    found = value.get("median") if isinstance(value, Mapping) else value
    return float(found) if isinstance(found, (int, float)) and found > 0 else None
