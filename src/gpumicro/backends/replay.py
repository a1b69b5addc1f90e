"""A backend made of a recording: its devices, kernels and times are those of another run. Only --replay makes one.

Nothing of it is a measurement: its devices carry the fact `replayed`, and every result says so.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import recording
from ..device import Device
from ..errors import BackendUnavailable, GpumicroError, UsageError, nearest
from ..faults import Faults, Missing, read_faults
from ..spec import Check, Execution, KernelSpec, Problem, measurement_id
from ..watch import CpuWatch, Watch
from ..watch_gpu import GpuWatch
from .base import Availability, Backend, Prepared
from .replay_state import Course, ReplayTelemetry, ReplayTimer, ReplayWork

_ABSENT = "not in the recording"


class RecordedFailure(GpumicroError):
    """A kernel that failed when it was recorded, and so fails again."""


class ReplayPrepared:
    """A recorded kernel: its timer plays its spans back, its check is the one that was made then."""

    backend = "replay"

    def __init__(
        self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device, entry: Mapping[str, Any],
        kept: Mapping[str, Any], course: Course, again: int = 0,
    ) -> None:  # fmt: skip
        self.spec, self.problem, self.execution, self.device = spec, problem, execution, device
        self._entry, self._course = entry, course
        self.timer = ReplayTimer(kept, entry["takes"][min(again, len(entry["takes"]) - 1)], course)
        self.work = ReplayWork(spec.name, str(entry.get("loop", "native")))

    @property
    def facts(self) -> Mapping[str, Any]:
        return dict(self._entry["facts"])

    def verify(self) -> Check:
        self._course.begin_measurement(self.spec.name)
        return Check(**self._entry["check"])

    def outputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """A recording holds no arrays."""
        return {}

    def close(self) -> None:
        """There is nothing to free."""

    def __enter__(self) -> ReplayPrepared:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _RecordedCpuWatch(CpuWatch):
    """The figures that the CPU watch of the recorded run had."""

    def __init__(self, figures: Mapping[str, Any]) -> None:
        super().__init__()
        for name in self.FIGURES:
            value = figures.get(name)
            setattr(self, name, value if isinstance(value, (int, float)) else None)
            self.why[name] = str(figures.get(f"{name}_why", "not recorded"))

    def __enter__(self) -> _RecordedCpuWatch:
        return self

    def __exit__(self, *_: object) -> None:
        """The figures stand."""


class _Track:
    """One recorded device."""

    def __init__(self, record: Mapping[str, Any], faults: Faults) -> None:
        self.record = record
        self.device = recording.device_from_json(record["device"], replayed=True)
        self.course = Course(self.device.id, faults)
        self.plays: Counter[str] = Counter()  # how often each kernel was prepared: each time has its own take


class ReplayBackend:
    """Plays one recording back, with faults."""

    name = "replay"

    def __init__(self, record: recording.Recording, faults: Faults | None = None) -> None:
        self.recording = record
        faults = faults or Faults()
        self._tracks: dict[str, _Track] = {}
        self.absent: list[tuple[str, str]] = []  # devices that are not to be had, each with its reason
        for one in record["devices"]:
            track = _Track(one, faults)
            gone = faults.of(Missing, track.device.id)
            if gone:
                self.absent.append((track.device.id, gone[0].why))
            else:
                self._tracks[track.device.id] = track

    def availability(self) -> Availability:
        return Availability(bool(self._tracks), "the recording has no device that can be played back")

    def devices(self) -> tuple[Device, ...]:
        return tuple(track.device for track in self._tracks.values())

    def choose(self, asked: str) -> list[tuple[Backend, Device]]:
        """What --device means here: "auto" and "all" are all that were recorded.

        Raises UsageError for a device that was not recorded, BackendUnavailable where the one asked for is absent.
        """
        gone = dict(self.absent)
        if asked in gone or not self._tracks:
            raise BackendUnavailable(
                f"device {asked!r} cannot be played back because {gone.get(asked, 'none is left')}"
            )
        kinds = {device.kind for device in self.devices()}
        found = [d for d in self.devices() if asked in ("auto", "all", d.id) or (asked in kinds and d.kind == asked)]
        if not found:
            raise UsageError(f"the recording has no device {asked!r}{nearest(asked, self._tracks)}")
        return [(self, device) for device in found]

    def supports(self, spec: KernelSpec, dtype: str, device: Device) -> Availability:
        """What was refused then is refused now; what is not in the recording shows when it is prepared."""
        refused = self._tracks[device.id].record.get("refused", {}).get(f"{spec.name} {dtype}")
        return Availability(refused is None, refused or "")

    def prepare(self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Prepared:
        track = self._tracks[device.id]
        track.course.check_alive()
        key = measurement_id(spec, problem, execution, device.id, track.record["backend"])
        entry = track.record["measurements"].get(key)
        if entry is None:
            raise BackendUnavailable(_ABSENT)
        if entry["status"] == "skipped":
            raise BackendUnavailable(entry["why"])
        if entry["status"] == "failed":
            raise RecordedFailure(entry["why"])
        kept = track.record["timers"][entry["timer"]]
        track.plays[key] += 1
        return ReplayPrepared(spec, problem, execution, device, entry, kept, track.course, track.plays[key] - 1)

    def watch(self, device: Device, clock_hz: float | None = None) -> Watch:
        """The watch of a replayed device: its figures and readings are the recorded ones."""
        track = self._tracks[device.id]
        record = track.record["watch"]
        if record["kind"] == "cpu":
            return _RecordedCpuWatch(record["figures"])
        return GpuWatch(ReplayTelemetry(record, track.course), clock_hz)


def replay(path: str | os.PathLike[str], faults: str | os.PathLike[str] | None = None) -> ReplayBackend:
    """The backend of a recording file, with the faults of a TOML file. Raises SchemaError naming file and place."""
    record = recording.read(path)
    ids = [track["device"]["id"] for track in record["devices"]]
    return ReplayBackend(record, read_faults(faults, ids) if faults is not None else None)
