"""The CUDA backend: the kernels of csrc/kernels, compiled into the module _cuda, on NVIDIA's GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import cuda_native
from ..device import Cache, Device
from ..errors import BackendUnavailable, CudaError, UsageError, nearest
from ..kernels.gpu import capability
from ..spec import Execution, GpuForm, KernelSpec, Problem
from . import cuda_host, cuda_reasons
from .base import Availability, Prepared
from .cuda_prepared import CudaPrepared

LINE_BYTES = 128
# L1 and shared memory are one array, of which the runtime tells only what shared memory may have. CUDA programming
# guide, "Technical specifications per compute capability"; a later one: shared memory's part.
UNIFIED_L1_BYTES = {
    (7, 0): 128 << 10, (7, 2): 128 << 10, (7, 5): 96 << 10, (8, 0): 192 << 10, (8, 6): 128 << 10, (8, 7): 192 << 10,
    (8, 9): 128 << 10, (9, 0): 256 << 10, (10, 0): 256 << 10, (10, 3): 256 << 10, (11, 0): 256 << 10,
    (12, 0): 128 << 10, (12, 1): 128 << 10,
}  # fmt: skip


class CudaBackend:
    """Kernels on this machine's GPUs."""

    name = "cuda"

    def __init__(self, root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> None:
        self._root, self._environment = root, environment
        self._found: tuple[object, dict[str, Mapping[str, Any]]] | None = None

    def availability(self) -> Availability:
        reason = cuda_native.missing()
        if reason:
            return Availability(False, f"gpumicro has no CUDA module here: {reason}", cuda_native.REMEDY)
        try:
            facts = self._facts()
        except CudaError as error:
            return Availability(False, f"CUDA found devices and cannot read them: {error}")
        if not facts:
            probe = cuda_native.load().probe()
            return Availability(
                False, *cuda_reasons.no_device(probe, self._environment, cuda_reasons.gpus_of_machine(self._root))
            )
        if not self.devices():
            left_out = " ".join(self.notes()).rstrip(".")
            return Availability(False, f"no GPU may be used: {left_out}")
        return Availability(True)

    def devices(self) -> tuple[Device, ...]:
        facts = {} if cuda_native.missing() else self._facts()
        return tuple(
            device_of(name, fact) for name, fact in facts.items() if fact["compute_mode"] != cuda_reasons.PROHIBITED
        )

    def notes(self) -> list[str]:
        """What a user should know about the devices, in sentences: MIG, hidden, left out, emulated."""
        machine = cuda_reasons.gpus_of_machine(self._root)
        return cuda_reasons.notes({} if cuda_native.missing() else self._facts(), self._environment, machine)

    def _facts(self) -> dict[str, Mapping[str, Any]]:
        """By device id. CUDA settles what is there at its first call, so it is asked once a module."""
        cuda = cuda_native.load()
        if self._found is None or self._found[0] is not cuda:
            count = cuda.probe()["count"]
            self._found = (cuda, {f"cuda:{i}": cuda.device_facts(i) for i in range(count)})
        return self._found[1]

    def supports(self, spec: KernelSpec, dtype: str, device: Device) -> Availability:
        form = spec.gpu
        if form is None:
            return Availability(False, "the cuda backend has no form of it")
        if dtype not in form.dtypes:
            return Availability(False, f"on a GPU {spec.name} has no {dtype}, only {', '.join(form.dtypes)}")
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

    def prepare(self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Prepared:
        form = validate(spec, problem, execution, device, self.name)
        can = self.supports(spec, problem.dtype, device)
        if not can:
            raise BackendUnavailable(f"{spec.name} in {problem.dtype} cannot run here because {can.reason}", can.remedy)
        if execution.variant not in (known := form.variants(problem.dtype, device)):
            raise UsageError(f"{spec.name} has no variant {execution.variant!r}, only {', '.join(map(repr, known))}")
        if spec.name in cuda_host.ACTIONS:
            return cuda_host.prepare(spec, problem, execution, device)
        return CudaPrepared(spec, form, problem, execution, device)


def validate(spec: KernelSpec, problem: Problem, execution: Execution, device: Device, backend: str) -> GpuForm:
    """A kernel's GPU form. UsageError for a problem or execution that it has not, BackendUnavailable without a form."""
    form = spec.gpu
    if form is None:
        raise BackendUnavailable(
            f"{spec.name} cannot run on {device.id} because the {backend} backend has no form of it"
        )
    sizes = dict(problem.sizes)
    wanted = spec.sizes if form.sizes is None else form.sizes
    if set(sizes) != set(wanted) and (wanted or form.sizes is not None):  # none listed: the launch knows what it takes
        raise UsageError(f"{spec.name} takes {', '.join(wanted) or 'no sizes'}, not {', '.join(sizes) or 'none'}")
    for name, size in sizes.items():
        if size < 0:
            raise UsageError(f"{spec.name}: {name}={size} is negative")
    known = dict.fromkeys((*form.dtypes, *spec.dtypes))
    if problem.dtype not in known:
        raise UsageError(f"{spec.name} has no dtype {problem.dtype!r}{nearest(problem.dtype, known)}")
    if execution.threads != 1:
        raise UsageError(f"a kernel on a GPU is started by 1 thread, not {execution.threads}")
    return form


def device_of(name: str, facts: Mapping[str, Any]) -> Device:
    """A Device from what the runtime says of it (`_cuda.device_facts`)."""
    major, _, minor = facts["compute_capability"].partition(".")
    l1_bytes = UNIFIED_L1_BYTES.get((int(major), int(minor)), facts["shared_bytes_per_sm"])
    why = {}
    if facts["clock_hz"] is None:
        why["clock_max_hz"] = "the CUDA runtime does not tell"
    return Device(
        id=name,
        kind="cuda",
        name=facts["name"],
        cores=facts["sm_count"],
        cpus=(),
        caches=(
            Cache("l1", l1_bytes, LINE_BYTES, (), facts["sm_count"]),
            Cache("l2", facts["l2_bytes"], LINE_BYTES, (), 1),
        ),
        memory_bytes=facts["memory_bytes"],
        clock_max_hz=facts["clock_hz"],
        uuid=facts["uuid"],
        why=why,
        facts=dict(facts),
    )
