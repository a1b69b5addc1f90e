"""Two commands set against each other: fresh processes, in blocks ABBA or BAAB, a paired interval, a verdict."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np

from . import __version__, children, ratios, stats
from .errors import GpumicroError, UsageError
from .ratios import Verdict
from .sampling import LEAST

SCHEMA = "gpumicro-ab/1"
FIRST_BLOCKS = 10  # at which the rule looks first
Progress = Callable[[int, float, str], None]  # blocks done, seconds spent, what is known


@dataclass(frozen=True, slots=True)
class Rules:
    """How to compare two commands.

    runs: so many of each, even; None: until the interval's half-width is half the margin, or `max_time_s`. warmup: runs
    of each that are not counted. timeout_s: of one run. metric: a pattern whose last match in what a run prints (its
    first group, where it has one) is the number to compare, instead of the time. higher: a larger number is the better.
    """

    margin: float = 0.005
    confidence: float = 0.95
    runs: int | None = None
    max_time_s: float = 60.0
    timeout_s: float | None = None
    warmup: int = 1
    metric: str | None = None
    higher: bool = False
    show: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1 or not 0.5 <= self.confidence < 1:
            raise UsageError(f"margin must be in (0, 1), confidence in [0.5, 1): not {self.margin}, {self.confidence}")
        if self.runs is not None and (self.runs < 2 or self.runs % 2):
            raise UsageError(f"runs must be even, for a block has two of each command, not {self.runs}")
        for name in ("max_time_s", "timeout_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} must be a number of seconds above 0, not {value!r}")
        if self.warmup < 0:
            raise UsageError(f"warmup must not be below 0, not {self.warmup}")
        if self.higher and self.metric is None:
            raise UsageError("a higher time is never the better; that goes with a metric")
        if self.metric is not None:
            try:
                re.compile(self.metric)
            except re.error as error:
                raise UsageError(f"metric {self.metric!r} is no pattern: {error}") from None


class Arm:
    """One of the two commands, and what its counted runs gave, in order."""

    def __init__(self, name: str, command: str) -> None:
        self.name, self.command = name, command
        try:
            self.argv = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"command {name} cannot be split into words: {error}: {command!r}") from None
        if not self.argv:
            raise UsageError(f"command {name} is empty")
        self.ended: list[children.Ended] = []
        self.values: list[float] = []  # what is compared: seconds, or the metric

    def to_json(self, rules: Rules) -> dict[str, Any]:
        """The command, its runs, and the location of what is compared (null below 2 runs)."""
        seen = {key: [getattr(one, key) for one in self.ended] for key in ("wall_s", "user_s", "system_s")}
        out: dict[str, Any] = {"command": self.command, "argv": self.argv, "values": self.values, **seen}
        if len(self.values) < 2:
            return out | {"estimate": None, "estimate_why": "fewer than 2 runs", "ci95": None}
        found = stats.median_location(np.array(self.values), rules.confidence)
        return out | {"estimate": found.estimate, "ci95": [found.low, found.high], "confidence": found.confidence}


class CommandPairs:
    """The comparison of one pair of commands."""

    def __init__(self, a: str, b: str, rules: Rules | None = None, run: Callable[..., children.Ended] | None = None):
        self.rules = rules or Rules()
        self.arms = (Arm("A", a), Arm("B", b))
        self.rng = np.random.default_rng(self.rules.seed)
        self.differences: list[float] = []  # ln B - ln A of each block
        self.stop_reason = ""
        self.error: GpumicroError | None = None
        self._start = run or children.run
        self._looks = ratios.Looks(FIRST_BLOCKS)

    def run(self, progress: Progress = lambda *_: None) -> None:
        """Run until the rule stops. A command that fails ends it, with `error` set and what there is kept; so does
        Ctrl-C, which passes. UsageError: a command that cannot be started at all."""
        try:
            for _ in range(self.rules.warmup):
                for arm in self.arms:
                    progress(0, 0.0, f"warming up {arm.name}")
                    self._take(arm)
            began_s = time.monotonic()
            while not self.stop_reason:
                self._block()
                spent_s = time.monotonic() - began_s
                self.stop_reason = self._reason(spent_s)
                progress(len(self.differences), spent_s, self._known(spent_s))
        except KeyboardInterrupt:
            self.stop_reason = "interrupted"
            raise
        except GpumicroError as error:
            if isinstance(error, UsageError) and not self.differences:
                raise
            self.stop_reason, self.error = "failed", error

    def _block(self) -> None:
        """Four runs; they count only when all four ended well."""
        order = (0, 1, 1, 0) if self.rng.random() < 0.5 else (1, 0, 0, 1)
        taken = [(which, *self._take(self.arms[which])) for which in order]
        logs = [0.0, 0.0]
        for which, ended, value in taken:
            self.arms[which].ended.append(ended)
            self.arms[which].values.append(value)
            logs[which] += math.log(value) / 2
        self.differences.append(logs[1] - logs[0])

    def _take(self, arm: Arm) -> tuple[children.Ended, float]:
        rules = self.rules
        ended = self._start(arm.argv, timeout_s=rules.timeout_s, keep_output=rules.metric is not None, show=rules.show)
        if ended.failure:
            raise GpumicroError(f"command {arm.name} ({arm.command}) {ended.failure}")
        return ended, ended.wall_s if rules.metric is None else self._metric(arm, ended)

    def _metric(self, arm: Arm, ended: children.Ended) -> float:
        matches = list(re.finditer(self.rules.metric or "", ended.output))
        if not matches:
            raise GpumicroError(
                f"command {arm.name} ({arm.command}) printed nothing that matches {self.rules.metric!r} on its "
                f"standard output ({len(ended.output)} characters)"
            )
        text = matches[-1][1] if matches[-1].re.groups else matches[-1][0]
        try:
            value = float(text)
        except (TypeError, ValueError):
            value = math.nan
        if not 0 < value < math.inf:
            raise GpumicroError(f"command {arm.name} ({arm.command}) printed {text!r}, which is no number above 0")
        return value

    def _reason(self, spent_s: float) -> str:
        n = len(self.differences)
        if self.rules.runs is not None:
            return "runs" if 2 * n >= self.rules.runs else ""
        if self._looks.resolved(n, self.rules.margin, self._locate):
            return "resolved"
        return "max-time" if spent_s >= self.rules.max_time_s else ""

    def _known(self, spent_s: float) -> str:
        n = len(self.differences)
        if n < LEAST:
            least_s = LEAST * spent_s / n
            late = self.rules.runs is None and least_s > self.rules.max_time_s
            return (
                f"{LEAST} blocks, the least for a verdict, take {least_s:.0f} s: give --max-time more" if late else ""
            )
        found = self._locate()
        low, high = (100 * math.expm1(end) for end in (found.low, found.high))
        return f"B against A: {low:+.2f}% to {high:+.2f}%"

    def _locate(self) -> stats.Location:
        return stats.median_location(np.array(self.differences), self.rules.confidence).at_least(stats.LEAST_WIDTH)

    def document(self) -> dict[str, Any]:
        """What was seen and what follows from it, JSON-ready. `ratio` is B's time (or metric) over A's."""
        n, rules = len(self.differences), self.rules
        record: dict[str, Any] = {
            "schema": SCHEMA, "gpumicro_version": __version__,
            "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "what": "wall time" if rules.metric is None else rules.metric, "unit": "s" if rules.metric is None else "",
            "better": "higher" if rules.higher else "lower", "margin": rules.margin, "seed": rules.seed,
            "a": self.arms[0].to_json(rules), "b": self.arms[1].to_json(rules), "blocks": n,
            "differences": self.differences, "stop_reason": self.stop_reason or "interrupted",
            **({"error": str(self.error)} if self.error else {}),
        }  # fmt: skip
        if n < 2:
            why = "fewer than 2 blocks"
            nothing = {"ratio": None, "ci95": None, "mde": None, "need": None}
            whys = {f"{key}_why": why for key in nothing}
            return record | nothing | whys | {"verdict": "inconclusive", "confidence": 0.0, "flags": ["few-blocks"]}
        return record | self._judged()

    def _judged(self) -> dict[str, Any]:
        rules, n = self.rules, len(self.differences)
        found = self._locate()
        low, high = math.exp(found.low), math.exp(found.high)
        enough = found.confidence >= rules.confidence
        verdict: Verdict = "inconclusive"
        if enough:
            verdict = (
                ratios.judge(1 / high, 1 / low, rules.margin) if rules.higher else ratios.judge(low, high, rules.margin)
            )
        mde = ratios.POWER * (found.high - found.low) / 2
        flags = {"correlated": found.dependence.correlated, "few-blocks": not enough}
        return {
            "ratio": math.exp(found.estimate), "ci95": [low, high], "verdict": verdict, "mde": mde,
            "confidence": found.confidence, "need": ratios.need(n, mde, rules.margin),
            "flags": [name for name, raised in flags.items() if raised],
        }  # fmt: skip


def cpu_time_s(arm: dict[str, Any]) -> float | None:
    """The median over the runs of user plus system time; None without runs."""
    sums = np.add(arm["user_s"], arm["system_s"])
    return stats.median(sums) if len(sums) else None
