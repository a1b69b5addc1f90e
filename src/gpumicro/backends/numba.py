"""The Numba backend: kernels in Python, compiled for this machine's GPUs by numba-cuda, and for its CPU by Numba."""

from __future__ import annotations

from ..device import Device
from ..errors import BackendUnavailable
from ..numba_kernels import REMEDY, missing
from ..spec import Execution, KernelSpec, Problem
from .base import Availability, Prepared
from .cpu import CpuBackend

NO_FORM = "the numba backend has no form of it"


class NumbaBackend:
    """Kernels on GPUs and on the CPU. `auto` takes it for GPUs alone: a CPU is better measured by the cpu backend."""

    name = "numba"

    def __init__(self) -> None:
        self._host = CpuBackend()

    def availability(self) -> Availability:
        if missing():
            return Availability(False, missing(), REMEDY)
        return self._host.availability()

    def devices(self) -> tuple[Device, ...]:
        return self._host.devices()

    def supports(self, spec: KernelSpec, dtype: str, device: Device) -> Availability:  # noqa: ARG002
        from ..numba_kernels import cpu

        if spec.name not in cpu.NAMES:
            return Availability(False, NO_FORM)
        if dtype not in spec.dtypes:
            return Availability(False, f"{spec.name} has no {dtype} on a CPU, only {', '.join(spec.dtypes)}")
        return Availability(True)

    def prepare(self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Prepared:
        can = self.supports(spec, problem.dtype, device)
        if not can:
            raise BackendUnavailable(f"{spec.name} in {problem.dtype} cannot run here because {can.reason}", can.remedy)
        from . import numba_cpu

        return numba_cpu.prepare(self._host, spec, problem, execution, device)
