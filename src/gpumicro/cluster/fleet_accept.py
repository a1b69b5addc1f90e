"""The thresholds file of `fleet --accept`: what nodes must reach to be taken, as TOML. docs/fleet.md has the format.

A rule that cannot be judged is not met: a file without the figure, or a share of a median that too few devices make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..errors import SchemaError, nearest
from ..peaks.toml import Reader, read_toml
from ..units import format_fraction, format_quantity, parse
from .fleet_cells import LEAST_DEVICES
from .fleet_nodes import DeviceOfFleet
from .fleet_records import Acceptance, Ceiling, Fleet, Refusal

FLEET_KEYS = ("nodes_min", "unreadable_max", "slow_max", "slow_groups_max", "spread_max")
NODE_KEYS = ("driver", "temperature_max_c", "ecc_uncorrected_max", "clock_min", "verdicts", "without_trouble")
CEILING_KEYS = ("name", "device", "min", "of_spec_min", "of_median_min", "required")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One [[ceiling]]: name and model as patterns with * and ?."""

    place: str
    name: str
    device: str
    least: object  # a number, or text with a unit
    of_spec: float | None
    of_median: float | None
    required: bool

    def covers(self, model: str, name: str) -> bool:
        return fnmatchcase(model, self.device) and fnmatchcase(name, self.name)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A thresholds file, checked: every key known, every value of its kind."""

    name: str
    fleet: Mapping[str, float]
    node: Mapping[str, Any]
    rules: tuple[_Rule, ...]

    def check(self, fleet: Fleet, devices: Sequence[DeviceOfFleet]) -> Acceptance:
        """Every rule against every device."""
        found: list[Refusal | None] = [*self._fleet(fleet)]
        medians = {(c.model, c.name): c for c in fleet.ceilings}
        for device in devices:
            found += _node(self.node, device)
            for rule in self.rules:
                found += _ceilings(rule, device, medians, self.name)
        found += _unmatched(self.rules, fleet)
        refusals = tuple(one for one in found if one)
        return Acceptance(self.name, not refusals and bool(devices), len(found), refusals)

    def _fleet(self, fleet: Fleet) -> Iterator[Refusal | None]:
        spread = max(fleet.ceilings, key=lambda c: c.spread, default=None)
        slow = len(fleet.slow_nodes)
        said = (
            ("nodes_min", fleet.nodes, f"{fleet.nodes} nodes were read"),
            ("unreadable_max", len(fleet.faults), f"{len(fleet.faults)} files cannot be read"),
            ("slow_max", slow, f"{slow} nodes are slow"),
            ("slow_groups_max", sum(g.ratio < 1 for g in fleet.groups), "groups are slow as a whole"),
            ("spread_max", spread.spread if spread else 0.0,
             f"{spread.name} of {spread.model} spreads by {spread.spread:.1%}" if spread else ""),
        )  # fmt: skip
        for key, value, text in said:
            limit = self.fleet.get(key)
            if limit is not None:
                met = value >= limit if key.endswith("_min") else value <= limit
                yield None if met else Refusal("", "", f"fleet.{key} = {limit:g}", text)
        if self.fleet.get("slow_max") is not None and not fleet.tests:
            text = f"who is slow cannot be judged: no model has {LEAST_DEVICES} devices"
            yield Refusal("", "", "fleet.slow_max", text)


def read_thresholds(path: Path) -> Thresholds:
    """The file, or SchemaError naming file, key and value."""
    top = Reader(read_toml(path, str(path)), str(path))
    _only(top, ("fleet", "node", "ceiling"))
    fleet, node = _inner(top, "fleet"), _inner(top, "node")
    _only(fleet, FLEET_KEYS)
    _only(node, NODE_KEYS)
    limits = {key: _number(fleet, key) for key in fleet.table}
    checked: dict[str, Any] = {}
    for key in node.table:
        if key in ("driver", "verdicts"):
            checked[key] = node.texts(key)
        elif key == "without_trouble":
            checked[key] = _truth(node, key)
        elif key == "clock_min":
            checked[key] = _quantity(node, key, "Hz")
        else:
            checked[key] = _number(node, key)
    rules = tuple(map(_rule, top.tables("ceiling")))
    if not (limits or checked or rules):
        raise SchemaError(f"{path}: no threshold in it; it takes [fleet], [node] and [[ceiling]] (docs/fleet.md)")
    return Thresholds(str(path), limits, checked, rules)


def _rule(reader: Reader) -> _Rule:
    _only(reader, CEILING_KEYS)
    name = reader.text("name")
    if name is None:
        raise SchemaError(f'{reader.place}.name is missing: which ceiling? As fleet shows it, or a pattern ("gemm *")')
    of_spec, of_median = _part(reader, "of_spec_min"), _part(reader, "of_median_min")
    least = reader.table.get("min")
    if least is not None:
        _check_least(reader, least)
    if (least, of_spec, of_median) == (None, None, None) and "required" not in reader.table:
        raise SchemaError(f"{reader.place}: no threshold; give min, of_spec_min or of_median_min")
    required = _truth(reader, "required") if "required" in reader.table else True
    return _Rule(reader.place, name, reader.text("device") or "*", least, of_spec, of_median, required)


def _check_least(reader: Reader, least: object) -> None:
    if isinstance(least, str) and any(_as_number(least, unit) is not None for unit in ("B/s", "FLOP/s", "OP/s")):
        return
    if isinstance(least, (int, float)) and not isinstance(least, bool) and 0 < least < math.inf:
        return
    raise SchemaError(f'{reader.place}.min must be a rate such as "4.2 TB/s" or 4.2e12, not {least!r}')


def _as_number(least: object, unit: str) -> float | None:
    """The threshold in that unit; None where it is of another one."""
    if not isinstance(least, str):
        return float(least) if isinstance(least, (int, float)) else None
    try:
        value = parse(least, unit)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


# -- values of the file ------------------------------------------------------------------------------------------------


def _only(reader: Reader, keys: Sequence[str]) -> None:
    for key in reader.table:
        if key not in keys:
            raise SchemaError(f"{reader.place}: unknown key {key!r}{nearest(key, keys)}")


def _inner(reader: Reader, key: str) -> Reader:
    if isinstance(reader.table.get(key), list):
        raise SchemaError(f"{reader.place}: {key} is one table, [{key}], not [[{key}]]")
    return reader.inner(key)


def _wrong(reader: Reader, key: str, wanted: str) -> SchemaError:
    return SchemaError(f"{reader.place}.{key} must be {wanted}, not {reader.table[key]!r}")


def _number(reader: Reader, key: str) -> float:
    value = reader.table[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise _wrong(reader, key, "a number, 0 or more")
    return float(value)


def _part(reader: Reader, key: str) -> float | None:
    """A share, None where the key is absent."""
    share = _number(reader, key) if key in reader.table else None
    if share is not None and not 0 < share <= 1.5:
        raise _wrong(reader, key, "a share such as 0.9")
    return share


def _truth(reader: Reader, key: str) -> bool:
    value = reader.table[key]
    if not isinstance(value, bool):
        raise _wrong(reader, key, "true or false")
    return value


def _quantity(reader: Reader, key: str, unit: str) -> float:
    value = _as_number(reader.table[key], unit)
    if value is None:
        raise _wrong(reader, key, f'a quantity such as "1.7 G{unit}"')
    return value


# -- rules against devices ---------------------------------------------------------------------------------------------


def _node(rules: Mapping[str, Any], device: DeviceOfFleet) -> Iterator[Refusal | None]:
    state = device.state
    for key, limit in rules.items():
        met, text = _state_rule(key, limit, state)
        yield None if met else Refusal(device.node, device.device, f"node.{key} = {_shown(limit)}", text)


def _shown(limit: object) -> str:
    return ", ".join(limit) if isinstance(limit, tuple) else f"{limit:g}" if isinstance(limit, float) else str(limit)


def _state_rule(key: str, limit: Any, state: Any) -> tuple[bool, str]:
    if key == "verdicts":
        bad = [name for name in state.failed if "all" in limit or name in limit]
        return not bad, f"failed: {', '.join(bad)}"
    if key == "without_trouble":
        return not (limit and state.trouble), "; ".join(state.trouble)
    judged: dict[str, tuple[Any, Callable[[Any], bool], str]] = {
        "driver": (state.driver, lambda value: value in limit, "driver"),
        "temperature_max_c": (state.temperature_c, lambda value: value <= limit, "degrees C"),
        "ecc_uncorrected_max": (state.ecc_uncorrected, lambda value: value <= limit, "uncorrected ECC errors"),
        "clock_min": (state.clock_hz, lambda value: value >= limit, "Hz"),
    }
    value, met, word = judged[key]
    if value is None:
        return False, "cannot be judged: the file does not say"
    return met(value), format_quantity(value, "Hz") if word == "Hz" else f"{word} {value:g}" if isinstance(
        value, float
    ) else f"{word} {value}"


def _ceilings(
    rule: _Rule, device: DeviceOfFleet, medians: Mapping[tuple[str, str], Ceiling], file: str
) -> Iterator[Refusal | None]:
    if not fnmatchcase(device.model, rule.device):
        return
    names = [name for name in device.readings if fnmatchcase(name, rule.name)]
    label = rule.place.removeprefix(f"{file}: ")
    if not names and rule.required:
        yield Refusal(device.node, device.device, f"{label} {rule.name}", "not measured")
    for name in names:
        reading, middle = device.readings[name], medians[device.model, name]
        shown = format_quantity(reading.value, reading.unit, reading.ci95)
        for met, wanted, why in _bounds(rule, reading.value, reading.unit, reading.spec, middle):
            text = f"{name}: {why or shown}"
            yield None if met else Refusal(device.node, device.device, f"{label} {name} {wanted}", text)


def _bounds(
    rule: _Rule, value: float, unit: str, spec: float | None, middle: Ceiling
) -> Iterator[tuple[bool, str, str]]:
    """(met, what is wanted, why it cannot be judged)."""
    if rule.least is not None:
        least = _as_number(rule.least, unit)
        why = "" if least is not None else f"cannot be judged: it is in {unit}, the threshold is not"
        shown = format_quantity(least, unit) if least is not None else str(rule.least)
        yield least is not None and value >= least, f">= {shown}", why
    if rule.of_spec is not None:
        why = "" if spec else "cannot be judged: no spec peak is known"
        yield bool(spec and value >= rule.of_spec * spec), f">= {format_fraction(rule.of_spec)} of spec", why
    if rule.of_median is not None:
        few = middle.n < LEAST_DEVICES
        why = f"cannot be judged: {middle.n} of {LEAST_DEVICES} devices that make a median" if few else ""
        met = not few and value >= rule.of_median * middle.median
        yield met, f">= {format_fraction(rule.of_median)} of the median", why


def _unmatched(rules: Sequence[_Rule], fleet: Fleet) -> Iterator[Refusal]:
    """A rule that fits no ceiling at all is a slip of the pen, and must not pass."""
    names = sorted({c.name for c in fleet.ceilings})
    for rule in rules:
        if names and not any(rule.covers(c.model, c.name) for c in fleet.ceilings):
            yield Refusal(
                "", "", f"ceiling {rule.name!r} of {rule.device!r}", f"fits nothing{nearest(rule.name, names)}"
            )
