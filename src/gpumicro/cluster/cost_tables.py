"""A cost report as tables of text: what the command prints and a page shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timezone

from ..peaks.instances import instance_specs
from ..report.tables import Table, clean, columns_of
from ..units import format_fraction, format_quantity
from .checkpoint import CheckpointPlan
from .cost import UnitCost
from .cost_report import CostReport
from .cost_scaling import cheapest
from .prices import Offer
from .uncertain import Spread


def cost_tables(report: CostReport) -> Iterator[Table]:
    """In order: machines, unit costs, runs, checkpoints and spot, owning, sensitivity."""
    if report.machines:
        yield _machines(report)
        yield _units(report)
    if report.runs:
        yield _runs(report)
    if report.scaled:
        yield _scaled(report)
    if report.plan:
        yield _checkpoints(report.plan, report.plan_ranges)
    if report.spots:
        yield _spots(report)
    if report.break_evens:
        yield _owning(report)
    moves = list(_moves(report))
    if moves:
        columns = columns_of("answer", "input", ">at its least", ">at its most")
        remarks = ("each input alone, the others at their middle; the widest first",)
        yield Table("sensitivity", "What the answers hang on", columns, tuple(moves), remarks)


def usd(value: float) -> str:
    """`$1,234`, `$12.30`, `$0.00123`: three digits, more for whole dollars."""
    if not math.isfinite(value):
        return "never"
    if abs(value) >= 1000:
        return f"${value:,.0f}"
    places = 2 if abs(value) >= 1 else max(0, 2 - math.floor(math.log10(abs(value)))) if value else 2
    return f"${value:.{places}f}"


def long_time(seconds: float) -> str:
    """`12.3 min`, `5.4 h`, `17.2 d`, `2.1 y`."""
    if not math.isfinite(seconds):
        return "never"
    for unit, size in (("y", 365 * 86400.0), ("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size * (2 if unit != "y" else 1):
            return f"{seconds / size:.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:,.0f} {unit}"
    return format_quantity(seconds, "s")


def _between(found: Spread, shown: Callable[[float], str]) -> str:
    """`low to high` where the ends differ as they are shown."""
    low, high = shown(found.low), shown(found.high)
    return "" if low == high else f"{low} to {high}"


def _machines(report: CostReport) -> Table:
    rows = []
    for machine in report.machines:
        one, price = machine.offer.instance, machine.offer.price
        hour = usd(price.usd_per_hour) if price else "not known"
        each = usd(price.usd_per_hour / one.gpu_count) if price else "-"
        words = clean(price.words(report.today)) if price else "no price is made up: see notes"
        rows.append(
            (
                clean(one.name),
                str(one.gpu_count),
                _network(machine.offer),
                hour,
                each,
                clean(machine.origin_note),
                words,
            )
        )
    names = ("machine", ">devices", ">network", ">$/h", ">$/h a device", "/figures", "/price")
    return Table("machines", "Machines and prices", columns_of(*names), tuple(rows))


def _network(offer: Offer) -> str:
    bits_per_s = offer.instance.network_bits_per_s
    return "-" if bits_per_s is None else f"{bits_per_s / 1e9:g} Gbit/s"


def _units(report: CostReport) -> Table:
    rows = [
        (clean(f"{machine.name}: {unit.what}"), format_quantity(unit.rate.estimate, unit.rate.unit, unit.rate.ci95),
         unit.rate.origin, _usd_cell(unit), _joule_cell(unit))
        for machine in report.machines for unit in machine.units
    ]  # fmt: skip
    remarks = ["a PFLOP is 1e15 FLOP, a POP 1e15 OP, a TB 1e12 B of DRAM traffic; the rate is one device's"]
    if any(unit.per_joule for machine in report.machines for unit in machine.units):
        origins = {machine.power_w.origin for machine in report.machines if machine.power_w}
        words = ", ".join(sorted(origins)) or "measured"
        remarks.append(
            f"per joule at the site's meter: power of the device ({words}) x PUE; sustained: rate and power of the "
            "same seconds"
        )
    else:
        remarks.append("work per joule: no power was measured; take a result with --sustained, or give --power")
    names = ("work", ">rate", "origin", ">price of it", ">per joule")
    return Table("units", "What the work costs", columns_of(*names), tuple(rows), tuple(remarks))


def _usd_cell(unit: UnitCost) -> str:
    return "-" if unit.usd is None else f"{usd(unit.usd.value)}/{unit.unit.partition('/')[2]}"


def _joule_cell(unit: UnitCost) -> str:
    if unit.per_joule is None:
        return "-"
    value, per = unit.per_joule.value, unit.rate.unit.removesuffix("/s")
    prefix, scale = next(((p, s) for p, s in (("T", 1e12), ("G", 1e9), ("M", 1e6)) if value >= s), ("", 1.0))
    return f"{value / scale:.3g} {prefix}{per}/J"


def _runs(report: CostReport) -> Table:
    rows = []
    for run in report.runs:
        hours = f"{run.device_hours.value:,.0f}" if run.device_hours.value >= 10 else f"{run.device_hours.value:.3g}"
        cost = "-" if run.usd is None else usd(run.usd.value)
        span = [_between(run.wall_s, long_time), "" if run.usd is None else _between(run.usd, usd)]
        row = (long_time(run.wall_s.value), hours, cost, "; ".join(filter(None, span)))
        rows.append((clean(run.machine.name), str(run.nodes), *row))
    names = ("machine", ">nodes", ">time", ">device hours", ">cost", "/between")
    remarks = ("model: all devices at the rate of one, times the efficiency; nothing is added for interruptions",)
    return Table("runs", "The run", columns_of(*names), tuple(rows), remarks)


def _scaled(report: CostReport) -> Table:
    rows = tuple(
        (
            clean(f"{cost.machine.name}, {cost.step.fabric}"), f"{cost.step.gpus:,}", long_time(cost.step.step_s),
            usd(cost.usd_per_step), usd(cost.usd_per_million_tokens), usd(cost.usd_run) if cost.usd_run else "",
            long_time(cost.wall_s) if cost.wall_s else "", "does not fit" if cost.step.fits is False else "",
        )
        for cost in report.scaled
    )  # fmt: skip
    best = cheapest(report.scaled)
    remarks = ["model: the step times of `gpumicro scale`; whole instances are paid"]
    if best:
        remarks.append(
            f"least a token: {clean(best.machine.name)}, {clean(best.step.fabric)} on {best.step.gpus:,} GPUs, "
            f"{usd(best.usd_per_million_tokens)} a million"
        )
    names = ("machine", ">GPUs", ">step", ">$/step", ">$/M tokens", ">run", ">in", "/memory")
    return Table("by-gpus", "By number of GPUs", columns_of(*names), rows, tuple(remarks))


def _checkpoints(plan: CheckpointPlan, ranges: tuple[Spread, Spread] | None) -> Table:
    rows = tuple(
        (name, long_time(interval), _lost(cost), source)
        for name, interval, cost, source in (
            ("Young", plan.young_s, plan.overhead_young, "CACM 17(9), 1974: first order"),
            ("Daly", plan.daly_s, plan.overhead_daly, "FGCS 22(3), 2006: higher order"),
            ("least overhead", plan.best_s, plan.overhead_best, "of Daly's complete model"),
        )
    )
    what = (
        f"an interruption of the job every {long_time(plan.mtbi_s)} ({plan.nodes} node{'s' * (plan.nodes != 1)}), a "
        f"checkpoint takes {long_time(plan.checkpoint_s)}, a restart {long_time(plan.restart_s)}"
    )
    lost = "overhead: lost time over work, with checkpoints, repeated work and restarts; interruptions come at random"
    remarks = [what, lost]
    if ranges:
        best, most = ranges
        remarks.append(
            "these are for the middle of each range; over the ranges the best interval is "
            f"{long_time(best.low)} to {long_time(best.high)} and its overhead {_lost(most.low)} to {_lost(most.high)}"
        )
    if not plan.ends:
        remarks.append("the work gets nowhere: write checkpoints faster, or use fewer nodes in one job")
    columns = columns_of("checkpoint interval", ">work between", ">overhead", "source")
    return Table("checkpoints", "How often to write a checkpoint", columns, rows, tuple(remarks))


def _lost(share: float) -> str:
    return "never ends" if share > 100 else format_fraction(share)


def _spots(report: CostReport) -> Table:
    words = {
        "spot": "spot is cheaper", "fixed": "the fixed price is cheaper", "open": "either may be: the bounds overlap",
        "unknown": "no fixed price to compare with",
    }  # fmt: skip
    rows = []
    for offer, spot in report.spots:
        assert offer.price is not None
        fixed = "-" if spot.fixed_usd_per_hour is None else usd(spot.fixed_usd_per_hour)
        least = "-" if spot.break_even_overhead is None else format_fraction(spot.break_even_overhead)
        kept = spot.usd_per_work_hour
        row = (usd(offer.price.usd_per_hour), usd(kept.value), fixed, least, _between(kept, usd), words[spot.verdict])
        rows.append((clean(offer.instance.name), *row))
    names = ("machine", ">spot $/h", ">$/h of work kept", ">fixed $/h", ">equal at overhead", "/between", "/verdict")
    return Table("spot", "Spot against a fixed price", columns_of(*names), tuple(rows))


def _owning(report: CostReport) -> Table:
    words = {"own": "owning is cheaper", "cloud": "the cloud is cheaper", "open": "either may be: the bounds overlap"}
    rows = []
    for machine, found in report.break_evens:
        need, hour = found.from_utilisation, found.own_usd_per_used_hour
        share = "never" if need.value > 1 else format_fraction(need.value)
        payback = long_time(found.payback_years.value * 365 * 86400)
        row = (usd(found.cloud_usd_per_hour.value), usd(hour.value), share, payback, _between(hour, usd))
        rows.append((clean(machine.name), *row, words[found.verdict]))
    assert report.own is not None
    used = format_fraction(report.own.utilisation.value)
    remarks = (
        f"own: an hour of use at {used} utilisation; no discounting, no resale value; the machine is taken to be the "
        "same as the cloud's",
    )
    names = ("machine", ">cloud $/h", ">own $/h used", ">cheaper from use", ">paid back in", "/between", "/verdict")
    return Table("owning", "Owning against renting", columns_of(*names), tuple(rows), remarks)


def _moves(report: CostReport) -> Iterator[tuple[str, ...]]:
    for run in report.runs:
        for found, shown in ((run.usd, usd), (run.wall_s, long_time)) if run.usd is None else ((run.usd, usd),):
            if found is not None:
                for move in found.moves:
                    yield f"{clean(run.machine.name)}: run", move.name, shown(move.at_low), shown(move.at_high)
    for offer, spot in report.spots:
        for move in spot.usd_per_work_hour.moves:
            yield f"{clean(offer.instance.name)}: spot", move.name, usd(move.at_low), usd(move.at_high)
    for machine, even in report.break_evens:
        for move in even.own_usd_per_used_hour.moves:
            yield f"{clean(machine.name)}: own $/h", move.name, usd(move.at_low), usd(move.at_high)


def instances_table(own: tuple[Offer, ...] = ()) -> Table:
    """Every instance that is known, a user's own first."""
    today = datetime.now(timezone.utc).date()
    offers = [*own, *(Offer(one, one.price) for one in instance_specs())]
    rows = tuple(
        (
            clean(offer.instance.id), clean(offer.instance.gpu or "-"), str(offer.instance.gpu_count), _network(offer),
            usd(offer.price.usd_per_hour) if offer.price else "-", clean(offer.instance.fabric),
            clean(offer.price.words(today)) if offer.price else "",
        )
        for offer in offers
    )  # fmt: skip
    names = ("instance", "GPU", ">GPUs", ">network", ">$/h", "/fabric", "/price")
    return Table("instances", "Instances", columns_of(*names), rows)
