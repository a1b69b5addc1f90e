"""The native clock of a GPU: where it comes from, what it needs, and what must not be attached while it is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from . import cuda_native
from .errors import BackendUnavailable
from .timers import Counts, FloatArray

CacheState = Literal["hot", "cold"]

EVICT_OVER_L2 = 2  # by reading twice its size nothing else is left in a cache of any usual policy
QUEUE_LIMIT = 500  # runs behind a closed gate: near a thousand launches the host waits for room in the queue
WHOLE = 1 << 60  # where any number of runs is one launch

# Variables that profilers and debuggers set in the processes they start. They serialise kernels, so a gate would never
# be passed.
_PROFILERS = ("CUDA_INJECTION64_PATH", "NSYS_", "NV_NSIGHT_INJECTION", "NV_COMPUTE_PROFILER", "CUDA_COREDUMP_PIPE")


def profiler(environment: Mapping[str, str] = os.environ) -> str:
    """The variable that betrays an attached profiler or forbids queued launches, "" where there is none."""
    if environment.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        return "CUDA_LAUNCH_BLOCKING"
    return next((name for name in environment if name.startswith(_PROFILERS) and environment[name]), "")


class Clock(Protocol):
    """The native clock: `_cuda.timing.EventClock`. Tests have a fake one."""

    gate_timeout_s: float
    phase_s: float

    @property
    def walls_s(self) -> FloatArray:
        """Of each span of the last sample: host's seconds from the gate's opening to the end."""

    def now(self) -> float: ...

    def gate_holds(self) -> bool: ...

    def sample(self, work: Any, counts: Counts, gated: bool = True, queue_limit: int = QUEUE_LIMIT) -> FloatArray:
        """Seconds of each span; NaN where its gate timed out. The gate opens early after `queue_limit` runs."""


def native() -> Any:
    """The native timers, `_cuda.timing`. BackendUnavailable where there is no CUDA module."""
    return cuda_native.load().timing


def native_clock(
    device: int, cache: CacheState, *, gate_timeout_s: float, watchdog_s: float, seed: int, stream: int | None = None
) -> Clock:
    """The native clock of a device; `stream` is the handle of the stream it times, None for the measuring stream.

    BackendUnavailable where there is no CUDA.
    """
    cuda = cuda_native.load()
    found = cuda.probe()
    if device >= found["count"]:
        raise BackendUnavailable(f"there is no CUDA device {device} ({found['text'] or 'none found'})")
    facts = cuda.device_facts(device)
    # A stand-in that interprets kernels is no device whose caches or clock anyone would warm or cool.
    evict_bytes = 1 << 16 if facts["emulated"] else EVICT_OVER_L2 * int(facts["l2_bytes"])
    clock: Clock = cuda.timing.EventClock(
        device,
        cold=cache == "cold",
        evict_bytes=max(evict_bytes, 1 << 16),
        filler_s=0.0 if facts["emulated"] else 20e-6,
        gate_timeout_s=gate_timeout_s,
        watchdog_s=watchdog_s,
        seed=seed,
        stream=stream,
    )
    return clock
