"""What the monitor keeps of its samples: exact averages and energies, and enough values for percentiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..result import or_why
from .metrics import Metric

MOST_SAMPLES = 16_384  # kept; above, every second one goes and the stride doubles: bounds the memory of a long watch
MOST_WRITTEN = 1024  # of a series in the result file
PERCENTILES = (5, 50, 95)


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one quantity over the time: percentiles of the samples (inverse of the empirical law), extremes, average."""

    p5: float
    p50: float
    p95: float
    least: float
    most: float
    average: float  # over the time, of all samples
    n: int


@dataclass
class Track:
    """One quantity."""

    values: list[float | None] = field(default_factory=list)
    total: float = 0.0  # value times seconds
    seconds: float = 0.0
    known: int = 0

    def spread(self) -> Spread | None:
        """None where no sample had a value."""
        kept = np.array([value for value in self.values if value is not None], dtype=np.float64)
        if not len(kept) or not self.seconds:
            return None
        low, middle, high = np.percentile(kept, PERCENTILES, method="inverted_cdf").tolist()
        return Spread(low, middle, high, float(kept.min()), float(kept.max()), self.total / self.seconds, self.known)


class Series:
    """All quantities of one subject. Decimation drops kept values, never a sum."""

    def __init__(self, quantities: Sequence[Metric]) -> None:
        self.metrics = {metric.key: metric for metric in quantities}
        self.tracks = {key: Track() for key in self.metrics}
        self.times_s: list[float] = []
        self.extra: list[Any] = []  # what goes along with a kept sample
        self.seen = 0
        self._stride = 1

    def add(self, t_s: float, seconds: float, values: Mapping[str, float | None], extra: Any = None) -> None:
        """A sample, of the `seconds` before `t_s`."""
        keep = self.seen % self._stride == 0
        self.seen += 1
        for key, track in self.tracks.items():
            value = values.get(key)
            if value is not None:
                track.total += value * seconds
                track.seconds += seconds
                track.known += 1
            if keep:
                track.values.append(value)
        if keep:
            self.times_s.append(t_s)
            self.extra.append(extra)
            self._thin()

    def _thin(self) -> None:
        if len(self.times_s) < MOST_SAMPLES:
            return
        for kept in (self.times_s, self.extra, *(track.values for track in self.tracks.values())):
            del kept[1::2]
        self._stride *= 2

    def spread(self, key: str) -> Spread | None:
        return self.tracks[key].spread()

    def spreads(self, why: Mapping[str, str]) -> dict[str, Any]:
        """JSON-ready, each missing one with its reason."""
        out: dict[str, Any] = {}
        for key, track in self.tracks.items():
            found = track.spread()
            plain: dict[str, Any] | None = None
            if found is not None:
                names = ("p5", "p50", "p95", "average", "n")
                metric = self.metrics[key]
                plain = {"title": metric.title, "unit": metric.unit, "min": found.least, "max": found.most}
                plain |= {name: getattr(found, name) for name in names}
            out |= or_why(key, plain, why.get(key) or "nothing tells it here")
        return out

    def columns(self) -> dict[str, list[Any]]:
        """The kept series, thinned to MOST_WRITTEN, without quantities that have no value."""
        step = -(-len(self.times_s) // MOST_WRITTEN) or 1
        known = {key: track.values[::step] for key, track in self.tracks.items() if track.known}
        return {"t_s": self.times_s[::step], **known}


@dataclass
class Energy:
    """Joules over the time, by a counter where it can be, else by the mean of two power readings."""

    counted_j: float = 0.0
    integrated_j: float = 0.0
    counted_s: float = 0.0
    integrated_s: float = 0.0
    unknown_s: float = 0.0

    def add(self, seconds: float, counted_j: float | None, integrated_j: float | None) -> None:
        """What lies between two samples."""
        if counted_j is not None:
            self.counted_j += counted_j
            self.counted_s += seconds
        elif integrated_j is not None:
            self.integrated_j += integrated_j
            self.integrated_s += seconds
        else:
            self.unknown_s += seconds

    @property
    def joules(self) -> float | None:
        """None where nothing was known at any time."""
        known = self.counted_s + self.integrated_s > 0
        return self.counted_j + self.integrated_j if known else None

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        parts = [
            (self.counted_s, "the energy counter"),
            (self.integrated_s, "power readings times time (each of them may be an average of up to a second)"),
        ]
        words = " and ".join(word for seconds, word in parts if seconds > 0)
        return words + (f"; {self.unknown_s:.3g} s are not in it" if words and self.unknown_s > 0 else "")

    def to_json(self, why: str) -> dict[str, Any]:
        """energy_j and energy_from, or why not."""
        if self.joules is None:
            return {"energy_j": None, "energy_j_why": why or "nothing tells it here"}
        return {"energy_j": self.joules, "energy_from": self.origin}
