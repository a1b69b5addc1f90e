"""A GPU's clock read through Numba's events, for machines with neither the CUDA module nor CuPy. It has no gate."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ..device_clock import QUEUE_LIMIT
from ..numba_kernels import load_cuda
from ..timers import Counts, FloatArray


class NumbaClock:
    """A `device_clock.Clock`: seconds between two events around work that the host enqueues meanwhile.

    Without a gate the host's launches are in a span wherever the device waits for them: EventTimer flags it "ungated".
    Every launch must be on `numba_stream`. A cold cache is not to be had.
    """

    loop = "python"
    gate_timeout_s = 1.0
    phase_s = 0.0

    def __init__(self, device: int) -> None:
        cuda = load_cuda()
        self._gpu, self.walls_s = cuda.gpus[device], np.zeros(0)
        with self._gpu:
            self.numba_stream = cuda.stream()
            self._start, self._stop = cuda.event(), cuda.event()

    def now(self) -> float:
        """Seconds on the host's clock, from an arbitrary origin."""
        return 1e-9 * time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def gate_holds(self) -> bool:
        """False: there is none."""
        return False

    def spin(self, step_cycles: int) -> Any:
        """The work that a tick is looked for with: `step_cycles` is about what one empty launch takes."""
        del step_cycles
        empty = load_cuda().jit(lambda: None)
        return lambda: empty[1, 1, self.numba_stream]()

    def sample(self, work: Any, counts: Counts, gated: bool = True, queue_limit: int = QUEUE_LIMIT) -> FloatArray:  # noqa: ARG002
        """Seconds of each span; `work` is None or a callable that enqueues one run."""
        spans, self.walls_s = np.zeros(len(counts)), np.zeros(len(counts))
        with self._gpu:
            for i, runs in enumerate(np.asarray(counts).tolist()):
                began_s = self.now()
                self._start.record(self.numba_stream)
                for _ in range(runs if work is not None else 0):
                    work()
                self._stop.record(self.numba_stream)
                self._stop.synchronize()
                spans[i] = 1e-3 * self._start.elapsed_time(self._stop)
                self.walls_s[i] = self.now() - began_s
        return spans
