from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .._core.timing import Work

class EventClock:
    """Two events around work behind a gate, on the device's measuring stream or on `stream`, by its handle."""

    def __init__(
        self,
        device: int,
        *,
        cold: bool = False,
        evict_bytes: int = 0,
        filler_s: float = 2e-5,
        gate_timeout_s: float = 1.0,
        watchdog_s: float = 30.0,
        phase_s: float = 1.1e-6,
        seed: int = 1,
        stream: int | None = None,
    ) -> None: ...
    gate_timeout_s: float
    phase_s: float
    @property
    def walls_s(self) -> npt.NDArray[np.float64]:
        """Of each span of the last sample: host's seconds from the gate's opening to the end."""
    @property
    def stream(self) -> int: ...
    def now(self) -> float: ...
    def gate_holds(self) -> bool:
        """Whether the host can go on while a gate is closed."""
    def sample(
        self,
        work: Work | Callable[[], object] | None,
        counts: npt.NDArray[np.int64],
        gated: bool = True,
        queue_limit: int = 500,
    ) -> npt.NDArray[np.float64]:
        """Seconds of each span; NaN where its gate timed out. The gate opens early after `queue_limit` runs."""

class Graphs:
    """Graphs of so many runs of one work each. Without `keep` the caller sees to it that the work lives as long."""

    def __init__(
        self, device: int, work: Work | Callable[[], object], keep: bool = True, stream: int | None = None
    ) -> None: ...
    def capture(self, runs: int) -> None: ...
    def nodes(self, runs: int) -> int: ...
    @property
    def work(self) -> Work:
        """n runs are one replay of the graph of n runs."""
    def replay(self, runs: int) -> Work:
        """n runs are n replays of the graph of `runs` runs."""

def is_hung(device: int) -> bool: ...
def set_hung(device: int, hung: bool) -> None: ...
def copy(device: int, to: int, source: int, size_bytes: int, direction: str, keep: object) -> Work:
    """Copies on the measuring stream; direction is "h2d", "d2h" or "d2d"."""

def copy_both(device: int, to_device: tuple[int, int], to_host: tuple[int, int], size_bytes: int, keep: object) -> Work:
    """Copies in both directions at once; each pair is (to, from)."""

def copy_peer(from_device: int, to_device: int, to: int, source: int, size_bytes: int, keep: object) -> Work: ...

class PeerAccess:
    """Direct access of two devices to each other's memory, on or off, until this is gone."""

    def __init__(self, a: int, b: int, wanted: bool) -> None: ...
    @staticmethod
    def possible(a: int, b: int) -> bool: ...

def spin(device: int, step: int, of_cycles: bool = False) -> Work:
    """One kernel that spins for n times `step` ns, or cycles."""

def malloc_free(device: int, size_bytes: int) -> Work: ...

class Pool:
    """A memory pool that gives nothing back; its work is a pair of allocation and release on the stream."""

    def __init__(self, device: int, size_bytes: int) -> None: ...
    @property
    def work(self) -> Work: ...
    @property
    def reserved_bytes(self) -> int: ...
    @property
    def most_used_bytes(self) -> int: ...

def prefetch(device: int, address: int, size_bytes: int, keep: object) -> Work:
    """Managed memory to the device and back."""

def touch(device: int, address: int, size_bytes: int, page_bytes: int, keep: object) -> Work:
    """A kernel, then the host, adds 1 to the first word of each page of managed memory."""

def synced(device: int, work: Work | None, each: bool = True) -> Work:
    """The work and a wait for the stream after each run, or after all."""

def event_trip(device: int) -> Work:
    """An event is recorded and waited for."""

def rotation(works: list[Work], keep: object) -> Work:
    """The works in turn."""
