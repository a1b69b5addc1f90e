"""What the backends of CUDA's runtime share: the devices that it shows, and why there are none."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..device import Cache, Device
from ..errors import BackendUnavailable, CudaError, UsageError, nearest
from ..spec import Execution, GpuForm, KernelSpec, Problem
from . import cuda_reasons
from .base import Availability, Prepared

LINE_BYTES = 128
# L1 and shared memory are one array, of which the runtime tells only what shared memory may have. CUDA programming
# guide, "Technical specifications per compute capability"; a later one: shared memory's part.
UNIFIED_L1_BYTES = {
    (7, 0): 128 << 10, (7, 2): 128 << 10, (7, 5): 96 << 10, (8, 0): 192 << 10, (8, 6): 128 << 10, (8, 7): 192 << 10,
    (8, 9): 128 << 10, (9, 0): 256 << 10, (10, 0): 256 << 10, (10, 3): 256 << 10, (11, 0): 256 << 10,
    (12, 0): 128 << 10, (12, 1): 128 << 10,
}  # fmt: skip


class GpuBackend(ABC):
    """Kernels on this machine's GPUs, through a module with `_cuda`'s functions. What differs is abstract here."""

    name: str
    runtime: str  # as a user calls it

    def __init__(self, root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> None:
        self._root, self._environment = root, environment
        self._found: tuple[object, dict[str, Mapping[str, Any]]] | None = None

    @abstractmethod
    def missing(self) -> tuple[str, str]:
        """(reason, remedy) why the module cannot be loaded; two times "" where it can."""

    @abstractmethod
    def module(self) -> Any:
        """The module, loaded."""

    @abstractmethod
    def supports_form(self, spec: KernelSpec, form: GpuForm, dtype: str, device: Device) -> Availability:
        """Whether it runs on that device; the form has the dtype."""

    @abstractmethod
    def prepared(
        self, spec: KernelSpec, form: GpuForm, problem: Problem, execution: Execution, device: Device
    ) -> Prepared:
        """What `prepare` gives, all of it checked."""

    def availability(self) -> Availability:
        reason, remedy = self.missing()
        if reason:
            return Availability(False, reason, remedy)
        try:
            facts = self._facts()
        except CudaError as error:
            return Availability(False, f"{self.runtime} found devices and cannot read them: {error}")
        if not facts:
            return Availability(False, *self.no_device(self.module().probe()))
        if not self.devices():
            left_out = " ".join(self.notes()).rstrip(".")
            return Availability(False, f"no GPU may be used: {left_out}")
        return Availability(True)

    def no_device(self, probe: Mapping[str, object]) -> tuple[str, str]:
        """(reason, remedy) of a probe that found none."""
        return cuda_reasons.no_device(probe, self._environment, cuda_reasons.gpus_of_machine(self._root))

    def devices(self) -> tuple[Device, ...]:
        return tuple(
            device_of(name, fact)
            for name, fact in self._facts().items()
            if fact["compute_mode"] != cuda_reasons.PROHIBITED
        )

    def notes(self) -> list[str]:
        """What a user should know about the devices, in sentences: MIG, hidden, left out, emulated."""
        return cuda_reasons.notes(self._facts(), self._environment, cuda_reasons.gpus_of_machine(self._root))

    def _facts(self) -> dict[str, Mapping[str, Any]]:
        """By device id. CUDA settles what is there at its first call, so it is asked once a module."""
        if self.missing()[0]:
            return {}
        cuda = self.module()
        if self._found is None or self._found[0] is not cuda:
            count = int(str(cuda.probe()["count"]))
            self._found = (cuda, {f"cuda:{i}": cuda.device_facts(i) for i in range(count)})
        return self._found[1]

    def supports(self, spec: KernelSpec, dtype: str, device: Device) -> Availability:
        form = spec.gpu
        if form is None:
            return Availability(False, f"the {self.name} backend has no form of it")
        if dtype not in form.dtypes:
            return Availability(False, f"on a GPU {spec.name} has no {dtype}, only {', '.join(form.dtypes)}")
        return self.supports_form(spec, form, dtype, device)

    def prepare(self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Prepared:
        form = validate(spec, problem, execution, device, self.name)
        can = self.supports(spec, problem.dtype, device)
        if not can:
            raise BackendUnavailable(f"{spec.name} in {problem.dtype} cannot run here because {can.reason}", can.remedy)
        if execution.variant not in (known := form.variants(problem.dtype, device)):
            raise UsageError(f"{spec.name} has no variant {execution.variant!r}, only {', '.join(map(repr, known))}")
        return self.prepared(spec, form, problem, execution, device)


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
