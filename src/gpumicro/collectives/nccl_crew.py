"""The ranks of one process on GPUs: NCCL moves their data, the devices' own clocks time it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .._core.timing import WallClock
from ..timers import FloatArray, Tick, Timer
from .buffers import Layout
from .crew import LOST, Interval, Taken
from .nccl_buffers import DeviceBuffers
from .ranks import Case, Control
from .settings import Settings


class DeviceCrew:
    """One rank on each device of this process.

    A run is a group of `aggregate` operations, captured `graph` times in a graph where that is asked. What is timed
    lies between two events on each device, behind a gate and a barrier of all ranks that stood in its stream before:
    no launch of a host is in it, and no rank's span begins before the last rank has come.
    """

    clock = "event, longest of the ranks"
    estimand = "isolated"
    loop = "native"
    skew_error_s = 0.0  # it comes from how long ranks wait, not from clocks of hosts

    def __init__(
        self, cuda: Any, communicators: Any, control: Control, cases: Sequence[Case], settings: Settings, *,
        timer: Timer, gated: bool, beat: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._nccl, self._communicators, self._control, self._settings = cuda.nccl, communicators, control, settings
        self._timer, self._gated, self._beat = timer, gated, beat
        self.size, self.unit = communicators.size, settings.unit
        self._clock = cuda.nccl.Clock(communicators)
        self._clock.phase_s = max(self._clock.phase_s, timer.tick().seconds)  # a step of the event clock
        largest = max((case.size_bytes for case in cases), default=0)
        self._buffers = [DeviceBuffers(cuda, device, largest) for device in communicators.devices]
        self._pool = ThreadPoolExecutor(len(self._buffers), "gpumicro-check")
        self._layouts: list[Layout] = []
        self._one: Any = None  # a single operation, which the check runs
        self._work: Any = None  # a run, which is timed
        self._kept: tuple[Any, ...] = ()

    # --- the data ---

    def load(self, case: Case) -> None:
        self._layouts = [Layout(case, rank, self.size, nccl=True) for rank in self._communicators.ranks]
        pairs = [data.addresses(layout) for data, layout in zip(self._buffers, self._layouts, strict=True)]
        send, receive = [list(addresses) for addresses in zip(*pairs, strict=True)]
        self._one = self._nccl.Collective(
            self._communicators, case.kind.name, case.dtype, case.counts.share, send, receive, case.op, case.root,
            self._buffers,
        )  # fmt: skip
        self._one.run(1)  # what NCCL connects or loads at the first call stands in no graph and no gate
        self._work = self._unit(self._one)

    def _unit(self, one: Any) -> Any:
        together = self._nccl.Group([one] * self._settings.aggregate) if self._settings.aggregate > 1 else one
        if not self._settings.graph:
            self._kept = (together,)
            return together.work
        together.run(1)
        graphs = self._nccl.Graphs(self._communicators, together.work)
        self._kept = (together, graphs)
        return graphs.replay(self._settings.graph)

    def fill(self) -> None:
        self._each(DeviceBuffers.fill)

    def wrong(self) -> int:
        return sum(self._each(DeviceBuffers.wrong))

    def _each(self, step: Callable[..., Any]) -> list[Any]:
        """Take a step on every device at once: the host's part of it is most of it."""
        case = self._layouts[0].case
        words = f"the data of {case.kind.name} of {case.size_bytes} B"
        return list(
            self._pool.map(step, self._buffers, self._layouts, [lambda: self._beat(words)] * len(self._buffers))
        )

    def run(self) -> object:
        self._one.run(1)
        return None

    # --- the time ---

    def sample(self, count: int) -> Taken:
        spans = self._clock.sample(self._work, np.ones(count, dtype=np.int64), self._gated)
        waits = np.asarray(self._clock.waits_s)
        lost = np.isnan(spans).any(axis=1)
        nanoseconds = np.rint(1e9 * np.where(np.isnan(spans), 0.0, spans)).astype(np.int64)
        waited = np.rint(1e9 * np.where(np.isnan(waits), 0.0, waits)).astype(np.int64)
        # Who came last waited least: times of arrival are the waits, the other way round.
        return Taken(
            np.where(lost, LOST, nanoseconds.max(axis=1)), nanoseconds.sum(axis=1),
            -waited.max(axis=1), -waited.min(axis=1),
        )  # fmt: skip

    def average(self, count: int) -> int:
        enqueue, clock = WallClock().sample, self._control.clock_ns
        enqueue(self._work, np.ones(1, dtype=np.int64))  # to warm up
        self._communicators.wait()
        self._control.barrier()
        begun = clock()
        enqueue(self._work, np.array([count], dtype=np.int64))
        self._communicators.wait()
        return (clock() - begun) * len(self._buffers)

    def call_overhead(self, case: Case) -> Interval | None:  # noqa: ARG002
        """None: the calls are made behind the gate."""
        return None

    def tick(self) -> Tick:
        return self._timer.tick()

    def overhead(self, n: int) -> FloatArray:
        """Two events with nothing between them, on rank 0's first device."""
        return self._timer.overhead(n)

    def take_flags(self) -> set[str]:
        take = getattr(self._timer, "take_flags", set[str])
        return set(take()) | (set() if self._gated else {"ungated"})

    def ungate(self) -> None:
        self._gated = False

    def close(self) -> None:
        """Wait for the others, give all back. Called by all processes."""
        self._kept, self._one, self._work = (), None, None
        self._communicators.close()
        self._pool.shutdown()
        for data in self._buffers:
            data.close()
