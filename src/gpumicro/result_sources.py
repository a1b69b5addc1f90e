"""Result files as a comparison reads them: each a run, and of every measurement the one figure that is compared.

Takes documents as schema/result-1.json has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from .errors import UsageError
from .result import read
from .sampling import LEAST
from .stats import FloatArray, Kind

Record = Mapping[str, Any]

RATES = ("bandwidth_bytes_per_s", "flop_per_s")


@dataclass(frozen=True, slots=True)
class Source:
    """One result file: one process."""

    name: str
    document: Record

    def device(self, record: Record) -> Record:
        """The entry of the device that a measurement names; empty where the file has none."""
        return next((d for d in self.document["devices"] if d["id"] == record["device"]), {})

    def condition(self, record: Record) -> Record:
        """What the watch of that device saw; empty where nothing was watched."""
        return next((c for c in self.document.get("conditions", ()) if c.get("device") == record["device"]), {})

    def tool(self, record: Record) -> str:
        """What measured it: "gpumicro", or the tool that an imported file or measurement names."""
        imported = record.get("imported") or self.document.get("imported") or {}
        return str(imported.get("tool", "gpumicro"))

    @property
    def unreal(self) -> str:
        """Why its times are none of a device now, "" where they are."""
        return next((tag for tag in ("emulated", "synthetic", "replayed") if self.document.get(tag)), "")


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """What one file saw of one measurement. A repeat is joined to the first: same process, later on."""

    source: Source
    record: Record  # the first one
    figure: str  # key of the figure that is compared
    estimate_s: float  # of one run; of one byte or FLOP where that figure is a rate
    values: FloatArray  # seconds per run, net of the overhead, in order; empty where the file has no samples
    kind: Kind
    location: str  # what the figure is: the kind, or what a tool that keeps no samples says of it; "" where it does not
    tick_s: float  # of one run
    baseline_s: float  # half-width of the overhead's interval, of one run
    flags: tuple[str, ...]


def read_sources(paths: Sequence[str | Path]) -> list[Source]:
    """The result files; a folder stands for every *.json in it. UsageError for a file that is given twice."""
    found: dict[Path, str] = {}
    for path in map(Path, paths):
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise UsageError(f"{path}: no .json file in this folder")
        for file in files:
            if file.resolve() in found:
                raise UsageError(f"{file} is given twice; files are what repeats, and each must be a run of its own")
            found[file.resolve()] = str(file)
    sources = [Source(name, read(name)) for name in found.values()]
    for i, source in enumerate(sources):
        copied = next((other for other in sources[:i] if _same_samples(source, other)), None)
        if copied:
            raise UsageError(
                f"{source.name} holds the same samples as {copied.name}: a copy is no second run; give each run once"
            )
    return sources


def _same_samples(a: Source, b: Source) -> bool:
    """Whether they are of one run: figures without samples may agree by chance, samples do not."""
    sides = [
        [record["timing"]["raw_s"] for record in one.document["measurements"] if _sampled(record)] for one in (a, b)
    ]
    return sides[0] == sides[1] != []


def _sampled(record: Record) -> bool:
    return len((record["timing"] or {}).get("raw_s") or ()) >= LEAST


def figure_of(record: Record) -> str:
    """The key of the figure that a measurement is compared by, "" where it has none: the time where there are samples
    of it, else what the tool states, a rate first, which has more digits than the time beside it."""
    if record["status"] != "ok":
        return ""
    if record["timing"] and record["time_s"]:
        return "time_s"
    keys = (*RATES, "time_s", "latency_s")
    return next((key for key in keys if record.get(key) and record[key].get("estimate")), "")


def _estimate_s(record: Record) -> float:
    """The time of one run, or of one byte or FLOP."""
    key = figure_of(record)
    estimate = float(record[key]["estimate"])
    return 1 / estimate if key in RATES else estimate


def series_of(source: Source, records: list[Record]) -> Series:
    timed = [record for record in records if figure_of(record)]
    first, key = timed[0], figure_of(timed[0])
    timings = [record["timing"] or {} for record in timed]  # a tool that keeps no samples has none
    timing = timings[0]
    kind = timing.get("kind", "median")
    location = kind if timing else first[key].get("location", "")
    joined = [other for other in timings if other.get("kind", "median") == kind]
    values = [_values(other) for other in joined]
    batch = max(1, int(timing.get("batch") or min(timing.get("counts") or [1])))
    low, high = timing.get("overhead_ci95_s") or (0.0, 0.0)
    flags = dict.fromkeys(flag for other in joined for flag in other.get("flags", ()))
    return Series(
        source, first, key, _estimate_s(first), np.concatenate(values), cast(Kind, kind), location,
        (timing.get("tick_s") or 0.0) / batch, (high - low) / 2 / batch, tuple(flags),
    )  # fmt: skip


def _values(timing: Record) -> FloatArray:
    raw = np.array(timing.get("raw_s") or (), dtype=np.float64)
    counts = np.array(timing.get("counts") or np.ones(len(raw)), dtype=np.float64)
    if len(counts) != len(raw):
        return np.empty(0)
    return (raw - (timing.get("overhead_s") or 0.0)) / counts
