"""Work on a CUDA device: the clock of its stream, waiting for a device, and what ran beside the stream."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from typing import Any

from ..device_timers import EventTimer
from ..errors import BackendUnavailable
from . import cupy, numba, pytorch
from .place import Place
from .stream import current

LEAST_BESIDE_S = 50e-6  # that a device goes on after the stream is done: less is what asking takes
BESIDE_SHARE = 0.05  # of the call


@functools.lru_cache(maxsize=16)
def events_on(device: int, stream: int | None) -> EventTimer:
    """The event timer of a stream by its handle, or of the device's measuring stream: natively, else by CuPy where the
    user has loaded it. BackendUnavailable with the native module's reason where there is neither."""
    try:
        return EventTimer(device, stream=stream, current=current)
    except BackendUnavailable as native:
        if "cupy" not in sys.modules:
            raise
        try:
            clock: Any = import_module("gpumicro.cupy_clock").CupyClock
            return EventTimer(device, stream=stream, clock=clock(device, stream=stream), current=current)
        except (ImportError, BackendUnavailable):
            raise native from None


def synchronizer(place: Place) -> Callable[[], None] | None:
    """What waits for all that a loaded framework queued on the device; None where no framework can."""
    for framework in (pytorch, cupy, numba):
        if place.framework == framework.MODULE and place.kind != "cpu":
            return functools.partial(framework.synchronize, place)
    if place.kind != "cuda":
        return None
    for framework in (pytorch, cupy):
        if framework.finds_gpu():
            return functools.partial(framework.synchronize, place)
    return None


def has_current() -> bool:
    """Whether a framework that has a current stream is loaded and finds a GPU."""
    return any(framework.finds_gpu() for framework in (pytorch, cupy))


def busy_place() -> Place | None:
    """The current device of a framework that has begun to use one in this process; None where none has."""
    for framework in (pytorch, cupy):
        if framework.finds_gpu() and (index := framework.device_in_use()) is not None:
            return Place(framework.MODULE, "cuda", index)
    return None


def leaves_work(call: Callable[[], Any], wait: Callable[[], Any], wait_for_all: Callable[[], None]) -> bool:
    """Whether a call leaves something running that `wait` does not wait for and the whole device does."""
    wait_for_all()
    began_s = perf_counter()
    call()
    wait()
    done_s = perf_counter()
    wait_for_all()
    beside_s = perf_counter() - done_s
    return beside_s > max(LEAST_BESIDE_S, BESIDE_SHARE * (done_s - began_s))
