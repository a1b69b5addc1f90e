"""What timers are given to run through CuPy: an object that does n runs at one call."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._core import timing as core
from . import calls
from .calls import OnDevice, told, translated
from .found import runtime
from .memory import measuring_stream

NO_TIMING = 0x02  # cudaEventDisableTiming


class Work:
    """Something that a timer can run; a child says what `_run(n)` does. keep: objects whose memory it uses."""

    loop = "python"
    call = ""  # of CUDA's, for errors

    def __init__(self, device: int, keep: Any = None, stream: int | None = None) -> None:
        self.device, self._keep = device, keep
        self._stream = measuring_stream(device) if stream is None else stream

    def __call__(self) -> None:
        self.enqueue(1)

    def enqueue(self, n: int) -> None:
        """Do it n times, or enqueue it n times on the stream."""
        with OnDevice(self.device), told(self.call):
            self._run(n)

    def _run(self, n: int) -> None:
        raise NotImplementedError


def run_work(work: Any, n: int) -> None:
    """Run whatever a timer was given n times: one of ours enqueues all at once, a native one runs natively.

    CUDA's errors come as CudaError or OutOfMemory, whatever else a callable raises as it is.
    """
    if work is None or n == 0:
        return
    if isinstance(work, Work):
        work.enqueue(n)
        return
    try:
        if isinstance(work, core.Work):
            core.WallClock().sample(work, np.array([n], np.int64))
            return
        for _ in range(n):
            work()
    except runtime().CUDARuntimeError as error:
        raise translated(error, "the work") from error


def destroy_with(owner: object, device: int, streams: Sequence[int], events: Sequence[int]) -> None:
    """Destroy these when their owner goes."""
    weakref.finalize(owner, _destroy, runtime(), device, streams, events)


def _destroy(cuda: Any, device: int, streams: Sequence[int], events: Sequence[int]) -> None:
    destroy_quietly(device, [(cuda.streamDestroy, s) for s in streams] + [(cuda.eventDestroy, e) for e in events])


def destroy_quietly(device: int, steps: Sequence[tuple[Any, int]]) -> None:
    """On a lost context nothing can be destroyed, and what a hung kernel uses is not to be waited for."""
    if calls.is_hung(device):
        return
    for destroy, handle in steps:
        try:
            destroy(handle)
        except RuntimeError:
            return
