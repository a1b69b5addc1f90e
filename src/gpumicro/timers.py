"""Clocks with one face: how coarse they are, what an empty region costs, how long work takes. No statistics rule here
decides anything; that is measure.py's part.

A timer's `sample` is one native loop for every clock. The GIL is released while native work runs.
"""

from __future__ import annotations

import ctypes
import inspect
from _ctypes import CFuncPtr
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from . import stats
from ._core import timing as native
from .errors import BackendUnavailable, UsageError

FloatArray = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
FakeWork = native.FakeWork
Runnable: TypeAlias = "native.Work | FakeWork | Callable[[], object]"

_PYTHON_API = 4  # FUNCFLAG_PYTHONAPI: the function wants the GIL
DITHER = np.tile(np.arange(64, dtype=np.int64), 32)  # 2,048 spans of 64 lengths, to see the tick by


@dataclass(frozen=True, slots=True)
class Tick:
    """How coarse a clock is. `lsb_s`: all readings are multiples of it; `seconds`: how far apart they really lie.
    Both 0.0 where no grid was found."""

    seconds: float
    lsb_s: float
    how: str


def tick_of(spans: FloatArray) -> Tick:
    """The tick that shows in the spans (seconds) of `DITHER`'s runs."""
    lsb, step = stats.detect_tick(spans)
    return Tick(step, lsb, "gcd and step of 2048 spans of 64 lengths" if lsb else "no grid found")


class Timer(Protocol):
    """A clock that times work.

    One on a device may also have `estimand` ("isolated", "period"; else "host"), `cache` ("cold" where it evicts),
    `ladder` (lengths of its spans, where it measures a slope), `largest_batch` and `take_flags()`.
    """

    name: str

    def tick(self) -> Tick: ...

    def overhead(self, n: int = 256) -> FloatArray:
        """n spans of an empty region, in seconds."""

    def now(self) -> float:
        """Seconds on this timer's clock, from an arbitrary origin."""

    def sample(self, work: Any, counts: npt.ArrayLike) -> FloatArray:
        """Whole-span seconds: span i runs the work counts[i] times. Overhead is in it."""

    def throttled_s(self) -> float:
        """Seconds, since an arbitrary origin, in which the system held this process or its clock back."""


class _Timer:
    """What the timers share; a child sets `name`, `_clock` and `_spin`."""

    name: str
    _clock: native.WallClock | native.TscClock | native.FakeClock
    _spin: Any
    _tick: Tick | None = None

    def tick(self) -> Tick:
        """LSB and effective step, found once from 2,048 spans of 64 lengths."""
        if self._tick is None:
            self._tick = tick_of(self._clock.sample(self._spin, DITHER))
        return self._tick

    def overhead(self, n: int = 256) -> FloatArray:
        """n spans of an empty region, in seconds."""
        return self._clock.sample(None, np.zeros(n, dtype=np.int64))

    def now(self) -> float:
        """Seconds on this timer's clock, from an arbitrary origin."""
        return self._clock.now()

    def sample(self, work: Any, counts: npt.ArrayLike) -> FloatArray:
        """Whole-span seconds, float64[k]: span i runs `work` counts[i] times, the timer's own overhead included.

        `work` is whatever `as_work` takes. Ctrl-C and exceptions of the work end it between two spans.
        """
        return self._clock.sample(self._runnable(work), np.asarray(counts, dtype=np.int64))

    def throttled_s(self) -> float:
        """Seconds in which the system held this process back; 0.0 where nothing tells."""
        return 0.0

    def _runnable(self, work: Any) -> Any:
        return as_work(work)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _HostTimer(_Timer):
    def throttled_s(self) -> float:
        """Seconds in which the cgroup's CPU quota stopped this process; 0.0 where nothing tells."""
        try:
            with open("/sys/fs/cgroup/cpu.stat") as file:  # noqa: PTH123  (a Path costs more than the read)
                fields = dict(line.split() for line in file)
            return 1e-6 * int(fields["throttled_usec"])
        except (OSError, KeyError, ValueError):
            return 0.0

    def _runnable(self, work: Any) -> Any:
        runnable = as_work(work)
        if isinstance(runnable, FakeWork):
            raise UsageError("FakeWork takes fake time only: give it to a FakeTimer")
        return runnable


class WallTimer(_HostTimer):
    """CLOCK_MONOTONIC_RAW, read natively."""

    name = "wall"

    def __init__(self) -> None:
        self._clock, self._spin = native.WallClock(), native.spin_work()


class TscTimer(_HostTimer):
    """The processor's time-stamp counter between fences (x86-64), or the Arm generic timer.

    Raises BackendUnavailable where the counter is no clock: not invariant, or not the kernel's clock source.
    """

    name = "tsc"

    def __init__(self) -> None:
        reason = native.tsc_facts()[1]
        if reason:
            raise BackendUnavailable(f"the TSC cannot be used: {reason}", "Use the wall timer")
        self._clock, self._spin = native.TscClock(), native.spin_work()


class FakeTimer(_Timer):
    """A clock whose truth is chosen; runs `FakeWork` only. Seconds throughout, the same seed gives the same spans.

    tick_s: grid of its readings, at a uniform phase (0: none). overhead_s, overhead_sd_s: a start-stop pair's cost.
    float32_ms: spans are rounded as cudaEventElapsedTime rounds. sag, sag_time_s: work slows by that fraction with
    that time constant (negative: it speeds up, as in a warm-up). walk: sd of a random walk of the clock in a second.
    """

    name = "fake"

    def __init__(
        self,
        *,
        tick_s: float = 0.0,
        overhead_s: float = 0.0,
        overhead_sd_s: float = 0.0,
        float32_ms: bool = False,
        sag: float = 0.0,
        sag_time_s: float = 1.0,
        walk: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._clock = native.FakeClock(
            tick_s=tick_s, overhead_s=overhead_s, overhead_sd_s=overhead_sd_s, float32_ms=float32_ms,
            sag=sag, sag_time_s=sag_time_s, walk=walk, seed=seed,
        )  # fmt: skip
        self._spin = FakeWork(250e-9)  # 64 lengths up to 16 us: some steps of any GPU's clock

    def _runnable(self, work: Any) -> FakeWork:
        if not isinstance(work, FakeWork):
            raise UsageError(f"a FakeTimer runs FakeWork only, not {type(work).__name__}")
        return work


@lru_cache(maxsize=1)
def default_timer() -> Timer:
    """The TSC where it is a clock, else CLOCK_MONOTONIC_RAW. One for the process."""
    return WallTimer() if native.tsc_facts()[1] else TscTimer()


def _device_timer(name: str) -> Timer:
    """A timer of the first GPU; its module is loaded only when asked for."""
    found: Timer = getattr(import_module(".device_timers", __package__), name)()
    return found


TIMERS: dict[str, Callable[[], Timer]] = {
    "auto": default_timer, "tsc": TscTimer, "wall": WallTimer, "fake": FakeTimer,
    "event": lambda: _device_timer("EventTimer"), "graph": lambda: _device_timer("GraphTimer"),
}  # fmt: skip


def as_timer(timer: str | Timer) -> Timer:
    """A timer by name, or the one given. UsageError for an unknown name."""
    if not isinstance(timer, str):
        return timer
    if timer not in TIMERS:
        raise UsageError(f"unknown timer {timer!r}: one of {', '.join(TIMERS)}")
    return TIMERS[timer]()


# --- what may be timed ------------------------------------------------------------------------------------------


ACCEPTED = (
    "accepted are: a callable without arguments; a PyCapsule of a C function named 'void (void *)' or "
    "'void (void *, int64_t)', called with the capsule's context; a ctypes function without arguments, or with "
    "(c_void_p) or (c_void_p, c_int64), called with NULL; an object with .work"
)


def as_work(work: Any) -> Runnable:
    """What a timer can run, from what a user has. Native where a C function can be reached, else the callable itself.

    - a Python callable without arguments;
    - a PyCapsule of a C function; its name is the signature: "void (void *)", or the batched "void (void *, int64_t)"
      that does the work n times itself; the capsule's context is the argument (as SciPy's LowLevelCallable has it);
    - a ctypes function pointer or CDLL function: no arguments, (c_void_p) or (c_void_p, c_int64); gets NULL and n;
    - a `_core.timing.Work`, or anything with `.work` (a Prepared).

    UsageError names what is accepted.
    """
    if isinstance(work, (native.Work, FakeWork)):
        return work
    if isinstance(work, CFuncPtr):
        return work if work._flags_ & _PYTHON_API else _ctypes_work(work)
    if type(work).__name__ == "PyCapsule":
        try:
            return native.capsule_work(work)
        except ValueError as error:
            raise UsageError(f"{error}; {ACCEPTED}") from None
    if hasattr(work, "work"):
        return as_work(work.work)
    if inspect.iscoroutinefunction(work):
        raise UsageError("calling a coroutine function runs nothing; time a callable that runs it to its end")
    if callable(work):
        return work  # type: ignore[no-any-return]
    raise UsageError(f"{type(work).__name__} is no work; {ACCEPTED}")


def _ctypes_work(function: Any) -> native.Work:
    arguments: Sequence[Any] = function.argtypes or ()
    signatures = {
        (): "void (void)",
        (ctypes.c_void_p,): "void (void *)",
        (ctypes.c_void_p, ctypes.c_int64): "void (void *, int64_t)",
    }
    signature = signatures.get(tuple(arguments))
    # A structure would be returned through a hidden pointer, a Python object would need the GIL.
    plain = function.restype is None or (
        issubclass(function.restype, ctypes._SimpleCData) and function.restype is not ctypes.py_object
    )
    if signature is None or not plain:
        shown = ", ".join(getattr(kind, "__name__", str(kind)) for kind in arguments)
        raise UsageError(f"a ctypes function ({shown}) -> {function.restype} is no work; {ACCEPTED}")
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    return native.native_work(address, signature, 0, function)


# --- probe --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimerProbe:
    """One host timer: whether it can be used, how coarse it is, what an empty region takes, gross and net (seconds)."""

    name: str
    usable: bool
    reason: str = ""
    tick: Tick | None = None
    empty_p50_s: float | None = None
    empty_p99_s: float | None = None
    empty_net_p50_s: float | None = None
    empty_net_p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """What the clocks of this process are like. `python_call_s` is what calling an empty Python function costs."""

    timers: tuple[TimerProbe, ...]
    python_call_s: float
    tsc_hz: float | None
    tsc_why: str  # why the TSC is unusable, "" where it is not

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        return asdict(self)


@lru_cache(maxsize=1)
def probe() -> Probe:
    """Probe the host's timers: tick, empty region, call overhead. Found once a process (about 0.1 s)."""
    hz, why = native.tsc_facts()
    call = default_timer().sample(lambda: None, np.full(101, 100))
    return Probe(
        timers=(_probe_timer(WallTimer), _probe_timer(TscTimer)),
        python_call_s=float(np.median(call)) / 100,
        tsc_hz=None if why else hz,
        tsc_why=why,
    )


def _probe_timer(make: type[WallTimer] | type[TscTimer]) -> TimerProbe:
    try:
        timer = make()
    except BackendUnavailable as error:
        return TimerProbe(make.name, False, str(error))
    baseline = stats.clipped_mean_location(timer.overhead(2000), timer.tick().seconds).estimate
    p50, p99 = np.quantile(timer.overhead(10_000), [0.5, 0.99]).tolist()
    return TimerProbe(make.name, True, "", timer.tick(), p50, p99, p50 - baseline, p99 - baseline)
