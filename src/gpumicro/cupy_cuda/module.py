"""The object that stands for the module `_cuda`: what backends/cuda*.py call, each through CuPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..errors import BackendUnavailable
from . import compiler, facts, launch, memory, works
from .calls import OnDevice, versions
from .found import cupy, missing, nvrtc

NO_TENSOR_MAPS = "its operands come by TMA descriptors, and CuPy has no cuTensorMapEncodeTiled to make one"


class CupyCuda:
    """CUDA through one CuPy. What it has not raises BackendUnavailable."""

    timing = works
    Buffer = memory.Buffer
    Launch = launch.Launch
    attributes = staticmethod(launch.attributes)
    occupancy = staticmethod(launch.occupancy)
    free_memory = staticmethod(memory.free_memory)
    device_facts = staticmethod(facts.device_facts)
    probe = staticmethod(versions)

    @property
    def build(self) -> Mapping[str, Any]:
        """What compiles, in the words of `_cuda.build`."""
        major, minor = nvrtc().getVersion()
        return {
            "compiler": f"NVRTC {major}.{minor} through CuPy {cupy().__version__}", "flags": compiler.STANDARD,
            "architectures": ["native"],
        }  # fmt: skip

    def synchronize(self, device: int) -> None:
        """Wait for the device's measuring stream."""
        with OnDevice(device):
            memory.synchronize(device)

    def symbols(self) -> frozenset[str]:
        """The instances that the tables of csrc/kernels spell out; NVRTC makes any other too."""
        return compiler.spelled_out()

    def tensor_map(self, address: int, dtype: str, sizes: Sequence[int], *_: Any) -> bytes:
        """Always BackendUnavailable."""
        raise BackendUnavailable(
            f"a descriptor of {dtype} {tuple(sizes)} at {address:#x} cannot be had: {NO_TENSOR_MAPS}"
        )


@lru_cache(maxsize=4)
def _of(_cupy: object) -> CupyCuda:  # another CuPy has other devices
    return CupyCuda()


def load() -> CupyCuda:
    """CUDA through CuPy. Raises BackendUnavailable with reason and remedy where it cannot be had."""
    reason, remedy = missing()
    if reason:
        raise BackendUnavailable(f"CuPy cannot be used, because {reason}", remedy)
    return _of(cupy())
