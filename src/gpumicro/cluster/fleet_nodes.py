"""Files put together to the devices of nodes: which node a file is of, its rack, and what it shares with others."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..stats import median
from .fleet_files import DeviceReadings, Reading, State
from .fleet_reading import FilesRead

FACTORS = ("host", "rack", "driver", "clock")
CLOCK_STEP_HZ = 50e6  # clocks that differ by less are one group
# "r07" in gpu-r07-n12, "rack12" in rack12/node3; a word that ends in r is none.
_RACK = re.compile(r"(?i)(?<![a-z0-9])(?:rack|r)[-_]?[0-9]+(?![0-9])")


@dataclass(frozen=True, slots=True)
class DeviceOfFleet:
    """One device of a node, with what all its files say. `readings` by name."""

    node: str
    device: str
    model: str
    files: tuple[str, ...]
    state: State
    readings: Mapping[str, Reading]
    groups: Mapping[str, str]  # factor -> group, without what is not known


def node_of(file: str, pattern: re.Pattern[str] | None) -> str:
    """The node that a file is of: what the pattern finds (its first group, if it has one), else its name, without
    .json; the folders are part of it."""
    name = file.removesuffix(".json")
    return (found(pattern, name) if pattern else None) or name


def found(pattern: re.Pattern[str], text: str) -> str | None:
    """The first group of the first match, or all of it."""
    match = pattern.search(text)
    return (match[1] if pattern.groups and match[1] is not None else match[0]) if match else None


def racks_guessed(read: FilesRead, node: re.Pattern[str] | None) -> re.Pattern[str] | None:
    """The usual way to name a rack ("r12", "rack-3"), where every node's name has one and they are not all the same."""
    racks = {found(_RACK, name) for name in {node_of(d.file, node) for d in read.devices}}
    return _RACK if len(racks) > 1 and None not in racks else None


def devices_of(
    read: FilesRead, node: re.Pattern[str] | None, rack: re.Pattern[str] | None
) -> tuple[DeviceOfFleet, ...]:
    """Several files of one node's device become one: of a ceiling in more than one of them the median counts."""
    same: dict[tuple[str, str, str], list[DeviceReadings]] = {}
    for one in read.devices:
        same.setdefault((node_of(one.file, node), one.device, one.model), []).append(one)
    hosts: dict[str, int] = {}
    for name, _, model in same:
        hosts[f"{name}\0{model}"] = hosts.get(f"{name}\0{model}", 0) + 1
    made = []
    for (name, device, model), parts in same.items():
        state = _latest(parts)
        many = hosts[f"{name}\0{model}"] > 1
        groups = {
            "host": name if many else None,
            "rack": found(rack, name) if rack else None,
            "driver": state.driver,
            "clock": _clock(state.clock_hz),
        }
        files = tuple(part.file for part in parts)
        known = {factor: group for factor, group in groups.items() if group}
        made.append(DeviceOfFleet(name, device, model, files, state, _merged(parts), known))
    return tuple(made)


def _clock(clock_hz: float | None) -> str | None:
    return None if not clock_hz else f"{round(clock_hz / CLOCK_STEP_HZ) * CLOCK_STEP_HZ / 1e9:.2f} GHz"


def _latest(parts: list[DeviceReadings]) -> State:
    """What any file knows, the last one first; what failed in any of them."""
    states = [part.state for part in reversed(parts)]
    if len(states) == 1:
        return states[0]

    def known(key: str) -> object:
        return next((value for state in states if (value := getattr(state, key)) is not None), None)

    values = {key: known(key) for key in State.__slots__}
    for key in ("trouble", "failed"):
        values[key] = tuple(dict.fromkeys(text for state in states for text in getattr(state, key)))
    values["interrupted"] = any(state.interrupted for state in states)
    return State(**values)  # type: ignore[arg-type]


def _merged(parts: list[DeviceReadings]) -> dict[str, Reading]:
    every: dict[str, list[Reading]] = {}
    for part in parts:
        for reading in part.readings:
            every.setdefault(reading.name, []).append(reading)
    return {name: readings[0] if len(readings) == 1 else _median(readings) for name, readings in every.items()}


def _median(readings: list[Reading]) -> Reading:
    """The median, with the interval that reaches over all of the repeats' intervals."""
    value = math.exp(median(np.log([reading.value for reading in readings])))
    ends = [end for reading in readings for end in (reading.ci95 or (reading.value,))]
    return Reading(readings[0].name, readings[0].unit, value, (min(ends), max(ends)), readings[0].spec)
