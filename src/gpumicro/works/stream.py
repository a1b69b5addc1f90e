"""CUDA streams of anybody: the handle in them, and ours as anybody may take it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..errors import UsageError
from . import cupy, pytorch


class Stream(int):
    """The stream that a work has to enqueue on: an integer, which is the `cudaStream_t`.

    Through `__cuda_stream__` whatever knows that protocol takes it too. It belongs to who made it: never destroy it.
    """

    def __cuda_stream__(self) -> tuple[int, int]:
        """(version of the protocol, handle)."""
        return 0, int(self)

    @property
    def ptr(self) -> int:
        """The handle, by CuPy's name."""
        return int(self)

    @property
    def cuda_stream(self) -> int:
        """The handle, by PyTorch's name."""
        return int(self)

    def __repr__(self) -> str:
        return f"Stream({int(self):#x})"


def handle_of(stream: Any) -> int:
    """The `cudaStream_t` of a raw pointer or of a stream of cuda.core, CuPy, Numba, PyTorch, PyCUDA. 0 is the default
    stream. UsageError for what is none."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        if stream < 0:
            raise UsageError(f"stream is {stream}: a raw pointer cannot be negative")
        return int(stream)
    protocol = getattr(stream, "__cuda_stream__", None)
    if callable(protocol) and not isinstance(stream, type):
        return int(protocol()[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name) and (found := _number(getattr(stream, name))) is not None:
            return found
    if type(stream).__name__ in ("CUstream", "cudaStream_t"):
        return int(stream)
    raise UsageError(
        f"stream is {stream!r}, which is no CUDA stream; give a raw pointer (int), an object with __cuda_stream__, or "
        "a stream of cuda.core, CuPy, Numba, PyTorch"
    )


def _number(handle: Any) -> int | None:
    """The pointer in an integer, a ctypes pointer (which holds None for the default stream) or a CUstream."""
    if handle is None or isinstance(handle, int):
        return handle or 0
    value = getattr(handle, "value", handle)
    return int(value or 0) if value is None or hasattr(value, "__int__") else None


def device_of(stream: Any) -> int | None:
    """Index of the device that a stream belongs to, where it tells."""
    device = getattr(stream, "device", None)
    told = (
        getattr(stream, "device_index", None), getattr(stream, "device_id", None), getattr(device, "device_id", None),
        getattr(device, "index", None),
    )  # fmt: skip
    return next((index for index in told if isinstance(index, int) and index >= 0), None)


@contextmanager
def current(handle: int, device: int) -> Iterator[None]:
    """A stream as the current one of the frameworks that are loaded and know such a thing (PyTorch, CuPy)."""
    with ExitStack() as entered:
        for framework in (pytorch, cupy):
            context = framework.current(handle, device)
            if context is not None:
                entered.enter_context(context)
        yield
