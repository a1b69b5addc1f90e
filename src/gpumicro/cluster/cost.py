"""What results cost: dollars for a PFLOP, for a TB moved, for a step and for a trained model; work for a joule.

A rate comes from a result (measured) or from a data sheet (spec), a price from a user or a list, with its day; the
product carries the origin of the rate. All devices of a machine are taken to reach the rate of the one that was
measured: what they lose together is `scale`'s question.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..peaks import match_gpu
from .figures import DeviceFigures, DocumentFigures, Figure, spec_figures
from .prices import Offer
from .uncertain import Spread, Uncertain, as_pue, at_least_zero, exactly, positive, spread, within

PFLOP, TB, HOUR_S = 1e15, 1e12, 3600.0


def cost_efficiency_score(gpu_hours: float, latency: float) -> float:
    """1 / (gpu_hours x latency), in 1/(GPU hour x second): what a job takes times how long its answer takes.

    Higher is better: twice the score is half the GPU hours at the same latency (seconds), or half the latency for the
    same GPU hours. No standard defines it, and its absolute value means nothing: compare scores of the same work
    only. It weighs the two alike and knows no price; dollars do. Raises UsageError unless both are above zero.
    """
    for name, value in (("gpu_hours", gpu_hours), ("latency", latency)):
        if not 0 < value < math.inf:
            raise UsageError(f"{name} must be above zero and finite, not {value!r}")
    return 1 / (gpu_hours * latency)


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Dollars for a PFLOP (POP for integers) or a TB of DRAM traffic, and work for a joule at the site's meter.

    `usd` is None without a price, `per_joule` (FLOP/J, B/J) without a power; the reason stands beside it.
    """

    what: str  # "GEMM bfloat16", "FMA float64", "DRAM"
    rate: Figure  # of one device
    unit: str  # "USD/PFLOP", "USD/POP", "USD/TB"
    usd: Spread | None
    usd_why: str
    per_joule: Spread | None
    per_joule_why: str


@dataclass(frozen=True, slots=True)
class MachineCost:
    """One machine at one price with the figures of its devices."""

    offer: Offer
    figures: DeviceFigures
    origin_note: str  # whose figures these are
    power_w: Figure | None  # of one device
    units: tuple[UnitCost, ...]

    @property
    def name(self) -> str:
        return self.offer.instance.name

    @property
    def devices(self) -> int:
        return self.offer.instance.gpu_count

    @property
    def usd_per_hour(self) -> float | None:
        return self.offer.price.usd_per_hour if self.offer.price else None


def bounds(figure: Figure) -> Uncertain:
    """A figure with its 95% interval as bounds; exact where it has none."""
    if figure.ci95 is None or figure.ci95[0] <= 0:
        return exactly(figure.estimate)
    return Uncertain(figure.estimate, *figure.ci95)


def usd_per_work(price: float, devices: float, rate: float, work: float) -> float:
    """price / 3600 / (devices x rate) x work: dollars an hour, work a second of one device."""
    return price / HOUR_S / (devices * rate) * work


def machine_cost(
    offer: Offer, documents: Sequence[DocumentFigures] = (), *, power_w: Uncertain | None = None,
    pue: Uncertain | None = None, dtypes: Iterable[str] = (),
) -> MachineCost:  # fmt: skip
    """Unit costs of a machine: measured where a document has its GPU, else by its data sheet.

    `power_w`: of one device, where it is not measured; `pue`: of the site, 1 unless given. Raises UsageError where
    nothing says what the machine's devices do.
    """
    figures, note = figures_for(offer, documents)
    site = as_pue(pue or exactly(1.0))
    power = figures.power_w
    if power_w is not None:
        positive(power_w, "power")
        ends = None if power_w.known else (power_w.low, power_w.high)
        power = Figure(power_w.value, "W", "model", "as given", ends, "as given")
    wanted = set(dtypes)
    rates = [("GEMM", dtype, rate) for dtype, rate in figures.gemm.items()]
    rates += [("peak", dtype, rate) for dtype, rate in figures.peak.items() if dtype not in figures.gemm]
    chosen = [(f"{kind} {dtype}", rate) for kind, dtype, rate in rates if not wanted or dtype in wanted]
    missing = wanted - {dtype for _, dtype, _ in rates}
    if missing:
        raise UsageError(f"{note}: no figure of {', '.join(sorted(missing))}; there are "
                         f"{', '.join(dtype for _, dtype, _ in rates) or 'none'}")  # fmt: skip
    chosen += [("DRAM", figures.dram)] if figures.dram else []
    units = [_unit_cost(what, rate, offer, power, site) for what, rate in chosen]
    # rate and power of the same seconds: no other figure says so well what a joule does
    units += [
        _unit_cost(f"sustained {key}", rate, offer, watts, site)
        for key, (rate, watts) in figures.settled.items() if not wanted or key in {*wanted, "dram"}
    ]  # fmt: skip
    return MachineCost(offer, figures, note, power, tuple(units))


def _unit_cost(what: str, rate: Figure, offer: Offer, power: Figure | None, pue: Uncertain) -> UnitCost:
    work, unit = {"B/s": (TB, "USD/TB"), "OP/s": (PFLOP, "USD/POP")}.get(rate.unit, (PFLOP, "USD/PFLOP"))
    usd = per_joule = None
    if offer.price:
        price, count = offer.price.usd_per_hour, offer.instance.gpu_count
        usd = spread(lambda rate: usd_per_work(price, count, rate, work), {"rate": bounds(rate)})
    if power:
        inputs = {"rate": bounds(rate), "power": bounds(power), "pue": pue}
        per_joule = spread(lambda rate, power, pue: rate / (power * pue), inputs)
    return UnitCost(
        what, rate, unit, usd, "" if usd else f"no price of {offer.instance.name} is known: give one with --prices",
        per_joule, "" if per_joule else "no power was measured: take a result with --sustained, or give --power",
    )  # fmt: skip


def figures_for(offer: Offer, documents: Sequence[DocumentFigures]) -> tuple[DeviceFigures, str]:
    """What the machine's devices do and whose word that is. A document fits where its GPU is the instance's model."""
    devices = [device for document in documents for device in document.devices]
    gpu = offer.instance.gpu
    if gpu is None:
        named = {device.name for device in devices}
        if len(named) != 1:
            raise UsageError(
                f"{offer.instance.name} names no GPU: give one result of it"
                + (f", not of {', '.join(sorted(named))}" if named else "")
            )
        return devices[0], f"{devices[0].file}, {devices[0].name}"
    for device in devices:
        if _model(device) == gpu:
            return device, f"{device.file}, {device.name}"
    sheet = spec_figures(gpu)
    return sheet, f"data sheet of {sheet.name}, not measured"


def _model(device: DeviceFigures) -> str | None:
    """The id of its data sheet, where there is one."""
    if device.kind == "cpu":
        return None
    memory = device.memory_bytes.estimate if device.memory_bytes else None
    found = match_gpu({"name": device.name, "sm_count": device.cores, "memory_bytes": memory}).spec
    return found.id if found else None


# -- a step, a run, a trained model ------------------------------------------------------------------------------------


def training_flop(params: float, tokens: float) -> float:
    """6 N D: forward and backward pass of a dense transformer [Kaplan et al., arXiv 2001.08361, 2020, section 2.1].
    Without attention's own term and without recomputation; a mixture of experts counts its active parameters."""
    return 6 * params * tokens


@dataclass(frozen=True, slots=True)
class RunCost:
    """A training run on n machines. Seconds, device hours, dollars; `usd` is None without a price. All "model"."""

    machine: MachineCost
    nodes: int
    wall_s: Spread
    device_hours: Spread
    usd: Spread | None


def run_by_flop(machine: MachineCost, flop: Uncertain, efficiency: Uncertain, dtype: str, nodes: int = 1) -> RunCost:
    """A run of so many FLOP: wall = flop / (nodes x devices x rate x efficiency), dollars = wall x nodes x price.

    `efficiency`: the share of the GEMM rate of `dtype` that a whole training step reaches (known as MFU where the rate
    is the data sheet's). Raises UsageError where there is no such rate, or for what is out of bounds.
    """
    positive(flop, "FLOP of the run")
    within(efficiency, "efficiency", 0.0, 1.0)
    rate = machine.figures.gemm.get(dtype) or machine.figures.peak.get(dtype)
    if rate is None:
        known = ", ".join(machine.figures.gemm or machine.figures.peak) or "none"
        raise UsageError(f"{machine.origin_note}: no rate of {dtype}; there are {known}")
    inputs = {"flop": flop, "efficiency": efficiency, "rate": bounds(rate)}
    count = _count(nodes) * machine.devices

    def wall(flop: float, efficiency: float, rate: float) -> float:
        return flop / (count * rate * efficiency)

    return _run(machine, nodes, spread(wall, inputs))


def run_by_steps(machine: MachineCost, step_s: Uncertain, steps: int, nodes: int = 1) -> RunCost:
    """A run of so many steps of so many seconds on n machines; one step alone with `steps=1`."""
    positive(step_s, "a step's time")
    if steps < 1:
        raise UsageError(f"steps must be at least 1, not {steps}")
    _count(nodes)
    return _run(machine, nodes, spread(lambda step: step * steps, {"step": step_s}))


def _count(nodes: int) -> int:
    if nodes < 1:
        raise UsageError(f"nodes must be at least 1, not {nodes}")
    return nodes


def _run(machine: MachineCost, nodes: int, wall: Spread) -> RunCost:
    price = machine.usd_per_hour
    usd = None if price is None else scaled(wall, nodes * price / HOUR_S)
    return RunCost(machine, nodes, wall, scaled(wall, nodes * machine.devices / HOUR_S), usd)


def scaled(found: Spread, by: float) -> Spread:
    """Each end times a factor above zero."""
    moves = tuple(type(move)(move.name, move.at_low * by, move.at_high * by) for move in found.moves)
    return Spread(found.value * by, found.low * by, found.high * by, moves)


# -- spot --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpotCost:
    """A spot offer against a fixed one, in dollars for an hour of work that is kept."""

    usd_per_work_hour: Spread
    fixed_usd_per_hour: float | None
    break_even_overhead: float | None  # the share of lost time at which both cost the same

    @property
    def verdict(self) -> str:
        """ "spot", "fixed", "open" where the bounds allow either, or "unknown" without a fixed price."""
        if self.fixed_usd_per_hour is None:
            return "unknown"
        if self.usd_per_work_hour.high < self.fixed_usd_per_hour:
            return "spot"
        return "fixed" if self.usd_per_work_hour.low > self.fixed_usd_per_hour else "open"


def spot_cost(
    spot_usd_per_hour: float, checkpoint_s: Uncertain, mtbi_s: Uncertain, restart_s: Uncertain | None = None,
    nodes: int = 1, fixed_usd_per_hour: float | None = None,
) -> SpotCost:  # fmt: skip
    """spot x (1 + overhead) at the best checkpoint interval (checkpoint.py), `mtbi_s` being one node's."""
    from .checkpoint import best_interval, overhead

    if not spot_usd_per_hour > 0:
        raise UsageError(f"a spot price must be above zero, not {spot_usd_per_hour:g}")
    _count(nodes)
    inputs = {
        "checkpoint": positive(checkpoint_s, "a checkpoint's time"),
        "interruptions": positive(mtbi_s, "the time between interruptions"),
        "restart": at_least_zero(restart_s or exactly(0.0), "a restart's time"),
    }

    def usd(checkpoint: float, interruptions: float, restart: float) -> float:
        whole = interruptions / nodes
        return spot_usd_per_hour * (1 + overhead(best_interval(checkpoint, whole), checkpoint, restart, whole))

    least = None if fixed_usd_per_hour is None else fixed_usd_per_hour / spot_usd_per_hour - 1
    return SpotCost(spread(usd, inputs), fixed_usd_per_hour, least)
