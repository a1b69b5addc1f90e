"""The two records of a measurement: how carefully it is to be made, and what was seen. Nothing here samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SchemaError, UsageError, unknown
from .notebook import html_table
from .stats import Kind
from .units import format_interval, format_quantity

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Policy:
    """How carefully to measure.

    target: relative half-width of the interval at which to stop. max_time_s bounds the sampling and max_warmup_s the
    warm-up before it; a span that has begun is finished, and `min_samples` spans are always taken (auto: the first
    look is at 100 spans under 1 ms, 30 under 100 ms, else 10; at least 6, below which a median has no 95% interval,
    unless they would take more than 20 times both budgets: then as many as fit, one at least).
    warmup: "converge", a number of runs (int) or seconds (float). batch: runs in a span, None to choose it by the
    tick, 1 to never batch. cache: what state the work finds the caches in: "hot", "rotate" (it uses several sets of
    operands in turn), or "cold" with a timer that evicts. estimand: what is measured, "host" (call to completion),
    "isolated" (a span's runs, `batch` in a row, on a device that is otherwise idle; batch=1: one alone) or "period"
    (cost of one in a chain); "auto": whatever the timer
    measures. seed: of batch stretching and orders.
    """

    target: float = 0.01
    confidence: float = 0.95
    min_samples: int | None = None
    max_samples: int = 20_000
    max_time_s: float = 5.0
    warmup: str | int | float = "converge"
    max_warmup_s: float = 3.0
    batch: int | None = None
    cache: str = "hot"
    estimand: str = "auto"
    throttle: str = "flag"
    seed: int = 0

    @classmethod
    def of(cls, **keywords: Any) -> Policy:
        """From a caller's keywords. UsageError names the nearest of one that there is not."""
        known = [one.name for one in fields(cls)]
        for name in keywords:
            if name not in known:
                text = unknown("keyword", name, [*known, "timer"])
                raise UsageError(f"{text} (keywords of the work's own are bound by functools.partial)")
        return cls(**keywords)

    def __post_init__(self) -> None:
        allowed = {
            "cache": ("hot", "rotate", "cold"),
            "estimand": ("auto", "host", "isolated", "period"),
            "throttle": ("flag",),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise UsageError(f"{name} is {getattr(self, name)!r}; what can be had now: {', '.join(values)}")
        positive = ("target", "max_samples", "max_time_s")
        for name in positive:
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise UsageError(f"{name} must be positive, not {getattr(self, name)!r}")
        whole = ("max_samples", "seed", *(name for name in ("min_samples", "batch") if getattr(self, name) is not None))
        for name in whole:
            if not isinstance(getattr(self, name), (int, np.integer)):
                raise UsageError(f"{name} must be a whole number, not {getattr(self, name)!r}")
        if not 0 <= self.max_warmup_s < math.inf:
            raise UsageError(f"max_warmup_s must be a number of seconds, not {self.max_warmup_s!r}")
        if not 0.5 <= self.confidence < 1.0:
            raise UsageError(f"confidence must be in [0.5, 1), not {self.confidence!r}")
        if self.min_samples is not None and not 2 <= self.min_samples <= self.max_samples:
            raise UsageError(f"min_samples must be from 2 to max_samples, not {self.min_samples!r}")
        if self.batch is not None and self.batch < 1:
            raise UsageError(f"batch must be at least 1, not {self.batch!r}")
        if self.warmup != "converge" and (isinstance(self.warmup, str) or not 0 <= self.warmup < math.inf):
            raise UsageError(f"warmup must be 'converge', a number of runs or seconds, not {self.warmup!r}")


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """What was seen. Seconds throughout; never edited, nothing deleted from `raw_s`.

    Flags: correlated, drift, bimodal, target-missed, few-samples, not-steady, throttled, below-resolution; of device
    timers also gate-timeout, sync, ungated, event-wall, nonlinear, hung; of a caller's own work also prints,
    changes-inputs, side-stream.
    """

    estimand: str  # "host", "isolated" or "period"; see Policy
    timer: str
    loop: str  # "native", or "python" for a Python callable
    cache: str
    batch: int  # runs in a span before it is stretched by 0 to 20%
    counts: npt.NDArray[np.int64]  # runs in each span
    raw_s: FloatArray  # whole spans as the clock gave them, in order, overhead included
    tick_s: float  # effective step of the clock
    overhead_s: float  # of an empty region, subtracted from each span
    overhead_ci95_s: tuple[float, float]
    kind: Kind  # what the estimate is; the two kinds are not to be compared with each other
    estimate_s: float  # one run, net of overhead
    ci95_s: tuple[float, float]  # with the terms of tick, baseline and dependence; at `confidence`
    confidence: float  # what the interval reaches: less than was asked where there are fewer than 6 samples
    n: int
    stop_reason: str  # "target-met", "max-time", "max-samples", "interrupted", "hung"
    flags: tuple[str, ...]
    warmup: tuple[float, ...]  # locations of the warm-up's windows, overhead included
    min_s: float
    p95_s: float
    cv: float | None  # standard deviation over mean
    autocorrelation: float | None  # lag 1; None where the samples do not vary
    tau: float  # one independent sample is worth this many
    modes: tuple[tuple[float, float], ...]  # (seconds, share) of each, empty for one
    outliers: tuple[int, int]  # beyond 1.5 and 3 interquartile ranges, kept
    seed: int
    target: float
    duration_s: float  # warm-up included

    @property
    def samples_s(self) -> FloatArray:
        """float64[n]: seconds per run of each span, net of overhead."""
        return (self.raw_s - self.overhead_s) / self.counts

    @property
    def half_width(self) -> float:
        """Relative half-width of the interval."""
        return (self.ci95_s[1] - self.ci95_s[0]) / 2 / abs(self.estimate_s) if self.estimate_s else math.inf

    def to_json(self) -> dict[str, Any]:
        """`{"timing": ..., "time_s": ...}` as the result file has them: no NaN, null with its reason beside it."""
        timing: dict[str, Any] = {
            key: getattr(self, key)
            for key in (
                "estimand",
                "timer",
                "loop",
                "cache",
                "batch",
                "n",
                "kind",
                "tick_s",
                "overhead_s",
                "stop_reason",
            )
        }
        timing |= {
            "location": self.kind,
            "overhead_ci95_s": list(self.overhead_ci95_s),
            "flags": list(self.flags),
            "confidence": self.confidence,
            "tau": self.tau,
            "modes": [list(mode) for mode in self.modes],
            "outliers": list(self.outliers),
            "seed": self.seed,
            "target": self.target,
            "duration_s": self.duration_s,
            "warmup_s": list(self.warmup),
            "counts": self.counts.tolist(),
            "raw_s": self.raw_s.tolist(),
        }
        time_s: dict[str, Any] = {
            "estimate": self.estimate_s, "ci95": list(self.ci95_s), "min": self.min_s, "p95": self.p95_s,
            "cv": self.cv, "autocorrelation": self.autocorrelation,
        }  # fmt: skip
        if self.cv is None:
            time_s["cv_why"] = "one sample" if self.n < 2 else "the mean is not above zero"
        if self.autocorrelation is None:
            time_s["autocorrelation_why"] = "the samples do not vary"
        return {"timing": timing, "time_s": time_s}

    @property
    def time_text(self) -> str:
        """The estimate and its interval in words."""
        time_s = format_quantity(self.estimate_s, "s", self.ci95_s)
        return f"{time_s} ({self.confidence:.0%}: {format_interval(self.ci95_s, self.estimate_s, 's')})"

    def _repr_html_(self) -> str:
        return html_table(
            "time of one run",
            [
                (self.kind, self.time_text),
                ("samples", f"{self.n} of about {self.batch} runs, until {self.stop_reason}"),
                ("timer", f"{self.timer}, {self.estimand}, {self.cache} caches"),
                ("flags", ", ".join(self.flags)),
            ],
        )

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Measurement:
        """Back from `to_json`, or from a result file's measurement. SchemaError names what is missing."""
        try:
            timing, time_s = record["timing"], record["time_s"]
            plain = (
                "estimand", "timer", "loop", "cache", "batch", "n", "kind", "tick_s", "overhead_s", "stop_reason",
                "confidence", "tau", "seed", "target", "duration_s",
            )  # fmt: skip
            return cls(
                **{key: timing[key] for key in plain},
                counts=np.array(timing["counts"], dtype=np.int64),
                raw_s=np.array(timing["raw_s"], dtype=np.float64),
                overhead_ci95_s=(timing["overhead_ci95_s"][0], timing["overhead_ci95_s"][1]),
                estimate_s=time_s["estimate"],
                ci95_s=(time_s["ci95"][0], time_s["ci95"][1]),
                flags=tuple(timing["flags"]),
                warmup=tuple(timing["warmup_s"]),
                min_s=time_s["min"],
                p95_s=time_s["p95"],
                cv=time_s["cv"],
                autocorrelation=time_s["autocorrelation"],
                modes=tuple((mode[0], mode[1]) for mode in timing["modes"]),
                outliers=(timing["outliers"][0], timing["outliers"][1]),
            )
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise SchemaError(f"not a measurement: {type(error).__name__} {error}") from None
