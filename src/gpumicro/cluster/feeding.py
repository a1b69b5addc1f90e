"""What N GPUs need of storage, set against what was measured. Pure numbers.

bytes/s = GPUs * samples/s of one GPU * bytes of a sample; nothing is taken off for caches or compression.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..units import format_quantity, format_size
from .loader import LoaderRead

MOST_GPUS = 10_000_000
MOST = 1e15  # samples a second or bytes of a sample: above, it is a slip of the keyboard


@dataclass(frozen=True, slots=True)
class Need:
    """What is needed; `origin` is "given", or "model" where a file of `scale` says so."""

    gpus: int
    samples_per_s: float  # of one GPU
    sample_bytes: float
    origin: str = "given"
    source: str = "the command line"

    def __post_init__(self) -> None:
        if not 1 <= self.gpus <= MOST_GPUS:
            raise UsageError(f"{self._where('--gpus')} must be 1 to {MOST_GPUS:,}, not {self.gpus:,}")
        for name, value in (("--samples-per-s", self.samples_per_s), ("--sample-bytes", self.sample_bytes)):
            if not 0 < value <= MOST:  # NaN too
                raise UsageError(f"{self._where(name)} must be above 0 and at most {MOST:g}, not {value:g}")

    def _where(self, name: str) -> str:
        return name if self.origin == "given" else f"{self.source}: what stands for {name}"

    @property
    def total_samples_per_s(self) -> float:
        return self.gpus * self.samples_per_s

    @property
    def bytes_per_s(self) -> float:
        return self.total_samples_per_s * self.sample_bytes


@dataclass(frozen=True, slots=True)
class Supply:
    """One way to get samples, as measured: samples/s, and the value that is judged (an interval's lower end)."""

    name: str
    what: str
    samples_per_s: float
    judged_samples_per_s: float

    def gpus_fed(self, need: Need) -> int:
        """Whole GPUs that it feeds at that rate."""
        return math.floor(self.judged_samples_per_s / need.samples_per_s)


@dataclass(frozen=True, slots=True)
class Verdict:
    """As in a result's `verdicts`."""

    name: str
    passed: bool
    text: str


def supplies(rows: Sequence[Mapping[str, Any]], read: LoaderRead | None, sample_bytes: float) -> list[Supply]:
    """The three ways to samples: the storage's random reads, packed shards in order, the Python loader."""
    by_name = {row["name"]: row for row in rows}
    found = []
    for name, what in (
        ("randread-sample", "samples at random (fio, many readers)"),
        ("read-1m", "packed samples in order (fio)"),
    ):
        if name in by_name:
            rate = _samples(by_name[name], sample_bytes)
            found.append(Supply(name, what, rate, rate))
    if read is not None:
        plural = "s" if read.workers != 1 else ""
        found.append(Supply(
            "loader", f"a file each (Python, {read.workers} worker{plural})", read.samples_per_s, read.low,
        ))  # fmt: skip
    return found


def _samples(row: Mapping[str, Any], sample_bytes: float) -> float:
    """Picked at random a sample costs at least the block that was read; in order samples lie side by side."""
    least = row["block_bytes"] if row["mode"] == "randread" else 0
    return float(row["bytes_per_s"] / max(sample_bytes, least))


def judge(need: Need, found: Sequence[Supply]) -> list[Verdict]:
    """Can the storage feed the GPUs, and can such a loader? Only what was measured is judged."""
    verdicts = []
    for supply, name in ((s, n) for n, key in _JUDGED.items() for s in found if s.name == key):
        enough = supply.judged_samples_per_s >= need.total_samples_per_s
        share = supply.judged_samples_per_s / need.total_samples_per_s
        text = (
            f"{_gpus(need.gpus)} need {_rate(need.total_samples_per_s, need.sample_bytes)}; {supply.what} gave "
            f"{_rate(supply.judged_samples_per_s, need.sample_bytes)}, {share:.2g} of it: enough for "
            f"{_gpus(supply.gpus_fed(need))}"
        )
        verdicts.append(Verdict(name, enough, text if enough else f"{text}. {_cure(supply, need, found)}"))
    return verdicts


_JUDGED = {"storage-feeds": "randread-sample", "loader-feeds": "loader"}


def _cure(supply: Supply, need: Need, found: Sequence[Supply]) -> str:
    by_name = {one.name: one for one in found}
    packed, storage = by_name.get("read-1m"), by_name.get("randread-sample")
    if supply.name == "loader" and storage and storage.judged_samples_per_s >= need.total_samples_per_s:
        return "The storage could: take more --workers, or shards instead of small files"
    if packed and packed.judged_samples_per_s >= need.total_samples_per_s:
        return "Packed into shards that are read in order it would do"
    return "Take faster or more storage, a local copy, smaller samples, or fewer GPUs"


def _gpus(count: int) -> str:
    return f"{count:,} GPU{'s' if count != 1 else ''}"


def _rate(samples_per_s: float, sample_bytes: float) -> str:
    number = f"{samples_per_s:,.0f}" if samples_per_s >= 100 else f"{samples_per_s:.3g}"
    return f"{number} samples/s ({format_quantity(samples_per_s * sample_bytes, 'B/s')})"


def need_of(
    gpus: int | None, samples_per_s: float | None, sample_bytes: float | None, scale: str | None, default_bytes: float
) -> Need | None:
    """The need, None where none was given. Raises UsageError where half of one was."""
    given = _from_scale(scale) if scale is not None else {}
    origin = ("model", scale) if scale is not None else ("given", "the command line")
    rate = samples_per_s if samples_per_s is not None else given.get("samples_per_s")
    count = gpus if gpus is not None else given.get("gpus")
    size = sample_bytes if sample_bytes is not None else given.get("sample_bytes")
    if rate is None and count is None:
        return None
    if rate is None:
        raise UsageError("--gpus needs --samples-per-s, what one GPU takes in a second (or --scale FILE)")
    if size is None:
        raise UsageError(
            "--samples-per-s needs --sample-bytes, the size of one sample on the storage "
            f"({format_size(default_bytes)} is what is read without it)"
        )
    return Need(1 if count is None else int(count), float(rate), float(size), *origin)


def _from_scale(path: str) -> dict[str, Any]:
    """gpus, samples_per_s (of one GPU) and sample_bytes as far as a file that `scale` wrote has them."""
    try:
        doc = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}; give a file that `gpumicro scale -o` wrote") from None
    found = doc.get("input") if isinstance(doc, dict) else None
    if not isinstance(found, dict):
        raise UsageError(f'{path}: no "input" at the top; give a file that `gpumicro scale -o` wrote')
    for key in ("gpus", "samples_per_s", "sample_bytes"):
        value = found.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise UsageError(f"{path}: input.{key} is {value!r}, not a number")
    return found
