"""`fleet`: over the result files of hundreds of nodes, who is out of line, by which ceiling, and what they share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from ..errors import UsageError
from .fleet_accept import read_thresholds
from .fleet_judging import Judged, judge
from .fleet_nodes import DeviceOfFleet, devices_of, racks_guessed
from .fleet_reading import find_files, read_fleet
from .fleet_records import Fleet, Rules

HEAVY = 1 / 15  # 1 / degrees of freedom, from where it is worth a word
MARGIN = 0.03  # boost clocks of healthy GPUs of one kind lie within a few percent


def fleet(
    folder: str | PathLike[str],
    *,
    accept: str | PathLike[str] | None = None,
    node: str | None = None,
    rack: str | None = None,
    margin: float = MARGIN,
    fdr: float = 0.05,
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Fleet:
    """Judge every *.json result file in or below a folder.

    A node is a file, or what `node` (a regular expression) finds in the file's name; `rack` finds the rack in the
    node's name. Devices of one model are set against their median in every ceiling: a device is slow or fast where it
    is further away than `margin` and its p-value holds after Benjamini and Hochberg's procedure over all devices and
    ceilings at `fdr`. `accept` is a thresholds file. UsageError: nothing there; SchemaError: a wrong thresholds file.
    """
    rules = Rules(_share(margin, "margin"), _share(fdr, "fdr"), node or "", rack or "")
    thresholds = None if accept is None else read_thresholds(Path(accept))
    patterns = [_pattern(text, name) for text, name in ((node, "node"), (rack, "rack"))]
    if processes is not None and processes < 1:
        raise UsageError(f"processes must be 1 or more, not {processes}")
    files = find_files(Path(folder))
    read = read_fleet(Path(folder), files, processes, progress)
    if patterns[1] is None:
        patterns[1] = racks_guessed(read, patterns[0])
        rules = replace(rules, rack_pattern=patterns[1].pattern if patterns[1] else "")
    devices = devices_of(read, *patterns)
    judged = judge(devices, rules)
    found = Fleet(
        str(folder), read.files, len({device.node for device in devices}), read.faults, rules, judged.tests,
        judged.ceilings, judged.slow, judged.fast, judged.groups, judged.members, judged.group_tests, judged.tails,
        judged.rows, tuple(_notes(devices, judged)),
    )  # fmt: skip
    return found if thresholds is None else replace(found, acceptance=thresholds.check(found, devices))


def _share(value: float, name: str) -> float:
    if not 0 < value < 1:
        raise UsageError(f"{name} must be between 0 and 1, not {value!r}")
    return value


def _pattern(text: str | None, name: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"--{name}: {text!r} is no regular expression: {error}") from None


# -- what a reader must know beside the figures ------------------------------------------------------------------------


def _notes(devices: Sequence[DeviceOfFleet], judged: Judged) -> Iterator[str]:
    nodes = {device.node for device in devices}
    if len(nodes) == 1:
        yield (
            "One node: its figures stand here, but neither what is typical nor who is slow can be judged. Give the "
            "files of other nodes, or absolute thresholds (--accept)."
        )
    for model, heavy in judged.tails.items():
        if heavy >= HEAVY:
            yield (
                f"{model}: the fast side has heavier tails than a normal law (as Student's t with {1 / heavy:.0f} "
                "degrees of freedom), so it takes a larger distance to be named."
            )
    alone = {model for model, many in Counter(device.model for device in devices).items() if many == 1}
    if alone and len(nodes) > 1:
        yield f"Only one device of its kind, so it is set against nothing: {_some(sorted(alone))}."
    if any(c.floored for c in judged.ceilings):
        names = _some(sorted({c.name for c in judged.ceilings if c.floored}))
        yield (
            f"More alike than figures of real devices can be told apart ({names}): a spread of "
            f"{next(c.spread for c in judged.ceilings if c.floored):.1%} was assumed instead."
        )
    yield from _copies(devices)
    yield from _settings(devices)
    unmeasured = sorted({device.node for device in devices if not device.readings})
    if unmeasured:
        yield f"Without any figure: {_some(unmeasured)}."


def _copies(devices: Sequence[DeviceOfFleet]) -> Iterator[str]:
    """Figures to the last digit the same in two nodes, or one GPU in two: a file stands there twice."""
    seen: dict[tuple[object, ...], str] = {}
    twice: dict[str, str] = {}
    for device in devices:
        if len(device.readings) > 1:
            key = (device.model, *sorted((name, reading.value) for name, reading in device.readings.items()))
            if seen.setdefault(key, device.node) != device.node:
                twice[device.node] = seen[key]
    if twice:
        pairs = [f"{node} as {other}" for node, other in twice.items()]
        yield f"The same figures to the last digit, so most likely one run under two names: {_some(pairs)}."
    owners: dict[str, set[str]] = {}
    for device in devices:
        if device.state.uuid and "(" not in device.model:
            owners.setdefault(device.state.uuid, set()).add(device.node)
    shared = [f"{uuid} in {_some(sorted(nodes))}" for uuid, nodes in owners.items() if len(nodes) > 1]
    if shared:
        yield f"One GPU under several nodes' names: {_some(shared)}. Such nodes are not independent."


def _settings(devices: Sequence[DeviceOfFleet]) -> Iterator[str]:
    modes = Counter(device.state.mode for device in devices if device.state.mode)
    if len(modes) > 1:
        many = ", ".join(f"{mode} {count}" for mode, count in modes.most_common())
        yield f"Measured in different modes ({many}): a quick run has other sizes, and its figures may differ for it."
    stopped = sorted({device.node for device in devices if device.state.interrupted})
    if stopped:
        yield f"Interrupted runs: {_some(stopped)}."
    failed: dict[str, set[str]] = {}
    for device in devices:
        for name in device.state.failed:
            failed.setdefault(name, set()).add(device.node)
    for name, nodes in sorted(failed.items()):
        yield f'The verdict "{name}" failed in {len(nodes)} node{"s" * (len(nodes) > 1)}: {_some(sorted(nodes))}.'
    unreal = Counter(device.model for device in devices if device.model.endswith(")"))
    for model, count in unreal.items():
        if any(model.endswith(f"({tag})") for tag in ("emulated", "synthetic", "replayed")):
            yield f"No device was measured for {count} of {len(devices)}: {model}."


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
