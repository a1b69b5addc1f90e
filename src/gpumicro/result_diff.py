"""Two sets of result files set against each other: faster, slower, equivalent or inconclusive, pair by pair.

Gives one JSON-shaped document; reports of it are drawn in `report`. Nothing here measures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np

from . import __version__, ratios, stats
from .errors import UsageError
from .ratios import Interval
from .result_pairs import CLOCK_SHARE, Pair, pairs
from .result_sources import RATES, Series, Source
from .units import shown_unit

SCHEMA = "gpumicro-comparison/1"
PROCESS_SD = 0.005  # of one process against another of the same code: its memory layout alone does as much
WIDEST = 100.0  # half-width of ln(ratio) above which there is no bound to speak of
UNSURE = ("below-resolution", "hung", "nonlinear")  # flags of a time that no verdict can rest on


@dataclass(frozen=True, slots=True)
class Rules:
    """How to judge. `margin`: relative difference that does not matter; `fdr`: share of false ones among the verdicts
    faster and slower that is accepted; `process_sd`: relative, added where a side is one file; `force`: compare what
    differs in device, clock, cache state or origin too."""

    margin: float = 0.005
    confidence: float = 0.95
    fdr: float = 0.05
    process_sd: float = PROCESS_SD
    force: bool = False

    def __post_init__(self) -> None:
        for name, low, high in (("margin", 0, 1), ("fdr", 0, 1), ("confidence", 0.5, 1)):
            if not low < getattr(self, name) < high:
                raise UsageError(f"{name} must be between {low} and {high}, not {getattr(self, name)!r}")
        if not 0 <= self.process_sd < 1:
            raise UsageError(f"process_sd must be from 0 to 1, not {self.process_sd!r}")


def compare_results(base: Sequence[Source], new: Sequence[Source], rules: Rules | None = None) -> dict[str, Any]:
    """How the new results stand to the base ones, JSON-ready.

    One file a side: the interval of the ratio of the two locations, from the samples, with `process_sd` for what one
    process cannot see. Several files on a side: the file is what repeats. Verdicts faster and slower are those that
    Benjamini and Hochberg's procedure leaves among all that were compared.
    """
    rules = rules or Rules()
    found = pairs(base, new)
    wanted = [pair for pair in found if _may_be_compared(pair, rules)]
    compared = [_compared(pair, rules) for pair in wanted]
    _correct(compared, rules)
    return {
        "schema": SCHEMA,
        "gpumicro_version": __version__,
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "base": [_source(source) for source in base],
        "new": [_source(source) for source in new],
        "settings": {
            "margin": rules.margin, "confidence": rules.confidence, "fdr": rules.fdr, "process_sd": rules.process_sd,
            "force": rules.force, "clock_share": CLOCK_SHARE,
        },
        "compared": compared,
        "not_compared": [
            {
                "id": pair.id,
                "reasons": [reason.text for reason in pair.reasons],
                "forcible": all(reason.forcible for reason in pair.reasons),
                "expected": pair.expected,
            }
            for pair in found
            if not _may_be_compared(pair, rules)
        ],
        "summary": dict(Counter(record["verdict"] for record in compared)),
        "notes": list(_notes(base, new, wanted, rules)),
    }  # fmt: skip


def _may_be_compared(pair: Pair, rules: Rules) -> bool:
    return not pair.reasons or (rules.force and all(reason.forcible for reason in pair.reasons))


def _source(source: Source) -> dict[str, Any]:
    return {"file": source.name} | {key: source.document[key] for key in ("created", "gpumicro_version", "interrupted")}


# --- one pair ------------------------------------------------------------------------------------------------------


def _compared(pair: Pair, rules: Rules) -> dict[str, Any]:
    def interval_at(confidence: float) -> Interval:
        return _interval(pair, _within(pair, confidence), confidence, rules.process_sd)

    found, within = interval_at(rules.confidence), _within(pair, rules.confidence)
    bounded = found.half < WIDEST
    low, high = (math.exp(found.low), math.exp(found.high)) if bounded else (0.0, math.inf)
    flags = list(dict.fromkeys(flag for series in (*pair.base, *pair.new) for flag in series.flags))
    verdict = ratios.judge(low, high, rules.margin)
    why = ""
    unsure = [flag for flag in flags if flag in UNSURE]
    if unsure:
        verdict, why = "inconclusive", f"flagged {', '.join(unsure)}"
    open_ended = "the interval of a time reaches zero"
    return {
        "id": pair.id,
        "verdict": verdict,
        **({"why": why} if why else {}),
        "ratio": math.exp(found.estimate),
        "ci95": [low, high] if bounded else None,
        "mde": math.expm1(ratios.POWER * found.half) if bounded else None,
        **({} if bounded else {"ci95_why": open_ended, "mde_why": open_ended}),
        "p": ratios.p_value(interval_at),
        "replicated": pair.replicated,
        "base": _side(pair.base, within[0] if bounded else ()),
        "new": _side(pair.new, within[1] if bounded else ()),
        "flags": flags,
        "forced": [reason.text for reason in pair.reasons],
    }


def _within(pair: Pair, confidence: float) -> list[list[Interval]]:
    """ln of the time of each file, base and new."""
    coarse = any(series.kind == "clipped-mean" for series in (*pair.base, *pair.new))
    return [[_located(series, coarse, confidence) for series in side] for side in (pair.base, pair.new)]


def _interval(pair: Pair, within: list[list[Interval]], confidence: float, process_sd: float) -> Interval:
    """Of ln(new/base)."""
    if not pair.replicated:
        both = stats.normal_quantile((1 + confidence) / 2) * math.sqrt(2) * process_sd
        return ratios.difference(within[0][0], within[1][0]).widened(both)
    logs = [np.array([one.estimate for one in side]) for side in within]
    # Files that agree by chance more closely than each knows its own time say nothing better than that.
    known = [[one.half for one in side if math.isfinite(one.half)] for side in within]
    least = math.hypot(*(stats.median(np.array(side)) / math.sqrt(len(side)) for side in known if side))
    return ratios.of_groups(logs[0], logs[1], confidence).at_least(max(least, stats.LEAST_WIDTH))


def _located(series: Series, coarse: bool, confidence: float) -> Interval:
    """ln of the time of one file, from its samples, those on a coarse grid by their clipped mean, as every file of the
    pair then; from its own estimate where it has too few samples."""
    if len(series.values) < 2:
        estimate = math.log(series.estimate_s)
        return Interval(estimate, -math.inf, math.inf, confidence)
    if coarse:
        location = stats.clipped_mean_location(series.values, series.tick_s, confidence)
        return ratios.of_location(location.widened(0.0, series.baseline_s))
    location = stats.median_location(series.values, confidence)
    return ratios.of_location(location.widened(series.tick_s / 2, series.baseline_s))


def _side(side: Sequence[Series], within: Sequence[Interval]) -> dict[str, Any]:
    """What a reader wants of one side: its figure in its own unit, and how much is behind it.

    The figure is that whose ratio is given: located anew where a file has a repeat, in the middle of the logarithms.
    Where that is nothing to speak of (`within` is empty), it is what the files state.
    """
    record = side[0].record
    logs = [one.estimate for one in within] or [math.log(series.estimate_s) for series in side]
    middle_s = math.exp(stats.median(np.array(logs)))
    scale = middle_s / side[0].estimate_s
    unit, value = _headline(record, side[0].figure)
    timed = side[0].figure == "time_s"
    return {
        "time_s": middle_s if timed else None,
        **({} if timed else {"time_s_why": f"compared by {side[0].figure}, which the file states without samples"}),
        "value": value * scale if unit == "s" else value / scale,
        "unit": unit,
        "files": len(side),
        "samples": sum(len(series.values) for series in side),
    }


def _headline(record: Mapping[str, Any], figure: str) -> tuple[str, float]:
    """(unit, value) to show: the figure that is compared; of a time the rate that follows from it, bytes where it
    streams and FLOP where it computes."""
    keys = [figure]
    if figure == "time_s":
        rates = RATES if record["traffic"] == "exact" else reversed(RATES)
        keys = ["latency_s", *rates, figure]
    key = next(key for key in keys if record.get(key) and record[key]["estimate"] is not None)
    unit = shown_unit(_UNITS.get(key, "s"), record["dtype"])
    return "OP/s" if unit == "FLOP/s" and record["family"] == "atomics" else unit, record[key]["estimate"]


_UNITS = dict(zip(RATES, ("B/s", "FLOP/s"), strict=True))


# --- all of them ---------------------------------------------------------------------------------------------------


def _correct(compared: list[dict[str, Any]], rules: Rules) -> None:
    """Adjusted p-values; faster and slower need one of at most `fdr`."""
    adjusted = ratios.benjamini_hochberg([record["p"] for record in compared])
    for record, q in zip(compared, adjusted, strict=True):
        record["p_adjusted"] = q
        if record["verdict"] in ("faster", "slower") and q > rules.fdr:
            record["why"] = f"{record['verdict']} by its own interval; one of {len(compared)} may be so by chance"
            record["verdict"] = "inconclusive"


def _notes(base: Sequence[Source], new: Sequence[Source], wanted: Sequence[Pair], rules: Rules) -> Iterator[str]:
    if any(not pair.replicated for pair in wanted):
        yield (
            "One file a side is one process a side, which cannot see what differs from process to process (memory "
            f"layout, session): a standard deviation of {rules.process_sd:.2%} a process is in every interval for it. "
            "Several files a side measure it."
        )
    created = [[source.document["created"] for source in side] for side in (base, new)]
    if min(map(len, created)) > 1 and (max(created[0]) < min(created[1]) or max(created[1]) < min(created[0])):
        yield (
            "All files of one side are older than those of the other: a machine that changed meanwhile looks like the "
            "code. Measure in turns: base, new, base, new."
        )
    both = {source.name for source in base} & {source.name for source in new}
    if both:
        yield f"On both sides: {', '.join(sorted(both))}. A file set against itself shows nothing."
    stopped = [source.name for source in (*base, *new) if source.document["interrupted"]]
    if stopped:
        yield f"Interrupted: {', '.join(stopped)}."
    for source in (*base, *new):
        for verdict in source.document.get("verdicts", ()):
            if verdict["name"] in _DISTURBED and not verdict["passed"]:
                yield f"{source.name}: {verdict['text']}."
    if any(pair.reasons for pair in wanted):
        yield "FORCED: what differs beside the code is named with each measurement; the ratio may be due to it alone."
    for name, path in _SOFTWARE:
        values = [dict.fromkeys(_at(source.document, path) for source in side) for side in (base, new)]
        if values[0] != values[1]:
            yield f"{name} differs: {', '.join(values[0])} in the base, {', '.join(values[1])} in the new."


_DISTURBED = ("quiet machine", "repeat")  # verdicts on a run whose failure makes a difference that no code made
_SOFTWARE = (
    ("gpumicro", ("gpumicro_version",)),
    ("driver", ("environment", "driver")),
    ("Python", ("environment", "python")),
    ("NumPy", ("environment", "numpy")),
    ("kernel of the system", ("environment", "host", "kernel")),
    ("governor", ("environment", "host", "governor")),
    ("mode of the run", ("settings", "mode")),
)  # what may change a time and is no reason to refuse


def _at(document: Mapping[str, Any], path: Sequence[str]) -> str:
    value: Any = document
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return "unknown" if value is None else str(value)
