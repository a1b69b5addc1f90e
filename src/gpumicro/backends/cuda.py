"""The CUDA backend: the kernels of csrc/kernels, compiled into the module _cuda, on NVIDIA's GPUs."""

from __future__ import annotations

from typing import Any

from .. import cuda_native
from ..device import Device
from ..kernels.gpu import capability
from ..spec import Execution, GpuForm, KernelSpec, Problem
from . import cuda_host, cuda_reasons
from .base import Availability, Prepared
from .cuda_prepared import CudaPrepared
from .gpu_backend import GpuBackend


class CudaBackend(GpuBackend):
    """Kernels on this machine's GPUs."""

    name = "cuda"
    runtime = "CUDA"

    def missing(self) -> tuple[str, str]:
        reason = cuda_native.missing()
        return (f"gpumicro has no CUDA module here: {reason}", cuda_native.REMEDY) if reason else ("", "")

    def module(self) -> Any:
        return cuda_native.load()

    def supports_form(
        self,
        spec: KernelSpec,  # noqa: ARG002  (its form says all)
        form: GpuForm,
        dtype: str,
        device: Device,
    ) -> Availability:
        reason = form.why_not(dtype, device)
        if reason:
            return Availability(False, reason)
        built_for = cuda_native.load().build["architectures"]
        if form.target and not any(entry.partition("-")[0] == form.target for entry in built_for):
            remedy = f"Build gpumicro with {form.target}-real in GPUMICRO_CUDA_ARCHS"
            return Availability(
                False, f"this build has no code for sm_{form.target}, the one target with its instructions", remedy
            )
        uncovered = cuda_reasons.not_covered(capability(device), built_for)
        if uncovered:
            number = "{}{}".format(*capability(device))
            return Availability(False, uncovered, f"Build gpumicro with GPUMICRO_CUDA_ARCHS={number}-real")
        return Availability(True)

    def prepared(
        self, spec: KernelSpec, form: GpuForm, problem: Problem, execution: Execution, device: Device
    ) -> Prepared:
        if spec.name in cuda_host.ACTIONS:
            return cuda_host.prepare(spec, problem, execution, device)
        return CudaPrepared(spec, form, problem, execution, device)
