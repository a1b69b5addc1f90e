"""Is one work faster than another, whichever process it runs in? Fresh processes, each a paired comparison.

A process's memory layout, page colours and address randomisation shift its times by some 0.5%, the same for all its
samples; only other processes show that.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import children, ratios
from .errors import GpumicroError, UsageError
from .ratios import Verdict
from .reach import name_of
from .stats import FloatArray, normal_quantile

LEAST_PROCESSES = 3  # below which a t-interval is wider than any effect
INSIDE = "GPUMICRO_INSIDE_COMPARISON"  # set in the processes that are started here


@dataclass(frozen=True, slots=True, eq=False)
class ProcessComparison:
    """How b stands to a over fresh processes. `ratio` is b's time over a's: above 1, b is slower."""

    ratio: float  # median over the processes
    ci95: tuple[float, float]  # of the ratio, at `confidence`; the process is what repeats
    verdict: Verdict
    margin: float
    mde: float  # least relative effect that would have been found in 80 of 100 such comparisons
    processes: int
    differences: FloatArray  # float64[processes]: each one's median of ln b - ln a
    confidence: float
    flags: tuple[str, ...]  # processes-differ, and what more than half of the processes found
    runs: tuple[Mapping[str, Any], ...]  # each process's Comparison, as its to_json has it
    a: str
    b: str

    def need(self, effect: float | None = None) -> int:
        """Processes that it would take to find a relative `effect` (default: the margin) with 80% power."""
        return ratios.need(self.processes, self.mde, effect or self.margin)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts, every process's comparison included."""
        plain = ("ratio", "verdict", "margin", "mde", "processes", "confidence", "a", "b")
        return {key: getattr(self, key) for key in plain} | {
            "ci95": list(self.ci95), "flags": list(self.flags), "differences": self.differences.tolist(),
            "need": self.need(), "runs": list(self.runs),
        }  # fmt: skip

    def __str__(self) -> str:
        low, high = ((bound - 1) * 100 for bound in self.ci95)
        seen = f"b takes {self.ratio:.4f} times as long as a ({low:+.2f}% to {high:+.2f}%)"
        more = f"; {self.need()} of them would resolve {self.margin:.2%}" if self.verdict == "inconclusive" else ""
        return f"{self.verdict}: {seen}; {self.processes} processes, least visible effect {self.mde:.2%}{more}"


def compare_processes(a: Any, b: Any, processes: int, margin: float, options: Mapping[str, Any]) -> ProcessComparison:
    """Compare in so many fresh processes, one after the other; `options` are those of `compare` in each of them."""
    if not isinstance(processes, int) or processes < LEAST_PROCESSES:
        raise UsageError(f"processes must be a whole number of at least {LEAST_PROCESSES}, not {processes!r}")
    if os.environ.get(INSIDE):
        raise UsageError(
            "this is a process that compare(processes=...) started, and it is asked for more of them: put that call "
            'under `if __name__ == "__main__":`'
        )
    names = name_of(a), name_of(b)
    seed = int(options.get("seed", 0))
    runs = [
        _run({"a": names[0], "b": names[1], "options": {**options, "margin": margin, "seed": seed + i}}, i, processes)
        for i in range(processes)
    ]
    return judge_runs(names, runs, margin, float(options.get("confidence", 0.95)))


def judge_runs(
    names: tuple[str, str], runs: list[dict[str, Any]], margin: float, confidence: float
) -> ProcessComparison:
    """The comparison that the processes' own ones add up to."""
    logs = np.log([run["ratio"] for run in runs])
    found = ratios.of_processes(logs, confidence)
    low, high = math.exp(found.low), math.exp(found.high)
    flags = [flag for run in runs for flag in run["flags"]]
    common = [flag for flag in dict.fromkeys(flags) if 2 * flags.count(flag) > len(runs)]
    unsure = "below-resolution" in flags
    return ProcessComparison(
        ratio=math.exp(found.estimate), ci95=(low, high),
        verdict="inconclusive" if unsure else ratios.judge(low, high, margin), margin=margin,
        mde=ratios.POWER * found.half, processes=len(runs), differences=logs, confidence=confidence,
        flags=(*(("processes-differ",) if _differ(runs, logs) else ()), *common), runs=tuple(runs), a=names[0],
        b=names[1],
    )  # fmt: skip


def _differ(runs: list[dict[str, Any]], logs: FloatArray) -> bool:
    """Whether the processes spread by more than their own intervals explain (chi-square, about 3 sd)."""
    z = [normal_quantile((1 + run["confidence"]) / 2) for run in runs]
    half = np.array([(math.log(run["ci95"][1]) - math.log(run["ci95"][0])) / 2 for run in runs])
    own = half / np.array(z)
    centre = float((logs / own**2).sum() / (1 / own**2).sum())
    freedom = len(runs) - 1
    return bool((((logs - centre) / own) ** 2).sum() > freedom + 3 * math.sqrt(2 * freedom))


def _run(request: Mapping[str, Any], i: int, many: int) -> dict[str, Any]:
    """One process's comparison. What it raises is raised here."""
    with tempfile.TemporaryDirectory(prefix="gpumicro-") as folder:
        question, answer = Path(folder) / "request.json", Path(folder) / "answer.json"
        try:
            question.write_text(json.dumps(request))
        except TypeError as error:
            raise UsageError(f"with processes=, options must be plain numbers and texts: {error}") from None
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        ended = children.run(
            [sys.executable, "-m", "gpumicro.worker", str(question), str(answer)],
            environment={**os.environ, "PYTHONPATH": paths, INSIDE: "1"},
        )
        if not answer.exists():
            raise GpumicroError(f"process {i + 1} of {many} {ended.failure or 'ended without an answer'}")
        found: dict[str, Any] = json.loads(answer.read_text())
    if "error" in found:
        kind = UsageError if found["usage"] else GpumicroError
        raise kind(f"process {i + 1} of {many}: {found['error']}")
    return found
