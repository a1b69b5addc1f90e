"""The CuPy backend: the kernels of csrc/kernels, compiled by NVRTC for the GPU at hand; it needs no CUDA module."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import cupy_cuda
from ..cupy_clock import CupyClock, HostTimer
from ..cupy_cuda.module import NO_TENSOR_MAPS
from ..device import Device
from ..device_timers import EventTimer
from ..errors import BackendUnavailable, CudaError, UsageError
from ..nvrtc import kernel_folder
from ..spec import Execution, GpuForm, KernelSpec, Problem
from . import cuda_host, cuda_reasons, cupy_gemm
from .base import Availability, Prepared
from .cuda import device_of, validate
from .cuda_prepared import CudaPrepared
from .engine import Engine

VENDOR = "gemm.vendor"


class CupyBackend:
    """Kernels on this machine's GPUs, through CuPy."""

    name = "cupy"

    def __init__(self, root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> None:
        self._root, self._environment = root, environment
        self._found: tuple[object, dict[str, Mapping[str, Any]]] | None = None

    def availability(self) -> Availability:
        reason, remedy = cupy_cuda.missing()
        if reason:
            return Availability(False, reason, remedy)
        try:
            kernel_folder()
            facts = self._facts()
        except BackendUnavailable as error:
            return Availability(False, error.reason, error.remedy)
        except CudaError as error:
            return Availability(False, f"CuPy found devices and cannot read them: {error}")
        if not facts:
            return Availability(False, *self._no_device())
        if not self.devices():
            left_out = " ".join(self.notes()).rstrip(".")
            return Availability(False, f"no GPU may be used: {left_out}")
        return Availability(True)

    def _no_device(self) -> tuple[str, str]:
        probe = cupy_cuda.load().probe()
        driver, runtime = int(str(probe["driver"])), int(str(probe["runtime"]))
        if probe["code"] == cuda_reasons.INSUFFICIENT_DRIVER and driver:
            serves, needs = cuda_reasons.version(driver), cuda_reasons.version(runtime)
            return (
                f"the NVIDIA driver is too old: it serves CUDA {serves}, this CuPy is made for {needs}",
                f"Update the driver, or install CuPy for CUDA {driver // 1000} (cupy-cuda{driver // 1000}x)",
            )
        return cuda_reasons.no_device(probe, self._environment, cuda_reasons.gpus_of_machine(self._root))

    def devices(self) -> tuple[Device, ...]:
        facts = {} if cupy_cuda.missing()[0] else self._facts()
        return tuple(
            device_of(name, fact) for name, fact in facts.items() if fact["compute_mode"] != cuda_reasons.PROHIBITED
        )

    def notes(self) -> list[str]:
        """What a user should know about the devices, in sentences: MIG, hidden, left out, emulated."""
        machine = cuda_reasons.gpus_of_machine(self._root)
        return cuda_reasons.notes({} if cupy_cuda.missing()[0] else self._facts(), self._environment, machine)

    def versions(self) -> dict[str, Any]:
        """Compiler and versions, for a result's environment; empty where there is no CuPy."""
        if cupy_cuda.missing()[0]:
            return {}
        cuda = cupy_cuda.load()
        return {"build": dict(cuda.build), "versions": cuda.probe()}

    def _facts(self) -> dict[str, Mapping[str, Any]]:
        """By device id, asked once a CuPy."""
        cuda = cupy_cuda.load()
        if self._found is None or self._found[0] is not cuda:
            count = int(str(cuda.probe()["count"]))
            self._found = (cuda, {f"cuda:{i}": cuda.device_facts(i) for i in range(count)})
        return self._found[1]

    def supports(self, spec: KernelSpec, dtype: str, device: Device) -> Availability:
        form = spec.gpu
        if form is None:
            return Availability(False, "the cupy backend has no form of it")
        if dtype not in form.dtypes:
            return Availability(False, f"on a GPU {spec.name} has no {dtype}, only {', '.join(form.dtypes)}")
        if spec.name == VENDOR:
            reason = cupy_gemm.why_not(dtype, device)
            return Availability(not reason, reason)
        if form.tensor_maps:
            return Availability(False, NO_TENSOR_MAPS, "The cuda backend has it: build gpumicro where nvcc is")
        reason = form.why_not(dtype, device)
        return Availability(not reason, reason)

    def prepare(self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Prepared:
        form = validate(spec, problem, execution, device, self.name)
        can = self.supports(spec, problem.dtype, device)
        if not can:
            raise BackendUnavailable(f"{spec.name} in {problem.dtype} cannot run here because {can.reason}", can.remedy)
        if execution.variant not in (known := form.variants(problem.dtype, device)):
            raise UsageError(f"{spec.name} has no variant {execution.variant!r}, only {', '.join(map(repr, known))}")
        engine = engine_of_cupy()
        if spec.name in cuda_host.ACTIONS:
            return cuda_host.prepare(spec, problem, execution, device, engine)
        return CudaPrepared(spec, _through_cupy(spec, form), problem, execution, device, engine)


def _through_cupy(spec: KernelSpec, form: GpuForm) -> GpuForm:
    if spec.name != VENDOR:
        return form
    return replace(form, bind=lambda problem, _, device, addresses: cupy_gemm.CupyGemm(problem, device, addresses))


@lru_cache(maxsize=64)
def _event_timer(_cuda: object, device: int) -> EventTimer:  # another CuPy has other devices
    return EventTimer(device, clock=CupyClock(device))


def engine_of_cupy() -> Engine:
    """CuPy's engine. Raises BackendUnavailable where there is none."""
    cuda = cupy_cuda.load()
    return Engine("cupy", cuda, lambda device: _event_timer(cuda, device), HostTimer())
