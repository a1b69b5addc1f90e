"""The GPUs that numba-cuda finds, with the facts that specs and launches ask for; or its simulator's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..device import Device
from ..errors import BackendUnavailable
from ..numba_kernels import cuda_missing, load_cuda, simulated
from .cuda_reasons import PROHIBITED
from .gpu_backend import device_of

# What the simulator runs as: one slow SM that knows the plain instructions.
_SIMULATED: Mapping[str, Any] = {
    "name": "Numba's CUDA simulator", "uuid": None, "compute_capability": "8.0", "sm_count": 1, "memory_bytes": 1 << 30,
    "l2_bytes": 1 << 20, "shared_bytes_per_sm": 164 << 10, "clock_hz": None, "compute_mode": 0, "emulated": True,
    "simulator": True,  # it has no clock: asked for by name alone
}  # fmt: skip


def missing() -> str:
    """ "" where there is a GPU for numba-cuda, else why not. Numba is imported only where there is a driver."""
    return _found()[1]


def devices() -> tuple[Device, ...]:
    """The GPUs that may be used."""
    return _found()[0]


@lru_cache(maxsize=1)
def _found() -> tuple[tuple[Device, ...], str]:
    reason = cuda_missing() or ("" if simulated() else _driver_missing())
    if reason:
        return (), reason
    try:
        cuda = load_cuda()
        facts = [_SIMULATED] if simulated() else [_facts(cuda, gpu) for gpu in cuda.gpus]
    except BackendUnavailable as error:
        return (), error.reason
    except Exception as error:  # numba-cuda's own: no device, a driver that is too old, a GPU that it does not serve
        return (), f"numba-cuda finds no GPU ({_first_line(error)})"
    usable = [device_of(f"cuda:{i}", one) for i, one in enumerate(facts) if one["compute_mode"] != PROHIBITED]
    return tuple(usable), "" if usable else "every GPU is in the compute mode 'prohibited'"


def _driver_missing() -> str:
    from ctypes import CDLL

    try:
        CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver"
    return ""


def _facts(cuda: Any, gpu: Any) -> dict[str, Any]:
    """Of one GPU, under the keys of `_cuda.device_facts`."""
    with gpu:
        memory_bytes = int(cuda.current_context().get_memory_info().total)
    name = gpu.name.decode() if isinstance(gpu.name, bytes) else str(gpu.name)
    return {
        "name": name,
        "uuid": str(gpu.uuid),
        "compute_capability": "{}.{}".format(*gpu.compute_capability),
        "sm_count": int(gpu.MULTIPROCESSOR_COUNT),
        "memory_bytes": memory_bytes,
        "l2_bytes": int(gpu.L2_CACHE_SIZE),
        "shared_bytes_per_sm": int(gpu.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        "clock_hz": 1e3 * int(gpu.CLOCK_RATE) or None,
        "compute_mode": int(gpu.COMPUTE_MODE),
        "emulated": False,
    }


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
