"""`scale`: what N GPUs make of a training step, where more of them stop paying, and whether the model fits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..collectives.predictions import MOST_RANKS
from ..errors import UsageError
from ..units import parse_count
from .fabric import Fabric, measured_fabric, parse_fabrics, unusable
from .figures import DocumentFigures
from .footprint import ZERO_STAGES, Footprint, Split, check_split, footprint
from .inputs import doubts, node_of, per_rank, pick_rates, reach, read_results
from .laws import Law, fit_laws, read_counts
from .step import HOLDS, PARTS, Setting, Step, one_gpu, step_time
from .training import DEFAULT, TrainingModel, checked, parse_model

WORTH = 0.5  # of a doubling's gain: below it, more GPUs do not pay
MOST_COUNTS = 64
REASONS = {
    "network": "the network: communication that the backward pass cannot hide",
    "memory": "memory: the optimizer's traffic does not shrink with more replicas (--zero 1 divides it)",
    "pipeline": "the pipeline's bubble: too few microbatches for its stages",
    "batch": "compute: the batch has too few samples to divide, so GPUs idle",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One count of GPUs. `low_s`, `high_s`: the step at the ends of the inputs' intervals; `speedup`: in samples/s over
    one GPU that does the whole batch (or, where the batch grows, its own part) and needs no split; `fits`: into a GPU's
    memory (None: not known)."""

    gpus: int
    step: Step
    low_s: float
    high_s: float
    speedup: float
    footprint: Footprint
    fits: bool | None

    @property
    def efficiency(self) -> float:
        """Speed-up over GPUs."""
        return self.speedup / self.gpus

    @property
    def samples_per_s(self) -> float:
        """Of all GPUs."""
        return self.step.samples / self.step.total_s

    @property
    def bound(self) -> str:
        """What takes most of the step: compute, memory, network or pipeline."""
        held = self.step.held_by()
        return max(held, key=lambda name: held[name])


@dataclass(frozen=True, slots=True)
class Stop:
    """From `gpus` to `beyond` the throughput grows by `gain` only; `reason` is one of REASONS."""

    gpus: int
    beyond: int
    gain: float
    reason: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One fabric: a row a count, and where more GPUs stop paying (None: not within these counts)."""

    fabric: Fabric
    rows: tuple[Row, ...]
    stop: Stop | None


@dataclass(frozen=True, slots=True)
class Stage:
    """One ZeRO stage: what a GPU keeps at the first and the last count, and from which count on that fits."""

    zero: int
    first: Footprint
    last: Footprint
    fits_from: int | None


@dataclass(frozen=True, slots=True)
class Scaling:
    """The whole answer: a model of the figures named in `setting.rates` and of each curve's fabric."""

    setting: Setting
    curves: tuple[Curve, ...]
    stages: tuple[Stage, ...]
    laws: tuple[Law, ...] = ()
    laws_from: str = ""
    notes: tuple[str, ...] = ()


def scale(
    results: Sequence[str | DocumentFigures] = (), *, model: str | TrainingModel | None = None,
    gpus: str | Sequence[int] = "1..4096", links: str | None = None, spec: str | None = None,
    split: Split | None = None, gpus_per_node: int | None = None, device: str | None = None, overlap: float = 1.0,
    utilization: float = 1.0, measured: str | None = None, worth: float = WORTH,
) -> Scaling:  # fmt: skip
    """The time of a data-parallel step (tensor and pipeline splits too) at each count of GPUs.

    results: result files (or what `read_figures` made of them): a roofline for GEMM and DRAM, collectives for
    all_reduce. spec: a GPU's data sheet for what they lack. links: `nvlink4+ib-ndr,nvlink4+eth100`, spec rates beside
    what was measured. measured: a CSV of real runs, to which the laws are fitted. Raises UsageError, SchemaError.
    """
    wanted = checked(model) if isinstance(model, TrainingModel) else parse_model(DEFAULT if model is None else model)
    for name, value in (("--overlap", overlap), ("--utilization", utilization), ("--worth", worth)):
        if not 0 <= value <= 1 or (name == "--utilization" and not value):
            raise UsageError(f"{name} must be from 0 to 1, not {value:g}")
    if gpus_per_node is not None and not 1 <= gpus_per_node <= MOST_RANKS:
        raise UsageError(f"--gpus-per-node must be from 1 to {MOST_RANKS}, not {gpus_per_node}")
    documents = [read_results(one) if isinstance(one, str) else one for one in results]
    divided = split or Split()
    check_split(divided, wanted)
    sweeps = [sweep for one in documents for sweep in one.all_reduce]
    found = measured_fabric(sweeps, gpus_per_node)
    rates, notes = pick_rates(documents, wanted.dtype, spec, device)
    if found and found.measured_ranks and rates.kind == "cpu":
        rates, shared = per_rank(rates, found)
        notes += shared
    setting = Setting(replace(wanted, dtype=rates.dtype), divided, rates, overlap, utilization)
    named = parse_fabrics(links, gpus_per_node or node_of(rates), found) if links else ()
    fabrics = (*((found,) if found else ()), *named)
    if not fabrics:
        raise UsageError(
            "nothing says how fast the GPUs are joined: add a result of `gpumicro collectives` (at least 2 ranks, 5 "
            "sizes), or name links, such as --links nvlink4+ib-ndr" + (f" ({unusable(sweeps)})" if sweeps else "")
        )
    counts = parse_gpus(gpus, divided.model_ways)
    curves = tuple(_curve(setting, fabric, counts, worth) for fabric in fabrics)
    laws = fit_laws(read_counts(measured)) if measured else ()
    notes += [*reach(found, counts), *doubts(documents)]
    if sweeps and found is None:
        notes.append(f"No measured all_reduce could be used: {unusable(sweeps)}.")
    return Scaling(setting, curves, _stages(setting, counts), laws, measured or "", tuple(notes))


def parse_gpus(text: str | Sequence[int], unit: int = 1) -> tuple[int, ...]:
    """`1..4096` (doubling, with both ends), `8,24,1e6`, or numbers; multiples of `unit` only. Raises UsageError."""
    found: list[int] = []
    for part in text.split(",") if isinstance(text, str) else [str(one) for one in text]:
        low, dots, high = part.strip().partition("..")
        first, last = _gpus(low), _gpus(high) if dots else _gpus(low)
        if last < first:
            raise UsageError(f"--gpus {part}: the last count is below the first")
        step = first
        while step < last:
            found.append(step)
            step *= 2
        found.append(last)
    counts = sorted({count for count in found if count % unit == 0})
    if not counts:
        raise UsageError(
            f"--gpus: none of the counts is a multiple of {unit}, the GPUs that one copy of the model takes"
        )
    if len(counts) > MOST_COUNTS:
        raise UsageError(f"--gpus: {len(counts)} counts, more than {MOST_COUNTS}")
    return tuple(counts)


def _gpus(text: str) -> int:
    try:
        value = parse_count(text)
    except UsageError as error:
        raise UsageError(f"--gpus: {error}") from None
    if not 1 <= value <= MOST_RANKS:
        raise UsageError(f"--gpus must be from 1 to {MOST_RANKS}, not {text}")
    return value


# -- the curve ---------------------------------------------------------------------------------------------------------


def _curve(setting: Setting, fabric: Fabric, counts: Sequence[int], worth: float) -> Curve:
    rows = tuple(_row(setting, fabric, count) for count in counts)
    return Curve(fabric, rows, _stop(rows, worth))


def _row(setting: Setting, fabric: Fabric, gpus: int) -> Row:
    step = step_time(setting, fabric, gpus)
    low, high = (step_time(setting, fabric, gpus, case).total_s for case in (-1, 1))
    replicas = max(1, gpus // setting.split.model_ways)
    kept = footprint(setting.model, setting.split, replicas, step.microbatches)
    memory = setting.rates.memory_bytes
    fits = None if memory is None or kept.activations is None else kept.total <= memory.estimate
    if memory is not None and kept.total > memory.estimate:
        fits = False  # whatever the activations are
    alone = float(setting.model.batch or setting.model.micro * setting.model.accumulate)
    speedup = step.samples / step.total_s * one_gpu(setting, alone) / alone
    return Row(gpus, step, low, high, speedup, kept, fits)


def _stop(rows: Sequence[Row], worth: float) -> Stop | None:
    """The first count from which the next one brings less than `worth` of what its GPUs would bring."""
    for here, beyond in itertools.pairwise(rows):
        gain, ideal = beyond.samples_per_s / here.samples_per_s, beyond.gpus / here.gpus
        if gain - 1 < worth * (ideal - 1):
            return Stop(here.gpus, beyond.gpus, gain, _reason(here, beyond))
    return None


def _reason(here: Row, beyond: Row) -> str:
    """What takes more of the step than it would if it had shrunk with the GPUs."""
    work = beyond.step.samples / here.step.samples * here.gpus / beyond.gpus
    lost: dict[str, float] = {}
    for part in PARTS:
        extra = beyond.step.part(part) - here.step.part(part) * work
        kind = "batch" if part in ("compute", "elementwise") else HOLDS[part]
        lost[kind] = lost.get(kind, 0.0) + extra
    return max(lost, key=lambda kind: lost[kind])


def _stages(setting: Setting, counts: Sequence[int]) -> tuple[Stage, ...]:
    found = []
    for zero in ZERO_STAGES:
        divided = replace(setting.split, zero=zero)
        kept = [_kept(setting, divided, count) for count in counts]
        memory = setting.rates.memory_bytes
        fitting = [count for count, one in zip(counts, kept, strict=True) if memory and one.total <= memory.estimate]
        found.append(Stage(zero, kept[0], kept[-1], fitting[0] if fitting else None))
    return tuple(found)


def _kept(setting: Setting, split: Split, gpus: int) -> Footprint:
    model, replicas = setting.model, max(1, gpus // split.model_ways)
    each = -(-model.batch // replicas) if model.batch else model.micro * model.accumulate
    return footprint(model, split, replicas, -(-each // model.micro))
