"""The monitor: samples of GPUs and host on a schedule that does not drift, what they cost, and what they say."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from ..environment import collect
from ..errors import UsageError
from ..nvml import REASONS
from ..result import Document, document, or_why
from ..telemetry import Counters
from ..watch import throttle_events
from ..watch_gpu import state_flags
from . import metrics
from .advice import Advice, Thresholds, gpu_advice, host_advice
from .gpu_state import GpuCounters, GpuReader, energy_of, find_gpus, gpu_values
from .host_state import HostCounters, HostReader, cpu_energy_j, host_values
from .series import Energy, Series
from .ticks import Clock, SystemClock, Ticks
from .watched_command import WatchedCommand

LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.02, 3600.0


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """How often, how long, on which GPUs, and what is run meanwhile."""

    interval_s: float = 1.0
    duration_s: float | None = None  # None: until the command ends, or an interruption
    command: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # indices or UUIDs; none: all
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        if not LEAST_INTERVAL_S <= self.interval_s <= MOST_INTERVAL_S:
            raise UsageError(
                f"--interval must be {LEAST_INTERVAL_S:g} to {MOST_INTERVAL_S:g} seconds, not {self.interval_s:g}"
            )
        if self.duration_s is not None and not 0 < self.duration_s < math.inf:
            raise UsageError(f"--duration must be a positive number of seconds, not {self.duration_s:g}")
        if self.duration_s is not None and self.command:
            raise UsageError(
                "--duration is without a command: a command is watched to its end (timeout 60 CMD ends it)"
            )


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment. `host` and each of `gpus` hold the values of metrics.HOST and metrics.GPU since the sample before."""

    t_s: float  # since the begin
    unix_s: float
    host: Mapping[str, float | None]
    gpus: tuple[Mapping[str, float | None], ...]
    reasons: tuple[tuple[str, ...], ...]  # of each GPU: what holds its clock back
    energies_j: tuple[float | None, ...]  # of each GPU, since the begin
    seconds: float  # that taking it took
    missed: int


@dataclass(frozen=True, slots=True)
class MonitorResult:
    """`document` is the result file; `exit_code` the command's, None without one."""

    samples: int
    duration_s: float
    advice: tuple[Advice, ...]
    exit_code: int | None
    document: Document


class _Watched:
    """One GPU over the time."""

    def __init__(self, reader: GpuReader) -> None:
        self.reader = reader
        self.series = Series(metrics.GPU)
        self.energy = Energy()
        self.held = dict.fromkeys(REASONS.values(), 0)
        self.told = 0  # samples that told reasons
        self.last: GpuCounters | None = None
        self.before = Counters(0.0)
        self.spent = Counters(0.0)

    def take(self, t_s: float, begin_s: float) -> tuple[Mapping[str, float | None], tuple[str, ...]]:
        now, before = self.reader.read(t_s), self.last
        self.last = now
        if before is None:
            return {}, ()
        values = gpu_values(now, before)
        seconds = now.reading.t_s - before.reading.t_s
        self.energy.add(seconds, *energy_of(now, before))
        bits = now.reading.reasons
        reasons = tuple(word for bit, word in REASONS.items() if bits is not None and bits & bit)
        self.told += bits is not None
        for reason in reasons:
            self.held[reason] += 1
        self.series.add(t_s - begin_s, seconds, values, now.reading)
        return values, reasons

    @property
    def shares(self) -> dict[str, float]:
        """Of the samples that told reasons, the share with each."""
        return {reason: count / self.told for reason, count in self.held.items() if count}

    def flags(self, begin_s: float) -> tuple[str, ...]:
        return state_flags(self.series.extra, self.spent, begin_s)


class MonitorRun:
    """One watch. What was seen stays in it, however it ends."""

    def __init__(
        self, settings: MonitorSettings, *, host: HostReader | None = None, library: Any = None,
        clock: Clock | None = None, sinks: Sequence[Callable[[Sample], None]] = (),
    ) -> None:  # fmt: skip
        self.settings, self.sinks = settings, list(sinks)
        self.clock = clock or SystemClock()
        self.host_reader = host or HostReader()
        readers, self.no_gpu = find_gpus(settings.gpus, library)
        self.gpus = [_Watched(reader) for reader in readers]
        self.host = Series(metrics.HOST)
        self.cpu_energy = Energy()
        self.command = WatchedCommand(settings.command) if settings.command else None
        self.samples = 0
        self.interrupted = False
        self._sampling_s: list[float] = []
        self._last: HostCounters | None = None
        self._begin_s = self._begin_unix_s = self._duration_s = self._cost_s = 0.0
        self._throttled: int | None = None

    def run(self) -> None:
        """Watch until the duration is over, the command has ended, or an interruption, which is raised again."""
        throttled, spent_s = throttle_events(), self.clock.cpu()
        with ExitStack() as stack:
            stack.callback(self._close)
            if self.command is not None:
                stack.enter_context(self.command.running())
            self._begin_s, self._begin_unix_s = self.clock.now(), self.clock.unix()
            self._read(self._begin_s)  # rates begin here
            for gpu in self.gpus:
                gpu.before = gpu.reader.counters()
            try:
                self._loop()
            except KeyboardInterrupt:
                self.interrupted = True
                raise
            finally:
                self._duration_s = self.clock.now() - self._begin_s
                self._cost_s = self.clock.cpu() - spent_s
                for gpu in self.gpus:
                    gpu.spent = gpu.reader.counters().since(gpu.before)
                after = throttle_events()
                self._throttled = None if after is None or throttled is None else after - throttled

    def _loop(self) -> None:
        ticks = Ticks(self._begin_s, self.settings.interval_s)
        end_s = math.inf if self.settings.duration_s is None else self._begin_s + self.settings.duration_s
        pid = self.command.pid if self.command else None
        over = False
        while not over:
            due_s = min(ticks.next_after(self.clock.now()), end_s)
            ended = self.clock.wait(max(0.0, due_s - self.clock.now()), pid)
            over = ended or due_s >= end_s
            self._sample(ticks)

    def _sample(self, ticks: Ticks) -> None:
        now_s = self.clock.now()
        host, gpus = self._read(now_s)
        seconds = self.clock.now() - now_s
        self._sampling_s.append(seconds)
        if len(self._sampling_s) > 4096:
            del self._sampling_s[::2]
        self.samples += 1
        sample = Sample(
            now_s - self._begin_s, self.clock.unix(), host, tuple(values for values, _ in gpus),
            tuple(reasons for _, reasons in gpus), tuple(gpu.energy.joules for gpu in self.gpus), seconds, ticks.missed,
        )  # fmt: skip
        for sink in self.sinks:
            sink(sample)

    def _read(self, now_s: float) -> tuple[Mapping[str, float | None], list[Any]]:
        now, before = self.host_reader.read(now_s), self._last
        self._last = now
        gpus = [gpu.take(now_s, self._begin_s) for gpu in self.gpus]
        if before is None:
            return {}, gpus
        values = host_values(now, before)
        self.cpu_energy.add(now.t_s - before.t_s, cpu_energy_j(now, before), None)
        self.host.add(now_s - self._begin_s, now.t_s - before.t_s, values)
        return values, gpus

    def _close(self) -> None:
        for gpu in self.gpus:
            gpu.reader.close()

    def advice(self) -> list[Advice]:
        """The verdicts of GPUs, then of the host."""
        limits = self.settings.thresholds
        found = []
        for gpu in self.gpus:
            flags = gpu.flags(self._begin_s)
            found += gpu_advice(f"gpu {gpu.reader.index}", gpu.series, self.host, flags, gpu.shares, limits)
        return [*found, *host_advice(self.host, bool(self.gpus), self._throttled, limits)]

    def result(self) -> MonitorResult:
        """What was seen until now."""
        ended = self.command.ended if self.command else None
        advice = self.advice()
        return MonitorResult(
            self.samples, self._duration_s, tuple(advice), ended.exit_code if ended else None, self._document(advice)
        )

    def _document(self, advice: Sequence[Advice]) -> Document:
        environment = collect()
        cpu = (environment.get("cpu") or {}).get("name") or "CPU"
        doc = document(
            argv=sys.argv[1:],
            devices=[
                {"id": "host", "kind": "cpu", "name": str(cpu)},
                *({"id": f"gpu:{gpu.reader.index}", "kind": "gpu", "name": gpu.reader.name, "uuid": gpu.reader.uuid}
                  for gpu in self.gpus),
            ],
            measurements=[],
            notes=self._notes(),
            settings={"interval_s": self.settings.interval_s, "thresholds": self.settings.thresholds.to_json()},
            environment=environment,
            interrupted=self.interrupted,
            emulated=False,
        )  # fmt: skip
        ended = self.command.ended if self.command else None
        command = {"argv": list(self.settings.command), **asdict(ended)} if ended else None
        doc["monitor"] = {
            "begin_unix_s": self._begin_unix_s, "duration_s": self._duration_s, "samples": self.samples,
            "cost": self._cost(), **or_why("command", command, "none was run"),
            "host": self._host_json(),
            "gpus": [self._gpu_json(gpu) for gpu in self.gpus],
            **({} if self.gpus else {"gpus_why": self.no_gpu}),
            "verdicts": [asdict(one) for one in advice],
        }  # fmt: skip
        return doc

    def _notes(self) -> list[str]:
        notes = [] if self.gpus else [f"No GPU was watched, the host alone: {self.no_gpu}."]
        if self.samples < 10:
            notes.append(f"{self.samples} samples: percentiles of so few say little; take a shorter --interval.")
        return notes

    def _cost(self) -> dict[str, Any]:
        """What the watching took: seconds of a sample, and the share of one CPU."""
        ordered = sorted(self._sampling_s)
        middle = ordered[len(ordered) // 2] if ordered else None
        share = self._cost_s / self._duration_s if self._duration_s > 0 else None
        return {
            **or_why("sample_s", middle, "no sample was taken"), "cpu_s": self._cost_s,
            **or_why("cpu_fraction", share, "no time passed"),
        }  # fmt: skip

    def _host_json(self) -> dict[str, Any]:
        why = self.host_reader.why
        return {
            "metrics": self.host.spreads(why), **self.cpu_energy.to_json(why.get("cpu_energy_j", "")),
            **or_why("throttled", self._throttled, "no thermal_throttle counters in sysfs"),
            "series": self.host.columns(),
        }  # fmt: skip

    def _gpu_json(self, gpu: _Watched) -> dict[str, Any]:
        reader = gpu.reader
        return {
            "index": reader.index, "uuid": reader.uuid, "name": reader.name, "facts": reader.facts,
            "metrics": gpu.series.spreads(reader.why),
            **gpu.energy.to_json(reader.why.get("energy_j") or reader.why.get("power_w") or ""),
            "held_back": gpu.shares, "flags": list(gpu.flags(self._begin_s)), "series": gpu.series.columns(),
        }  # fmt: skip


def monitor(
    *, interval_s: float = 1.0, duration_s: float | None = None, command: Sequence[str] = (), gpus: Sequence[str] = (),
    thresholds: Thresholds | None = None, sinks: Sequence[Callable[[Sample], None]] = (),
) -> MonitorResult:  # fmt: skip
    """Watch GPUs and host for `duration_s`, or while `command` runs; give what was seen and what it says.

    interval_s: between samples. gpus: indices or UUIDs as NVML has them; none: all. sinks: each is called with every
    Sample. Without a GPU the host alone is watched. BackendUnavailable: no psutil. UsageError: no such GPU or command.
    """
    if duration_s is None and not command:
        raise UsageError("give a duration_s or a command: without them it would never end")
    run = MonitorRun(
        MonitorSettings(interval_s, duration_s, tuple(command), tuple(gpus), thresholds or Thresholds()), sinks=sinks
    )
    run.run()
    return run.result()
