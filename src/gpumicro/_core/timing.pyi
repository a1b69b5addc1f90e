from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

class Work:
    """Native work: what a timer runs n times in a row. Keeps its owner alive."""

    @property
    def owner(self) -> object: ...

def capsule_work(capsule: object) -> Work:
    """The C function in a PyCapsule, called with the capsule's context; the name is the signature."""

def native_work(address: int, signature: str, context: int, owner: object) -> Work:
    """The C function at `address`; signature "void (void)", "void (void *)" or "void (void *, int64_t)"."""

def spin_work() -> Work:
    """A dependent chain of about a nanosecond a run."""

def tsc_facts() -> tuple[float, str]:
    """Rate of the time-stamp counter in Hz (0.0 where it is unusable), and why it is unusable ("" where it is not)."""

class WallClock:
    def now(self) -> float: ...
    def sample(
        self, work: Work | Callable[[], object] | None, counts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]: ...

class TscClock:
    def now(self) -> float: ...
    def sample(
        self, work: Work | Callable[[], object] | None, counts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]: ...

class FakeWork:
    """Work of a chosen duration and noise; only a FakeTimer can run it."""

    def __init__(
        self,
        true_s: float,
        *,
        law: str = "normal",
        spread: float = 0.02,
        rho: float = 0.0,
        spike_probability: float = 0.0,
        spike_factor: float = 3.0,
        second_share: float = 0.3,
        second_factor: float = 1.04,
    ) -> None: ...
    @property
    def true_s(self) -> float: ...

class FakeClock:
    def __init__(
        self,
        *,
        tick_s: float,
        overhead_s: float,
        overhead_sd_s: float,
        float32_ms: bool,
        sag: float,
        sag_time_s: float,
        walk: float,
        seed: int,
    ) -> None: ...
    def now(self) -> float: ...
    def sample(self, work: FakeWork | None, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]: ...
