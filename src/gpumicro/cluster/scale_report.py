"""`scale`'s answer as tables for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from .. import __version__
from ..report.tables import Table, clean, columns_of, fraction, interval, quantity
from ..result import to_plain
from ..units import format_count, format_size, shown_unit
from .figures import Figure
from .footprint import Footprint
from .laws import Law, Parameter
from .scale import REASONS, Curve, Row, Scaling, Stop

LAW_NAMES = {"amdahl": "Amdahl", "gustafson": "Gustafson", "universal": "universal"}
SAME = 0.005  # of the throughput: what is shown as three digits is then the same
NOTICEABLE = 0.05  # of the throughput: below, two links are as good as one another for this model
_CURVE = columns_of(
    ">GPUs", ">step", "/95% of the inputs", ">samples/s", ">speed-up", ">eff.", ">compute", ">memory", ">network",
    ">bubble",
)  # fmt: skip


def headline(found: Scaling) -> tuple[str, ...]:
    """What was asked, where more GPUs stop paying by each link, and what the answer is worth."""
    model, split = found.setting.model, found.setting.split
    shape = f", {model.layers} layers of {model.hidden}" if model.layers and model.hidden else ""
    batch = (
        f"a batch of {format_count(model.batch)} samples over all GPUs"
        if model.batch
        else f"{_many(model.micro * model.accumulate, 'sample')} a replica: the batch grows with the GPUs"
    )
    ways = f"tensor {split.tensor}, pipeline {split.pipeline}, ZeRO {split.zero}"
    origins = {found.setting.rates.flop_per_s.origin, found.setting.rates.dram_bytes_per_s.origin}
    origins |= {hop.origin for curve in found.curves for hop in (curve.fabric.inside, curve.fabric.between) if hop}
    return (
        f"{model.params:.4g} parameters{shape}, {_many(model.seq, 'token')} a sample, {model.dtype}; {batch}; {ways}",
        *(f"{clean(curve.fabric.name)}: {stop_text(curve.stop, curve.rows)}" for curve in found.curves),
        f"A model on {' and '.join(sorted(origins))} figures: no step was run for it.",
    )


def tables(found: Scaling) -> Iterator[Table]:
    """Inputs, a table a fabric, fabrics side by side, memory, laws."""
    yield _inputs(found)
    for curve in found.curves:
        yield _curve(curve, found)
    if len(found.curves) > 1:
        yield _beside(found.curves)
    yield _memory(found)
    if found.laws:
        yield laws_table(found.laws, found.laws_from, [row.gpus for row in found.curves[0].rows])


def to_json(found: Scaling) -> dict[str, Any]:
    """Everything, with the derived figures of each row."""
    plain = to_plain(asdict(found))
    assert isinstance(plain, dict)
    for curve, made in zip(plain["curves"], found.curves, strict=True):
        for row, of in zip(curve["rows"], made.rows, strict=True):
            row |= {
                "step_s": of.step.total_s, "efficiency": of.efficiency, "samples_per_s": of.samples_per_s,
                "bound": of.bound, "memory_bytes": of.footprint.total,
            }  # fmt: skip
    return {"schema": "gpumicro/scale/1", "gpumicro_version": __version__, "origin": "model", **plain}


def laws_json(laws: Sequence[Law], source: str) -> dict[str, Any]:
    """Laws alone."""
    made = to_plain({"laws": [asdict(law) for law in laws], "laws_from": source})
    return {"schema": "gpumicro/scale/1", "gpumicro_version": __version__, "origin": "model", **made}


# -- one table each ----------------------------------------------------------------------------------------------------


def _inputs(found: Scaling) -> Table:
    rates = found.setting.rates
    rows = [_input(f"{rates.dtype} GEMM", rates.flop_per_s, rates.dtype), _input("DRAM", rates.dram_bytes_per_s)]
    if rates.memory_bytes:
        rows.append(_input("memory", rates.memory_bytes))
    hops = [hop for curve in found.curves for hop in (curve.fabric.inside, curve.fabric.between) if hop]
    for hop in {(hop.name, hop.alpha_s): hop for hop in hops}.values():
        beta = hop.beta_s_per_byte
        ends = beta.ci95 and (1 / beta.ci95[1], 1 / (beta.ci95[0] or beta.estimate))
        rate = replace(beta, estimate=1 / beta.estimate, unit="B/s", ci95=ends)
        rows += [_input(f"{hop.name}, a port", rate), _input(f"{hop.name}, a hop", hop.alpha_s)]
    remarks = [f"Of the GEMM rate, {fraction(found.setting.utilization)} is taken (--utilization)."]
    if rates.flop_per_s.origin == "spec":
        remarks.append("No model reaches a data sheet's peak: measure the GEMM, or give --utilization.")
    heads = columns_of("figure", ">value", ">95% interval", "origin", "/source")
    return Table("scale-inputs", f"Figures of {clean(rates.device)}", heads, tuple(rows), tuple(remarks))


def _input(name: str, figure: Figure, dtype: str | None = None) -> tuple[str, ...]:
    unit = shown_unit(figure.unit, dtype)
    shown = interval(figure.estimate, figure.ci95, unit) if unit != "B" else "-"
    return name, quantity(figure.estimate, unit, figure.ci95), shown, figure.origin, clean(figure.source)


def _curve(curve: Curve, found: Scaling) -> Table:
    fabric = curve.fabric
    joined = clean(fabric.inside.name) + (f", {clean(fabric.between.name)} between nodes" if fabric.between else "")
    title = f"{clean(fabric.name)}: {joined}, {_many(fabric.gpus_per_node, 'GPU')} a node (model)"
    rows = tuple(_row(row) for row in curve.rows)
    return Table("scale", title, _CURVE, rows, (*_verdict(curve), *_algorithms(curve, found))).without_empty()


def _row(row: Row) -> tuple[str, ...]:
    total, held = row.step.total_s, row.step.held_by()
    ends = (row.low_s, row.high_s) if row.low_s < row.high_s else None
    shares = [
        fraction(held[name] / total) if held[name] else "" for name in ("compute", "memory", "network", "pipeline")
    ]
    return (
        format_count(row.gpus), quantity(total, "s"), interval(total, ends, "s") if ends else "",
        f"{row.samples_per_s:.3g}" if row.samples_per_s < 1000 else format_count(row.samples_per_s),
        f"{row.speedup:.3g}" if row.speedup < 1000 else format_count(row.speedup), fraction(row.efficiency), *shares,
    )  # fmt: skip


def _verdict(curve: Curve) -> Iterator[str]:
    yield stop_text(curve.stop, curve.rows)
    fitting = [row.gpus for row in curve.rows if row.fits]
    if all(row.fits is False for row in curve.rows):
        yield "The model does not fit into a GPU's memory at any of these counts: see below what would."
    elif fitting:
        yield f"The model fits into a GPU's memory from {_many(fitting[0], 'GPU')} on."


def stop_text(stop: Stop | None, rows: tuple[Row, ...]) -> str:
    """The sentence about where more GPUs stop paying."""
    last = rows[-1]
    if stop is None:
        if len(rows) == 1:
            return "One count only: give --gpus 1..N to see where more GPUs stop paying."
        return f"More GPUs pay up to {format_count(last.gpus)}, at {fraction(last.efficiency)} efficiency."
    gives = "no more throughput" if abs(stop.gain - 1) < SAME else f"{stop.gain:.3g} times the throughput"
    times = f"{stop.beyond / stop.gpus:.3g} times as many give {gives}"
    said = f"Adding GPUs stops paying at {format_count(stop.gpus)}: {times}. What holds it: {REASONS[stop.reason]}."
    return f"{said}{_more_again(stop, rows)}"


def _more_again(stop: Stop, rows: tuple[Row, ...]) -> str:
    """Where what comes next is no gain: the count from which there is one all the same."""
    if stop.gain > 1 + SAME:
        return ""
    here = next(row for row in rows if row.gpus == stop.gpus)
    more = [row for row in rows if row.gpus > stop.gpus and row.samples_per_s > here.samples_per_s * (1 + SAME)]
    if not more:
        return " No greater count here gives more."
    first = more[0]
    return (
        f" It takes {format_count(first.gpus)} to give more than {format_count(stop.gpus)} do, at "
        f"{fraction(first.efficiency)} efficiency."
    )


def _algorithms(curve: Curve, found: Scaling) -> Iterator[str]:
    used = dict.fromkeys(row.step.algorithm for row in curve.rows if row.step.algorithm != "none")
    if used:
        yield f"all_reduce by the cheaper formula at each count: {', '.join(used)}; overlap {found.setting.overlap:g}."
    if any(row.efficiency > 1.0001 for row in curve.rows):
        yield "Above 100%: one GPU moves all of the optimizer's states, ZeRO divides them."
    if any(row.low_s < row.high_s for row in curve.rows):
        yield "The interval is that of the measured inputs alone; it holds no doubt about the model."


def _beside(curves: tuple[Curve, ...]) -> Table:
    names = [clean(curve.fabric.name) for curve in curves]
    rows = []
    for index, first in enumerate(curves[0].rows):
        others = [curve.rows[index] for curve in curves]
        best = max(row.samples_per_s for row in others)
        rows.append((format_count(first.gpus), *(_share(row.samples_per_s / best, row) for row in others)))
    remarks = [_worth(curves[0], other) for other in curves[1:]]
    heads = columns_of(">GPUs", *(f">{name}" for name in names))
    return Table("scale-links", "Side by side: step, and throughput over the best", heads, tuple(rows), tuple(remarks))


def _share(share: float, row: Row) -> str:
    return f"{quantity(row.step.total_s, 's')}  {fraction(share)}"


def _worth(one: Curve, other: Curve) -> str:
    """Whether the first link is worth it against another, for this model and at these counts."""
    gains = [(a.gpus, a.samples_per_s / b.samples_per_s) for a, b in zip(one.rows, other.rows, strict=True)]
    first, second = clean(one.fabric.name), clean(other.fabric.name)
    worse = min(gains, key=lambda pair: pair[1])
    noticeable = [count for count, gain in gains if gain > 1 + NOTICEABLE]
    if worse[1] < 1 - NOTICEABLE:
        return f"{second} is the faster: {1 / worse[1]:.3g} times {first} at {format_count(worse[0])} GPUs."
    if not noticeable:
        return f"{first} is not worth it against {second} here: less than {fraction(NOTICEABLE)} at every count."
    count, gain = max(gains, key=lambda pair: pair[1])
    return (
        f"{first} is worth it against {second} from {format_count(noticeable[0])} GPUs on: up to {gain:.3g} times the "
        f"throughput, at {format_count(count)} GPUs. Whether it is worth its price: gpumicro cost."
    )


def _memory(found: Scaling) -> Table:
    last = found.curves[0].rows[-1].gpus
    heads = columns_of(
        "ZeRO", ">weights", ">gradients", ">optimizer", ">activations", ">in all", ">fits from",
    )  # fmt: skip
    rows = tuple(
        (
            str(stage.zero), *_bytes(stage.last), format_size(stage.last.total),
            "never" if stage.fits_from is None else _many(stage.fits_from, "GPU"),
        )
        for stage in found.stages
    )  # fmt: skip
    memory = found.setting.rates.memory_bytes
    size = "How much a GPU has is not known" if memory is None else f"A GPU has {format_size(memory.estimate)}"
    remarks = [f"{size}; workspaces and fragmentation come on top."]
    if found.stages[0].last.activations is None:
        remarks.append("Activations are not known: give the model's layers and hidden.")
    if found.stages[-1].last.gathered:
        remarks.append("ZeRO 3: in all holds one layer's whole weights too, gathered while it is worked on.")
    title = f"Memory of a GPU, of {_many(last, 'GPU')} (model)"
    return Table("scale-memory", title, heads, rows, tuple(remarks))


def _bytes(kept: Footprint) -> tuple[str, ...]:
    known = "?" if kept.activations is None else format_size(kept.activations)
    return format_size(kept.weights), format_size(kept.gradients), format_size(kept.optimizer), known


def _many(count: int, word: str) -> str:
    return f"{format_count(count)} {word}{'s' * (count != 1)}"


def laws_table(laws: Sequence[Law], source: str, counts: Sequence[int] = ()) -> Table:
    """What was fitted to real runs, the best law first, and what that says of the last of `counts`."""
    rows = tuple(
        (
            LAW_NAMES[law.name], *(f"{one.value:.4g}" for one in law.parameters), *[""] * (3 - len(law.parameters)),
            fraction(law.misfit), _end(law),
        )
        for law in laws
    )  # fmt: skip
    best = laws[0]
    remarks = [f"The {LAW_NAMES[best.name]} law fits best: {best.formula}."]
    if counts:
        there = best.throughput(counts[-1])
        remarks.append(
            f"By it {format_count(counts[-1])} GPUs give {there:.4g}, {there / best.value('one GPU'):.3g} times one "
            "(model; beyond the runs it is a guess)."
        )
    remarks += [
        "ends at: the speed-up that no more GPUs exceed, and the count that reaches it.",
        "Gustafson's law is for work that grows with the GPUs, Amdahl's for a fixed one.",
        "95% intervals, from the runs' scatter about the law: "
        + "; ".join(f"{LAW_NAMES[law.name]} {_all_ends(law)}" for law in laws)
        + ". A parameter at its bound of 0 has none.",
    ]
    heads = columns_of("law", ">g, one GPU", ">s, serial", ">k, coherency", ">misfit", ">ends at")
    return Table("scale-laws", f"Laws fitted to {clean(source)}", heads, rows, tuple(remarks))


def _all_ends(law: Law) -> str:
    return ", ".join(filter(None, map(_ends, law.parameters))) or "none: as many parameters as runs"


def _ends(one: Parameter) -> str:
    letter = {"one GPU": "g", "serial": "s", "contention": "s", "coherency": "k"}[one.name]
    return "" if one.ci95 is None else f"{letter} {one.ci95[0]:.3g} to {one.ci95[1]:.3g}"


def _end(law: Law) -> str:
    if law.peak:
        return f"{law.limit:.3g}x, {law.peak[0]:.3g} GPU{'s' * (law.peak[0] != 1)}"
    return f"{law.limit:.3g}x" if law.limit else "never"
