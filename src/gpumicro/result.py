"""The result file `gpumicro/1`: measurements put together with what they moved and computed, written and read back.

Rates are derived from the seconds and the counts here and nowhere else. A value that is missing is null and has its
reason beside it under `<key>_why`. Nothing in this room measures or judges.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from . import __version__
from .device import Device
from .errors import SchemaError, UsageError
from .schema import SCHEMA, Document, leaves, missing_reasons, parse, validate
from .spec import Check, Execution, KernelSpec, Problem, measurement_id

__all__ = [
    "SCHEMA",
    "Document",
    "check_outputs",
    "check_writable",
    "device_record",
    "document",
    "dumps",
    "measurement_record",
    "missing_reasons",
    "or_why",
    "parse",
    "rate",
    "read",
    "replace_file",
    "to_plain",
    "validate",
    "write",
]


class _Measured(Protocol):
    def to_json(self) -> Mapping[str, Any]: ...


def measurement_record(
    spec: KernelSpec,
    problem: Problem,
    execution: Execution,
    device: Device | str,
    backend: str,
    measurement: _Measured | None,
    check: Check | None,
    status: str = "ok",
    error: str | None = None,
    reason: str | None = None,
    level: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One entry of `measurements`: what ran, its seconds, and the rates that follow (B/s, FLOP/s, FLOP/B).

    `status` is "ok", "failed" (then `error` says how) or "skipped" (then `reason` says why); without a measurement
    every timed value is null. `facts` is what Prepared says about the run. `hops`, a size of the problem or a fact
    (default 1), gives a latency kernel its `latency_s`.
    """
    device_id = device if isinstance(device, str) else device.id
    unmeasured = error or reason or "not measured"
    record: dict[str, Any] = {
        "id": measurement_id(spec, problem, execution, device_id, backend),
        "status": status,
        "kernel": spec.name,
        "family": spec.family,
        "variant": execution.variant,
        "dtype": problem.dtype,
        "operands": problem.operands,
        **or_why("level", level, "the kernel is not tied to one memory level"),
        "device": device_id,
        "backend": backend,
        "threads": execution.threads,
        "problem": dict(problem.sizes),
        "bytes_moved": spec.bytes_moved(problem),
        "traffic": spec.traffic,
        "flops": spec.flops(problem),
        **or_why("intensity_flop_per_byte", spec.intensity(problem), "no memory traffic is counted"),
    }
    if status == "failed":
        record["error"] = error or "no message"
    if status == "skipped":
        record["reason"] = reason or "no reason given"
    timed = measurement.to_json() if measurement is not None else {}
    record |= or_why("timing", timed.get("timing"), unmeasured)
    record |= or_why("time_s", timed.get("time_s"), unmeasured)
    record |= _rates(spec, record, facts or {}, unmeasured)
    record |= or_why("check", None if check is None else asdict(check), unmeasured if status != "ok" else "not checked")
    record["facts"] = dict(facts or {})
    plain = to_plain(record)
    assert isinstance(plain, dict)
    return plain


def or_why(key: str, value: Any, why: str) -> dict[str, Any]:
    """The value, or null and why."""
    return {key: value} if value is not None else {key: None, f"{key}_why": why}


def _rates(spec: KernelSpec, record: Mapping[str, Any], facts: Mapping[str, Any], unmeasured: str) -> dict[str, Any]:
    """bandwidth, FLOP rate and (for what is judged by its time) latency, each null with a reason where it has none."""
    time_s = record["time_s"]
    why = None if time_s is not None else unmeasured
    by_time = "the kernel is judged by its time" if spec.unit == "s" else None
    rates: dict[str, Any] = {}
    for key, work, none in (
        ("bandwidth_bytes_per_s", record["bytes_moved"], "no memory traffic is counted"),
        ("flop_per_s", record["flops"], "no arithmetic is counted"),
    ):
        reason = why or by_time or (None if work else none)
        rates |= or_why(key, None if reason else rate(work, time_s), reason or "")
    if spec.unit == "s":
        hops = int(record["problem"].get("hops") or facts.get("hops", 1))
        rates |= or_why("latency_s", time_s and _per_hop(time_s, hops), unmeasured)
    return rates


def rate(work: float, time_s: Mapping[str, Any]) -> dict[str, Any]:
    """`work` units in that time, units per second; the ends of the interval change places."""
    if time_s["ci95"] is None:
        top: dict[str, Any] = {"ci95": None, "ci95_why": time_s["ci95_why"]}
        return {"estimate": work / time_s["estimate"], **top}
    low, high = time_s["ci95"]
    # an interval that reaches down to no time at all bounds the rate from below only
    top = (
        {"ci95": [work / high, work / low]}
        if low > 0
        else {"ci95": None, "ci95_why": "the time's interval reaches zero"}
    )
    return {"estimate": work / time_s["estimate"] if time_s["estimate"] > 0 else None, **top} | (
        {} if time_s["estimate"] > 0 else {"estimate_why": "no time above the timer's overhead"}
    )


def _per_hop(time_s: Mapping[str, Any], hops: int) -> dict[str, Any]:
    return {"estimate": time_s["estimate"] / hops, "ci95": [end / hops for end in time_s["ci95"]], "hops": hops}


def device_record(device: Device) -> dict[str, Any]:
    """The entry of `devices`; a fact that is None gets its reason."""
    record: dict[str, Any] = {}
    why = dict(device.why)
    for key, value in asdict(device).items():
        if key != "why":
            record |= or_why(key, value, why.pop(key, "none" if key == "virtual" else "not known"))
    record["levels"] = list(device.levels)
    plain = to_plain(record | {f"{key}_why": text for key, text in why.items()})
    assert isinstance(plain, dict)
    return plain


def document(
    *,
    argv: Sequence[str],
    devices: Iterable[Device | Mapping[str, Any]],
    measurements: Iterable[Mapping[str, Any]],
    ceilings: Iterable[Mapping[str, Any]] = (),
    ridge_points: Iterable[Mapping[str, Any]] = (),
    points: Iterable[Mapping[str, Any]] = (),
    gap: Iterable[Mapping[str, Any]] = (),
    sustained: Iterable[Mapping[str, Any]] = (),
    verdicts: Iterable[Mapping[str, Any]] = (),
    notes: Iterable[str] = (),
    conditions: Iterable[Mapping[str, Any]] = (),
    spec: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    interrupted: bool = False,
    emulated: bool | None = None,
    created: str | None = None,
    imported: Mapping[str, Any] | None = None,
) -> Document:
    """The whole result, JSON-ready. The environment is collected here unless given; `created` is now, UTC.

    `emulated` is what the devices say of themselves unless given. `imported` names the tool that measured, where it
    was another one.
    """
    if environment is None:
        from .environment import collect

        environment = collect()
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    records = [device_record(d) if isinstance(d, Device) else dict(d) for d in devices]
    whole = {
        "schema": SCHEMA,
        "gpumicro_version": __version__,
        "created": created or now,
        "argv": list(argv),
        "interrupted": interrupted,
        "emulated": any(_emulated(record) for record in records) if emulated is None else emulated,
        **({} if imported is None else {"imported": imported}),
        "settings": settings or {},
        "environment": environment,
        "devices": records,
        **or_why("spec", spec, "no spec peaks were looked up"),
        "measurements": list(measurements),
        "ceilings": list(ceilings),
        "ridge_points": list(ridge_points),
        "points": list(points),
        "gap": list(gap),
        "sustained": list(sustained),
        "verdicts": list(verdicts),
        "conditions": list(conditions),
        "notes": list(notes),
    }
    plain = to_plain(whole)
    assert isinstance(plain, dict)
    return plain


def _emulated(device: Mapping[str, Any]) -> bool:
    return bool((device.get("facts") or {}).get("emulated"))


def to_plain(value: Any) -> Any:
    """Dicts, lists, strings, numbers, booleans and None only: NumPy scalars and arrays, tuples and records unpacked."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain(asdict(value))
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        return to_plain(value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"cannot be written as JSON: {value!r}")


# -- writing ----------------------------------------------------------------------------------------------------------


def write(path: str | os.PathLike[str], doc: Mapping[str, Any]) -> None:
    """Write the document; `-` is stdout. The old file stays whole until the new one is.

    Raises SchemaError naming the place of a NaN or an infinity, UsageError if the file cannot be written.
    """
    text = dumps(doc)
    if os.fspath(path) == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        replace_file(path, text.encode())


def dumps(doc: Mapping[str, Any]) -> str:
    """The file's text: indented, each list of numbers on one line."""
    for place, value in leaves(doc, ""):
        if isinstance(value, float) and not math.isfinite(value):
            raise SchemaError(f"{place} is {value}; a result holds null with a reason instead")
    text = json.dumps(doc, indent=1, allow_nan=False, ensure_ascii=True)
    # a line break stands in no JSON string, so only real lists of numbers match
    return (
        re.sub(
            r"\[\n[\s\d.eE+,-]+\]", lambda match: " ".join(match[0].split()).replace("[ ", "[").replace(" ]", "]"), text
        )
        + "\n"
    )


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to a temporary name beside it, then rename. What is no regular file (/dev/null) is written to instead."""
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            target.write_bytes(content)
            return
        temporary = _temporary(target)
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error


def _temporary(target: Path) -> Path:
    return target.parent / f".gpumicro-{secrets.token_hex(6)}.tmp"


def check_writable(path: str | os.PathLike[str]) -> None:
    """Find out before measuring that a file can be written; leaves nothing behind. Raises UsageError."""
    if os.fspath(path) == "-":
        return
    if not os.fspath(path):
        raise UsageError("cannot write to a file without a name")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise UsageError(f"cannot write {os.fspath(path)}: it is a directory")
    if not target.parent.is_dir():
        raise UsageError(f"cannot write {os.fspath(path)}: there is no directory {target.parent}")
    try:
        if target.exists() and not target.is_file():
            with target.open("ab"):
                return
        temporary = _temporary(target)
        with temporary.open("xb"):
            pass
        temporary.unlink()
    except OSError as error:
        raise UsageError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error


def check_outputs(paths: Iterable[str], source: str | None = None) -> None:
    """`check_writable` for each, and that no two are one file, nor the one that is read. Raises UsageError."""
    seen = {} if source in (None, "-") else {os.path.realpath(str(source)): f"{source}, which is read"}
    for path in paths:
        check_writable(path)
        key = "-" if path == "-" else os.path.realpath(path)
        special = key != "-" and Path(key).exists() and not Path(key).is_file()  # /dev/null takes any number
        if key in seen and not special:
            raise UsageError(f"cannot write {path}: it is the same file as {seen[key]}")
        seen[key] = path


# -- reading ----------------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> Document:
    """The document in a file (`-`: stdin), checked against the schema. Raises SchemaError with file and place."""
    name = os.fspath(path)
    return parse(_read_bytes(name), name)


def _read_bytes(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError:
        raise SchemaError(f"{name}: no such file") from None
    except OSError as error:
        raise SchemaError(f"{name}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name
        raise SchemaError(f"{name!r}: {error}") from error
