"""`gpumicro cost` as a whole: what was asked, the answers, and both as JSON and as tables (cost_tables.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from typing import Any

from .. import __version__
from ..errors import UsageError
from ..result import or_why
from .checkpoint import CheckpointPlan, best_interval, checkpoint_plan, overhead
from .cost import MachineCost, RunCost, SpotCost, machine_cost, run_by_flop, run_by_steps, spot_cost
from .cost_scaling import ScaledCost, ScaledStep, scaled_costs
from .figures import DocumentFigures
from .inputs import doubts
from .ownership import BreakEven, Ownership, break_even
from .prices import STALE_DAYS, Offer
from .uncertain import Spread, Uncertain, exactly, spread


@dataclass(frozen=True, slots=True)
class Run:
    """What is run: so many FLOP at an efficiency and in a dtype, or so many steps of a time."""

    flop: Uncertain | None = None
    efficiency: Uncertain | None = None
    dtype: str = "bfloat16"
    step_s: Uncertain | None = None
    steps: int = 1


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Seconds; `mtbi_s`: between the interruptions of one node."""

    mtbi_s: Uncertain
    checkpoint_s: Uncertain
    restart_s: Uncertain = field(default_factory=lambda: exactly(0.0))


@dataclass(frozen=True, slots=True)
class CostReport:
    """All that was asked for; what was not asked for is empty or None. `today` is what ages of prices count from."""

    today: date
    nodes: int
    machines: tuple[MachineCost, ...]
    runs: tuple[RunCost, ...]
    plan: CheckpointPlan | None
    plan_ranges: tuple[Spread, Spread] | None  # the best interval and its overhead, where an interruption is a range
    spots: tuple[tuple[Offer, SpotCost], ...]
    own: Ownership | None
    break_evens: tuple[tuple[MachineCost, BreakEven], ...]
    notes: tuple[str, ...]
    scaled: tuple[ScaledCost, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For -o: SI units and dollars; what has no value has its reason."""
        return {
            "kind": "cost", "gpumicro_version": __version__, "origin": "model",
            "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "nodes": self.nodes,
            "machines": [_machine_json(machine, self.today) for machine in self.machines],
            "runs": [_run_json(run) for run in self.runs],
            **or_why("checkpoints", _plan_json(self.plan, self.plan_ranges), "no interruptions were given"),
            "spot": [_spot_json(offer, spot, self.today) for offer, spot in self.spots],
            "break_even": [_break_even_json(machine, found) for machine, found in self.break_evens],
            "by_gpus": [_scaled_json(cost) for cost in self.scaled], "notes": list(self.notes),
        }  # fmt: skip


def cost_report(
    offers: Sequence[Offer], documents: Sequence[DocumentFigures] = (), *, today: date, nodes: int = 1,
    power_w: Uncertain | None = None, pue: Uncertain | None = None, dtypes: Sequence[str] = (), run: Run | None = None,
    interruptions: Interruptions | None = None, spot_offers: Sequence[Offer] = (), own: Ownership | None = None,
    scaling: Sequence[ScaledStep] = (), tokens: float | None = None,
) -> CostReport:  # fmt: skip
    """The report over machines (`offers`) with the figures of `documents`. Raises UsageError naming what is missing."""
    if nodes < 1:
        raise UsageError(f"nodes must be at least 1, not {nodes}")
    machines = tuple(machine_cost(offer, documents, power_w=power_w, pue=pue, dtypes=dtypes) for offer in offers)
    runs = tuple(_run(machine, run, nodes) for machine in machines) if run else ()
    plan, spots = _spot(interruptions, offers, spot_offers, nodes)
    priced = [machine for machine in machines if machine.offer.price]
    if own and not priced:
        raise UsageError("a break-even needs the cloud's price: give --prices or --price")
    evens = tuple((m, break_even(own, m.offer.price.usd_per_hour)) for m in priced if m.offer.price) if own else ()
    notes = (*_price_notes([*offers, *spot_offers], today), *_figure_notes(machines, documents))
    scaled = scaled_costs(machines, scaling, tokens) if scaling else ()
    ranges = _plan_ranges(interruptions, nodes)
    return CostReport(today, nodes, machines, runs, plan, ranges, spots, own, evens, notes, scaled)


def _run(machine: MachineCost, run: Run, nodes: int) -> RunCost:
    if run.step_s is not None:
        return run_by_steps(machine, run.step_s, run.steps, nodes)
    if run.flop is None or run.efficiency is None:
        raise UsageError(
            "a run needs its FLOP and its efficiency, the share of the GEMM rate that a training step reaches: "
            "`gpumicro scale` estimates it, a measured step gives it; or give the time of a step"
        )
    return run_by_flop(machine, run.flop, run.efficiency, run.dtype, nodes)


def _spot(
    given: Interruptions | None, offers: Sequence[Offer], spot_offers: Sequence[Offer], nodes: int
) -> tuple[CheckpointPlan | None, tuple[tuple[Offer, SpotCost], ...]]:
    if given is None:
        return None, ()
    plan = checkpoint_plan(given.checkpoint_s.value, given.mtbi_s.value, given.restart_s.value, nodes)
    fixed = {offer.instance.id: offer.price.usd_per_hour for offer in offers if offer.price}
    spots = tuple(
        (offer, spot_cost(offer.price.usd_per_hour, given.checkpoint_s, given.mtbi_s, given.restart_s, nodes,
                          fixed.get(offer.instance.id)))
        for offer in spot_offers if offer.price
    )  # fmt: skip
    return plan, spots


def _plan_ranges(given: Interruptions | None, nodes: int) -> tuple[Spread, Spread] | None:
    """The best interval and its overhead over the bounds; None where all is known."""
    if given is None or (given.mtbi_s.known and given.checkpoint_s.known and given.restart_s.known):
        return None
    known = {"checkpoint": given.checkpoint_s, "interruptions": given.mtbi_s}

    def interval(checkpoint: float, interruptions: float) -> float:
        return best_interval(checkpoint, interruptions / nodes)

    def lost(checkpoint: float, interruptions: float, restart: float) -> float:
        return overhead(interval(checkpoint, interruptions), checkpoint, restart, interruptions / nodes)

    return spread(interval, known), spread(lost, known | {"restart": given.restart_s})


def _price_notes(offers: Sequence[Offer], today: date) -> list[str]:
    notes = []
    for offer in offers:
        name, price = offer.instance.name, offer.price
        if price is None:
            hint = f" ({offer.instance.note})" if "USD" in offer.instance.note else ""
            notes.append(f"{name}: no price with its day and region is known{hint}; give one with --prices")
        elif price.age_days(today) > STALE_DAYS:
            notes.append(f"{name}: the price is {price.age_days(today)} days old ({price.day}); check it again")
        elif price.age_days(today) < 0:
            notes.append(f"{name}: the price is dated {price.day}, which is still to come")
    sources = dict.fromkeys(offer.price.source for offer in offers if offer.price)
    return [*dict.fromkeys(notes), *(f"source of the price: {source}" for source in sources)]


def _figure_notes(machines: Sequence[MachineCost], documents: Sequence[DocumentFigures]) -> list[str]:
    sheets = dict.fromkeys(machine.origin_note for machine in machines if not machine.figures.file)
    notes = [f"{sheet}: no real work reaches these rates" for sheet in sheets]
    used = {machine.figures.file for machine in machines}
    notes += doubts([document for document in documents if document.file in used])
    for document in documents:
        devices = ", ".join(device.name for device in document.devices)
        if document.unreal:
            notes.append(f"{document.file}: {document.unreal}, not measured")
        if machines and document.file not in used:
            notes.append(f"{document.file}: measured on {devices}, which no instance named here has; not used")
    return notes


# -- JSON --------------------------------------------------------------------------------------------------------------


def _finite(key: str, value: float | None, why: str) -> dict[str, Any]:
    return or_why(key, value if value is not None and math.isfinite(value) else None, why)


def spread_json(found: Spread, why: str = "never: it has no finite value") -> dict[str, Any]:
    """Value, bounds, and what each uncertain input moves."""
    out = _finite("value", found.value, why) | _finite("low", found.low, why) | _finite("high", found.high, why)
    moves = [
        {"input": m.name, **_finite("at_low", m.at_low, why), **_finite("at_high", m.at_high, why)} for m in found.moves
    ]
    return out | ({"sensitivity": moves} if moves else {})


def _price_json(offer: Offer, today: date) -> Mapping[str, Any] | None:
    price = offer.price
    if price is None:
        return None
    return {
        "usd_per_hour": price.usd_per_hour, "date": price.day.isoformat(), "age_days": price.age_days(today),
        "kind": price.kind, **or_why("region", price.region, "not given"), "source": price.source,
    }  # fmt: skip


def _machine_json(machine: MachineCost, today: date) -> dict[str, Any]:
    one = machine.offer.instance
    units = [
        {
            "what": unit.what, "rate": unit.rate.to_json(), "unit": unit.unit,
            **or_why("usd", spread_json(unit.usd) if unit.usd else None, unit.usd_why),
            **or_why("work_per_joule", spread_json(unit.per_joule) if unit.per_joule else None, unit.per_joule_why),
        }
        for unit in machine.units
    ]  # fmt: skip
    power = machine.power_w.to_json() if machine.power_w else None
    return {
        "instance": one.id, "devices": one.gpu_count, "figures": machine.origin_note,
        **or_why("price", _price_json(machine.offer, today), "none is known"),
        **or_why("device_power_w", power, "not measured"), "units": units,
    }  # fmt: skip


def _run_json(run: RunCost) -> dict[str, Any]:
    return {
        "instance": run.machine.offer.instance.id, "nodes": run.nodes, "wall_s": spread_json(run.wall_s),
        "device_hours": spread_json(run.device_hours),
        **or_why("usd", spread_json(run.usd) if run.usd else None, "no price is known"),
    }  # fmt: skip


def _plan_json(plan: CheckpointPlan | None, ranges: tuple[Spread, Spread] | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    never = "the work would never end"
    over = {} if ranges is None else {
        "best_s_over_ranges": spread_json(ranges[0], never), "overhead_best_over_ranges": spread_json(ranges[1], never)
    }  # fmt: skip
    return {
        "nodes": plan.nodes, "mtbi_s": plan.mtbi_s, "checkpoint_s": plan.checkpoint_s, "restart_s": plan.restart_s,
        "young_s": plan.young_s, "daly_s": plan.daly_s, "best_s": plan.best_s,
        **_finite("overhead_young", plan.overhead_young, never),
        **_finite("overhead_daly", plan.overhead_daly, never), **_finite("overhead_best", plan.overhead_best, never),
        **over,
    }  # fmt: skip


def _spot_json(offer: Offer, spot: SpotCost, today: date) -> dict[str, Any]:
    return {
        "instance": offer.instance.id, "price": _price_json(offer, today),
        "usd_per_work_hour": spread_json(spot.usd_per_work_hour), "verdict": spot.verdict,
        **or_why("fixed_usd_per_hour", spot.fixed_usd_per_hour, "no fixed price is known"),
        **or_why("break_even_overhead", spot.break_even_overhead, "no fixed price is known"),
    }  # fmt: skip


def _break_even_json(machine: MachineCost, found: BreakEven) -> dict[str, Any]:
    return {
        "instance": machine.offer.instance.id, "cloud_usd_per_hour": found.cloud_usd_per_hour.value,
        "own_usd_per_used_hour": spread_json(found.own_usd_per_used_hour),
        "from_utilisation": spread_json(found.from_utilisation), "payback_years": spread_json(found.payback_years),
        "verdict": found.verdict,
    }  # fmt: skip


def _scaled_json(cost: ScaledCost) -> dict[str, Any]:
    step, none = cost.step, "no tokens of a run were given"
    return {
        "instance": cost.machine.offer.instance.id, "fabric": step.fabric, "gpus": step.gpus,
        "instances": cost.instances, "step_s": step.step_s, **or_why("fits", step.fits, "the memory is not known"),
        "usd_per_step": cost.usd_per_step, "usd_per_million_tokens": cost.usd_per_million_tokens,
        **or_why("usd_run", cost.usd_run, none), **or_why("wall_s", cost.wall_s, none),
    }  # fmt: skip
