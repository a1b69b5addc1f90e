"""Why a figure is below the one above it: spec -> what the clock allows -> ceiling -> library -> plain kernel.

Each step down is attributed to causes only as far as something measured says so; the rest is said to be
unattributed. Pure: reads JSON-shaped records, gives JSON-shaped explanations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .model import Record, measured, promise_for, rate, roofs
from .peaks.sheet import Sheet
from .units import format_quantity, format_size

WORTH_NAMING = 0.02  # a loss below 2% is within what two measurements of one thing differ by here
WRITE_ALLOCATE = {
    "write": 1 / 2,
    "copy": 1 / 3,
    "scale": 1 / 3,
    "add": 1 / 4,
    "triad": 1 / 4,
}  # uncounted / really moved


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the machine did during the run, as far as it can be seen; None where it cannot."""

    clock_hz: float | None = None  # of a core under load, measured from a chain of dependent adds
    steal_fraction: float | None = None  # of CPU time that the hypervisor gave to others
    others_fraction: float | None = None  # of CPU time that other processes used
    throttled: int | None = None  # times that a core was slowed for heat
    sheet: Sheet | None = None


@dataclass(slots=True)
class _Ladder:
    """Steps from the top down; values fall, and each fall may get causes."""

    quantity: str
    unit: str
    device: str
    steps: list[Record] = field(default_factory=list)
    causes: list[Record] = field(default_factory=list)

    def step(
        self, name: str, label: str, value: float | None, why: str = "", ci95: Any = None, ref: Any = None
    ) -> None:
        record: Record = {"name": name, "label": label, "value": value, "ci95": ci95, "measurement": ref}
        if value is None:
            record["value_why"] = why
        self.steps.append(record)

    def cause(self, upper: str, lower: str, cause: str, fraction: float | None, evidence: str) -> None:
        self.causes.append({"between": [upper, lower], "cause": cause, "fraction": fraction, "evidence": evidence})

    def loss(self, upper: str, lower: str) -> float | None:
        """The fraction lost between two steps, None where either is unknown."""
        value = {step["name"]: step["value"] for step in self.steps}
        high, low = value.get(upper), value.get(lower)
        return 1 - low / high if high and low is not None else None

    def finished(self) -> Record:
        known = [step["name"] for step in self.steps if step["value"] is not None]
        unattributed = []
        for upper, lower in pairwise(known):
            loss = self.loss(upper, lower)
            named = sum(c["fraction"] or 0 for c in self.causes if c["between"] == [upper, lower])
            rest = (loss or 0) - named
            if loss is not None and loss < -WORTH_NAMING:
                note = (
                    "the clock under load was above the one that the spec peak assumes"
                    if (upper, lower) == ("spec", "clock")
                    else f"{lower} is above {upper}: one of the two does not measure what it says"
                )
                unattributed.append({"between": [upper, lower], "fraction": loss, "note": note})
            elif abs(rest) > WORTH_NAMING:
                note = (
                    "nothing that was measured explains it"
                    if rest > 0
                    else "the causes named explain more than was lost: their effects overlap"
                )
                unattributed.append({"between": [upper, lower], "fraction": rest, "note": note})
        return {
            "quantity": self.quantity, "unit": self.unit, "device": self.device, "steps": self.steps,
            "causes": self.causes, "unattributed": unattributed,
        }  # fmt: skip


def _best(records: Sequence[Record], **match: Any) -> Record | None:
    fitting = [r for r in measured(records) if all(r.get(key) == value for key, value in match.items()) and rate(r)]
    return max(fitting, key=lambda r: rate(r).estimate, default=None)  # type: ignore[union-attr]


def _figure(record: Record) -> tuple[float, list[float]]:
    value = rate(record)
    assert value is not None
    return value.estimate, [value.low, value.high]


def _spec_step(ladder: _Ladder, ceiling: Record) -> None:
    ladder.step("spec", "spec peak", ceiling["spec"], ceiling.get("spec_why") or "no spec was given")


def _clock_steps(ladder: _Ladder, ceiling: Record, conditions: Conditions) -> None:
    """What width and ports would give at the clock that was measured, and what spec loses to it."""
    sheet, clock = conditions.sheet, conditions.clock_hz
    per_cycle = promise_for(ceiling, sheet).per_cycle if sheet else None
    if sheet is None or not per_cycle or not clock:
        return
    at_clock = per_cycle * clock * ceiling["threads"]
    threads = f"{ceiling['threads']} x " if sheet.cores else ""  # a GPU's figure is of all its SMs
    width = f"{per_cycle:,.0f}" if per_cycle >= 1000 else f"{per_cycle:g}"
    label = f"model: {threads}{width} per cycle x {format_quantity(clock, 'Hz')} measured"
    ladder.step("clock", label, at_clock)
    loss = ladder.loss("spec", "clock")
    if loss is not None and loss > WORTH_NAMING and sheet.clock_hz:
        evidence = f"{format_quantity(clock, 'Hz')} measured, {format_quantity(sheet.clock_hz, 'Hz')} in the spec"
        ladder.cause("spec", "clock", "clock below spec", loss, evidence)


def _lost_time_causes(ladder: _Ladder, upper: str, conditions: Conditions) -> None:
    """CPU time that others had while the ceiling was measured; together never more than was lost."""
    left = ladder.loss(upper, "ceiling") or 0.0
    for share, cause, source in (
        (conditions.steal_fraction, "time taken by the hypervisor", "was steal time"),
        (conditions.others_fraction, "time taken by other processes", "went to other processes"),
    ):
        if left > WORTH_NAMING and share and share > 0.005:
            evidence = f"{share:.1%} of the CPU time during the run {source} (/proc/stat)"
            ladder.cause(upper, "ceiling", cause, min(left, share), evidence)
            left -= min(left, share)
    if conditions.throttled and left > WORTH_NAMING:
        evidence = f"cores were throttled {conditions.throttled} times during the run (thermal_throttle counters)"
        ladder.cause(upper, "ceiling", "thermal cap", None, evidence)


def _gemm_steps(ladder: _Ladder, records: Sequence[Record], ceiling: Record, memory: Record | None) -> None:
    at = {"dtype": ceiling["dtype"], "threads": ceiling["threads"], "device": ceiling["device"]}
    vendor = _best(records, kernel="gemm.vendor", **at)
    ours = _best([r for r in records if r["kernel"] != "gemm.vendor"], family="gemm", **at)
    if vendor:
        value, ci95 = _figure(vendor)
        blas = (vendor.get("facts") or {}).get("recipe", "the vendor's BLAS")
        ladder.step("library", f"GEMM, {blas}, {vendor['problem']['n']}", value, ci95=ci95, ref=vendor["id"])
        _library_causes(ladder, vendor, memory, _launch_s(records, ceiling))
    if ours:
        value, ci95 = _figure(ours)
        kernel = ours["kernel"].partition(".")[2]
        ladder.step("kernel", f"GEMM, our {kernel} kernel, {ours['problem']['n']}", value, ci95=ci95, ref=ours["id"])


def _launch_s(records: Sequence[Record], ceiling: Record) -> float:
    """Seconds of an empty launch on that device, 0 where it was not measured."""
    kernels = ("launch.empty", "launch.stream")  # of a CPU's threads; of a GPU
    empty = (r for r in measured(records) if r["kernel"] in kernels and r["device"] == ceiling["device"])
    return next((float(r["time_s"]["estimate"]) for r in empty), 0.0)


def _library_causes(ladder: _Ladder, vendor: Record, memory: Record | None, launch_s: float) -> None:
    """What of the library's loss its compulsory traffic and its launch can explain at most."""
    left, time_s = ladder.loss("ceiling", "library") or 0.0, vendor["time_s"]["estimate"]
    moved_s = vendor["bytes_moved"] / memory["achieved"] if memory else 0.0
    for share, cause, evidence in (
        (moved_s / time_s, "memory traffic that is not hidden",
         f"at most: the compulsory {format_size(vendor['bytes_moved'])} take {moved_s / time_s:.1%} of the time at the "
         "measured DRAM bandwidth if nothing overlaps"),
        (launch_s / time_s, "launch-bound", f"an empty launch takes {launch_s / time_s:.1%} of the time"),
    ):  # fmt: skip
        if left > WORTH_NAMING and share > 0.005:
            ladder.cause("ceiling", "library", cause, min(left, share), evidence)
            left -= min(left, share)


def _arithmetic(ceiling: Record, records: Sequence[Record], memory: Record | None, conditions: Conditions) -> Record:
    ladder = _Ladder(f"{ceiling['dtype']} arithmetic", ceiling["unit"], ceiling["device"])
    _spec_step(ladder, ceiling)
    _clock_steps(ladder, ceiling, conditions)
    ladder.step(
        "ceiling", f"measured ceiling, {ceiling['recipe']}", ceiling["achieved"], ci95=ceiling["ci95"],
        ref=ceiling["measurement"],
    )  # fmt: skip
    _lost_time_causes(ladder, ladder.steps[-2]["name"], conditions)
    _gemm_steps(ladder, records, ceiling, memory)
    return ladder.finished()


def _memory(ceiling: Record, records: Sequence[Record], one_thread: Record | None) -> Record:
    ladder = _Ladder(f"{ceiling['level']} bandwidth", ceiling["unit"], ceiling["device"])
    _spec_step(ladder, ceiling)
    ladder.step(
        "ceiling", f"measured ceiling, {ceiling['recipe']}", ceiling["achieved"], ci95=ceiling["ci95"],
        ref=ceiling["measurement"],
    )  # fmt: skip
    _steps_for_stores(ladder, ceiling, records)
    above = ladder.steps[-1]
    if one_thread and (one := _like(above, one_thread, records)):
        value, ci95 = _figure(one)
        label = f"one thread of {ceiling['threads']}, {one['kernel']} {one.get('variant') or ''}".rstrip()
        ladder.step("one thread", label, value, ci95=ci95, ref=one["id"])
        loss = ladder.loss(above["name"], "one thread")
        if loss is not None and loss > WORTH_NAMING:
            ladder.cause(
                above["name"], "one thread", "one thread cannot draw the whole bandwidth", loss,
                f"{ceiling['threads']} threads reach {above['value'] / value:.2f} times one thread's figure",
            )  # fmt: skip
    return ladder.finished()


def _like(above: Record, one_thread: Record, records: Sequence[Record]) -> Record | None:
    """One thread's best measurement that stores as the step above it does, so that only the threads differ."""
    if above["name"] == "ceiling":
        return next((r for r in measured(records) if r["id"] == one_thread["measurement"]), None)
    fitting = {"family": "stream", "variant": "temporal", "level": one_thread["level"], "threads": 1}
    return _best(records, device=one_thread["device"], **fitting)


def _steps_for_stores(ladder: _Ladder, ceiling: Record, records: Sequence[Record]) -> None:
    """The same kernel with plain stores, where the ceiling came from stores that bypass the caches."""
    best = next((r for r in measured(records) if r["id"] == ceiling["measurement"]), None)
    if best is None or best.get("variant") != "nontemporal":
        return
    plain = _best(
        records, kernel=best["kernel"], variant="temporal", level=best["level"], threads=best["threads"],
        device=best["device"], dtype=best["dtype"],
    )  # fmt: skip
    if plain is None:
        return
    value, ci95 = _figure(plain)
    ladder.step("plain stores", f"{plain['kernel']} with plain stores", value, ci95=ci95, ref=plain["id"])
    loss = ladder.loss("ceiling", "plain stores")
    if loss is not None and loss > WORTH_NAMING:
        extra = WRITE_ALLOCATE[best["kernel"].partition(".")[2]]
        ladder.cause(
            "ceiling", "plain stores", "write-allocate", min(loss, extra),
            f"a plain store first reads its line: {extra:.0%} of what {plain['kernel']} then moves is not counted",
        )  # fmt: skip


def explain(
    ceilings: Sequence[Record], records: Sequence[Record], conditions: Conditions | None = None
) -> list[Record]:
    """One ladder for each roof that has something above or below it, arithmetic first."""
    conditions = conditions or Conditions()
    ladders = []
    for peak in roofs(ceilings, "arithmetic"):
        dram = next((m for m in roofs(ceilings, "memory", peak["device"]) if m["level"] == "dram"), None)
        ladders.append(_arithmetic(peak, records, dram, conditions))
    for memory in roofs(ceilings, "memory"):
        one = next(
            (c for c in ceilings if c["kind"] == "memory" and c["level"] == memory["level"]
             and c["device"] == memory["device"] and c["threads"] == 1 < memory["threads"]),
            None,
        )  # fmt: skip
        ladders.append(_memory(memory, records, one))
    return [ladder for ladder in ladders if sum(step["value"] is not None for step in ladder["steps"]) > 1]
