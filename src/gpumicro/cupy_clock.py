"""A GPU's clock read through CuPy, for machines without the CUDA module: events, a gate, eviction, as the native one.

What lies between two events is the device's alone: the loop is Python's and slower, and the gate keeps that out of the
span. What the host's clock sees (`walls_s`) has Python's calls in it.
"""

from __future__ import annotations

import ctypes
import time
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .cupy_cuda import calls, load, works
from .cupy_cuda.calls import OnDevice, told
from .cupy_cuda.facts import clock_hz, device_facts
from .cupy_cuda.found import runtime
from .cupy_cuda.launch import Launch, LaunchWork
from .cupy_cuda.memory import Buffer, current, hangs, measuring_stream, wait_for
from .cupy_cuda.work import Work, destroy_with, run_work
from .device_clock import EVICT_OVER_L2, QUEUE_LIMIT, CacheState
from .errors import BackendUnavailable
from .timers import Counts, FloatArray, Tick, default_timer

FILLER_S = 20e-6  # of busy SMs before each span of a hot timer
PHASE_S = 1.1e-6  # length of the random delay: at least the event clock's step
_EVICT_BLOCK, _FILLER_BLOCK = 512, 128
_NEVER = 0x5EED1E55  # a sum that random data do not have
_EXPIRED_AT = 128  # bytes from `opened`: a line of its own


class _Gate:
    """Holds the measuring stream until the host opens it; csrc/kernels/spin.cuh has the kernel."""

    def __init__(self, device: int, stream: int) -> None:
        self._memory = Buffer(device, 2 * _EXPIRED_AT, "pinned")  # mapped: host and device share it, at one address
        self._memory.fill(0)
        opened, expired = self._memory.address, self._memory.address + _EXPIRED_AT
        self._opened = ctypes.c_uint32.from_address(opened)
        self._expired = ctypes.c_uint32.from_address(expired)
        self._ticket = 0
        values = (np.uint64(opened), np.uint32(0), np.uint64(expired), np.uint64(0), np.uint64(0))
        arguments = [value.tobytes() for value in values]
        self._kernel = Launch("gm::gate", (1, 1, 1), (32, 1, 1), 0, arguments, device, stream=stream).work

    def next(self) -> int:
        """A ticket for the next closing; tickets grow."""
        self._ticket += 1
        return self._ticket

    def close(self, ticket: int, timeout_s: float, delay_cycles: int) -> None:
        """Enqueue the kernel that waits for the ticket, for timeout_s at most, and then for so many cycles."""
        for place, value in ((1, np.uint32(ticket)), (3, np.uint64(1e9 * timeout_s)), (4, np.uint64(delay_cycles))):
            self._kernel.set_argument(place, value.tobytes())
        self._kernel.enqueue(1)

    def open(self, ticket: int) -> None:
        """Let all go whose ticket is this or an earlier one."""
        self._opened.value = ticket

    def expired(self, ticket: int) -> bool:
        """Whether the gate of that ticket let go by itself. Asked after the stream has passed it."""
        return bool(self._expired.value == ticket)


class CupyClock:
    """As `_cuda.timing.EventClock`, a `device_clock.Clock`. Seconds throughout.

    cache: "hot", or "cold": twice the L2 is read before each span. stream: handle of the stream that work enqueues on,
    None for one of ours. watchdog_s: a span that takes longer hangs (CudaError). Raises BackendUnavailable where CuPy
    cannot be used or there is no such device.
    """

    loop = "python"

    def __init__(
        self, device: int = 0, cache: CacheState = "hot", *, stream: int | None = None, gate_timeout_s: float = 1.0,
        watchdog_s: float = 30.0, seed: int = 1,
    ) -> None:  # fmt: skip
        found = load().probe()
        if device >= int(str(found["count"])):
            raise BackendUnavailable(f"there is no CUDA device {device} ({found['text'] or 'none found'})")
        self.device, self.cache, self.seed = device, cache, seed
        self.gate_timeout_s, self.watchdog_s, self.phase_s = gate_timeout_s, watchdog_s, PHASE_S
        self.walls_s: FloatArray = np.zeros(0)
        self._given_stream = stream
        self.stream = measuring_stream(device) if stream is None else stream
        facts = device_facts(device)
        if not facts["unified_addressing"]:
            raise BackendUnavailable(
                f"cuda:{device} sees the host's memory at other addresses, which CuPy does not tell"
            )
        self._hz = clock_hz(facts)
        self._rng = np.random.default_rng(seed)
        with OnDevice(device), told("cudaEventCreateWithFlags"):
            self._start, self._stop = (runtime().eventCreateWithFlags(0) for _ in range(2))
        destroy_with(self, device, [], [self._start, self._stop])
        self._gate = _Gate(device, self.stream)
        self._before = _Preparation(device, self.stream, facts, cache == "cold", self._hz)

    def with_cache(self, cache: CacheState) -> CupyClock:
        """This clock, or one of its kind that leaves the caches in another state."""
        if cache == self.cache:
            return self
        return CupyClock(
            self.device, cache, stream=self._given_stream, gate_timeout_s=self.gate_timeout_s,
            watchdog_s=self.watchdog_s, seed=self.seed,
        )  # fmt: skip

    def spin(self, step_cycles: int) -> Any:
        """The work that a tick is looked for with: n runs spin n steps."""
        return works.spin(self.device, step_cycles, True, self.stream)

    def graphs(self, work: Any) -> works.Graphs:
        """Graphs of a work, for a GraphTimer; they do not keep it alive."""
        return works.Graphs(self.device, work, keep=False, stream=self.stream)

    def now(self) -> float:
        """Seconds on the host's clock, from an arbitrary origin."""
        return 1e-9 * time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def gate_holds(self) -> bool:
        """Whether a closed gate lets the host go on: not where each launch waits for its kernel."""
        self._check_alive()
        with OnDevice(self.device):
            ticket = self._gate.next()  # once with the gate open: loading a kernel may wait for the device
            self._gate.open(ticket)
            self._gate.close(ticket, 0.0, 0)
            self._end()
            ticket = self._gate.next()
            try:
                self._gate.close(ticket, 0.02, 0)
                held = not self._gate.expired(ticket)
            finally:
                self._gate.open(ticket)
            self._end()
        return held

    def sample(self, work: Any, counts: Counts, gated: bool = True, queue_limit: int = QUEUE_LIMIT) -> FloatArray:
        """Seconds of each span; NaN where its gate timed out. The gate opens early after `queue_limit` runs.

        What launches on CuPy's current stream lands on this clock's. Ctrl-C and exceptions of the work pass, the gate
        opened.
        """
        spans = np.zeros(len(counts))
        self.walls_s = np.zeros(len(counts))
        with OnDevice(self.device), current(self.stream):
            for i, runs in enumerate(np.asarray(counts).tolist()):
                self._check_alive()
                spans[i], self.walls_s[i] = self._span(work, runs, gated, max(1, queue_limit))
        return spans

    def _span(self, work: Any, runs: int, gated: bool, limit: int) -> tuple[float, float]:
        """(seconds by the device's clock, seconds by the host's from the gate's opening to the end)."""
        record = runtime().eventRecord
        self._before.enqueue()
        ticket = self._gate.next()
        try:
            if gated:
                delay = int(self._rng.random() * self.phase_s * self._hz)
                self._gate.close(ticket, self.gate_timeout_s, delay)
            with told("cudaEventRecord"):
                record(self._start, self.stream)
            opened_s = self.now()
            done = min(runs, limit)
            run_work(work, done)
            while done < runs:  # a stream's queue is full after some thousand launches: the host would wait for ever
                opened_s = self._open(ticket, opened_s, gated and done == limit)
                run_work(work, min(limit, runs - done))
                done += limit
            with told("cudaEventRecord"):
                record(self._stop, self.stream)
            opened_s = self._open(ticket, opened_s, gated and runs <= limit)
        finally:
            self._gate.open(ticket)
        self._wait()
        wall_s = self.now() - opened_s
        if gated and self._gate.expired(ticket):
            return float("nan"), wall_s
        with told("cudaEventElapsedTime"):
            return 1e-3 * float(runtime().eventElapsedTime(self._start, self._stop)), wall_s

    def _open(self, ticket: int, opened_s: float, now: bool) -> float:
        if not now:
            return opened_s
        opened_s = self.now()
        self._gate.open(ticket)
        return opened_s

    def _end(self) -> None:
        with told("cudaEventRecord"):
            runtime().eventRecord(self._stop, self.stream)
        self._wait()

    def _wait(self) -> None:
        wait_for(self.device, runtime().eventQuery, self._stop, "cudaEventQuery", self.watchdog_s)

    def _check_alive(self) -> None:
        """Raises CudaError while an earlier kernel hangs on the device."""
        if not calls.is_hung(self.device):
            return
        with OnDevice(self.device):
            if runtime().streamQuery(self.stream) != 0:
                raise hangs("cudaStreamQuery", 0.0)
        calls.set_hung(self.device, False)


class _Preparation:
    """What a device is given to do before a span: reading twice its L2, or keeping its SMs busy for a moment.

    An emulated device has no caches or clock that anyone would cool or warm.
    """

    def __init__(self, device: int, stream: int, facts: dict[str, Any], cold: bool, hz: float) -> None:
        self._kernel: LaunchWork | None = None
        self._where = device, stream
        sms = max(1, int(facts["sm_count"]))
        sink = Buffer(device, 64)
        if cold:
            size = (1 << 16) if facts["emulated"] else max(1 << 16, EVICT_OVER_L2 * int(facts["l2_bytes"]))
            data = Buffer(device, size // 16 * 16)
            _fill_randomly(data)
            quads = data.size_bytes // 16
            grid = max(1, min(4 * sms, -(-quads // _EVICT_BLOCK)))
            arguments = (np.uint64(data.address), np.int64(quads), np.uint32(_NEVER), np.uint64(sink.address))
            self._make("gm::evict", grid, _EVICT_BLOCK, arguments, (data, sink))
        elif not facts["emulated"]:
            values = (np.uint64(FILLER_S * hz), np.float32(0.5), np.uint64(sink.address))
            self._make("gm::filler", sms, _FILLER_BLOCK, values, sink)

    def _make(self, symbol: str, grid: int, block: int, values: Any, keep: Any) -> None:
        arguments = [value.tobytes() for value in values]
        device, stream = self._where
        self._kernel = Launch(symbol, (grid, 1, 1), (block, 1, 1), 0, arguments, device, keep, stream).work

    def enqueue(self) -> None:
        """Before the gate, so that the gate stands between this and the span."""
        if self._kernel is not None:
            self._kernel.enqueue(1)


class HostTimer:
    """The host's timer for works that do n runs at one call: n queued launches and one wait are one run to it."""

    def __init__(self) -> None:
        self._inner = default_timer()
        self.name = self._inner.name

    def tick(self) -> Tick:
        """The host clock's."""
        return self._inner.tick()

    def overhead(self, n: int = 256) -> FloatArray:
        """n spans around the call of an empty Python function, in seconds."""
        return self._inner.sample(lambda: None, np.ones(n, np.int64))

    def now(self) -> float:
        """Seconds on the host's clock, from an arbitrary origin."""
        return self._inner.now()

    def sample(self, work: Any, counts: npt.ArrayLike) -> FloatArray:
        """Whole-span seconds; Python's calls are in them."""
        lengths = np.asarray(counts, dtype=np.int64)
        if not isinstance(work := getattr(work, "work", work), Work):
            return self._inner.sample(work, lengths)
        once = np.ones(1, np.int64)
        spans = [self._inner.sample(partial(work.enqueue, runs), once)[0] for runs in lengths.tolist()]
        return np.asarray(spans, dtype=np.float64)

    def throttled_s(self) -> float:
        """As the host timer's."""
        return self._inner.throttled_s()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _fill_randomly(buffer: Buffer) -> None:
    """Lest a cache or a bus compress it; the same MiB again and again serves, no compression looks that far."""
    piece = np.random.default_rng(1).integers(0, 256, 1 << 20, dtype=np.uint8)
    for begin in range(0, buffer.size_bytes, len(piece)):
        buffer.upload(piece[: buffer.size_bytes - begin], begin)
