"""PyTorch: where its tensors live, its current stream, and what is no result yet."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any

from .place import Place

MODULE = "torch"
_COMPUTES_NOTHING = {
    "meta": "a meta tensor has a shape and no values: nothing was computed",
    "lazy": "a lazy tensor is computed later; call torch._lazy.mark_step() in the work",
    "xla": "an XLA tensor is computed later; end the work by torch_xla.sync(wait=True) and return None",
}


def place_of(value: Any) -> Place | None:
    """Of a tensor, or of a module's first parameter; None for anything else."""
    torch: Any = sys.modules.get(MODULE)
    if torch is None or not hasattr(torch, "Tensor"):
        return None
    if isinstance(value, torch.nn.Module):
        value = next(iter(value.parameters()), None)
    if not isinstance(value, torch.Tensor):
        return None
    device = value.device
    hip = device.type == "cuda" and getattr(torch.version, "hip", None)
    return Place(MODULE, "hip" if hip else str(device.type), int(device.index or 0))


def unfinished(value: Any) -> str:
    """Why a result is none yet, "" where it is one."""
    torch: Any = sys.modules.get(MODULE)
    if torch is None or not hasattr(torch, "Tensor") or not isinstance(value, torch.Tensor):
        return ""
    if type(value).__name__ == "FakeTensor":
        return "a fake tensor has a shape and no values: nothing was computed"
    return _COMPUTES_NOTHING.get(str(value.device.type), "")


def version_of(value: Any) -> int | None:
    """How often a tensor was changed in place; None where that is not counted (inference mode) or it is no tensor."""
    torch: Any = sys.modules.get(MODULE)
    if torch is None or not hasattr(torch, "Tensor") or not isinstance(value, torch.Tensor):
        return None
    try:
        return int(value._version)
    except (AttributeError, RuntimeError):
        return None


def finds_gpu() -> bool:
    """Whether it is loaded and can use CUDA."""
    torch: Any = sys.modules.get(MODULE)
    return torch is not None and hasattr(torch, "cuda") and torch.cuda.is_available() and not torch.version.hip


def device_in_use() -> int | None:
    """Index of the current device; None where none was used yet."""
    torch: Any = sys.modules[MODULE]
    return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else None


def synchronize(place: Place) -> None:
    """Wait for all that was queued on that device."""
    torch: Any = sys.modules[MODULE]
    getattr(torch, "cuda" if place.kind == "hip" else place.kind).synchronize(place.index)


def current(handle: int, device: int) -> AbstractContextManager[object] | None:
    """A context in which the stream is torch's current one; None where torch uses no CUDA."""
    if not finds_gpu():
        return None
    torch: Any = sys.modules[MODULE]
    # Without a device the stream would count as one of the current device.
    stream: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.ExternalStream(handle, device=device))
    return stream
