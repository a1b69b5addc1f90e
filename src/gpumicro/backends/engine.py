"""What a GPU backend drives its device with: the module `_cuda`, or what stands for it, and the timers to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .. import cuda_native
from ..device_timers import EventTimer
from ..timers import Timer


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to reach a GPU. Whatever runs a kernel, a copy or an allocation takes everything from here."""

    backend: str  # its name: "cuda", "cupy"
    cuda: Any  # `gpumicro._cuda`, or an object with the same names
    timer: Callable[[int], EventTimer]  # of a device: one each, its events and its probe serve all kernels
    host_timer: Timer | None = None  # for what the host's clock times; None for the default one


@lru_cache(maxsize=64)
def _event_timer(_cuda: object, device: int) -> EventTimer:  # another module has other devices
    return EventTimer(device)


def native() -> Engine:
    """The CUDA module's engine. Raises BackendUnavailable where there is none."""
    cuda = cuda_native.load()
    return Engine("cuda", cuda, lambda device: _event_timer(cuda, device))
