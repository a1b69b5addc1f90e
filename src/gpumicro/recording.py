"""The recording file: what a run saw, to be played back with no device. Read with every check, written compactly.

The form is schema/recording-1.json. Nothing here measures or plays back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from .device import Cache, Device
from .errors import SchemaError
from .schema import leaves, place_of
from .telemetry import Counters, Reading

SCHEMA = "gpumicro-recording/1"
MOST_BYTES = 256 << 20  # a run of eight GPUs takes some 10 MB; what is larger is no recording of ours

Recording = dict[str, Any]


def device_to_json(device: Device) -> dict[str, Any]:
    """The facts of a device, plain."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(device), default=str))
    return plain


def device_from_json(record: Mapping[str, Any], **more_facts: object) -> Device:
    """Back from `device_to_json`; `more_facts` are added to its facts."""
    caches = tuple(Cache(**(cache | {"shared_by": tuple(cache["shared_by"])})) for cache in record["caches"])
    tuples = {"cpus", "isa"}
    given: dict[str, Any] = {key: tuple(value) if key in tuples else value for key, value in record.items()}
    given["numa_nodes"] = tuple(tuple(node) for node in record.get("numa_nodes", ()))
    return Device(**(given | {"caches": caches, "facts": record["facts"] | more_facts}))


def series_to_json(readings: Sequence[Reading], origin_s: float) -> dict[str, list[float | int | None]]:
    """Readings by column, times from `origin_s` on."""
    columns = {field.name: [getattr(r, field.name) for r in readings] for field in fields(Reading)}
    columns["t_s"] = [round(r.t_s - origin_s, 4) for r in readings]
    return columns


def series_from_json(columns: Mapping[str, Sequence[Any]]) -> list[Reading]:
    """Back from `series_to_json`."""
    names = [field.name for field in fields(Reading)]
    rows = zip(*(columns[name] for name in names), strict=True)
    readings = [Reading(**dict(zip(names, row, strict=True))) for row in rows]
    return [
        Reading(r.t_s, r.sm_hz, r.memory_hz, r.power_w, r.temperature_c, r.utilization,
                None if r.reasons is None else int(r.reasons))
        for r in readings
    ]  # fmt: skip


def counters_from_json(record: Mapping[str, Any]) -> Counters:
    """What the counters grew by over the recording."""
    return Counters(record["t_s"], record["energy_j"], dict(record["limited_s"]))


def write(path: str | os.PathLike[str], recording: Mapping[str, Any]) -> None:
    """Write the file whole or not at all. Raises SchemaError for what could not be read back, UsageError for a path."""
    from .result import replace_file

    plain = json.loads(json.dumps(recording, allow_nan=True))
    check(plain, "the recording")
    replace_file(path, json.dumps(plain, separators=(",", ":"), allow_nan=False).encode())


def read(path: str | os.PathLike[str]) -> Recording:
    """The recording in a file. Raises SchemaError naming the file and the place in it."""
    name = os.fspath(path)
    try:
        size = Path(name).stat().st_size
        if size > MOST_BYTES:
            raise SchemaError(f"{name}: {size >> 20} MiB are too many for a recording (at most {MOST_BYTES >> 20})")
        content = Path(name).read_bytes()
    except FileNotFoundError:
        raise SchemaError(f"{name}: no such file") from None
    except (OSError, ValueError) as error:
        raise SchemaError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        recording = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SchemaError(f"{name}: not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise SchemaError(f"{name}: not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except (RecursionError, ValueError) as error:  # nested too deeply; an integer of more digits than Python takes
        raise SchemaError(f"{name}: not a recording: {error}") from None
    check(recording, name)
    assert isinstance(recording, dict)
    return recording


def check(recording: Any, name: str) -> None:
    """Raise SchemaError with the place unless this is a recording that can be played back."""
    found = recording.get("schema") if isinstance(recording, dict) else None
    if found != SCHEMA:
        is_result = isinstance(found, str) and found.startswith("gpumicro/")
        hint = "; it is a result, not a recording" if is_result else ""
        raise SchemaError(f"{name}: not a gpumicro recording: schema is {str(found)[:80]!r}, not {SCHEMA!r}{hint}")
    for place, value in leaves(recording, ""):
        if isinstance(value, float) and not -1e300 < value < 1e300:
            raise SchemaError(f"{name}: {place} is {value}")
    import fastjsonschema

    try:
        _validator()(recording)
    except fastjsonschema.JsonSchemaValueException as error:
        place = place_of(error.path[1:])
        rule = error.message.removeprefix(".".join(error.path)).removeprefix(error.name or "").strip()
        raise SchemaError(f"{name}: {place or 'the top object'} {rule}") from None
    _check_lengths(recording, name)


def _check_lengths(recording: Recording, name: str) -> None:
    """What a schema can't say: lists that belong together are equally long, names that are used exist."""
    ids = [track["device"]["id"] for track in recording["devices"]]
    if len(set(ids)) != len(ids):
        raise SchemaError(f"{name}: devices: an id is there twice")
    for index, track in enumerate(recording["devices"]):
        where = f"{name}: devices[{index}]"
        for key, entry in track["measurements"].items():
            if entry["status"] != "ok":
                continue
            if any(len(take["counts"]) != len(take["spans_s"]) for take in entry["takes"]):
                raise SchemaError(f"{where}.measurements[{key!r}]: counts and spans_s must be equally long")
            if entry["timer"] not in track["timers"]:
                raise SchemaError(f"{where}.measurements[{key!r}].timer: there is no timer {entry['timer']!r}")
        if track["watch"]["kind"] == "gpu":
            lengths = {len(column) for column in track["watch"]["series"].values()}
            if len(lengths) > 1:
                raise SchemaError(f"{where}.watch.series: the columns must be equally long")
        if (track["watch"]["kind"] == "cpu") != (track["device"]["kind"] == "cpu"):
            raise SchemaError(f"{where}.watch.kind is {track['watch']['kind']!r} and the device another kind")


@lru_cache(maxsize=1)
def _validator() -> Any:
    import fastjsonschema

    schema = json.loads((files("gpumicro") / "schema" / "recording-1.json").read_text("utf-8"))
    return fastjsonschema.compile(schema, use_default=False)
