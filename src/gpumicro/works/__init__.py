"""What a user has, as something that a timer can time: a function, a kernel or a call of some framework.

A framework is looked at only where it is loaded already; none is imported here. One file tells of each; this one puts
together what they say.
"""

from __future__ import annotations

import functools
import inspect
from _ctypes import CFuncPtr
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from .._core.timing import FakeWork, Work
from ..device_timers import GraphTimer
from ..errors import BackendUnavailable, UsageError
from ..timers import Timer, as_work
from . import gpu, numba
from .arguments import bind, name_of, wants_stream
from .first_call import FirstCall, first_call
from .place import CPU, Place
from .search import place_among, place_of_call
from .stream import Stream, current, device_of, handle_of
from .unfinished import waits_for

BY_DEVICE = ("event", "graph")  # timers by name that are of a device


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """A user's work, called once, with the clock that is right for it.

    work: what a timer runs; it returns when the work is done, or has enqueued it on the timer's stream. timer: None for
    the host's. facts: framework, device, first_call_s (host's seconds of the first call, compilers included; absent
    where there was none), stream (handle). flags: what is known before anything is timed.
    """

    work: Any
    timer: Timer | None
    facts: dict[str, Any]
    flags: frozenset[str] = frozenset()


def as_timed(work: Any, args: Sequence[Any] = (), stream: Any = None, timer: str | Timer = "auto") -> Any:
    """`work` with `args` as a timer takes it: a `Timed`, or the work itself where it is native or prepared.

    It counts as work of a CUDA device, timed by events on `stream` or on the measuring stream, where a stream is given,
    the work has a parameter `stream` without a default, a timer of a device is asked for, it is a kernel of CuPy or
    Numba, or an array on a device is among its arguments, in what it closes over or in what its first call returns;
    else where the first call leaves a device busy. Everything else is timed by the host: a call ends when it returns,
    JAX's when every array of the result is computed, and a call on another accelerator when that is idle.

    timer: "auto", "event", "graph", or a Timer. UsageError for what cannot be timed, BackendUnavailable for work of a
    device without one; an exception of the work passes through.
    """
    if _is_native(work, args):
        if args or stream is not None:
            what = "arguments" if args else "stream"
            raise UsageError(f"{type(work).__name__} is bound to its {what} already: give none")
        return work
    while isinstance(work, functools.partial) and not work.keywords:  # a kernel in it is to be seen, and its arguments
        work, args = work.func, (*work.args, *args)
    refuse(work)
    job = _Job(work, tuple(args), None if stream is None else Stream(handle_of(stream)), timer)
    if not isinstance(timer, str) and getattr(timer, "estimand", "host") != "host":
        return job.by(timer)
    place = job.place(device_of(stream))
    return job.on_gpu(place) if place is not None else job.on_host()


def _is_native(work: Any, args: Sequence[Any]) -> bool:
    """What brings its own way of being run. A ctypes function with arguments is called through ctypes."""
    if isinstance(work, CFuncPtr):
        return not args
    return isinstance(work, (Work, FakeWork)) or type(work).__name__ == "PyCapsule" or hasattr(work, "work")


def refuse(work: Any) -> None:
    """UsageError for what is no work, with what to give instead."""
    if _is_native(work, ()):
        return
    numba.refuse(work)
    kind = type(work)
    if kind.__module__.startswith("triton.") and hasattr(work, "run"):
        raise UsageError(f"Triton's kernel {name_of(work)} has no grid; time lambda: kernel[grid](...)")
    if kind.__module__.startswith("cuda.core") and kind.__name__ == "Kernel":
        raise UsageError("cuda.core's kernel has no launch; time lambda stream: launch(stream, config, kernel, ...)")
    if inspect.isgeneratorfunction(work) or inspect.isasyncgenfunction(work):
        raise UsageError(f"calling the generator {name_of(work)} runs nothing; time lambda: list({name_of(work)}())")
    if not isinstance(work, CFuncPtr):  # a function of C with arguments: ctypes says whether they fit
        as_work(work)


class _Job:
    """One work on its way to be timed."""

    def __init__(self, work: Any, args: tuple[Any, ...], stream: Stream | None, timer: str | Timer) -> None:
        self.work, self.args, self.stream, self.timer = work, args, stream, timer
        if numba.is_kernel(work) and stream is None:
            own = numba.own_stream(work)
            self.stream = None if own is None else Stream(own)
        self.wants = wants_stream(work, args, stream is not None)

    def place(self, of_stream: int | None) -> Place | None:
        """The CUDA device that it is known to run on before it was called, None where it is not."""
        found = place_of_call(self.work, self.args)
        if found is not None and found.kind != "cuda":
            self._must_be_free(found)
            return None
        known = self.stream is not None or self.timer in BY_DEVICE or self.wants == "must"
        if found is None and not known:
            return None
        found = found or Place("", "cuda")
        return found if of_stream is None else replace(found, index=of_stream)

    def _must_be_free(self, place: Place) -> None:
        """UsageError where a stream or its timer was asked for and the work's device queues on none of ours."""
        if self.stream is not None or self.timer in BY_DEVICE:
            asked = "stream=" if self.stream is not None else f"timer={self.timer!r}"
            raise UsageError(
                f"{name_of(self.work)} runs on {place.framework}'s {place.kind}, which queues on no CUDA stream of "
                f"ours: leave {asked} out, and the host times it to its end"
            )

    def bound(self, stream: int | None) -> Callable[[], Any]:
        """The call without arguments, on a stream where it takes one."""
        if numba.is_kernel(self.work) and stream is not None:
            bind(self.work, self.args)  # whether they fit
            return functools.partial(numba.on_stream(self.work, stream), *self.args)
        return bind(self.work, self.args, Stream(stream) if stream is not None and self.wants else None)

    def call_first(self, call: Callable[[], Any]) -> FirstCall:
        return first_call(call, self.work, self.args)

    def timed(self, call: Any, timer: Timer | None, place: Place, first: FirstCall, *flags: str) -> Timed:
        facts = {
            "framework": place.framework or "python", "device": f"{place.kind}:{place.index}".replace("cpu:0", "cpu"),
            "first_call_s": first.seconds,
        }  # fmt: skip
        return Timed(call, timer, facts, first.flags.union(flags))

    # --- the three ways ---

    def by(self, timer: Any) -> Timed:
        """On the stream of a device's timer that the caller made. It is not called here."""
        events = getattr(timer, "events", timer)
        handle, device = int(getattr(events, "stream", 0)), int(getattr(timer, "device", 0))
        if self.stream is not None and self.stream != handle:
            raise UsageError(
                f"stream is {self.stream!r}, and {timer!r} records on {Stream(handle)!r}: give one of both"
            )
        call = self.bound(handle)
        if gpu.has_current():
            call = _in_current(call, handle, device)
        return Timed(call, timer, {"framework": "", "device": f"cuda:{device}", "stream": handle})

    def on_gpu(self, place: Place, first: FirstCall | None = None) -> Timed:
        """By events on a stream; by the host and a wait for the device where there are no events, or a host's timer was
        asked for."""
        if not isinstance(self.timer, str):
            return self.synchronized(place, first)
        try:
            events = gpu.events_on(place.index, None if self.stream is None else int(self.stream))
        except BackendUnavailable as error:
            if self.timer in BY_DEVICE or gpu.synchronizer(place) is None:
                takes = " (it takes a stream)" if self.wants == "must" else ""
                text = f"{name_of(self.work)} is work of a GPU{takes}: {error.reason}"
                raise BackendUnavailable(text, error.remedy) from None
            return self.synchronized(place, first)
        call, wait_for_all = self.bound(events.stream), gpu.synchronizer(place)
        flags = []
        with events.current():
            if wait_for_all:
                wait_for_all()  # the arguments may still be on their way, on another stream
            first = first or self.call_first(call)
            if wait_for_all and gpu.leaves_work(call, events.wait, wait_for_all):
                flags = ["side-stream"]
        timer = GraphTimer(place.index, events=events) if self.timer == "graph" else events
        timed = self.timed(call, timer, place, first, *flags)
        timed.facts["stream"] = events.stream
        return timed

    def synchronized(self, place: Place, first: FirstCall | None) -> Timed:
        """By the host: a run ends when the device is idle."""
        wait = gpu.synchronizer(place)
        if wait is None:
            raise BackendUnavailable(
                f"{name_of(self.work)} is work of a GPU, and nothing that is loaded can wait for it",
                "Use timer='event', or import the framework that runs it",
            )
        handle = self.stream if self.stream is not None else Stream(0)
        call = self.bound(handle) if self.wants or self.stream is not None else self.bound(None)
        context = current(int(handle), place.index) if self.stream is not None else nullcontext()
        with context:
            first = first or self.call_first(call)
        if self.stream is not None:
            call = _in_current(call, int(handle), place.index)
        return self.timed(_then(call, wait), self._host_timer(), place, first)

    def on_host(self) -> Timed:
        """By the host, unless the first call tells that it is work of a device."""
        call = self.bound(None)
        first = self.call_first(call)
        place = place_among(first.result) or place_of_call(self.work, self.args) or CPU
        if place.kind == "cuda":
            return self.on_gpu(place, first)
        wait = waits_for(first.result)
        if wait is not None:
            return self.timed(_waited(call, wait), self._host_timer(), place, first)
        if gpu.synchronizer(place) is not None:
            return self.synchronized(place, first)
        busy = gpu.busy_place()
        wait_for_all = busy and gpu.synchronizer(busy)
        if busy and wait_for_all and gpu.leaves_work(call, lambda: None, wait_for_all):
            return self.on_gpu(busy, first)
        return self.timed(call, self._host_timer(), place, first)

    def _host_timer(self) -> Timer | None:
        return None if isinstance(self.timer, str) else self.timer


def _waited(call: Callable[[], Any], wait: Callable[[Any], Any]) -> Callable[[], Any]:
    """The call, and a wait for its result."""

    def run() -> Any:
        return wait(call())

    return run


def _then(call: Callable[[], Any], wait: Callable[[], None]) -> Callable[[], Any]:
    """The call, and a wait for its device."""

    def run() -> None:
        call()
        wait()

    return run


def _in_current(call: Callable[[], Any], handle: int, device: int) -> Callable[[], Any]:
    """The call with a stream made current each time."""

    def run() -> Any:
        with current(handle, device):
            return call()

    return run
