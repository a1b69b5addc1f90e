"""Listens to a run and keeps what a replay needs. It stands between the survey and a backend, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from . import __version__
from .backends.base import Availability, Backend, Prepared
from .device import Device
from .device_timers import hangs
from .errors import BackendUnavailable, CudaError, GpumicroError, OutOfMemory
from .recording import SCHEMA, Recording, device_to_json, series_to_json
from .result import to_plain
from .spec import Check, Execution, KernelSpec, Problem, measurement_id
from .telemetry import Counters, Telemetry
from .timers import FloatArray, Tick, Timer, default_timer
from .watch import Watch

MOST_SPANS = 8192  # of one measurement: some 100 are taken in a run, thousands only for short kernels
MOST_OVERHEADS = 2048  # of one timer
ABOUT = ("estimand", "cache", "ladder", "largest_batch")  # what the sampling asks of a timer beside the protocol


class RecordingTimer:
    """A timer that keeps what it gave; one for each prepared kernel, over the timer that reads it."""

    def __init__(self, inner: Timer, track: dict[str, Any], entry: dict[str, Any], take: dict[str, Any]) -> None:
        self._inner, self._track, self._entry, self._take = inner, track, entry, take
        self._kept = _kept_timer(track, inner)
        self.name = inner.name
        entry["timer"] = _timer_key(inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # estimand, ladder ... of device timers

    def with_cache(self, cache: str) -> RecordingTimer:
        """Listens to the timer that leaves the caches in that state, in place of this one."""
        change = getattr(self._inner, "with_cache", None)
        inner = change(cache) if change else self._inner
        return self if inner is self._inner else RecordingTimer(inner, self._track, self._entry, self._take)

    def tick(self) -> Tick:
        return self._inner.tick()

    def overhead(self, n: int = 256) -> FloatArray:
        spans = self._inner.overhead(n)
        room = MOST_OVERHEADS - len(self._kept["overhead_s"])
        self._kept["overhead_s"] += spans[:room].tolist()
        return spans

    def now(self) -> float:
        return self._inner.now()

    def sample(self, work: Any, counts: npt.ArrayLike) -> FloatArray:
        try:
            spans = self._inner.sample(work, counts)
        except CudaError as error:
            if not hangs(error):  # what hangs may yet be described by the spans before
                self._entry |= {"status": "failed", "why": str(error)}
            raise
        room = max(0, MOST_SPANS - len(self._take["spans_s"]))
        self._take["counts"] += np.asarray(counts, dtype=np.int64)[:room].tolist()
        self._take["spans_s"] += spans[:room].tolist()
        return spans

    def throttled_s(self) -> float:
        return self._inner.throttled_s()

    def take_flags(self) -> set[str]:
        """The timer's own flags, kept beside the spans."""
        take = getattr(self._inner, "take_flags", None)
        found = set(take()) if take else set()
        self._take["flags"] = sorted(found | set(self._take["flags"]))
        return found


class RecordingPrepared:
    """A prepared kernel whose timer is listened to; everything else is the inner one's."""

    def __init__(self, inner: Prepared, track: dict[str, Any], entry: dict[str, Any]) -> None:
        self._inner, self._entry = inner, entry
        timer: Timer = getattr(inner, "timer", None) or default_timer()
        take: dict[str, Any] = {"flags": [], "counts": [], "spans_s": []}
        entry["takes"].append(take)
        self.timer = RecordingTimer(timer, track, entry, take)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def verify(self) -> Check:
        try:
            check = self._inner.verify()
        except GpumicroError as error:
            self._entry |= {"status": "failed", "why": str(error)}
            raise
        self._entry["check"] = to_plain(asdict(check))
        return check

    def close(self) -> None:
        try:
            if not self._entry.get("facts"):
                self._entry["facts"] = to_plain(dict(self._inner.facts))
        finally:
            self._inner.close()

    def __enter__(self) -> RecordingPrepared:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _timer_key(timer: Timer) -> str:
    return "/".join(filter(None, (timer.name, str(getattr(timer, "cache", "")))))


def _kept_timer(track: dict[str, Any], timer: Timer) -> dict[str, Any]:
    key = _timer_key(timer)
    if key not in track["timers"]:
        tick = timer.tick()
        about = {name: to_plain(getattr(timer, name)) for name in ABOUT if getattr(timer, name, None)}
        track["timers"][key] = {
            "name": timer.name, "tick_s": tick.seconds, "lsb_s": tick.lsb_s, "how": tick.how, "overhead_s": [],
            "about": about,
        }  # fmt: skip
    kept: dict[str, Any] = track["timers"][key]
    return kept


class RecordingBackend:
    """A backend of one device that is listened to."""

    def __init__(self, inner: Backend, device: Device) -> None:
        self._inner = inner
        self.name = inner.name
        self.track: dict[str, Any] = {
            "device": device_to_json(device), "backend": inner.name, "refused": {}, "timers": {}, "measurements": {},
        }  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def availability(self) -> Availability:
        return self._inner.availability()

    def devices(self) -> tuple[Device, ...]:
        return self._inner.devices()

    def supports(self, spec: KernelSpec, dtype: str, device: Device) -> Availability:
        can = self._inner.supports(spec, dtype, device)
        if not can:
            self.track["refused"][f"{spec.name} {dtype}"] = can.reason
        return can

    def prepare(self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Prepared:
        """As the inner one's; a kernel that is prepared again goes on with the same entry."""
        key = measurement_id(spec, problem, execution, device.id, self.name)
        try:
            prepared = self._inner.prepare(spec, problem, execution, device)
        except GpumicroError as error:
            skipped = isinstance(error, (BackendUnavailable, OutOfMemory))
            why = {"status": "skipped" if skipped else "failed", "why": str(error)}
            self.track["measurements"].setdefault(key, why)
            raise
        fresh = {"status": "ok", "takes": [], "facts": {}, "loop": _loop(prepared)}
        entry = self.track["measurements"].setdefault(key, fresh)
        if entry["status"] != "ok":
            entry.update(fresh)
        listening: Any = RecordingPrepared(prepared, self.track, entry)
        listened: Prepared = listening
        return listened


def _loop(prepared: Prepared) -> str:
    from ._core.timing import Work

    return "native" if isinstance(prepared.work, Work) else "python"


def watch_record(watch: Watch, device: Device) -> dict[str, Any]:
    """What the watch of a finished run saw."""
    telemetry: Telemetry | None = getattr(watch, "telemetry", None)
    if telemetry is None:
        return {"kind": "cpu", "figures": watch.to_json(device.id)}
    begin_s, spent, readings, facts = watch.seen()  # type: ignore[attr-defined]
    others = telemetry.others()
    return {
        "kind": "gpu", "facts": to_plain(facts), "series": series_to_json(readings, begin_s),
        "counters": _counters(spent), "others": None if others is None else list(others), "why": dict(telemetry.why),
    }  # fmt: skip


def _counters(spent: Counters) -> dict[str, Any]:
    return {"t_s": spent.t_s, "energy_j": spent.energy_j, "limited_s": dict(spent.limited_s)}


def recording(
    tracks: Sequence[tuple[RecordingBackend, Watch, Device]], settings: Mapping[str, Any],
    environment: Mapping[str, Any], created: str,
) -> Recording:  # fmt: skip
    """The whole file of a run. A measurement without spans (the run was interrupted) is left out."""
    found = []
    for backend, watch, device in tracks:
        track = dict(backend.track)
        kept = {key: whole for key, entry in track["measurements"].items() if (whole := _whole(entry))}
        timers = {key: timer for key, timer in track["timers"].items() if timer["overhead_s"]}
        found.append(track | {"measurements": kept, "timers": timers, "watch": watch_record(watch, device)})
    return {
        "schema": SCHEMA, "synthetic": False, "gpumicro_version": __version__, "created": created,
        "settings": dict(settings), "environment": to_plain(environment), "devices": found,
    }  # fmt: skip


def _whole(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entry with the takes that have spans, None where there is none."""
    if entry["status"] != "ok":
        return {"status": entry["status"], "why": entry["why"]}
    takes = [take for take in entry["takes"] if take["spans_s"]]
    return {**entry, "takes": takes} if takes and entry.get("check") else None
