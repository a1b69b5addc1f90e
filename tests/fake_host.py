"""A scripted machine for the monitor: a clock that moves when it is told, and psutil's counters as functions of it."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

Times = namedtuple("Times", "user system idle iowait steal guest")


class FakeClock:
    """Waiting moves it; `ends_s` is when the watched child ends."""

    def __init__(self, ends_s: float | None = None) -> None:
        self.t_s, self.ends_s = 100.0, ends_s
        self.waits: list[float] = []

    def now(self) -> float:
        return self.t_s

    def unix(self) -> float:
        return 1.7e9 + self.t_s

    def cpu(self) -> float:
        return 0.01 * self.t_s

    def wait(self, seconds: float, pid: int | None) -> bool:
        self.waits.append(seconds)
        end = self.ends_s if pid is not None else None
        if end is not None and self.t_s + seconds >= end:
            self.t_s = max(self.t_s, end)
            return True
        self.t_s += seconds
        return False


class FakePsutil:
    """Counters that grow evenly with the clock: shares of one CPU's time, bytes a second."""

    def __init__(
        self, clock: FakeClock, *, busy: float = 0.4, iowait: float = 0.0, steal: float = 0.0, memory: float = 0.5,
        read: float = 1e6, disk_busy: float = 0.2, received: Callable[[float], float] = lambda t: 2e6 * t,
        slow: Callable[[float], float] = lambda _: 0.0,
    ) -> None:  # fmt: skip
        self.clock, self.busy, self.iowait, self.steal, self.memory = clock, busy, iowait, steal, memory
        self.read, self.disk_busy, self.received, self.slow = read, disk_busy, received, slow

    def cpu_times(self, percpu: bool = False) -> Any:
        t = self.clock.t_s
        idle = 1 - self.busy - self.iowait - self.steal
        one = Times(0.75 * self.busy * t, 0.25 * self.busy * t, idle * t, self.iowait * t, self.steal * t, 0.1 * t)
        both = Times(*(2 * part for part in one))
        return [one, one] if percpu else both

    def virtual_memory(self) -> Any:
        self.clock.t_s += self.slow(self.clock.t_s)  # reading takes time
        return SimpleNamespace(total=64e9, available=64e9 * (1 - self.memory))

    def disk_io_counters(self, perdisk: bool) -> Any:
        assert perdisk
        t = self.clock.t_s
        one = SimpleNamespace(read_bytes=self.read * t, write_bytes=0.0, busy_time=1e3 * self.disk_busy * t)
        return {"sda": one, "sda1": one, "md0": one}

    def net_io_counters(self, pernic: bool) -> Any:
        assert pernic
        t = self.clock.t_s
        lo = SimpleNamespace(bytes_recv=9e9 * t, bytes_sent=9e9 * t)
        return {"lo": lo, "eth0": SimpleNamespace(bytes_recv=self.received(t), bytes_sent=1e6 * t)}
