"""The Numba backend: kernels in Python, compiled for this machine's GPUs by numba-cuda, and for its CPU by Numba."""

from __future__ import annotations

from ..device import Device
from ..errors import BackendUnavailable, UsageError
from ..numba_kernels import REMEDY, missing
from ..spec import Execution, KernelSpec, Problem
from .base import Availability, Prepared
from .cpu import CpuBackend

NO_FORM = "the numba backend has no form of it"


class NumbaBackend:
    """Kernels on GPUs and, asked for by name, on the CPU."""

    name = "numba"

    def __init__(self) -> None:
        self._host = CpuBackend()

    def availability(self) -> Availability:
        if missing():
            return Availability(False, missing(), REMEDY)
        return self._host.availability()

    def devices(self) -> tuple[Device, ...]:
        from . import numba_devices

        return (*numba_devices.devices(), *self._host.devices())

    def notes(self) -> list[str]:
        """What a user should know about the devices, in sentences."""
        from . import numba_devices

        if missing() or not numba_devices.missing():
            return []
        return [f"Numba runs on the CPU alone here: {numba_devices.missing()}."]

    def variants(self, spec: KernelSpec, dtype: str, device: Device) -> tuple[str, ...]:
        """Ways to do the same work that this backend has, best guess first."""
        if device.kind == "cpu":
            return tuple(variant for variant in spec.variants if variant != "nontemporal")
        from .numba_launch import own_variants

        return own_variants(spec, dtype, device) if spec.gpu is not None else ()

    def supports(self, spec: KernelSpec, dtype: str, device: Device) -> Availability:
        from ..numba_kernels import cpu, gpu

        on_cpu = device.kind == "cpu"
        if spec.name not in (cpu.NAMES if on_cpu else gpu.NAMES):
            return Availability(False, NO_FORM)
        if on_cpu:
            known = spec.dtypes
        else:
            assert spec.gpu is not None
            known = tuple(one for one in spec.gpu.dtypes if one in (*gpu.DTYPES, "int64"))
        if dtype not in known:
            return Availability(False, f"the numba backend has it in {', '.join(known)} only, not in {dtype}")
        reason = "" if on_cpu or spec.gpu is None else spec.gpu.why_not(dtype, device)
        return Availability(not reason, reason)

    def prepare(self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Prepared:
        can = self.supports(spec, problem.dtype, device)
        if not can:
            raise BackendUnavailable(f"{spec.name} in {problem.dtype} cannot run here because {can.reason}", can.remedy)
        if device.kind == "cpu":
            from . import numba_cpu

            return numba_cpu.prepare(self._host, spec, problem, execution, device)
        if execution.threads != 1:
            raise UsageError(f"a kernel on a GPU is started by 1 thread, not {execution.threads}")
        from . import numba_gpu

        return numba_gpu.prepare(spec, problem, execution, device)
