"""Takes the measurements of a roofline run and puts the result document together.

The story is `Survey.run`: for each device, for each group of the plan: prepare, verify, measure interleaved, record.
Whatever was recorded when a run is interrupted is still in `document()`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from . import backends, cuda_native, environment, explain, gpu_pairs, model, result, verdicts
from .backends.base import Backend
from .backends.replay import ReplayBackend
from .device import Device
from .errors import UsageError, unknown
from .lock import device_lock
from .peaks.sheet import sheet_for
from .plan import Group, Mode, make_plan, repeat_group
from .recorder import RecordingBackend, recording
from .recording import Recording
from .spec import DTYPE_ALIASES, ITEMSIZE, OperandClass
from .taking import Target, held_ceilings, hold, run_group
from .watch import watch_for

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
    """One roofline run. Build it, read `seconds`, call `run()`, take `document()`.

    replay: run on a recording instead of a device. record: keep what a replay needs, for `recording()`.
    """

    def __init__(
        self, *, device: str = "auto", backend: str = "auto", dtypes: Sequence[str] = (), mode: Mode = "default",
        operands: OperandClass = "uniform", spec: str | None = None, sustained_s: float = 0.0,
        argv: Sequence[str] = (), replay: ReplayBackend | None = None, record: bool = False,
    ) -> None:  # fmt: skip
        for what, given, known in (("mode", mode, MODES), ("operand class", operands, OPERANDS)):
            if given not in known:
                raise UsageError(unknown(what, given, known))
        if not 0 <= sustained_s < math.inf:
            raise UsageError(f"sustained_s must be a number of seconds, not {sustained_s!r}")
        self.mode, self.operands, self.sustained_s, self.argv = mode, operands, sustained_s, tuple(argv)
        self.dtypes = parse_dtypes(dtypes)
        self.replay = replay
        self.interrupted = False
        self.notes: list[str] = []
        self.targets: list[Target] = []
        if replay is None:
            chosen, skipped = backends.resolve(device, backend)
        else:
            chosen, skipped = replay.choose(device), []
            self.notes.append(_replay_note(replay))
        self.notes += [f"Passed over: {name}, because {reason}." for name, reason in skipped]
        for engine in dict.fromkeys(engine for engine, _ in chosen):
            self.notes += getattr(engine, "notes", list)()  # of devices: MIG, hidden, left out, emulated
        for engine, dev in chosen:
            self._add(RecordingBackend(engine, dev) if record else engine, dev, spec)

    def _add(self, engine: Backend, device: Device, spec: str | None) -> None:
        plan = make_plan(device, engine, mode=self.mode, dtypes=self.dtypes, operands=self.operands)
        sheet = sheet_for(device, spec)
        make_watch = getattr(engine, "watch", watch_for)
        self.targets.append(Target(engine, device, plan, sheet, make_watch(device, sheet.clock_hz)))

    @property
    def seconds(self) -> float:
        """About how long `run` will take."""
        return sum(t.plan.seconds + self._sustained_seconds(t) for t in self.targets)

    @property
    def absent(self) -> list[tuple[str, str]]:
        """Devices that should be there and are not, each with its reason."""
        found: dict[str, str] = {}
        for target in self.targets:
            found |= dict(getattr(target.backend, "absent", ()))
        return list(found.items())

    def _sustained_seconds(self, target: Target) -> float:
        peaks = {i.problem.dtype for g in target.plan.groups for i in g.items if i.spec.name in model.ROOF_RECIPES}
        return self.sustained_s * (len(target.device.levels) + len(peaks))

    def run(self, progress: Progress | None = None) -> None:
        """Measure everything that was planned. A failed kernel is recorded and the run goes on."""
        course = _Course(self.seconds, progress)
        for target in self.targets:
            for item, reason in target.plan.skipped:
                target.skip(item, reason)
            with _alone(target, course), target.watch:
                for group in self._groups(target):
                    course.begin(group.title, group.seconds)
                    run_group(target, group)
                for ceiling, item in held_ceilings(target) if self.sustained_s else ():
                    course.begin(f"sustained {ceiling['id']}", self.sustained_s)
                    hold(target, ceiling, item, self.sustained_s)
        course.begin("done", 0.0)

    def _groups(self, target: Target) -> Iterator[Group]:
        yield from list(target.plan.groups)
        if again := repeat_group(target.plan, model.ceilings(target.records)):
            yield again

    def _spec_record(self) -> dict[str, Any]:
        records = {target.device.id: dict(target.sheet.record) for target in self.targets}
        return next(iter(records.values())) if len(records) == 1 else {"name": "several devices", "devices": records}

    def _environment(self, conditions: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """This machine's, with the driver that a GPU's NVML told; of a replay the recorded one."""
        if self.replay is not None:
            return dict(self.replay.recording["environment"])
        found = environment.collect()
        driver = next((c["gpu"]["driver"] for c in conditions if c.get("gpu", {}).get("driver")), None)
        if driver is not None:
            del found["driver_why"]
            found["driver"] = driver
        for target in self.targets:  # what compiled kernels as it ran
            versions: dict[str, Any] = getattr(target.backend, "versions", dict)()
            if versions:
                found[target.backend.name] = versions
        if any(target.backend.name == "cuda" for target in self.targets) and not cuda_native.missing():
            cuda = cuda_native.load()
            found["cuda"] = {"build": dict(cuda.build), "versions": dict(cuda.probe())}
        return found

    def _verdicts(self, ceilings: list[Any], points: list[Any], records: list[Any]) -> list[dict[str, Any]]:
        out = verdicts.verdicts(ceilings, points, records, [t.watch.others_fraction for t in self.targets])
        if self.absent:
            text = "; ".join(f"{name} is missing: {reason}" for name, reason in self.absent)
            out.append({"name": "devices", "passed": False, "text": text})
        return out

    def recording(self) -> Recording:
        """What a replay of this run needs; the survey must have been made with `record`."""
        tracks = [(t.backend, t.watch, t.device) for t in self.targets if isinstance(t.backend, RecordingBackend)]
        settings = {
            "mode": self.mode, "dtypes": list(self.dtypes), "operands": self.operands, "sustained_s": self.sustained_s,
        }  # fmt: skip
        collected = environment.collect()
        return recording(tracks, settings, collected, collected["utc"])

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
        watched = [target.watch.to_json(target.device.id) for target in self.targets]
        notes = [*self.notes, *(note for target in self.targets for note in (*target.plan.notes, *target.notes))]
        notes += verdicts.notes(records, [target.device for target in self.targets])
        document = result.document(
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
            conditions=watched,
            verdicts=self._verdicts(ceilings, points, records),
            notes=notes,
            environment=self._environment(watched),
            settings={
                "mode": self.mode, "dtype": list(self.dtypes), "operands": self.operands,
                "sustained_s": self.sustained_s,
            },
        )  # fmt: skip
        document |= gpu_pairs.of_devices(target.device for target in self.targets)
        if self.replay is not None:
            document |= {"replayed": True, "synthetic": bool(self.replay.recording["synthetic"])}
        return document


@contextmanager
def _alone(target: Target, course: _Course) -> Iterator[None]:
    """The device's lock; who had to go on without it says so in every figure."""
    device = target.device
    if device.kind == "cpu" or device.facts.get("replayed") or device.facts.get("emulated"):
        yield
        return
    with device_lock(device.uuid or device.id, say=lambda text: course.begin(f"{device.id}: {text}", 0.0)) as held:
        if held.why:
            target.notes.append(f"{device.id}: {held.why}.")
        if not held.alone:
            target.watch.extra_flags.append("shared-device")
        yield


def _replay_note(replay: ReplayBackend) -> str:
    made = " that a model made up, not a device" if replay.recording["synthetic"] else ""
    return f"Replayed from a recording{made}: nothing was measured in this run."
