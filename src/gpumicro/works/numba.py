"""Numba's CUDA kernels: launched on the stream of their configuration, which is ours where the user gave none."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import UsageError
from .place import Place

MODULE = "numba.cuda"


def is_kernel(work: Any) -> bool:
    """Whether it is `kernel[grid, block]`. Under Numba's simulator a kernel is a function of the host like others."""
    return _ours(work) and hasattr(work, "dispatcher") and hasattr(work, "griddim")


def place_of(value: Any) -> Place | None:
    """Of a kernel. Numba's device arrays tell their place by CUDA's array interface."""
    return Place(MODULE, "cuda") if is_kernel(value) else None


def refuse(work: Any) -> None:
    """UsageError for a kernel without a grid."""
    if _ours(work) and type(work).__name__ == "CUDADispatcher":
        name = getattr(getattr(work, "py_func", work), "__name__", "kernel")
        raise UsageError(f"Numba's kernel {name} has no grid; time {name}[blocks, threads] with its arguments")


def own_stream(work: Any) -> int | None:
    """Handle of the stream of a configured kernel, None where it has the default one."""
    return _handle(work.stream) or None


def on_stream(work: Any, handle: int) -> Any:
    """The same kernel and launch on another stream."""
    cuda: Any = sys.modules[MODULE]
    stream = cuda.external_stream(handle)
    return work.dispatcher.configure(work.griddim, work.blockdim, stream, work.sharedmem)


def synchronize(place: Place) -> None:  # noqa: ARG001  (Numba waits for its current device)
    """Wait for all that was queued on Numba's device."""
    sys.modules[MODULE].synchronize()


def _ours(work: Any) -> bool:
    return type(work).__module__.startswith(("numba.cuda.dispatcher", "numba_cuda.numba.cuda.dispatcher"))


def _handle(stream: Any) -> int:
    value = getattr(stream, "handle", stream)
    return int(getattr(value, "value", value) or 0)
