"""CuPy: where its arrays live, its current stream, its raw kernels."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from .place import Place

MODULE = "cupy"


def place_of(value: Any) -> Place | None:
    """Of an array or a kernel; None for anything else."""
    cupy: Any = sys.modules.get(MODULE)
    if cupy is None or not hasattr(cupy, "ndarray"):
        return None
    if isinstance(value, cupy.ndarray):
        return Place(MODULE, "cuda", int(value.device.id))
    return Place(MODULE, "cuda") if is_kernel(value) else None


def is_kernel(value: Any) -> bool:
    """Whether it is a kernel that is launched by calling it."""
    kind = type(value)
    return kind.__module__.startswith("cupy") and kind.__name__ in (
        "RawKernel", "ElementwiseKernel", "ReductionKernel", "Fusion", "ufunc",
    )  # fmt: skip


def finds_gpu() -> bool:
    """Whether it is loaded and can use CUDA."""
    cupy: Any = sys.modules.get(MODULE)
    return cupy is not None and hasattr(cupy, "cuda") and bool(cupy.cuda.is_available())


def device_in_use() -> int | None:
    """Index of the current device."""
    return int(sys.modules[MODULE].cuda.runtime.getDevice())


def synchronize(place: Place) -> None:
    """Wait for all that was queued on that device."""
    sys.modules[MODULE].cuda.Device(place.index).synchronize()


class _Handle:
    """What CuPy 14 takes a foreign stream from."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def current(handle: int, device: int) -> AbstractContextManager[object] | None:
    """A context in which the stream is CuPy's current one; None where CuPy finds no GPU."""
    if not finds_gpu():
        return None
    cupy: Any = sys.modules[MODULE]
    both = ExitStack()
    both.enter_context(cupy.cuda.Device(device))
    if hasattr(cupy.cuda.Stream, "from_external"):
        stream = cupy.cuda.Stream.from_external(_Handle(handle))
    else:
        stream = cupy.cuda.ExternalStream(handle, device)
    both.enter_context(stream)
    return both
