"""Entries of `measurements` for what another tool measured. Nothing is invented: what a tool does not say is null with
its reason, and an interval is given only where the tool gave samples (at least six) to take one from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import stats
from ..result import or_why, rate
from .source import MOST_COUNT, Source

Record = dict[str, Any]

LEAST_SAMPLES = 6  # below, the extremes of the samples hold the median with less than 95%
DRIFT_OVER = 0.005  # as measure flags it at its default target of 1%
MODES_OVER = 0.005


@dataclass
class Parsed:
    """What a parser found in a file. A device is a Record with id, kind and name; see `device`."""

    tool: str
    version: str | None
    devices: dict[str, Record] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    environment: Record = field(default_factory=dict)
    when: str | None = None  # the date as the tool wrote it
    seen: dict[str, int] = field(default_factory=dict)

    def device(self, ident: str, kind: str, name: str | None, unnamed: str = "unknown device", **facts: Any) -> str:
        """Note a device; without a `name` the file does not say what ran (`unnamed` in words). Returns its id."""
        known: Record = {"id": ident, "kind": kind, "name": name or f"{unnamed} (the file does not name it)"}
        if name is None:
            known["named"] = False
        self.devices.setdefault(ident, known | {key: value for key, value in facts.items() if _plain(value)})
        return ident

    def gpu(self, name: str) -> str:
        """The id of the GPU of that name; a log that names it again means the same."""
        known = (ident for ident, facts in self.devices.items() if facts["name"] == name)
        return next(known, None) or self.device(f"gpu:{len(self.devices)}", "gpu", name)

    def add(self, record: Record) -> None:
        """Keep a record; a second one of the same id (several runs in one log) is told apart by `#2`."""
        base = record["id"]
        self.seen[base] = self.seen.get(base, 0) + 1
        if self.seen[base] > 1:
            record["id"] = f"{base}#{self.seen[base]}"
        self.records.append(record)


def _plain(value: object) -> bool:
    """Whether it may stand as a fact: a text, a count or a yes; what else a damaged file has there is left out."""
    return isinstance(value, (str, bool)) or (isinstance(value, int) and 0 <= value <= MOST_COUNT)


def stated(value: float | None, why: str = "", **more: Any) -> Record | None:
    """A rate or time as the tool states it, without an interval; None for None."""
    if value is None:
        return None
    return {"estimate": value, "ci95": None, "ci95_why": why or NO_INTERVAL, **more}


NO_INTERVAL = "the tool states one figure, without its samples"


def samples_timing(spans_s: Sequence[float], counts: Sequence[int] | None, timer: str, estimand: str, loop: str,
                   cache: str) -> tuple[Record, Record]:  # fmt: skip
    """(`timing`, `time_s`) of the samples that a tool kept: spans in seconds, each of so many runs (default 1).

    The median with its 95% interval by order statistics, widened for dependence; null below six samples. Neither tick
    nor overhead of the tool's timer is known, so nothing is subtracted and the interval holds no term for them.
    """
    raw = np.array(spans_s, dtype=np.float64)
    runs = np.ones(len(raw), dtype=np.int64) if counts is None else np.array(counts, dtype=np.int64)
    values = raw / runs
    location = stats.median_location(values).widened(0.0, 0.0)
    link, n, mean = location.dependence, len(values), float(values.mean())
    split = stats.modes(values, 0.0)
    flags = {
        "correlated": link.correlated,
        "drift": abs(stats.drift(values, link.tau)) > DRIFT_OVER,
        "bimodal": split is not None and split.slow - split.fast > MODES_OVER * split.fast,
    }
    timing: Record = {
        "estimand": estimand, "timer": timer, "loop": loop, "cache": cache, "n": n, "kind": "median",
        "location": "median", "stop_reason": "imported", "flags": [name for name, raised in flags.items() if raised],
        **or_why("tick_s", None, "the tool does not state its timer's step"),
        **or_why("overhead_s", None, "the tool does not state it; nothing was subtracted"),
        "confidence": location.confidence, "tau": link.tau, "counts": runs.tolist(), "raw_s": raw.tolist(),
    }  # fmt: skip
    enough = n >= LEAST_SAMPLES
    time_s: Record = {
        "estimate": location.estimate,
        **or_why("ci95", [location.low, location.high] if enough else None,
                 f"{n} sample{'s' if n != 1 else ''}: fewer than {LEAST_SAMPLES} give a median no 95% interval"),
        "location": "median", "min": float(values.min()), "p95": stats.quantile(values, 0.95)[0],
        **or_why("cv", float(values.std(ddof=1)) / mean if n > 1 and mean > 0 else None, "one sample"),
        **or_why("autocorrelation", stats.autocorrelation(values), "the samples do not vary"),
    }  # fmt: skip
    return timing, time_s


def made(
    source: Source,
    found: Parsed,
    *,
    kernel: str,
    family: str,
    device: str,
    problem: Mapping[str, int] | None = None,
    labels: Mapping[str, object] | None = None,
    variant: str = "",
    dtype: str | None = None,
    level: str | None = None,
    threads: int | None = None,
    bytes_moved: int | None = None,
    flops: int | None = None,
    intensity: float | None = None,
    timing: Record | None = None,
    time_s: Record | None = None,
    bandwidth: Record | None = None,
    flop_rate: Record | None = None,
    check: Record | None = None,
    failed: str | None = None,
    skipped: str | None = None,
    line: int | None = None,
    runs: int | None = None,
    why: Mapping[str, str] | None = None,
    **more: Any,
) -> Record:
    """One measurement. `labels` are sizes that are no whole numbers, part of the identity like `problem`.

    With `bytes_moved` or `flops` and a time, the rates follow from them unless given. `why` overrides the reason of a
    null by its key; `more` is added as it is.
    """
    tool = found.tool
    reasons = {
        "dtype": f"{tool} does not state the element type",
        "level": f"{tool} does not say in which memory the data lie",
        "threads": f"{tool} does not state how many threads ran",
        "bytes_moved": f"{tool} does not state the bytes of one run",
        "flops": f"{tool} does not state the operations of one run",
        "intensity_flop_per_byte": f"{tool} does not state both bytes and operations",
        "timing": f"{tool} kept no samples in this file",
        "time_s": f"{tool} states no time",
        "bandwidth_bytes_per_s": f"{tool} states no bandwidth",
        "flop_per_s": f"{tool} states no rate of operations",
        "check": f"{tool} does not say that the output was checked",
        "runs": f"{tool} does not state how many runs the figure rests on",
    } | dict(why or {})
    unmeasured = failed or skipped
    if unmeasured and time_s is None:
        reasons |= dict.fromkeys(("timing", "time_s", "bandwidth_bytes_per_s", "flop_per_s"), unmeasured)
    if time_s is not None and not unmeasured:
        bandwidth = bandwidth or (rate(bytes_moved, time_s) if bytes_moved else None)
        flop_rate = flop_rate or (rate(flops, time_s) if flops else None)
    if intensity is None and flops and bytes_moved:
        intensity = flops / bytes_moved
    sizes = [f"{name}={value}" for name, value in {**(problem or {}), **(labels or {})}.items()]
    sizes += [f"dtype={dtype}"] if dtype else []
    size = f"[{','.join(sizes)}]" if sizes else ""
    how = [f"threads={threads}"] if threads else []
    how += [f"variant={variant}"] if variant else []
    where = "/".join([f"@{device}/{tool}", *([",".join(how)] if how else [])])
    record: Record = {
        "id": f"{kernel}{size}{where}",
        "status": "failed" if failed else "skipped" if skipped else "ok",
        "kernel": kernel, "family": family, "variant": variant, **or_why("dtype", dtype, reasons["dtype"]),
        **or_why("level", level, reasons["level"]), "device": device, "backend": tool,
        **or_why("threads", threads, reasons["threads"]), "problem": dict(problem or {}),
        **or_why("bytes_moved", bytes_moved, reasons["bytes_moved"]), "traffic": "exact" if bytes_moved else "none",
        **or_why("flops", flops, reasons["flops"]),
    }  # fmt: skip
    for key, value in (
        ("intensity_flop_per_byte", intensity), ("timing", timing), ("time_s", time_s),
        ("bandwidth_bytes_per_s", bandwidth), ("flop_per_s", flop_rate), ("check", check), ("runs", runs),
    ):  # fmt: skip
        record |= or_why(key, value, reasons[key])
    if failed:
        record["error"] = failed
    if skipped:
        record["reason"] = skipped
    if labels:
        record["labels"] = {name: str(value) for name, value in labels.items()}
    place = {"line": line} if line else {}
    return record | {"imported": {"tool": tool, "file": source.label, **place}} | more


DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "f16": "float16", "f32": "float32", "f64": "float64",
    "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}  # fmt: skip


def dtype_name(word: str) -> str:
    """NumPy's name for a tool's word; a word that is not known stays as it is."""
    return DTYPES.get(word.lower(), word.lower())
