"""A GPU's clock whose truth is chosen, and works for it: what device timers and their rules are tested with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumicro.errors import CudaError

FloatArray = npt.NDArray[np.float64]


@dataclass(eq=False)
class DeviceWork:
    """Work that a FakeEventClock knows how to time; `work` is itself, as a Prepared's is something to run."""

    true_s: float
    spread: float = 0.01
    syncs: bool = False  # waits for the device inside: never gets past a closed gate
    hangs_at: float = np.inf  # spans until it hangs
    bend: float = 0.0  # runs of a longer chain cost more each, by this share per doubling
    escapes_s: float = 0.0  # on another stream, which the events do not see and the host does
    runs: int = 0

    def __call__(self) -> None:
        raise AssertionError("only the fake clock runs it")


@dataclass
class FakeEventClock:
    """Ticked float32 milliseconds at a random phase, as cudaEventElapsedTime gives them, and the host's time beside."""

    tick_s: float = 1024e-9
    empty_s: float = 1.7e-6
    empty_sd_s: float = 1e-7
    latency_s: float = 8e-6  # of the host: from the gate's opening, and back
    launch_s: float = 0.0  # of the host, in spans without a gate
    replay_s: float = 0.0  # fixed cost of a graph's replay
    timeouts: list[int] = field(default_factory=list)  # gated spans, by number, whose gate lets go by itself
    always_expired: bool = False
    holds: bool = True
    seed: int = 0
    gate_timeout_s: float = 1.0
    phase_s: float = 0.0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.t = 0.0
        self.walls_s: FloatArray = np.zeros(0)
        self.gated_spans = 0
        self.spans = 0
        self.asked: list[tuple[Any, int, bool, int]] = []  # (work, runs, gated, queue limit) of each span

    def now(self) -> float:
        return self.t

    def gate_holds(self) -> bool:
        return self.holds

    def sample(self, work: Any, counts: Any, gated: bool = True, queue_limit: int = 500) -> FloatArray:
        spans = np.zeros(len(counts))
        self.walls_s = np.zeros(len(counts))
        for i, count in enumerate(np.asarray(counts).tolist()):
            self.asked.append((work, count, gated, queue_limit))
            spans[i], self.walls_s[i] = self.span(work, count, gated)
        return spans

    def span(self, work: Any, count: int, gated: bool) -> tuple[float, float]:
        self.spans += 1
        took = self.empty_s + self.empty_sd_s * self.rng.normal()
        beside = 0.0
        if work is not None:
            took += self.runs_of(work, count)
            beside = work.escapes_s
        if not gated:
            took += self.launch_s
        wall = took + beside + self.latency_s * self.rng.uniform(0.9, 1.1)
        expired = gated and (self.always_expired or self.gated_spans in self.timeouts or (work and work.syncs))
        self.gated_spans += gated
        self.t += wall + (self.gate_timeout_s if expired else 0.0)
        return (np.nan if expired else self.read(took)), wall

    def runs_of(self, work: DeviceWork, count: int) -> float:
        if self.spans > work.hangs_at:
            raise CudaError("cudaEventQuery", 702, "cudaErrorLaunchTimeout", "the kernel hangs", lost=True)
        work.runs += count
        once = work.true_s * (1.0 + work.bend * np.log2(max(count, 1)))
        return self.replay_s + count * once * (1.0 + work.spread * self.rng.normal())

    def read(self, took: float) -> float:
        """The span between two readings on the tick's grid, in float32 milliseconds."""
        if self.tick_s > 0:
            begin = self.rng.uniform(0.0, 1.0)
            took = self.tick_s * np.floor(begin + took / self.tick_s)
        return 1e-3 * float(np.float32(1e3 * took))


class FakeGraphs:
    """What `_cuda.timing.Graphs` is to a native work that it does not keep; its lengths are noted."""

    def __init__(self, work: DeviceWork) -> None:
        self.work = replace(work, syncs=False)  # the replay takes as long
        self.captured: set[int] = set()
        self._waits = work.syncs

    def capture(self, runs: int) -> None:
        if self._waits:
            raise CudaError("cudaStreamEndCapture", 901, "cudaErrorStreamCaptureInvalidated", "it synchronises")
        self.captured.add(runs)
