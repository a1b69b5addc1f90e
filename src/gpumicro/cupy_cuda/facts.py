"""A device's facts from CuPy, under the keys of `_cuda.device_facts`, so that the same specs are matched."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from .calls import told
from .found import runtime

# Found missing only on old drivers; CUDA 13 took the clocks out of the properties.
_ATTRIBUTES = {
    "clock_hz": ("cudaDevAttrClockRate", 1e3), "memory_clock_hz": ("cudaDevAttrMemoryClockRate", 1e3),
    "memory_bus_bits": ("cudaDevAttrGlobalMemoryBusWidth", None), "compute_mode": ("cudaDevAttrComputeMode", None),
    "cooperative_launch": ("cudaDevAttrCooperativeLaunch", None),
}  # fmt: skip


def device_facts(device: int) -> dict[str, Any]:
    """The facts of one device. Raises CudaError."""
    with told("cudaGetDeviceProperties"):
        all_ = runtime().getDeviceProperties(device)
    name = _text(all_["name"])
    mig = " MIG " in name
    found = {
        "name": name,
        "uuid": uuid_text(all_.get("uuid", b"")[:16], mig) or uuid_text(_uuid_of_driver(device), mig),
        "pci_bus_id": _bus_id(device),
        "compute_capability": f"{all_['major']}.{all_['minor']}",
        "sm_count": all_["multiProcessorCount"],
        "memory_bytes": all_["totalGlobalMem"],
        "l2_bytes": all_["l2CacheSize"],
        "shared_bytes_per_sm": all_["sharedMemPerMultiprocessor"],
        "shared_bytes_per_block": all_.get("sharedMemPerBlockOptin") or all_["sharedMemPerBlock"],
        "max_threads_per_sm": all_["maxThreadsPerMultiProcessor"],
        "copy_engines": all_["asyncEngineCount"],
        "ecc": bool(all_["ECCEnabled"]),
        "unified_addressing": bool(all_["unifiedAddressing"]),
        "managed": bool(all_["managedMemory"]),
        "integrated": bool(all_["integrated"]),
        "tcc": bool(all_["tccDriver"]),
        "mig": mig,
        "emulated": "PTXEMU" in name or "(emulated)" in name,
    }
    return found | {key: _attribute(which, scale, device) for key, (which, scale) in _ATTRIBUTES.items()}


def uuid_text(raw: bytes, mig: bool) -> str | None:
    """ "GPU-01234567-..." as NVML and nvidia-smi write it; None for anything but 16 bytes.

    CuPy makes a C string of it, cut at a zero byte; a cut one would name no GPU.
    """
    if len(raw) != 16:
        return None
    digits = raw.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(("MIG" if mig else "GPU", *parts))


def _uuid_of_driver(device: int) -> bytes:
    raw = ctypes.create_string_buffer(16)
    try:  # v2: a MIG instance's own, as the runtime has it
        code = ctypes.CDLL("libcuda.so.1").cuDeviceGetUuid_v2(raw, device)
    except (OSError, AttributeError):
        return b""
    return raw.raw if code == 0 else b""


def _text(raw: bytes | str) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw


def _bus_id(device: int) -> str:
    try:
        return str(runtime().deviceGetPCIBusId(device))
    except RuntimeError:
        return ""


def _attribute(which: str, scale: float | None, device: int) -> float | int | None:
    """None where this CuPy or driver does not know it, or of a clock that it hides."""
    try:
        value = int(runtime().deviceGetAttribute(getattr(runtime(), which), device))
    except (AttributeError, RuntimeError):
        return None
    if scale is None:
        return value
    return value * scale if value > 0 else None


def clock_hz(facts: Mapping[str, Any]) -> float:
    """The SM's clock for turning seconds into cycles; a guess where it is hidden."""
    return float(facts["clock_hz"] or 1e9)
