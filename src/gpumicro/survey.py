"""Takes the measurements of a roofline run and puts the result document together.

The story is `Survey.run`: for each device, for each group of the plan: prepare, verify, measure interleaved, record.
Whatever was recorded when a run is interrupted is still in `document()`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, get_args

from . import backends, explain, model, result, verdicts
from .backends.base import Backend, Prepared
from .device import Device
from .errors import BackendUnavailable, GpumicroError, OutOfMemory, UsageError, unknown
from .measure import Measurement, MeasurementsInterrupted, measure_together
from .peaks.sheet import Sheet, sheet_for
from .plan import Group, Item, Mode, Plan, make_plan, repeat_group
from .spec import DTYPE_ALIASES, ITEMSIZE, Check, OperandClass
from .sustain import Sustained, SustainInterrupted, sustain
from .watch import Watch

Progress = Callable[[float, float, str], None]  # seconds done, seconds in all, what is measured now

MODES: tuple[Mode, ...] = get_args(Mode)
OPERANDS: tuple[OperandClass, ...] = get_args(OperandClass)


def parse_dtypes(names: Sequence[str]) -> tuple[str, ...]:
    """NumPy's names from names and aliases ("f64", "bf16"), commas allowed; UsageError for an unknown one."""
    found = []
    for name in (part.strip() for text in names for part in text.split(",")):
        dtype = DTYPE_ALIASES.get(name, name)
        if dtype not in ITEMSIZE:
            raise UsageError(unknown("dtype", name, [*ITEMSIZE, *DTYPE_ALIASES]))
        found.append(dtype)
    return tuple(dict.fromkeys(found))


@dataclass(slots=True)
class _Target:
    backend: Backend
    device: Device
    plan: Plan
    sheet: Sheet
    watch: Watch
    records: list[dict[str, Any]] = field(default_factory=list)
    sustained: list[Sustained] = field(default_factory=list)

    def conditions(self) -> explain.Conditions:
        watch = self.watch
        return explain.Conditions(
            watch.clock_hz, watch.steal_fraction, watch.others_fraction, watch.throttled, self.sheet
        )


class _Course:
    """How far a run is: seconds since its start, and what the plan still has, whatever it took so far."""

    def __init__(self, planned_s: float, progress: Progress | None) -> None:
        self.left_s, self.progress, self.began_s = planned_s, progress, time.monotonic()

    def begin(self, title: str, seconds: float) -> None:
        """Say what comes next; `seconds` is what the plan gives it."""
        if self.progress:
            elapsed_s = time.monotonic() - self.began_s
            self.progress(elapsed_s, elapsed_s + self.left_s, title)
        self.left_s = max(0.0, self.left_s - seconds)


class Survey:
    """One roofline run. Build it, read `seconds`, call `run()`, take `document()`."""

    def __init__(
        self, *, device: str = "auto", backend: str = "auto", dtypes: Sequence[str] = (), mode: Mode = "default",
        operands: OperandClass = "uniform", spec: str | None = None, sustained_s: float = 0.0,
        argv: Sequence[str] = (),
    ) -> None:  # fmt: skip
        for what, given, known in (("mode", mode, MODES), ("operand class", operands, OPERANDS)):
            if given not in known:
                raise UsageError(unknown(what, given, known))
        if not 0 <= sustained_s < math.inf:
            raise UsageError(f"sustained_s must be a number of seconds, not {sustained_s!r}")
        self.mode, self.operands, self.sustained_s, self.argv = mode, operands, sustained_s, tuple(argv)
        self.dtypes = parse_dtypes(dtypes)
        self.interrupted = False
        self.notes: list[str] = []
        self.targets: list[_Target] = []
        chosen, skipped = backends.resolve(device, backend)
        self.notes += [f"Passed over: {name}, because {reason}." for name, reason in skipped]
        for engine, dev in chosen:
            plan = make_plan(dev, engine, mode=mode, dtypes=self.dtypes, operands=operands)
            self.targets.append(_Target(engine, dev, plan, sheet_for(dev, spec), Watch()))

    @property
    def seconds(self) -> float:
        """About how long `run` will take."""
        return sum(t.plan.seconds + self._sustained_seconds(t) for t in self.targets)

    def _sustained_seconds(self, target: _Target) -> float:
        peaks = {i.problem.dtype for g in target.plan.groups for i in g.items if i.spec.name in model.ROOF_RECIPES}
        return self.sustained_s * (len(target.device.levels) + len(peaks))

    def run(self, progress: Progress | None = None) -> None:
        """Measure everything that was planned. A failed kernel is recorded and the run goes on."""
        course = _Course(self.seconds, progress)
        for target in self.targets:
            self._record_skipped(target)
            with target.watch:
                for group in self._groups(target):
                    course.begin(group.title, group.seconds)
                    self._run_group(target, group)
                if self.sustained_s:
                    self._run_sustained(target, course)
        course.begin("done", 0.0)

    def _groups(self, target: _Target) -> Iterator[Group]:
        yield from target.plan.groups
        if again := repeat_group(target.plan, model.ceilings(target.records)):
            yield again

    def _record_skipped(self, target: _Target) -> None:
        for item, reason in target.plan.skipped:
            self._record(target, item, None, None, status="skipped", reason=reason)

    def _run_group(self, target: _Target, group: Group) -> None:
        with ExitStack() as stack:
            ready: list[tuple[Item, Prepared, Check]] = []
            for item in group.items:
                try:
                    prepared = target.backend.prepare(item.spec, item.problem, item.execution, target.device)
                    stack.callback(prepared.close)
                    ready.append((item, prepared, prepared.verify()))
                except (BackendUnavailable, OutOfMemory) as error:
                    self._record(target, item, None, None, status="skipped", reason=str(error))
                except MemoryError:  # of the check: what was measured before is not thrown away for it
                    self._record(target, item, None, None, status="skipped", reason="out of memory while checking it")
                except GpumicroError as error:
                    self._record(target, item, None, None, status="failed", error=str(error))
            try:
                taken: Sequence[Measurement | None] = measure_together([p for _, p, _ in ready], group.policy)
            except MeasurementsInterrupted as stop:
                self._record_all(target, group, ready, stop.partial)
                raise
            self._record_all(target, group, ready, taken)

    def _record_all(
        self, target: _Target, group: Group, ready: Sequence[tuple[Item, Prepared, Check]],
        taken: Sequence[Measurement | None],
    ) -> None:  # fmt: skip
        for (item, prepared, check), measurement in zip(ready, taken, strict=True):
            if measurement is not None:
                facts = dict(prepared.facts)
                self._record(target, item, measurement, check, facts=facts, repeat=group.repeat)

    def _record(
        self, target: _Target, item: Item, measurement: Measurement | None, check: Check | None, *,
        repeat: bool = False, **more: Any,
    ) -> None:  # fmt: skip
        record = result.measurement_record(
            item.spec, item.problem, item.execution, target.device.id, target.backend.name, measurement, check,
            level=item.level, **more,
        )  # fmt: skip
        if measurement is not None:
            record["timing"]["flags"] += item.flags
        if repeat:
            record["repeat_of"] = record["id"]
            record["id"] += "#repeat"
        target.records.append(record)

    def _run_sustained(self, target: _Target, course: _Course) -> None:
        items = {item.id: item for group in target.plan.groups for item in group.items}
        ceilings = model.ceilings(target.records)
        for ceiling in [*model.roofs(ceilings, "arithmetic"), *model.roofs(ceilings, "memory")]:
            item = items[ceiling["measurement"]]
            course.begin(f"sustained {ceiling['id']}", self.sustained_s)
            count = item.spec.flops if ceiling["kind"] == "arithmetic" else item.spec.bytes_moved
            with target.backend.prepare(item.spec, item.problem, item.execution, target.device) as prepared:
                try:
                    held = sustain(prepared.work, self.sustained_s, count(item.problem), ceiling["id"])
                except SustainInterrupted as stop:
                    target.sustained += [stop.partial] if stop.partial else []
                    raise
            target.sustained.append(held)

    def _spec_record(self) -> dict[str, Any]:
        records = {target.device.id: dict(target.sheet.record) for target in self.targets}
        return next(iter(records.values())) if len(records) == 1 else {"name": "several devices", "devices": records}

    def document(self) -> dict[str, Any]:
        """The result so far, in the shape of schema/result-1.json."""
        records = [record for target in self.targets for record in target.records]
        ceilings: list[dict[str, Any]] = []
        gaps: list[dict[str, Any]] = []
        for target in self.targets:
            mine = model.ceilings(target.records)
            conditions = target.conditions()
            model.attach_spec(mine, target.sheet, conditions.clock_hz)
            gaps += explain.explain(mine, target.records, conditions)
            ceilings += mine
        points = model.points(ceilings, records)
        notes = [*self.notes, *(note for target in self.targets for note in target.plan.notes)]
        notes += verdicts.notes(records)
        return result.document(
            argv=self.argv,
            interrupted=self.interrupted,
            devices=[target.device for target in self.targets],
            measurements=records,
            ceilings=ceilings,
            ridge_points=model.ridge_points(ceilings),
            points=points,
            spec=self._spec_record(),
            gap=gaps,
            sustained=[s.to_json() for target in self.targets for s in target.sustained],
            conditions=[target.watch.to_json(target.device.id) for target in self.targets],
            verdicts=verdicts.verdicts(ceilings, points, records, [t.watch.others_fraction for t in self.targets]),
            notes=notes,
            settings={
                "mode": self.mode, "dtype": list(self.dtypes), "operands": self.operands,
                "sustained_s": self.sustained_s,
            },
        )  # fmt: skip
