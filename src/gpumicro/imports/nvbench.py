"""nvbench (NVIDIA) and cuda-bench, its Python face: the JSON of `--json`, or `--jsonbin` with float32 sample files.

Times are seconds; whole numbers and figures stand as text in `{"name", "type", "value"}` triples. A sample file is
named relative to the JSON's folder (older versions: to where the benchmark ran); only what lies below that folder is
opened. See nvbench/json_printer.cu and measure_cold.cu for names and units.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np

from .record import NO_INTERVAL, Parsed, Record, made, samples_timing, stated
from .source import Source

MOST_SAMPLES = 2**22  # of one file: 16 MiB of float32

Summaries = Mapping[str, Mapping[str, Any]]


def claims(source: Source) -> bool:
    """Whether this is such a file: what sets it apart is each benchmark's states."""
    return any(
        isinstance(bench, dict) and isinstance(bench.get("states"), list)
        for doc in source.documents
        for bench in _list(doc.get("benchmarks"))
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def read(source: Source) -> Parsed:
    """Every state of every benchmark: its cold (isolated) and batch (back to back) time, or why it was skipped."""
    found = Parsed("nvbench", None)
    for doc in source.documents:
        version = doc.get("meta", {}).get("version", {}) if isinstance(doc.get("meta"), dict) else {}
        own = version.get("nvbench") if isinstance(version, dict) else None
        if isinstance(own, dict) and isinstance(own.get("string"), str):
            found.version = own["string"]
        names = _devices(source, found, doc)
        for bench in source.objects(doc, "benchmarks", "the file"):
            name = source.entry(bench, "name", str, "a benchmark")
            for state in source.objects(bench, "states", f"benchmark {name!r}"):
                _state(source, found, name, state, names)
    return found


def _devices(source: Source, found: Parsed, doc: Record) -> dict[Any, str]:
    ids: dict[Any, str] = {}
    for device in _list(doc.get("devices")):
        number = source.count(source.entry(device, "id", int, "a device"), "a device's id")
        name = source.entry(device, "name", str, f"device {number}")
        more = {
            "cores": device.get("number_of_sms"), "memory_bytes": device.get("global_memory_size"),
            "l2_bytes": device.get("l2_cache_size"), "sm_version": device.get("sm_version"),
            "ecc": bool(device.get("ecc_state")),
        }  # fmt: skip
        ids[number] = found.device(f"cuda:{number}", "cuda", name, **more)
    return ids


def _state(source: Source, found: Parsed, bench: str, state: Record, devices: Mapping[Any, str]) -> None:
    label = f"a state of {bench!r}"
    summaries = _summaries(source, state, label)
    number = state.get("device")
    known = isinstance(number, int) and number in devices
    device = devices[number] if known else found.device("imported", "unknown", None)
    problem, labels = _axes(source, state, label)
    common: dict[str, Any] = {
        "kernel": bench,
        "family": "kernel",
        "device": device,
        "problem": problem,
        "labels": labels,
    }
    if state.get("is_skipped"):
        reason = state.get("skip_reason")
        found.add(made(source, found, skipped=f"nvbench skipped it: {reason or 'no reason given'}", **common))
        return
    kinds = [kind for kind in ("cold", "cpu_only") if any(tag.startswith(f"nv/{kind}/time") for tag in summaries)]
    for kind in kinds:
        found.add(_timed(source, found, summaries, kind, common))
    batch = _value(summaries, "nv/batch/time/gpu/mean")
    if batch is not None:
        time_s = stated(source.positive(batch, f"{label}: the batch time"), location="mean")
        runs = _value(summaries, "nv/batch/sample_size")
        found.add(
            made(
                source, found, variant="batch", time_s=time_s, bytes_moved=_moved(source, summaries, label),
                runs=None if runs is None else source.count(runs, f"{label}: the batch's size", least=1), **common,
            )
        )  # fmt: skip
    if not kinds and batch is None:
        found.add(made(source, found, failed="nvbench wrote no time for it", **common))


def _summaries(source: Source, state: Record, label: str) -> Summaries:
    """tag -> {name of a value: its value}."""
    given = {}
    for summary in _list(state.get("summaries")):  # null for none
        tag = source.entry(summary, "tag", str, f"a summary of {label}")
        given[tag] = {
            str(item.get("name")): item.get("value") for item in _list(summary.get("data")) if isinstance(item, dict)
        }
    return given


def _value(summaries: Summaries, tag: str) -> Any:
    return summaries.get(tag, {}).get("value")


def _axes(source: Source, state: Record, label: str) -> tuple[dict[str, int], dict[str, object]]:
    """(whole numbers, the rest) of a state's axes."""
    problem: dict[str, int] = {}
    labels: dict[str, object] = {}
    for axis in _list(state.get("axis_values")):
        name, value = source.entry(axis, "name", str, f"an axis of {label}"), axis.get("value")
        whole = axis.get("type") == "int64" and str(value).lstrip("-").isdigit()
        if whole and int(str(value)[:20]) >= 0:
            problem[name] = source.count(value, f"axis {name!r} of {label}")
        else:
            labels[name] = value
    return problem, labels


def _timed(source: Source, found: Parsed, summaries: Summaries, kind: str, common: Mapping[str, Any]) -> Record:
    """The cold or CPU-only measurement of a state, from its samples where they are at hand."""
    label = f"a state of {common['kernel']!r}"
    clock = "gpu" if kind == "cold" else "cpu"
    median = _value(summaries, f"nv/{kind}/time/{clock}/median")
    mean = _value(summaries, f"nv/{kind}/time/{clock}/mean")
    best = mean if median is None else median
    samples, why = _samples(source, found, summaries.get(f"nv/json/bin:nv/{kind}/sample_times"))
    runs = _value(summaries, f"nv/{kind}/sample_size")
    timing, time_s = None, None
    if samples is not None:
        timer = "nvbench: CUDA events" if kind == "cold" else "nvbench: CPU clock"
        cache, estimand = ("cold", "isolated") if kind == "cold" else ("hot", "host")
        timing, time_s = samples_timing(samples, None, timer, estimand, "native", cache)
    elif best is not None:
        location = "mean" if median is None else "median"
        time_s = stated(source.positive(best, f"{label}: its time"), why, location=location)
    clock_hz = _value(summaries, "nv/cold/sm_clock_rate/mean")
    facts = {} if clock_hz is None else {"sm_clock_hz": source.positive(clock_hz, f"{label}: its SM clock")}
    return made(
        source, found, timing=timing, time_s=time_s, bytes_moved=_moved(source, summaries, label), facts=facts,
        failed=None if time_s else "nvbench wrote no time for it", why={"timing": why},
        runs=None if runs is None else source.count(runs, f"{label}: its samples", least=1),
        variant="" if kind == "cold" else "cpu", **common,
    )  # fmt: skip


def _moved(source: Source, summaries: Summaries, label: str) -> int | None:
    """Bytes of global memory that the benchmark declared: the stated rate is those bytes over the stated mean time."""
    for kind, clock in (("cold", "gpu"), ("cpu_only", "cpu")):
        rate = _value(summaries, f"nv/{kind}/bw/global/bytes_per_second")
        mean = _value(summaries, f"nv/{kind}/time/{clock}/mean")
        if rate is not None and mean is not None:
            moved = source.positive(rate, f"{label}: its bandwidth") * source.positive(mean, f"{label}: its mean time")
            return source.count(float(round(moved)), f"{label}: its bytes")
    return None


# -- sample files ----------------------------------------------------------------------------------------------------


def _samples(source: Source, found: Parsed, entry: Mapping[str, Any] | None) -> tuple[list[float] | None, str]:
    """(seconds, "") of a state's sample file, or (None, why there are none)."""
    if entry is None:
        return None, f"{NO_INTERVAL}; --jsonbin would write them"
    name = entry.get("filename")
    if not isinstance(name, str):
        return None, "nvbench could not write its sample file"
    size = source.count(entry.get("size"), f"the size of sample file {name!r}", least=1)
    if size > MOST_SAMPLES:
        raise source.wrong(f"sample file {name!r} has {size} samples; at most {MOST_SAMPLES} are read")
    path = sample_file(source.folder, name)
    if path is None:
        note = f"Sample file {name!r} is not below the JSON's folder: no intervals; keep the two together."
        if note not in found.notes:
            found.notes.append(note)
        return None, f"its sample file {name!r} is not below the JSON's folder"
    return _float32(source, path, name, size), ""


def sample_file(folder: Path | None, name: str) -> Path | None:
    """The regular file below `folder` that `name` means, None where there is none; nothing outside is ever touched.

    Tried: the name as it stands, then its last two parts (`r.json-bin/0.bin`), for JSON that was moved with its files.
    """
    if folder is None or "\0" in name:
        return None
    parts = PureWindowsPath(name).parts  # takes both kinds of slashes
    absolute = bool(PureWindowsPath(name).drive or PureWindowsPath(name).root)
    root = Path(os.path.realpath(folder))
    for tail in ([] if absolute else [parts]) + [parts[-2:]]:
        if not tail or any(part in ("..", "/", "\\") for part in tail):
            continue
        path = Path(os.path.realpath(root.joinpath(*tail)))
        try:
            if path.is_relative_to(root) and stat.S_ISREG(path.stat().st_mode):
                return path
        except (OSError, ValueError):
            continue
    return None


def _float32(source: Source, path: Path, name: str, size: int) -> list[float]:
    """`size` little-endian float32 seconds, all above zero."""
    try:
        with path.open("rb") as file:
            content = file.read(4 * size + 1)
    except OSError as error:
        raise source.wrong(f"sample file {name!r} cannot be read: {error.strerror or error}") from error
    if len(content) != 4 * size:
        has = "more" if len(content) > 4 * size else f"{len(content)}"
        raise source.wrong(
            f"sample file {name!r} has {has} bytes where {size} samples take {4 * size}; is it of another run?"
        )
    values = np.frombuffer(content, dtype="<f4").astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(wrong):
        raise source.wrong(f"sample file {name!r}: sample {wrong[0]} is {values[wrong[0]]}; a time is above 0 s")
    return [float(value) for value in values]
