"""Is one work faster than another? Interleaved blocks, a paired interval, a verdict.

Drift of the machine meets both arms of a block alike and cancels; measured one after the other, a clock that sags by
1.5% makes every pair of equal works differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from . import ratios, stats
from .baselines import Baseline
from .errors import UsageError
from .measure import clock_for, prepare, warn_if_slow
from .measurement import FloatArray, Measurement, Policy
from .notebook import html_table
from .ratios import Verdict
from .replicates import ProcessComparison, compare_processes
from .sampling import LEAST, OVERRUN, Run
from .timers import Timer, as_timer
from .works import BY_DEVICE, Timed, as_timed

SPAN_S = 100e-6  # least span of an arm: the first runs after a change of arms find the other's caches and predictors
FIRST_BLOCKS = 30
UNLIKE = 64  # batches further apart than this are no longer made one
OF_BOTH = ("not-steady", "throttled", "changes-inputs", "prints", "side-stream")  # flags of an arm that hold for both


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """How b stands to a. `ratio` is b's time over a's: above 1, b is slower."""

    ratio: float
    ci95: tuple[float, float]  # of the ratio, at `confidence`
    verdict: Verdict  # of b against a
    margin: float  # relative difference that does not matter
    mde: float  # least relative effect that would have been found in 80 of 100 such comparisons
    blocks: int
    differences: FloatArray  # float64[blocks]: mean ln b - mean ln a of each block, in order
    confidence: float
    stop_reason: str  # "resolved", "blocks", "max-time", "max-samples"
    flags: tuple[str, ...]  # correlated, below-resolution, and what both measurements found
    a: Measurement
    b: Measurement
    seed: int

    def need(self, effect: float | None = None) -> int:
        """Blocks that it would take to find a relative `effect` (default: the margin) with 80% power."""
        return ratios.need(self.blocks, self.mde, effect or self.margin)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts, both measurements included."""
        plain = ("ratio", "verdict", "margin", "mde", "blocks", "confidence", "stop_reason", "seed")
        return {key: getattr(self, key) for key in plain} | {
            "ci95": list(self.ci95),
            "flags": list(self.flags),
            "differences": self.differences.tolist(),
            "need": self.need(),
            "a": self.a.to_json(),
            "b": self.b.to_json(),
        }

    def _repr_html_(self) -> str:
        verdict, _, seen = str(self).partition(": ")
        rows = [("verdict", verdict), ("b against a", seen), ("a", self.a.time_text), ("b", self.b.time_text)]
        return html_table("comparison", [*rows, ("flags", ", ".join(self.flags))])

    def __str__(self) -> str:
        low, high = ((bound - 1) * 100 for bound in self.ci95)
        seen = f"b takes {self.ratio:.4f} times as long as a ({low:+.2f}% to {high:+.2f}%)"
        more = f"; {self.need()} blocks would resolve {self.margin:.2%}" if self.verdict == "inconclusive" else ""
        return f"{self.verdict}: {seen}; {self.blocks} blocks, least visible effect {self.mde:.2%}{more}"


@overload
def compare(
    a: Any, b: Any, *, margin: float = ..., blocks: int | None = ..., timer: str | Timer = ..., processes: None = ...,
    **policy: Any,
) -> Comparison: ...  # fmt: skip
@overload
def compare(
    a: Any, b: Any, *, margin: float = ..., blocks: int | None = ..., timer: str | Timer = ..., processes: int,
    **policy: Any,
) -> ProcessComparison: ...  # fmt: skip
def compare(
    a: Any,
    b: Any,
    *,
    margin: float = 0.005,
    blocks: int | None = None,
    timer: str | Timer = "auto",
    processes: int | None = None,
    **policy: Any,
) -> Comparison | ProcessComparison:
    """Whether b is faster or slower than a, or equivalent within `margin` (relative).

    Each block runs ABBA or BAAB, by lot, with the same number of runs in each of the four spans. The ratio is the
    median over the blocks with its sign-test interval. Verdict, in this order: the interval lies within 1 +- margin
    -> equivalent; above 1 -> slower; below 1 -> faster; else inconclusive (`need()` says how many blocks it takes).

    blocks: exactly so many; None: until the interval's half-width is half the margin, or the policy's max_time_s or
    max_samples. Other keywords are `Policy`'s. Works and timers are those of `time_kernel`; arguments are bound to a
    work by a lambda or functools.partial. UsageError where one clock cannot time both.

    The interval holds within this process. Another process may differ by its memory layout (0.5% is common), and both
    arms share that. processes: for a claim across processes, so many fresh ones (10 find 1% at a spread of 0.5%), each
    with its blocks; the process is what repeats. a and b must be reachable there: "package.module:function",
    "file.py:function", or functions at the top level of a module.
    """
    if not 0 < margin < 1 or (blocks is not None and blocks < LEAST):
        raise UsageError(f"margin must be in (0, 1) and blocks at least {LEAST}; not {margin!r}, {blocks!r}")
    rules = Policy.of(**policy)
    if processes is not None:
        return compare_processes(a, b, processes, margin, {"blocks": blocks, "timer": timer, **policy})
    a, b, clock = _one_clock(a, b, rules, timer)
    for arm in (a, b):
        warn_if_slow(arm, rules)
    if len(getattr(clock, "ladder", (1,))) > 1:
        raise UsageError(f"timer {clock.name!r} measures slopes, which cannot be paired; compare with the event timer")
    baseline = Baseline(clock)
    rng = np.random.default_rng(rules.seed)
    arms = [Run(work, rules, baseline, rng, SPAN_S) for work in (a, b)]
    prepare(arms)
    _share_batch(arms)
    pairs = _Pairs(arms, margin, blocks)
    while pairs.stop_reason is None:
        pairs.run_block()
    return pairs.describe()


def _one_clock(a: Any, b: Any, policy: Policy, timer: str | Timer) -> tuple[Any, Any, Timer]:
    """Both works as they are timed, and the clock of both. UsageError where each would have another."""
    named = timer if timer in ("auto", *BY_DEVICE) else as_timer(timer)
    arms = [as_timed(work, timer=named) for work in (a, b)]
    theirs = [isinstance(arm, Timed) for arm in arms]  # these have the clock that was asked for
    asked = None if named == "auto" or all(theirs) else as_timer(named)
    clocks = [clock_for(arm, policy, None if own else asked) for arm, own in zip(arms, theirs, strict=True)]
    if any(theirs) and _reads(clocks[0]) != _reads(clocks[1]):
        raise UsageError(
            f"a is timed by {clocks[0]!r} and b by {clocks[1]!r}, which measure different things; time both by the "
            "host: timer='wall'"
        )
    return arms[0], arms[1], clocks[0]


def _reads(clock: Timer) -> tuple[object, ...]:
    """What two clocks have to share to be as good as one."""
    return clock.name, *(getattr(clock, name, None) for name in ("device", "stream", "cache"))


def _share_batch(arms: list[Run]) -> None:
    """The longer batch for both, so that overhead and tick weigh alike; very unlike works keep each its own, for the
    slower one would take for ever with the other's."""
    longest = max(arm.batch for arm in arms)
    if longest <= UNLIKE * min(arm.batch for arm in arms):
        for arm in arms:
            arm.batch = longest


class _Pairs:
    """The blocks of one comparison."""

    def __init__(self, arms: list[Run], margin: float, blocks: int | None) -> None:
        self.arms, self.margin, self.wanted = arms, margin, blocks
        self.policy, self.rng, self.baseline = arms[0].policy, arms[0].rng, arms[0].baseline
        self.differences: list[float] = []
        self.resolved = True  # every net span was positive
        self.looks = ratios.Looks(FIRST_BLOCKS)
        self.began_s = self.baseline.timer.now()
        self.stop_reason: str | None = None

    def run_block(self) -> None:
        """Four spans, those of an arm of one count; then, where it is time for it, the question whether to stop."""
        drawn = self.arms[0].draw(1)
        counts = [np.maximum(1, drawn * arm.batch // self.arms[0].batch) for arm in self.arms]
        order = (0, 1, 1, 0) if self.rng.random() < 0.5 else (1, 0, 0, 1)
        logs = [0.0, 0.0]
        for which in order:
            spans = self.arms[which].time(counts[which])
            self.arms[which].keep(counts[which], spans)
            net_s = float(spans[0]) - self.baseline.location.estimate
            self.resolved = self.resolved and net_s > 0
            logs[which] += math.log(max(net_s, self.baseline.tick_s / 2, 1e-12) / counts[which][0]) / 2
        self.differences.append(logs[1] - logs[0])
        self.stop_reason = self._reason()

    def _reason(self) -> str | None:
        n = len(self.differences)
        if self.wanted is not None:
            return "blocks" if n >= self.wanted else None
        spent_s = self.baseline.timer.now() - self.began_s
        if self.looks.resolved(n, self.margin, self.locate):
            return "resolved"
        enough = n >= LEAST or spent_s >= OVERRUN * self.arms[0].budget_s
        if enough and spent_s >= self.policy.max_time_s:
            return "max-time"
        return "max-samples" if 2 * n >= self.policy.max_samples else None

    def locate(self) -> stats.Location:
        """The median difference; its interval is never narrower than what the tick alone does to the blocks."""
        d = np.array(self.differences)
        location = stats.median_location(d, self.policy.confidence)
        # A span's two readings are off by tick/sqrt(6) (standard deviation), a block's four spans as much as one.
        reading = self.baseline.tick_s / math.sqrt(6) / max(min(arm.span_s for arm in self.arms), 1e-12)
        least = 1.25 * stats.normal_quantile((1 + self.policy.confidence) / 2) * reading / math.sqrt(len(d))
        return location.at_least(max(least, stats.LEAST_WIDTH))

    def describe(self) -> Comparison:
        location = self.locate()
        d = np.array(self.differences)
        low, high = math.exp(location.low), math.exp(location.high)
        verdict: Verdict = "inconclusive"
        if self.resolved and location.confidence >= self.policy.confidence:
            verdict = ratios.judge(low, high, self.margin)
        records = [arm.describe(self.stop_reason) for arm in self.arms]
        flags = {"correlated": location.dependence.correlated, "below-resolution": not self.resolved}
        flags |= {name: True for record in records for name in record.flags if name in OF_BOTH}
        return Comparison(
            ratio=math.exp(location.estimate),
            ci95=(low, high),
            verdict=verdict,
            margin=self.margin,
            mde=ratios.POWER * (location.high - location.low) / 2,
            blocks=len(d),
            differences=d,
            confidence=location.confidence,
            stop_reason=self.stop_reason or "",
            flags=tuple(name for name, raised in flags.items() if raised),
            a=records[0],
            b=records[1],
            seed=self.policy.seed,
        )
