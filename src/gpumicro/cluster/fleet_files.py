"""What the judge of a fleet reads of one node's result file: its ceilings, best GEMMs and collectives, and the state
that it was measured in. Reading is in haste: of a roofline's file the measurements, nine tenths of it, are passed over.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SchemaError
from ..model import UNSTABLE_OVER
from ..schema import parse, validate_parts
from ..units import format_size, shown_unit
from .figures import unreal

Record = Mapping[str, Any]

PARTS = ("schema", "created", "interrupted", "emulated", "imported", "devices", "ceilings", "points", "measurements")
HEAD_BYTES, TAIL_BYTES = 64 << 10, 256 << 10  # of a file; what stands before and after its measurements is less
MOST_BYTES = 256 << 20  # a larger file is none of ours: a roofline of eight GPUs with all its samples has 7 MB
HELD_OVER = 0.01  # of the time that a limit held the clock back, below which it is not worth a word

# Our own files are indented by one space a level, and a JSON string holds no line break: at this depth and nowhere else
# stand the list of measurements and its end.
_MEASUREMENTS, _END = b'\n "measurements": [\n', b"\n ],"
_CEILINGS = b'\n ],\n "ceilings": [\n'  # what follows the measurements, if there are any
_NO_CEILINGS = re.compile(rb'\n "ceilings": \[\s*\]')
_SAMPLES = re.compile(rb'"(raw_s|counts)": \[[-+\d.eE,\s]*\]')


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure of a device; more of it is better. `ci95` and `spec` in the same unit."""

    name: str  # "dram", "float16", "gemm float16", "all_reduce of 1 GiB"
    unit: str
    value: float
    ci95: tuple[float, float] | None
    spec: float | None


@dataclass(frozen=True, slots=True)
class State:
    """What one device was, and did while it was measured; None is unknown."""

    uuid: str | None
    host: str | None  # a hash of its name
    driver: str | None
    clock_hz: float | None  # the median under load
    temperature_c: float | None  # the highest
    power_w: float | None  # the median under load
    ecc_uncorrected: int | None
    trouble: tuple[str, ...]  # "thermal limit 40% of the time", "throttled"
    failed: tuple[str, ...]  # names of the file's verdicts that failed
    mode: str
    interrupted: bool


@dataclass(frozen=True, slots=True)
class DeviceReadings:
    """One device of one file. `model` is what may be compared: the same name, measured and not replayed."""

    file: str
    device: str
    model: str
    state: State
    readings: tuple[Reading, ...]

    def to_json(self) -> list[Any]:
        """As nested lists, for the way from one process to another."""
        return [
            self.file, self.device, self.model, [getattr(self.state, key) for key in State.__slots__],
            [[r.name, r.unit, r.value, r.ci95, r.spec] for r in self.readings],
        ]  # fmt: skip

    @classmethod
    def of_json(cls, found: list[Any]) -> DeviceReadings:
        """Back from `to_json`."""
        file, device, model, state, readings = found
        state = [tuple(item) if isinstance(item, list) else item for item in state]
        made = tuple(Reading(name, unit, value, ci95 and (ci95[0], ci95[1]), spec)
                     for name, unit, value, ci95, spec in readings)  # fmt: skip
        return cls(file, device, model, State(*state), made)


def read_devices(path: Path, name: str) -> tuple[DeviceReadings, ...]:
    """The devices of a file, which errors call `name`. Raises SchemaError for what is no whole result file."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise SchemaError(f"{name}: {format_size(size)}: too large to be a result file")
        content = _ends(path, size) or _shortened(path.read_bytes())
        doc = _document(content, path, name)
    except OSError as error:
        raise SchemaError(f"{name}: cannot be read: {error.strerror or error}") from None
    devices = {entry["id"]: entry for entry in doc["devices"]}
    found: dict[str, dict[str, Reading]] = {key: {} for key in devices}
    for device, reading in _readings(doc, devices, name):
        held = found.get(device, {}).get(reading.name)
        if device in found and (held is None or reading.value > held.value):
            found[device][reading.name] = reading
    return tuple(
        DeviceReadings(name, key, _model(doc, devices[key]), _state(doc, devices[key]), tuple(readings.values()))
        for key, readings in found.items()
    )


def _document(content: bytes, path: Path, name: str) -> Record:
    try:
        doc = json.loads(_SAMPLES.sub(rb'"\1": []', content))
    except (ValueError, RecursionError):
        doc = parse(path.read_bytes(), name)  # says in full what is wrong
    validate_parts(doc, name, PARTS)
    whole: Record = doc
    return whole


def _ends(path: Path, size: int) -> bytes | None:
    """A large file without its measurements, which are not even read; None where it is small or not as we write it."""
    if size < HEAD_BYTES + TAIL_BYTES:
        return None
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        start = head.find(_MEASUREMENTS)
        if start < 0:
            return None
        file.seek(size - TAIL_BYTES)
        tail = file.read()
    end = tail.find(_CEILINGS)
    return None if end < 0 else head[:start] + b'\n "measurements": []' + tail[end + len(_END) - 1 :]


def _shortened(content: bytes) -> bytes:
    """Without the measurements, where the file is as we write it and has ceilings; else as it is."""
    start = content.find(_MEASUREMENTS)
    end = content.find(_END, start) if start >= 0 else -1
    if end < 0:
        return content
    short = content[:start] + b'\n "measurements": [],' + content[end + len(_END) :]
    return content if _NO_CEILINGS.search(short) or _MEASUREMENTS in short else short


def _model(doc: Record, device: Record) -> str:
    tool = (doc.get("imported") or {}).get("tool")
    tag = unreal(doc) or (f"imported from {tool}" if tool else "")
    return f"{device['name']} ({tag})" if tag else str(device["name"])


# -- figures -----------------------------------------------------------------------------------------------------------


def _readings(doc: Record, devices: Mapping[str, Record], name: str) -> Iterator[tuple[str, Reading]]:
    """(device, figure); the same name may come more than once, the best one counts."""
    for ceiling in doc["ceilings"]:
        device = str(ceiling.get("device") or next(iter(devices), ""))
        kind = devices.get(device, {}).get("kind")
        what = str(ceiling["level"] if ceiling["kind"] == "memory" else ceiling["dtype"])
        parts = [what, *([ceiling["kernel"]] if ceiling.get("scope") == "shown" and ceiling.get("kernel") else [])]
        threads = ceiling.get("threads")
        parts += [f"({threads} thread{'s' * (threads > 1)})"] if kind == "cpu" and threads else []
        unit = shown_unit(ceiling["unit"], ceiling["dtype"])
        spec = ceiling["spec"]
        yield from _one(device, " ".join(map(str, parts)), unit, ceiling["achieved"], ceiling["ci95"], spec, name)
    for point in doc["points"]:
        if point.get("kind") == "gemm":
            dtype = point.get("dtype")
            device = str(point.get("device") or next(iter(devices), ""))
            unit = shown_unit("FLOP/s", dtype)
            yield from _one(device, f"gemm {dtype}", unit, point["flop_per_s"], point.get("ci95"), None, name)
    for (device, collective), item in _largest(doc["measurements"]).items():
        rate = item["busbw_bytes_per_s"]
        what = f"{collective} of {format_size(item['size_bytes'])}"
        yield from _one(device, what, "B/s", rate["estimate"], rate["ci95"], None, name)


def _largest(records: list[Record]) -> dict[tuple[str, str], Record]:
    """Of each collective the largest size, where links and not latencies tell."""
    found: dict[tuple[str, str], Record] = {}
    for item in records:
        if item["family"] == "collective" and item["status"] == "ok" and item.get("busbw_bytes_per_s"):
            key = (str(item["device"]), str(item.get("collective")))
            if item.get("size_bytes", -1) > found.get(key, item).get("size_bytes", 0) or key not in found:
                found[key] = item
    return {key: item for key, item in found.items() if item.get("size_bytes")}


def _one(
    device: str, what: str, unit: str, value: float | None, ci95: list[float] | None, spec: float | None, name: str
) -> Iterator[tuple[str, Reading]]:
    numbers = [number for number in (value, *(ci95 or ()), spec) if number is not None]
    if not all(map(math.isfinite, numbers)):
        raise SchemaError(f"{name}: {what} of {device} is no finite number, which no result file may hold")
    if value:  # neither unknown nor zero
        yield device, Reading(what, unit, float(value), (ci95[0], ci95[1]) if ci95 else None, spec or None)


# -- state -------------------------------------------------------------------------------------------------------------


def _state(doc: Record, device: Record) -> State:
    environment = _table(doc.get("environment"))
    seen = next((c for c in map(_table, doc.get("conditions") or ()) if c.get("device") == device["id"]), {})
    gpu = _table(seen.get("gpu"))
    driver = gpu.get("driver") or environment.get("driver")
    errors = _number(gpu.get("ecc_uncorrected"))
    verdicts = [v for v in map(_table, doc.get("verdicts") or ()) if v.get("passed") is False]
    return State(
        _text(device.get("uuid")), _text(_table(environment.get("host")).get("hostname_hash")), _text(driver),
        _number(_table(seen.get("sm_clock_hz")).get("median")) or _number(seen.get("clock_hz")),
        _number(_table(seen.get("temperature_c")).get("max")), _number(_table(seen.get("power_w")).get("median")),
        None if errors is None else int(errors), tuple(_trouble(seen)),
        tuple(str(verdict.get("name")) for verdict in verdicts),
        str(_table(doc.get("settings")).get("mode") or ""), bool(doc["interrupted"]),
    )  # fmt: skip


def _trouble(seen: Record) -> Iterator[str]:
    yield from (str(flag) for flag in seen.get("flags") or ())
    for limit, share in _table(seen.get("limited_fraction")).items():
        if (_number(share) or 0) > HELD_OVER:
            yield f"{limit} limit {share:.0%} of the time"
    others = _number(seen.get("others_fraction")) or 0
    if others > UNSTABLE_OVER:
        yield f"other processes used {others:.0%} of the CPU time"


def _table(value: Any) -> Record:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return value if whole else None


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int, float)) and value != "" else None
