"""Devices of a fleet judged, model by model and ceiling by ceiling, and what they share against the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .. import ratios
from ..stats import FloatArray, median
from .fleet_cells import LEAST_DEVICES, Located, distances, heaviness, locate, p_values
from .fleet_files import State
from .fleet_groups import Compared, codes_of, compare_groups, group_medians, interval_of
from .fleet_hints import hints_of, usual_failures
from .fleet_nodes import FACTORS, DeviceOfFleet
from .fleet_records import Ceiling, Departure, DeviceRow, Group, Outlier, Rules

OTHERS = 5  # further ceilings that are named with an outlier
SLOWER_CLOCK, HOTTER_C = 0.97, 10.0  # against the others' median, from where it is worth a word


@dataclass(frozen=True, slots=True)
class Judged:
    """What `fleet` puts into its record."""

    tests: int
    ceilings: tuple[Ceiling, ...]
    slow: tuple[Outlier, ...]
    fast: tuple[Outlier, ...]
    groups: tuple[Group, ...]
    members: Mapping[str, Mapping[str, int]]
    group_tests: int
    rows: tuple[DeviceRow, ...]
    tails: Mapping[str, float]  # model -> 1 / degrees of freedom


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """One ceiling of one model. Arrays over the devices that have it, `places` in the whole list."""

    model: str
    name: str
    unit: str
    places: tuple[int, ...]
    logs: FloatArray
    halves: FloatArray
    where: Located
    z: FloatArray
    p: FloatArray


def judge(devices: Sequence[DeviceOfFleet], rules: Rules) -> Judged:
    """All of it; see `fleet`."""
    found_columns = [_column(devices, model, name, places) for (model, name), places in _columns(devices).items()]
    tails = _tails(found_columns)
    columns = [replace(column, p=p_values(column.z, column.where, tails[column.model])) for column in found_columns]
    tested = [column for column in columns if column.where.tested]
    adjusted = ratios.benjamini_hochberg([p for column in tested for p in column.p.tolist()])
    out = _out_of_line(tested, rules.fdr)
    found = {place: each for place, each in _departures(tested, devices, adjusted).items() if place in out}
    slow = _outliers(devices, found, lambda d: d.p_adjusted <= rules.fdr and d.ratio < 1 - rules.margin)
    fast = _outliers(devices, found, lambda d: d.p_adjusted <= rules.fdr and d.ratio > 1 + rules.margin)
    groups, group_tests = _groups(columns, devices, rules)
    return Judged(
        len(adjusted), tuple(_ceiling(c, devices, found, rules) for c in columns),
        _explained(slow, devices, groups), fast, groups, _members(devices), group_tests,
        tuple(_rows(columns, devices)), tails,
    )  # fmt: skip


# -- columns -----------------------------------------------------------------------------------------------------------


def _columns(devices: Sequence[DeviceOfFleet]) -> dict[tuple[str, str], list[int]]:
    """(model, ceiling) -> places of the devices that have it; the most frequent model first, ceilings as in files."""
    counts = Counter(device.model for device in devices)
    held: dict[tuple[str, str], list[int]] = {}
    for place, device in enumerate(devices):
        for name in device.readings:
            held.setdefault((device.model, name), []).append(place)
    return dict(sorted(held.items(), key=lambda item: -counts[item[0][0]]))


def _column(devices: Sequence[DeviceOfFleet], model: str, name: str, places: list[int]) -> _Column:
    readings = [devices[place].readings[name] for place in places]
    logs = np.log([reading.value for reading in readings])
    halves = np.array([_half(reading.ci95) for reading in readings])
    where = locate(logs)
    z = distances(logs, halves, where)
    return _Column(model, name, readings[0].unit, tuple(places), logs, halves, where, z, np.ones(len(z)))


def _tails(columns: Sequence[_Column]) -> dict[str, float]:
    """How heavy the tails of each model are, over its ceilings whose spread is a real one."""
    found: dict[str, float] = {}
    for model in dict.fromkeys(column.model for column in columns):
        z = [c.z for c in columns if c.model == model and c.where.tested and not c.where.floored]
        found[model] = heaviness(np.concatenate(z)) if z else 0.0
    return found


def _half(ci95: tuple[float, float] | None) -> float:
    """Half-width of a logarithm's interval."""
    return math.log(ci95[1] / ci95[0]) / 2 if ci95 and 0 < ci95[0] <= ci95[1] else 0.0


def _ceiling(
    column: _Column, devices: Sequence[DeviceOfFleet], found: Mapping[int, list[Departure]], rules: Rules
) -> Ceiling:
    where, specs = column.where, [devices[place].readings[column.name].spec for place in column.places]
    sides = Counter(
        (d.ratio > 1) - (d.ratio < 1)
        for place in column.places
        for d in found.get(place, ())
        if d.ceiling == column.name and d.p_adjusted <= rules.fdr and abs(d.ratio - 1) > rules.margin
    )
    why = "" if where.tested else f"{where.n} of its kind; {LEAST_DEVICES} are needed to tell who is out of line"
    middle, low, high = (math.exp(value) for value in (where.centre, where.low, where.high))
    return Ceiling(
        column.model, column.name, column.unit, where.n, middle, (low, high), where.spread, where.floored,
        math.exp(float(column.logs.min())), math.exp(float(column.logs.max())),
        next((spec for spec in specs if spec), None), sides[-1], sides[1], why,
    )  # fmt: skip


# -- outliers ----------------------------------------------------------------------------------------------------------


def _out_of_line(columns: Sequence[_Column], fdr: float) -> set[int]:
    """Devices that are out of line in whatever ceiling: Simes' p of each (Biometrika 73, 1986), and Benjamini and
    Hochberg's procedure over devices. A slow rack with all its ceilings would else buy room for false names."""
    held: dict[int, list[float]] = {}
    for column in columns:
        for place, p in zip(column.places, column.p.tolist(), strict=True):
            held.setdefault(place, []).append(p)
    simes = [min(len(every) * p / k for k, p in enumerate(sorted(every), 1)) for every in held.values()]
    adjusted = ratios.benjamini_hochberg(simes)
    return {place for place, q in zip(held, adjusted, strict=True) if q <= fdr}


def _departures(
    columns: Sequence[_Column], devices: Sequence[DeviceOfFleet], adjusted: Sequence[float]
) -> dict[int, list[Departure]]:
    """By device, of those that are worth a record: an adjusted p-value below one half."""
    found: dict[int, list[Departure]] = {}
    start = 0
    for column in columns:
        q = np.array(adjusted[start : start + len(column.places)])
        start += len(column.places)
        where = column.where
        for i in np.flatnonzero(q < 0.5).tolist():
            away = float(column.logs[i]) - where.centre
            own = float(column.halves[i])
            low = away - math.hypot(own, where.high - where.centre)
            high = away + math.hypot(own, where.centre - where.low)
            value = devices[column.places[i]].readings[column.name].value
            found.setdefault(column.places[i], []).append(Departure(
                column.name, column.unit, value, math.exp(away), (math.exp(low), math.exp(high)),
                float(column.z[i]), float(column.p[i]), float(q[i]),
            ))  # fmt: skip
    return found


def _outliers(
    devices: Sequence[DeviceOfFleet], found: Mapping[int, list[Departure]], out: Callable[[Departure], bool]
) -> tuple[Outlier, ...]:
    common = usual_failures(devices)
    made = []
    for place, departures in found.items():
        mine = sorted((d for d in departures if out(d)), key=lambda d: -abs(d.z))
        if mine:
            device = devices[place]
            made.append(Outlier(
                device.node, device.device, device.model, device.groups.get("rack"), device.state.uuid, mine[0],
                tuple(mine[1 : OTHERS + 1]), len(device.readings), (), hints_of(device, mine, common),
            ))  # fmt: skip
    return tuple(sorted(made, key=lambda outlier: -abs(outlier.shown_by.z)))


def _explained(
    slow: tuple[Outlier, ...], devices: Sequence[DeviceOfFleet], groups: Sequence[Group]
) -> tuple[Outlier, ...]:
    """With what a slow device shares with a slow group, and how its clock and heat stand to the others'."""
    held = {(device.node, device.device, device.model): device for device in devices}
    typical = {model: _typical(devices, model) for model in {outlier.model for outlier in slow}}
    low = {(g.factor, g.group, g.model, g.ceiling): g for g in groups if g.ratio < 1}

    def more(outlier: Outlier) -> Outlier:
        device = held[outlier.node, outlier.device, outlier.model]
        shown = outlier.shown_by.ceiling
        shared = [(f, g, low.get((f, g, outlier.model, shown))) for f, g in device.groups.items()]
        whole = [f"{f} {g}" for f, g, group in shared if group]
        hints = [f"so is its {f} {g} as a whole ({group.ratio - 1:+.1%})" for f, g, group in shared if group]
        hints += _beside(device.state, *typical[outlier.model])
        return replace(outlier, shared=tuple(whole), hints=(*hints, *outlier.hints))

    return tuple(map(more, slow))


def _beside(state: State, clock: float | None, heat: float | None) -> Iterator[str]:
    """Clock and temperature, where they are far from the others' median."""
    if clock and state.clock_hz and state.clock_hz < SLOWER_CLOCK * clock:
        yield f"its clock under load is {state.clock_hz / clock - 1:+.0%} from the others'"
    if heat and state.temperature_c and state.temperature_c > heat + HOTTER_C:
        yield f"{state.temperature_c:.0f} C, where the others have {heat:.0f} C"


def _typical(devices: Sequence[DeviceOfFleet], model: str) -> tuple[float | None, float | None]:
    """Median clock and temperature."""
    clocks = [d.state.clock_hz for d in devices if d.model == model and d.state.clock_hz]
    heats = [d.state.temperature_c for d in devices if d.model == model and d.state.temperature_c]
    return tuple(median(np.array(found)) if found else None for found in (clocks, heats))  # type: ignore[return-value]


# -- groups ------------------------------------------------------------------------------------------------------------


def _groups(
    columns: Sequence[_Column], devices: Sequence[DeviceOfFleet], rules: Rules
) -> tuple[tuple[Group, ...], int]:
    """Those out of line by more than the margin, after Benjamini and Hochberg over all groups, and how many tests."""
    made: list[tuple[_Column, str, list[str], Compared, FloatArray, np.ndarray]] = []
    for column in columns:
        members = [devices[place] for place in column.places]
        for factor in FACTORS:
            values, labels = _of_factor(column, members, factor)
            codes, names = codes_of(labels)
            made += [(column, factor, names, one, values, codes) for one in compare_groups(values, codes, len(names))]
    adjusted = ratios.benjamini_hochberg([one.p for _, _, _, one, _, _ in made])
    found = []
    for (column, factor, names, one, values, codes), q in zip(made, adjusted, strict=True):
        if q <= rules.fdr and abs(math.expm1(one.difference)) > rules.margin:
            low, high = interval_of(values, codes, one.group)
            found.append(Group(
                factor, names[one.group], column.model, column.name, one.n, one.rest, math.exp(one.difference),
                (math.exp(low), math.exp(high)), one.p, q,
            ))  # fmt: skip
    return tuple(sorted(found, key=lambda group: group.ratio)), len(made)


def _of_factor(column: _Column, members: Sequence[DeviceOfFleet], factor: str) -> tuple[FloatArray, list[str | None]]:
    """Values and labels. A node counts once, by the median of its devices: they share what the node has. Under "host"
    the devices themselves count, and under "clock", which each has for itself."""
    labels = [device.groups.get(factor) for device in members]
    if factor in ("host", "clock"):
        return column.logs, labels
    codes, names = codes_of([device.node for device in members])
    of_node = dict(zip((device.node for device in members), labels, strict=True))
    return group_medians(column.logs, codes, len(names)), [of_node[name] for name in names]


def _members(devices: Sequence[DeviceOfFleet]) -> dict[str, dict[str, int]]:
    """factor -> group -> nodes (devices, where the group is a host or a clock), the largest group first."""
    found: dict[str, dict[str, int]] = {}
    for factor in FACTORS:
        once = {(d.groups.get(factor), d.node if factor in ("rack", "driver") else i) for i, d in enumerate(devices)}
        counts = Counter(group for group, _ in once if group)
        if counts:
            found[factor] = dict(counts.most_common())
    return found


def _rows(columns: Sequence[_Column], devices: Sequence[DeviceOfFleet]) -> Iterator[DeviceRow]:
    held: list[dict[str, float]] = [{} for _ in devices]
    for column in columns:
        for place, ratio in zip(column.places, np.exp(column.logs - column.where.centre).tolist(), strict=True):
            held[place][column.name] = ratio
    for device, row in zip(devices, held, strict=True):
        yield DeviceRow(device.node, device.device, device.model, device.files, device.groups, row)
