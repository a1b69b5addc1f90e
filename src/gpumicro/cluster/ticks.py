"""When to sample: at begin + k * interval, so that no delay adds up, and what a clock must offer for it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

from .. import children


class Clock(Protocol):
    """Time and waiting, real or scripted."""

    def now(self) -> float:
        """Seconds that only go forward."""

    def unix(self) -> float:
        """Seconds since 1970, UTC."""

    def cpu(self) -> float:
        """Seconds of CPU time that this process has used, all threads together."""

    def wait(self, seconds: float, pid: int | None) -> bool:
        """Wait so long, or until that child has ended: then True. It is not waited for."""


class SystemClock:
    """The machine's."""

    def now(self) -> float:
        return time.monotonic()

    def unix(self) -> float:
        return datetime.now(timezone.utc).timestamp()

    def cpu(self) -> float:
        return time.process_time()

    def wait(self, seconds: float, pid: int | None) -> bool:
        if pid is not None:
            return children.ends_within(pid, seconds)
        time.sleep(seconds)
        return False


@dataclass
class Ticks:
    """The moments begin + k * interval. Those that had passed when a sample was done are missed, not made up for."""

    begin_s: float
    interval_s: float
    index: int = 0
    missed: int = 0

    def next_after(self, now_s: float) -> float:
        """The moment of the next sample."""
        wanted = max(self.index + 1, math.ceil((now_s - self.begin_s) / self.interval_s))
        self.missed += wanted - self.index - 1
        self.index = wanted
        return self.begin_s + wanted * self.interval_s
