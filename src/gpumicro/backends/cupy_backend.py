"""The CuPy backend: the kernels of csrc/kernels, compiled by NVRTC for the GPU at hand; it needs no CUDA module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from .. import cupy_cuda
from ..cupy_clock import CupyClock, HostTimer
from ..cupy_cuda.module import NO_TENSOR_MAPS
from ..device import Device
from ..device_timers import EventTimer
from ..errors import BackendUnavailable
from ..nvrtc import kernel_folder
from ..spec import Execution, GpuForm, KernelSpec, Problem
from . import cuda_host, cuda_reasons, cupy_gemm
from .base import Availability, Prepared
from .cuda_prepared import CudaPrepared
from .engine import Engine
from .gpu_backend import GpuBackend

VENDOR = "gemm.vendor"


class CupyBackend(GpuBackend):
    """Kernels on this machine's GPUs, through CuPy."""

    name = "cupy"
    runtime = "CuPy"

    def missing(self) -> tuple[str, str]:
        return cupy_cuda.missing()

    def module(self) -> Any:
        return cupy_cuda.load()

    def availability(self) -> Availability:
        if not self.missing()[0]:
            try:
                kernel_folder()
            except BackendUnavailable as error:
                return Availability(False, error.reason, error.remedy)
        return super().availability()

    def no_device(self, probe: Mapping[str, object]) -> tuple[str, str]:
        driver, runtime = int(str(probe["driver"])), int(str(probe["runtime"]))
        if probe["code"] == cuda_reasons.INSUFFICIENT_DRIVER and driver:
            serves, needs = cuda_reasons.version(driver), cuda_reasons.version(runtime)
            return (
                f"the NVIDIA driver is too old: it serves CUDA {serves}, this CuPy is made for {needs}",
                f"Update the driver, or install CuPy for CUDA {driver // 1000} (cupy-cuda{driver // 1000}x)",
            )
        return super().no_device(probe)

    def versions(self) -> dict[str, Any]:
        """Compiler and versions, for a result's environment; empty where there is no CuPy."""
        if cupy_cuda.missing()[0]:
            return {}
        cuda = cupy_cuda.load()
        return {"build": dict(cuda.build), "versions": cuda.probe()}

    def supports_form(self, spec: KernelSpec, form: GpuForm, dtype: str, device: Device) -> Availability:
        if spec.name == VENDOR:
            reason = cupy_gemm.why_not(dtype, device)
            return Availability(not reason, reason)
        if form.tensor_maps:
            return Availability(False, NO_TENSOR_MAPS, "The cuda backend has it: build gpumicro where nvcc is")
        reason = form.why_not(dtype, device)
        return Availability(not reason, reason)

    def prepared(
        self, spec: KernelSpec, form: GpuForm, problem: Problem, execution: Execution, device: Device
    ) -> Prepared:
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
