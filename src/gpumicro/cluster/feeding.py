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
from ..units import format_quantity
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
    given: tuple[str, str] = ("given", "the command line")
    tokens = None
    if scale is not None:
        found = _from_scale(scale, gpus)
        gpus, tokens, given = found.gpus, found.tokens, ("model", f"{scale}, over {found.fabric}")
        samples_per_s = found.samples_per_s if samples_per_s is None else samples_per_s
    if samples_per_s is None and gpus is None:
        return None
    if samples_per_s is None:
        raise UsageError("--gpus needs --samples-per-s, what one GPU takes in a second (or --scale FILE)")
    if sample_bytes is None:
        hint = (
            f"{tokens} tokens of 4 bytes are {4 * tokens} B" if tokens else f"without it {default_bytes:g} B are read"
        )
        raise UsageError(f"--sample-bytes is missing, the size of one sample on the storage; {hint}")
    return Need(1 if gpus is None else gpus, samples_per_s, sample_bytes, *given)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A row of `scale`: samples a second of one GPU, and the tokens of a sample where the file says."""

    gpus: int
    samples_per_s: float
    fabric: str
    tokens: int | None


def _from_scale(path: str, gpus: int | None) -> _Planned:
    """The row of that many GPUs (default: the most), over the fabric on which they are fastest."""
    try:
        doc = json.loads(Path(path).read_bytes())
        rows = [(row, str(curve["fabric"]["name"])) for curve in doc["curves"] for row in curve["rows"]]
        counts = sorted({_count(row["gpus"]) for row, _ in rows})
        wanted = counts[-1] if gpus is None else gpus
        fitting = [(_rate_of(row), name) for row, name in rows if row["gpus"] == wanted]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}; give a file that `gpumicro scale -o` wrote") from None
    except (KeyError, TypeError, IndexError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path}: not what `gpumicro scale -o` writes: {why}") from None
    if not fitting:
        raise UsageError(f"{path}: no row for {wanted} GPUs; it has {', '.join(map(str, counts))}: see scale's --gpus")
    rate, fabric = max(fitting)
    model = (doc.get("setting") or {}).get("model") or {}
    tokens = model.get("seq") if isinstance(model, dict) else None
    return _Planned(wanted, rate / wanted, fabric, tokens if isinstance(tokens, int) and tokens > 0 else None)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TypeError(f"gpus is {value!r}")
    return value


def _rate_of(row: Mapping[str, Any]) -> float:
    value = row["samples_per_s"]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"samples_per_s is {value!r}")
    return float(value)
