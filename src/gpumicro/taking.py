"""Takes one group of measurements on one device: prepare, verify, measure in turns, record.

What cannot run or fails becomes a record and the rest goes on; a device whose CUDA context is lost is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from . import explain, model, result
from .backends.base import Backend, Prepared
from .device import Device
from .errors import BackendUnavailable, CudaError, GpumicroError, OutOfMemory
from .measure import Measurement, MeasurementsInterrupted, measure_each
from .peaks.sheet import Sheet
from .plan import Group, Item, Plan
from .spec import Check, Problem, measurement_id
from .sustain import Sustained, SustainInterrupted, meter_for, sustain
from .watch import Watch

HALVINGS = 2  # how often a problem that does not fit into a GPU's memory is made smaller
LEAST_SIZE = 1024  # below which it is not
_HALVED = {"stream": ("n",), "mixed": ("n",), "latency": ("n",), "gemm": ("m", "n", "k")}

Ready: TypeAlias = "tuple[Item, Prepared, Check]"
Outcome: TypeAlias = "Measurement | GpumicroError | str | None"  # an error: failed; a text: skipped, and why


@dataclass(slots=True)
class Target:
    """One device of a run, with what is planned for it and what was found."""

    backend: Backend
    device: Device
    plan: Plan
    sheet: Sheet
    watch: Watch
    records: list[dict[str, Any]] = field(default_factory=list)
    sustained: list[Sustained] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: str = ""  # after which kernel the device's context was lost

    def conditions(self) -> explain.Conditions:
        """What the ladders ask of the machine."""
        watch = self.watch
        return explain.Conditions(
            watch.clock_hz, watch.steal_fraction, watch.others_fraction, watch.throttled, self.sheet
        )

    def record(
        self, item: Item, measurement: Measurement | None, check: Check | None, *, repeat: bool = False,
        flags: Sequence[str] = (), **more: Any,
    ) -> None:  # fmt: skip
        """Add one measurement, or the reason why there is none."""
        record = result.measurement_record(
            item.spec, item.problem, item.execution, self.device.id, self.backend.name, measurement, check,
            level=item.level, **more,
        )  # fmt: skip
        if measurement is not None:
            known = record["timing"]["flags"]
            known += [flag for flag in dict.fromkeys((*item.flags, *flags)) if flag not in known]
        if repeat:
            record["repeat_of"] = record["id"]
            record["id"] += "#repeat"
        self.records.append(record)

    def fail(self, item: Item, error: GpumicroError, repeat: bool = False) -> None:
        """Record that a kernel failed, and that the context is gone where it is."""
        self.record(item, None, None, repeat=repeat, status="failed", error=str(error))
        if isinstance(error, CudaError) and error.lost:
            self.lost = self.lost or item.spec.name

    def skip(self, item: Item, reason: str, repeat: bool = False) -> None:
        """Record that a kernel was not run."""
        self.record(item, None, None, repeat=repeat, status="skipped", reason=reason)

    @property
    def lost_reason(self) -> str:
        """Why nothing more can be measured here, "" where it can."""
        return f"the CUDA context is lost after {self.lost}" if self.lost else ""


def run_group(target: Target, group: Group) -> None:
    """Measure a group; everything that happens is in `target.records`. Ctrl-C passes, with what there is recorded."""
    with ExitStack() as stack:
        ready = _ready(target, group, stack)
        if target.lost:  # while one of them was prepared: those before it can't run any more either
            for item, _, _ in ready:
                target.skip(item, target.lost_reason, group.repeat)
            return
        mark = target.watch.mark()
        try:
            outcomes = _measure(ready, group)
        except MeasurementsInterrupted as stop:
            _record_all(target, group, ready, stop.partial, target.watch.flags_since(mark))
            raise
        _record_all(target, group, ready, outcomes, target.watch.flags_since(mark))


def _ready(target: Target, group: Group, stack: ExitStack) -> list[Ready]:
    """Prepare and verify each item; where a size did not fit, the plan is told the one that did."""
    ready: list[Ready] = []
    swapped: dict[str, Item] = {}
    for item in group.items:
        if target.lost:
            target.skip(item, target.lost_reason, group.repeat)
            continue
        try:
            found = _fit(target, item, stack)
            ready.append(found)
            if found[0].id != item.id:
                swapped[item.id] = found[0]
        except (BackendUnavailable, OutOfMemory) as error:
            target.skip(item, str(error), group.repeat)
        except MemoryError:  # of the check: what was measured before is not thrown away for it
            target.skip(item, "out of memory while checking it", group.repeat)
        except GpumicroError as error:
            target.fail(item, error, group.repeat)
    if swapped and group in target.plan.groups:
        items = tuple(swapped.get(item.id, item) for item in group.items)
        target.plan.groups[target.plan.groups.index(group)] = replace(group, items=items)
    return ready


def _fit(target: Target, item: Item, stack: ExitStack) -> Ready:
    """The item prepared and verified; on a GPU that is short of memory at half the size, and half of that."""
    for _ in range(HALVINGS):
        try:
            return _prepare(target, item, stack)
        except OutOfMemory:
            smaller = halved(target, item)
            if smaller is None:
                raise
            item = smaller
    return _prepare(target, item, stack)


def _prepare(target: Target, item: Item, stack: ExitStack) -> Ready:
    prepared = target.backend.prepare(item.spec, item.problem, item.execution, target.device)
    try:
        check = prepared.verify()
    except BaseException:
        close(prepared)
        raise
    stack.callback(close, prepared)
    return item, prepared, check


def close(prepared: Prepared) -> None:
    """Free it. On a lost context even that fails, which is no news."""
    with suppress(GpumicroError):
        prepared.close()


def halved(target: Target, item: Item) -> Item | None:
    """The item at half the size, flagged; None where its size is its meaning: a cache level, a copy, a CPU's plan."""
    names = _HALVED.get(item.spec.family, ())
    if target.device.kind == "cpu" or not names or (item.level != "dram" and item.spec.family != "gemm"):
        return None
    sizes = {name: size // 2 if name in names else size for name, size in item.problem.sizes}
    if any(sizes[name] < LEAST_SIZE for name in names):
        return None
    problem = Problem(tuple(sizes.items()), item.problem.dtype, item.problem.operands)
    name = measurement_id(item.spec, problem, item.execution, target.device.id, target.backend.name)
    flags = tuple(dict.fromkeys((*item.flags, "smaller-size")))
    return replace(item, id=name, problem=problem, flags=flags)


def _measure(ready: Sequence[Ready], group: Group) -> Sequence[Outcome]:
    """What each gave, measured in turns. Where the context was lost, one kernel failed and the others can't go on."""
    outcomes: list[Outcome] = list(measure_each([prepared for _, prepared, _ in ready], group.policy))
    dead = [i for i, one in enumerate(outcomes) if isinstance(one, CudaError) and one.lost]
    if not dead:
        return outcomes
    # A lost context gives the error of the kernel that lost it in whatever is called after it.
    named = [i for i in dead if _means(getattr(outcomes[i], "kernel", ""), ready[i][0])]
    culprit = (named or dead)[0]
    reason = f"the CUDA context is lost after {ready[culprit][0].spec.name}"
    return [reason if i in dead and i != culprit else one for i, one in enumerate(outcomes)]


def _means(kernel: str, item: Item) -> bool:
    """Whether an error's kernel ("stream.triad", "gm::triad<double, 2>") is this item's."""
    bare = kernel.partition("<")[0].rpartition("::")[2]
    return item.spec.name in (kernel, bare) or item.spec.name.partition(".")[2] == bare


def _record_all(
    target: Target, group: Group, ready: Sequence[Ready], outcomes: Sequence[Outcome], flags: Sequence[str]
) -> None:
    for (item, prepared, check), outcome in zip(ready, outcomes, strict=True):
        if isinstance(outcome, GpumicroError):
            target.fail(item, outcome, group.repeat)
        elif isinstance(outcome, str):
            target.skip(item, outcome, group.repeat)
        elif outcome is not None:
            target.record(item, outcome, check, facts=_facts(prepared), repeat=group.repeat, flags=flags)


def _facts(prepared: Prepared) -> dict[str, Any]:
    """What it says of its run. A context that another kernel lost answers nothing, and no time is given up for that."""
    try:
        return dict(prepared.facts)
    except GpumicroError as error:
        return {"facts_why": str(error)}


def held_ceilings(target: Target) -> list[tuple[dict[str, Any], Item]]:
    """The roofs that were found, each with the item behind it."""
    items = {item.id: item for group in target.plan.groups for item in group.items}
    ceilings = model.ceilings(target.records)
    roofs = [*model.roofs(ceilings, "arithmetic"), *model.roofs(ceilings, "memory")]
    return [(ceiling, items[ceiling["measurement"]]) for ceiling in roofs if ceiling["measurement"] in items]


def hold(target: Target, ceiling: dict[str, Any], item: Item, seconds: float) -> None:
    """Run a roof's kernel for so long. A failure becomes a note; Ctrl-C keeps what was seen."""
    if target.lost:
        target.notes.append(f"{ceiling['id']} was not held: {target.lost_reason}.")
        return
    count = item.spec.flops if ceiling["kind"] == "arithmetic" else item.spec.bytes_moved
    try:
        with target.backend.prepare(item.spec, item.problem, item.execution, target.device) as prepared:
            timer = getattr(prepared, "timer", None)
            found = sustain(prepared.work, seconds, count(item.problem), ceiling["id"], timer, meter_for(target.watch))
            target.sustained.append(found)
    except SustainInterrupted as stop:
        target.sustained += [stop.partial] if stop.partial else []
        raise
    except GpumicroError as error:
        target.notes.append(f"{ceiling['id']} could not be held: {error}.")
        if isinstance(error, CudaError) and error.lost:
            target.lost = item.spec.name
