"""What to do next, in order of expected gain: each a rule with its arithmetic, from figures that stand in the files.

A gain is a share more of the same work from the same machines or the same money, as an upper bound: two of them do not
add up. What makes figures unfit to be believed comes first; what is not known in figures comes last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..units import format_fraction, format_quantity, shown_unit
from .figures import DeviceFigures, figures_of
from .overview import SECTIONS, Advice, Finding, Part

Record = Mapping[str, Any]

LEAST_GAIN = 0.02  # below, it is within what runs differ by
TRAINED_IN = ("bfloat16", "float16", "tf32", "float32", "float64")  # whose GEMM is looked at: the first there is
LOW_OF_SPEC = 0.80  # a DRAM ceiling below this part of its data sheet has something wrong with it

CURES = {  # of verdicts whose failure makes figures unfit to be believed
    "outputs": "Find out why outputs are wrong before anything is believed",
    "quiet machine": "Measure again while nothing else runs",
    "repeat": "Measure again: the machine moved during the run (clock, heat, neighbours)",
    "physical bounds": "Find out why a figure is above its physical bound",
    "complete": "Run to the end",
    "of a device": "Measure on the device itself",
}


def advise(parts: Sequence[Part], findings: Sequence[Finding]) -> Iterator[Advice]:
    """Trust first, then by gain, then what has no figure, then what was not measured."""
    yield from _trust(findings)
    doubtful = {finding.file for finding in findings if finding.state == "failed" and finding.name in CURES}
    found = [advice for part in parts for advice in _of(part)]
    found = [replace(a, basis=f"{a.basis}, doubtful") if a.file in doubtful else a for a in found]
    known = [advice for advice in found if advice.gain is not None and advice.gain >= LEAST_GAIN]
    yield from sorted(known, key=lambda advice: -(advice.gain or 0.0))
    yield from (advice for advice in found if advice.gain is None)
    have = {kind for part in parts for kind in part.kinds}
    for kind, missing in SECTIONS.items():
        if kind not in have and not (kind == "facts" and "fleet" in have):
            yield Advice(None, "", f"Find out: {missing.title.lower()}", "nothing is known of it yet", "", "", kind,
                         missing.command)  # fmt: skip


def _trust(findings: Sequence[Finding]) -> Iterator[Advice]:
    for finding in findings:
        if finding.state == "failed" and finding.name in CURES:
            yield Advice(None, "trust", CURES[finding.name], finding.text, "measured", finding.file, finding.section)


def _of(part: Part) -> Iterator[Advice]:
    rules = {
        "roofline": _roofline, "scale": _scale, "storage": _storage, "monitor": _monitor, "cost": _cost,
        "precision": _precision, "memory": _memory, "fleet": _fleet,
    }  # fmt: skip
    for kind in part.kinds:
        if kind in rules:
            yield from rules[kind](part)


def _named(part: Part, kind: str, gain: float | None, of: str, what: str, why: str, basis: str) -> Advice:
    sure = gain if gain is not None and math.isfinite(gain) else None
    return Advice(sure, of, what, why, basis, part.file, kind)


# -- a rule each -------------------------------------------------------------------------------------------------------


def _roofline(part: Part) -> Iterator[Advice]:
    for device in figures_of(part.doc, part.file).devices:
        yield from _gemm(part, device)
        yield from _below_spec(part, device)
    for seen in part.doc.get("conditions") or ():
        yield from _clock(part, seen)
    for point in part.doc["points"]:
        share = point.get("fraction_of_attainable")
        if point.get("kind") == "user" and share and 0 < share < 1:
            why = f"it reaches {format_fraction(share)} of what its intensity allows"
            yield _named(part, "roofline", 1 / share - 1, "of this kernel", f"Work on the kernel {point['name']}", why,
                         "measured")  # fmt: skip


def _gemm(part: Part, device: DeviceFigures) -> Iterator[Advice]:
    """The roof over the best GEMM, less one: what a perfect library would add."""
    for dtype in TRAINED_IN:
        gemm, roof = device.gemm.get(dtype), device.peak.get(dtype)
        if gemm and roof and gemm.estimate and roof.estimate:
            shown = [format_quantity(figure.estimate, shown_unit("FLOP/s", dtype)) for figure in (gemm, roof)]
            what = f"Tune the {dtype} GEMM of {device.name} (shape, library, power limit)"
            why = f"the fastest GEMM reaches {shown[0]} of {shown[1]}"
            gain = roof.estimate / gemm.estimate - 1
            yield _named(part, "roofline", gain, "of GEMM, at most", what, why, gemm.origin)
            return


def _below_spec(part: Part, device: DeviceFigures) -> Iterator[Advice]:
    for level, spec in device.spec_bandwidth.items():
        found = device.bandwidth.get(level)
        if found and found.estimate and found.estimate < LOW_OF_SPEC * spec.estimate:
            share = found.estimate / spec.estimate
            yield _named(
                part, "roofline", LOW_OF_SPEC / share - 1, "of memory-bound work, at least",
                f"Find out what holds {level} of {device.name} back: ECC, clock, channels in use, a partition",
                f"{format_fraction(share)} of its spec, where {format_fraction(LOW_OF_SPEC)} is usual", found.origin,
            )  # fmt: skip


def _clock(part: Part, seen: Record) -> Iterator[Advice]:
    clock = (seen.get("sm_clock_hz") or {}).get("median")
    most = (seen.get("gpu") or {}).get("clock_max_hz")
    held = {name: share for name, share in (seen.get("limited_fraction") or {}).items() if share and share > 0.05}
    if clock and most and held and clock < most:
        words = ", ".join(f"{name} {share:.0%} of the time" for name, share in held.items())
        yield _named(part, "roofline", most / clock - 1, "of arithmetic, at most",
                     f"Give {seen.get('device')} power and cooling", f"held back by {words}", "measured")  # fmt: skip


def _scale(part: Part) -> Iterator[Advice]:
    curves = part.doc.get("curves") or ()
    by_name = {c["fabric"]["name"]: {row["gpus"]: row for row in c["rows"]} for c in curves}
    for name, rows in by_name.items():
        for other, better in by_name.items():
            gpus = max((g for g in rows if g in better), default=None)
            if gpus and other != name:
                gain = better[gpus]["samples_per_s"] / rows[gpus]["samples_per_s"] - 1
                yield _named(part, "scale", gain, f"of {gpus:,} GPUs", f"Join the GPUs by {other} instead of {name}",
                             "the step hides less communication on the slower one", "model")  # fmt: skip
    for curve in curves:
        stop, rows_of = curve.get("stop"), by_name[curve["fabric"]["name"]]
        if stop and stop["gpus"] in rows_of:
            last = max(rows_of)
            gain = rows_of[stop["gpus"]]["efficiency"] / rows_of[last]["efficiency"] - 1
            yield _named(
                part, "scale", gain, "for each GPU hour", f"Over {curve['fabric']['name']}, use {stop['gpus']:,} GPUs "
                f"for a job and not {last:,}",
                f"the efficiency falls from {rows_of[stop['gpus']]['efficiency']:.0%} to "
                f"{rows_of[last]['efficiency']:.0%}: {stop['reason']}", "model",
            )  # fmt: skip


def _storage(part: Part) -> Iterator[Advice]:
    storage = part.doc["storage"]
    need, supplies = storage.get("need"), storage.get("supplies") or ()
    if need and supplies:
        wanted = need["gpus"] * need["samples_per_s"]
        loader = next((s for s in supplies if s["name"] == "loader"), supplies[0])
        if 0 < loader["judged_samples_per_s"] < wanted:
            why = f"the GPUs take {wanted:,.0f} samples/s, it gave {loader['judged_samples_per_s']:,.0f}"
            yield _named(part, "storage", wanted / loader["judged_samples_per_s"] - 1, "of an input-bound job",
                         "Feed the GPUs faster: local copies, more storage, more loaders, packed samples", why,
                         "measured")  # fmt: skip


_WATCHED = {
    "input-bound": "Speed up the input: loaders, storage, preprocessing",
    "memory-bound": "Move less memory: fuse kernels, narrower types",
    "throttled": "Look at cooling and power",
    "idle": "Give this to somebody who needs it",
    "shrink": "Take a smaller one, or share it",
    "grow": "Give it room",
}


def _monitor(part: Part) -> Iterator[Advice]:
    watched = part.doc["monitor"]
    for verdict in watched.get("verdicts") or ():
        what = _WATCHED.get(str(verdict.get("verdict")))
        if what:
            yield _named(part, "monitor", None, "", f"{what} ({verdict.get('subject')})", str(verdict.get("reason")),
                         "measured")  # fmt: skip
    for index, gpu in enumerate(watched.get("gpus") or ()):
        use = ((gpu.get("metrics") or {}).get("utilization") or {}).get("average")
        if use and 0 < use < 1:
            yield _named(part, "monitor", 1 / use - 1, "of this job, at most",
                         f"Keep GPU {index} busy", f"it had work for {use:.0%} of the time", "measured")  # fmt: skip


def _cost(part: Part) -> Iterator[Advice]:
    """The dearest against the cheapest machine for the same work; spot's overhead by the best interval."""
    units: dict[str, list[tuple[float, str]]] = {}
    for machine in part.doc.get("machines") or ():
        for unit in machine.get("units") or ():
            if (unit.get("usd") or {}).get("value"):
                units.setdefault(str(unit["what"]), []).append((unit["usd"]["value"], str(machine["instance"])))
    if units:
        what, offers = max(units.items(), key=lambda item: max(item[1])[0] / min(item[1])[0])
        (least, cheap), (most, dear) = min(offers), max(offers)
        yield _named(part, "cost", most / least - 1, "for the same money", f"For {what}, rent {cheap} and not {dear}",
                     f"${least:.3g} against ${most:.3g} for the same work", "model")  # fmt: skip
    plan = part.doc.get("checkpoints")
    if isinstance(plan, Mapping) and plan.get("best_s"):
        yield _named(part, "cost", None, "", f"Write a checkpoint every {format_quantity(plan['best_s'] / 60, '')} min",
                     f"the least overhead, {format_fraction(plan['overhead_best'])}", "model")  # fmt: skip


def _precision(part: Part) -> Iterator[Advice]:
    for device in part.doc.get("devices") or ():
        rows = {row["dtype"]: row for row in device.get("rows") or ()}
        base = (rows.get("float32") or {}).get("step")
        usual = [rows[d] for d in ("bfloat16", "float16") if d in rows and rows[d].get("step")]
        best = max(usual, key=lambda row: float(row["step"]), default=None)
        if base and best:
            gain = best["step"] / base - 1
            what = f"Train in {best['dtype']} on {device['name']}, where float32 is still used"
            why = f"GEMM {best['speedup']:.3g} times as fast"
            yield _named(part, "precision", gain, "of a training step", what, why, "model")


def _memory(part: Part) -> Iterator[Advice]:
    for device in part.doc.get("devices") or ():
        for line in (device.get("advice") or ())[:1]:
            yield _named(part, "memory", None, "", "Allocation: pool or not", str(line), str(device.get("origin")))


def _fleet(part: Part) -> Iterator[Advice]:
    slow = part.doc["slow"]
    if slow:
        worst = min(slow, key=lambda outlier: outlier["shown_by"]["ratio"])
        nodes = len({outlier["node"] for outlier in slow})
        shown = worst["shown_by"]
        yield _named(
            part, "fleet", 1 / shown["ratio"] - 1, "of a job over all nodes, at most",
            f"Repair or leave out {nodes} slow node{'s' * (nodes > 1)}, {worst['node']} first",
            f"a synchronous job waits for its slowest: {shown['ceiling']} {shown['ratio'] - 1:+.1%}", "measured",
        )  # fmt: skip
    for key in dict.fromkeys((g["factor"], g["group"]) for g in part.doc["groups"] if g["ratio"] < 1):
        group = min((g for g in part.doc["groups"] if (g["factor"], g["group"]) == key), key=lambda g: g["ratio"])
        yield _named(part, "fleet", 1 / group["ratio"] - 1, "of jobs on it", f"Look at {key[0]} {key[1]} as a whole",
                     f"{group['ceiling']} {group['ratio'] - 1:+.1%} over {group['n']} of them", "measured")  # fmt: skip
