"""One work under measurement: its batch, its warm-up, its samples and what the rules make of them.

It sees arrays only and is the same for every clock and backend; docs/methods.md says why each rule is as it is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import stats
from ._core.timing import Work
from .agreement import agreed_cache, agreed_estimand, take_flags
from .baselines import Baseline, Intercept
from .errors import UsageError, add_note
from .measurement import FloatArray, Measurement, Policy
from .timers import Counts, FakeWork, Runnable, as_work

COARSE_TICKS = 200  # a shorter span is on a coarse grid: its reading is off by more than 0.25%
OVERHEADS = 40  # a span is at least so many empty regions long: an empty one overlaps with its fences as work cannot
CONTENT = 0.9  # of the target: the looks pick a moment at which the interval is, by chance, a little narrow
GROWTH = 1.3  # from one look at the interval to the next: looking after every sample costs coverage
LEAST = 6  # samples below which the median has no 95% interval
OVERRUN = 20  # whole budgets that the least samples of slow work may take; after that it is fewer
WINDOW_S = 0.01  # of warm-up
SLICE_S = 0.1  # of sampling between two looks at the clock
MOST = 1 << 30  # runs in a batch
HUNG = "hung"  # the flag of a timer whose device does not answer any more


class Run:
    """One work under measurement: what was sampled so far, and what the rules make of it."""

    def __init__(
        self, work: Any, policy: Policy, baseline: Baseline, rng: np.random.Generator, least_s: float = 0.0
    ) -> None:
        timer = baseline.timer
        self.work: Runnable = as_work(work)
        self.policy, self.timer, self.rng = policy, timer, rng
        self.estimand, self.cache = agreed_estimand(policy, timer), agreed_cache(work, policy, timer)
        # A timer of slopes takes spans of several lengths, in multiples of the batch.
        self.ladder: tuple[int, ...] = getattr(timer, "ladder", (1,))
        self.baseline = Intercept(baseline) if len(self.ladder) > 1 else baseline
        self.largest_batch: int = getattr(timer, "largest_batch", MOST)
        if policy.batch and policy.batch > self.largest_batch:
            raise UsageError(f"batch is {policy.batch}, and a span of {timer!r} has {self.largest_batch} at most")
        self.told: set[str] = set(getattr(work, "flags", ()))  # what is known of the work, and what the timer says
        facts = getattr(work, "facts", {})
        self.first_s: float | None = facts.get("first_call_s")  # where it was called before
        self.runs = 0 if self.first_s is None else 1  # begun so far
        self.slow = False  # one run takes longer than the whole budget
        self.batch = 1
        self.span_s = 0.0  # typical, of late
        self.windows: list[float] = []
        self.recent = np.empty(0)  # seconds per run of the last windows
        self.steady = True
        self.taken: list[tuple[Counts, FloatArray]] = []  # (runs in each span, seconds of each span), in order
        self.n = 0
        self.spent_s = 0.0  # on this work: first on its warm-up, then on its samples
        self.next_look = 0
        # How long a span must be: the error of a reading below a quarter of the target, the baseline's small too.
        ticks_s = max(COARSE_TICKS, 2 / policy.target) * baseline.tick_s
        overheads_s = max(50 * stats.mad(baseline.spans), OVERHEADS * baseline.location.estimate)
        # A kernel may ask for longer spans, so that starting its threads is a small part of them.
        kernel_s = float(facts.get("least_span_s", 0.0))
        self.needed_s = max(ticks_s, overheads_s, least_s, kernel_s)
        self.began_s = timer.now()
        self.throttled_before_s = timer.throttled_s()

    # --- the batch ---

    def choose_batch(self) -> None:
        """The smallest power of two whose span is long against tick and overhead; 1 where one run is."""
        self.batch = self.policy.batch or 1
        if self.first_s is None:  # the first run of all pays for page faults, lazy binding, compilers: never believed
            self.first_s = float(self.take(1)[1][0])
        while True:
            counts, spans = self.take(1)
            self.span_s = float(spans[0])
            if self.span_s > self.budget_s and self.batch == (self.policy.batch or 1):
                self.slow = True
                self.keep(counts, spans)  # no warm-up would change it, and no second is to be had for nothing
                return
            if self.span_s < WINDOW_S:
                self.span_s = min(self.span_s, float(self.take(3)[1].min()))
            if self.policy.batch or self.long_enough() or 2 * self.batch > self.largest_batch:
                return
            self.batch *= 2

    @property
    def budget_s(self) -> float:
        """What the whole measurement may take: warm-up and samples."""
        return self.policy.max_time_s + self.policy.max_warmup_s

    def long_enough(self) -> bool:
        """Whether a span of this batch is."""
        return self.span_s - self.baseline.location.estimate >= self.needed_s

    def lengthen_batch(self) -> None:
        """Again after the warm-up, which may have made the work faster."""
        if not self.policy.batch and not self.slow and not self.long_enough() and 2 * self.batch <= self.largest_batch:
            self.choose_batch()

    def draw(self, k: int) -> Counts:
        """Runs in each of the next k spans: the batch, stretched by 0 to 20% lest it lock to some other period."""
        if len(self.ladder) > 1:
            return np.full(k, self.batch)
        return self.batch + (self.rng.random(k) * (self.batch // 5 + 1)).astype(np.int64)

    def draw_rungs(self, k: int) -> Counts:
        """Runs in each of the next k samples: `draw`, or the ladder's rungs in random order, each as often."""
        if len(self.ladder) == 1:
            return self.draw(k)
        rounds = -(-k // len(self.ladder))
        turns = np.concatenate([self.rng.permutation(self.ladder) for _ in range(rounds)])[:k]
        return self.batch * turns.astype(np.int64)

    def time(self, counts: Counts) -> FloatArray:
        """The spans of so many runs each, in seconds."""
        before_s = self.timer.now()
        try:
            spans = self.timer.sample(self.work, counts)
            self.runs += int(counts.sum())
        except Exception as error:
            if callable(self.work):  # a user's own
                add_note(error, f"gpumicro: the work raised this while it was timed, after {self.runs} calls or more")
            raise
        finally:
            self.told |= take_flags(self.timer)
            self.spent_s += self.timer.now() - before_s
        return spans

    def take(self, k: int) -> tuple[Counts, FloatArray]:
        """(counts, spans) of k spans."""
        counts = self.draw(k)
        return counts, self.time(counts)

    # --- the warm-up ---

    def warm_some(self) -> bool:
        """One window of warm-up; True when there need be no more."""
        if self.slow:
            return True
        wish = self.policy.warmup
        limit_s = self.policy.max_warmup_s if wish == "converge" or isinstance(wish, int) else float(wish)
        left_s = limit_s - self.spent_s
        if wish != "converge":
            runs_left = float(wish) - self.batch * len(self.recent) if isinstance(wish, int) else math.inf
            if left_s <= 0 or runs_left <= 0:
                return True
        elif self._converged():
            return True
        elif left_s <= 0:
            self.steady = not self._moving()
            return True
        size = int(min(max(WINDOW_S / max(self.span_s, 1e-9), 16), 256))
        size = max(1, min(size, int(limit_s / 5 / max(self.span_s, 1e-9))))
        if isinstance(wish, int):
            size = min(size, math.ceil(runs_left / self.batch))
        counts, spans = self.take(size)
        self.span_s = stats.median(spans)
        values = spans / counts
        self.windows.append(self._locate(values).estimate)
        self.recent = np.concatenate((self.recent, values))
        return False

    def _converged(self) -> bool:
        return len(self.windows) >= 5 and not self._moving(self.policy.target / 2)

    def _moving(self, tolerance: float | None = None) -> bool:
        """Whether the last three windows differ by more than `tolerance` (default: the target) and their noise."""
        last = self.windows[-3:]
        if len(last) < 3:
            return False  # too slow to tell in this budget; the drift test looks again
        size = len(self.recent) // len(self.windows)
        steps = np.abs(np.diff(self.recent[-max(3 * size, 16) :]))  # successive differences do not see a slow ramp
        noise = max(1.4826 * stats.median(steps) / math.sqrt(2), self.baseline.tick_s / (2 * self.batch))
        # 3.3: the range of three normal numbers (95%); 1.25: a median's standard deviation against a mean's.
        joint = 3.3 * 1.25 * noise / math.sqrt(size)
        return max(last) - min(last) > max((tolerance or self.policy.target) * abs(last[-1]), joint)

    def end_warmup(self) -> None:
        """Look at the batch once more; the budget of the samples begins."""
        self.lengthen_batch()
        self.spent_s = float(self.raw.sum()) if self.n else 0.0

    # --- the samples ---

    @property
    def counts(self) -> Counts:
        """Runs in each span."""
        return self._joined()[0]

    @property
    def raw(self) -> FloatArray:
        """Seconds of each span, overhead included."""
        return self._joined()[1]

    def _joined(self) -> tuple[Counts, FloatArray]:
        if len(self.taken) != 1:
            self.taken = [(np.concatenate([c for c, _ in self.taken]), np.concatenate([s for _, s in self.taken]))]
        return self.taken[0]

    def keep(self, counts: Counts, spans: FloatArray) -> None:
        """Add spans to what was seen."""
        self.taken.append((counts, spans))
        self.n += len(spans)

    @property
    def floor(self) -> int:
        """Samples that are taken whatever they take; of very slow work as many as 20 budgets allow."""
        if self.slow and self.policy.min_samples is None and self.spent_s >= OVERRUN * self.budget_s:
            return 1
        return min(self.policy.min_samples or LEAST, self.policy.max_samples)

    @property
    def spent(self) -> bool:
        """Whether slow work has had its time before the first sample is asked for."""
        return self.slow and self.n >= self.floor

    def sample_some(self, most: int) -> None:
        """Up to `most` spans on the way to the next look, as far as the time budget goes."""
        if self.next_look == 0:
            auto = 100 if self.span_s < 1e-3 else 30 if self.span_s < 0.1 else 10
            self.next_look = min(self.policy.min_samples or auto, self.policy.max_samples)
        left_s = self.policy.max_time_s - self.spent_s
        fits = int(min(left_s, SLICE_S) / max(self.span_s, 1e-9))
        k = max(1, min(self.next_look - self.n, most, fits))
        counts = self.draw_rungs(k)
        self.keep(counts, self.time(counts))

    def content(self) -> bool:
        """Whether to stop; looks at the interval only at n0, 1.3 n0, 1.69 n0 ..."""
        out_of_time = self.spent_s >= self.policy.max_time_s and self.n >= self.floor
        if self.n < self.next_look and not out_of_time:
            return False
        self.next_look = min(max(self.n + 1, math.ceil(GROWTH * self.n)), self.policy.max_samples)
        before_s = self.timer.now()
        found = self.look()
        self.spent_s += self.timer.now() - before_s
        return found or out_of_time or self.n >= self.policy.max_samples

    def look(self) -> bool:
        """Whether the interval is narrow enough. Where the baseline is what widens it, the baseline grows."""
        self.span_s = stats.median(self.raw)
        self.baseline.refit(self.counts, self.raw, self.coarse())
        self.location = self._locate(self.samples())
        while (
            self.location.relative > CONTENT * self.policy.target
            and self.baseline.half_s / self.batch > self.location.statistical / 2
            and len(self.baseline.spans) < self.policy.max_samples
            and HUNG not in self.told  # nothing more can be had from that device
            and self.baseline.grow()
        ):
            self.location = self._locate(self.samples())
        tau = self.location.dependence.tau
        return self.within(CONTENT * self.policy.target) and (tau <= 2.5 or self.n >= 60 * tau)

    def within(self, target: float) -> bool:
        """Whether the interval is that narrow, relatively, and reaches the confidence that was asked."""
        return self.location.relative <= target and self.location.confidence >= self.policy.confidence

    def samples(self) -> FloatArray:
        """Seconds per run of each span, net."""
        return (self.raw - self.baseline.location.estimate) / self.counts

    def coarse(self) -> bool:
        """Whether spans are short against the tick, so that the median would stick to the grid."""
        return self.span_s - self.baseline.location.estimate < COARSE_TICKS * self.baseline.tick_s

    def _locate(self, values: FloatArray) -> stats.Location:
        tick_s, baseline_s = self.baseline.tick_s / self.batch, self.baseline.half_s / self.batch
        if self.coarse():
            return stats.clipped_mean_location(values, tick_s, self.policy.confidence).widened(0.0, baseline_s)
        return stats.median_location(values, self.policy.confidence).widened(tick_s / 2, baseline_s)

    # --- the record ---

    def describe(self, stop_reason: str | None = None) -> Measurement:
        """The record of what was seen; `stop_reason` where it was not this run's own rule that stopped."""
        done = self.look()  # the baseline may have grown since, for another work
        own = "target-met" if done else "max-samples" if self.n >= self.policy.max_samples else "max-time"
        values, location, baseline = self.samples(), self.location, self.baseline
        duration_s = self.timer.now() - self.began_s
        split = self._modes(values)
        flags = self._flags(values, duration_s) | {"bimodal": split is not None}
        mean = float(values.mean())
        return Measurement(
            estimand=self.estimand,
            timer=self.timer.name,
            loop=getattr(self.work, "loop", "native" if isinstance(self.work, (Work, FakeWork)) else "python"),
            cache=self.cache,
            batch=self.batch,
            counts=self.counts,
            raw_s=self.raw,
            tick_s=baseline.tick_s,
            overhead_s=baseline.location.estimate,
            overhead_ci95_s=(baseline.location.low, baseline.location.high),
            kind=location.kind,
            estimate_s=location.estimate,
            ci95_s=(location.low, location.high),
            confidence=location.confidence,
            n=self.n,
            stop_reason=stop_reason or own,
            flags=tuple(name for name, raised in flags.items() if raised),
            warmup=tuple(self.windows),
            min_s=float(values.min()),
            p95_s=stats.quantile(values, 0.95)[0],
            cv=float(values.std(ddof=1)) / mean if mean > 0 and self.n > 1 else None,
            autocorrelation=stats.autocorrelation(values),
            tau=location.dependence.tau,
            modes=((split.fast, 1 - split.slow_share), (split.slow, split.slow_share)) if split else (),
            outliers=stats.outliers(values),
            seed=self.policy.seed,
            target=self.policy.target,
            duration_s=duration_s,
        )

    def _modes(self, values: FloatArray) -> stats.Modes | None:
        """Two modes, where they are further apart than half the target."""
        split = stats.modes(values, self.baseline.tick_s / self.batch)
        return split if split and split.slow - split.fast > self.policy.target / 2 * split.fast else None

    def _flags(self, values: FloatArray, duration_s: float) -> dict[str, bool]:
        missed = not self.within(self.policy.target)
        link = self.location.dependence
        return {
            "correlated": link.correlated,
            "drift": abs(stats.drift(values, link.tau)) > self.policy.target / 2,
            "target-missed": missed,
            "few-samples": self.n < LEAST,
            "not-steady": not self.steady,
            "throttled": self.timer.throttled_s() - self.throttled_before_s > 0.01 * duration_s,
            "below-resolution": self.location.low <= 0 or (self.coarse() and missed),
            "nonlinear": isinstance(self.baseline, Intercept) and self.baseline.bent,
        } | dict.fromkeys(sorted(self.told), True)
