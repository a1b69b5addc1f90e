"""Calls to CUDA through CuPy: on which device, and what becomes of their errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local

from ..errors import BackendUnavailable, CudaError, GpumicroError, OutOfMemory
from .found import cupy, driver, first_line, runtime

NOT_READY, OUT_OF_MEMORY, LAUNCH_TIMEOUT = 600, 2, 702  # cudaError_t
CUBLAS_OUT_OF_MEMORY = 3  # CUBLAS_STATUS_ALLOC_FAILED
# CUDA's documentation says of these that every later call of the process fails too (cudaError_t).
STICKY = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 805, 913})

_last = local()  # .kernel, .shape: a kernel's errors come to light in a later call, and name it
_hung: set[int] = set()  # devices on which a kernel did not end in time


def note_launch(kernel: str, shape: str) -> None:
    """Says which kernel this thread launches now."""
    _last.kernel, _last.shape = kernel, shape


@contextmanager
def told(call: str) -> Iterator[None]:
    """Turns CuPy's errors of this CUDA call into CudaError, OutOfMemory or BackendUnavailable."""
    try:
        yield
    except GpumicroError:
        raise
    except RuntimeError as error:
        raise translated(error, call) from error


def translated(error: RuntimeError, call: str) -> GpumicroError:
    """What one of CuPy's errors means: those of CUDA and cuBLAS have a `status`, of a missing library not."""
    status = getattr(error, "status", None)
    text = first_line(error)
    if status is None:
        return BackendUnavailable(f"{call} cannot be called through CuPy: {text}")
    if int(status) == (CUBLAS_OUT_OF_MEMORY if text.startswith("CUBLAS") else OUT_OF_MEMORY):
        return OutOfMemory(f"{call}: {text}")
    name, _, meaning = text.partition(": ")
    return failed(call, int(status), name, meaning or name, lost=int(status) in STICKY)


def failed(call: str, code: int, name: str, text: str, lost: bool) -> CudaError:
    """A CudaError that names the last kernel where a kernel may have caused it."""
    by_kernel = lost or "Launch" in call
    kernel, shape = (getattr(_last, key, "") if by_kernel else "" for key in ("kernel", "shape"))
    return CudaError(call, code, name, text, kernel, shape, lost)


def failed_query(code: int, call: str) -> GpumicroError:
    """The error behind the code that a query returned; CuPy's queries do not raise."""
    return translated(runtime().CUDARuntimeError(code), call)


class OnDevice:
    """Makes a device this thread's current one and puts the caller's back.

    A thread without a context stays on it: going "back" to device 0 would make a context there.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self._back: int | None = None

    def __enter__(self) -> OnDevice:
        with told("cudaSetDevice"):
            before = runtime().getDevice()
            self._back = before if before != self.device and driver().ctxGetCurrent() else None
            runtime().setDevice(self.device)
            if not driver().ctxGetCurrent():
                runtime().memGetInfo()  # any call of the runtime's makes the context that driver calls need
        return self

    def __exit__(self, *_: object) -> None:
        if self._back is not None:
            runtime().setDevice(self._back)


def set_hung(device: int, hung: bool) -> None:
    """Whether a kernel at work on this device is past waiting for: freeing memory would wait for it."""
    (_hung.add if hung else _hung.discard)(device)


def is_hung(device: int) -> bool:
    """See `set_hung`."""
    return device in _hung


def versions() -> dict[str, object]:
    """What `_cuda.probe` tells: {"count", "code", "error", "text", "driver", "runtime"}; it never raises for CUDA's
    errors."""
    found: dict[str, object] = {"count": 0, "code": 0, "error": "", "text": "", "driver": 0, "runtime": 0}
    for key, ask in (("driver", "driverGetVersion"), ("runtime", "runtimeGetVersion"), ("count", "getDeviceCount")):
        try:
            found[key] = getattr(cupy().cuda.runtime, ask)()
        except RuntimeError as error:
            if key == "count":
                name, _, text = first_line(error).partition(": ")
                found |= {"code": int(getattr(error, "status", -1)), "error": name, "text": text or name}
    return found
