"""What a spec promises for one device, as the roofline sets it beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..device import Device
from ..errors import UsageError
from .cpu import CpuSpec, cpu_spec
from .gpu import GpuSpec, find_gpu, match_gpu
from .user import UserSpecs, load_user


@dataclass(frozen=True, slots=True)
class Promise:
    """One spec peak of the whole device (B/s or FLOP/s), or None and why.

    per_cycle: FLOP in a cycle of one core of a CPU, of all SMs of a GPU.
    """

    value: float | None
    why: str = ""
    per_cycle: float | None = None


@dataclass(frozen=True, slots=True)
class Sheet:
    """All promises for a device. `record` is the result file's "spec"; `clock_hz` is None where unknown, `cores` also
    for a GPU, whose kernels run on all of it."""

    record: Mapping[str, Any]
    cores: float | None
    clock_hz: float | None
    spec: CpuSpec | GpuSpec | None

    def bandwidth(self, level: str) -> Promise:
        """Of a memory level; data sheets give DRAM's."""
        if level != "dram":
            return Promise(None, "data sheets give no bandwidth of caches")
        if isinstance(self.spec, CpuSpec):
            factor = self.spec.memory_bandwidth_bytes_per_s
            return Promise(factor.value, factor.source)
        if self.spec is None:
            return Promise(None, str(self.record.get("why", "no spec was found")))
        return Promise(self.spec.memory_bandwidth_bytes_per_s)

    def arithmetic(self, dtype: str, recipe: str = "fma") -> Promise:
        """Of a dtype; `recipe` is "fma", "fma_add" for FMAs beside independent adds, "tensor" for tensor cores or
        "tensor_half" for those that sum in float16."""
        if isinstance(self.spec, CpuSpec):
            peak = self.spec.peak(dtype, recipe)
            return Promise(peak.flop_per_s.value, peak.flop_per_s.source, peak.flop_per_cycle.value)
        if self.spec is None:
            return Promise(None, str(self.record.get("why", "no spec was found")))
        unit = "tensor" if recipe.startswith("tensor") else "vector"
        found = self.spec.peak(dtype, unit, "float16" if recipe == "tensor_half" else None)
        if found is None:
            return Promise(None, f"{self.spec.name} has no spec peak for {dtype} on its {unit} units")
        return Promise(found.flop_per_s, per_cycle=self.spec.per_cycle(found))


def sheet_for(device: Device, spec: str | None = None) -> Sheet:
    """The spec of a device: found by its facts, or by `spec`, a name of ours or a user's TOML file.

    Raises UsageError for an unknown name or one of another kind of device, SchemaError for a bad file.
    """
    user = load_user(spec) if spec and _is_path(spec) else None
    if device.kind == "cpu":
        if spec and user is None:
            name = find_gpu(spec).name
            raise UsageError(f"{name!r} is a GPU's spec and {device.name} is a CPU; give a file with a [[cpu]] table")
        return _cpu_sheet(device, user)
    return _gpu_sheet(device, spec if user is None else None, user)


def _is_path(spec: str) -> bool:
    return spec.endswith(".toml") or "/" in spec or Path(spec).is_file()


def _cpu_sheet(device: Device, user: UserSpecs | None) -> Sheet:
    found = cpu_spec(device, None, user)
    return Sheet(found.to_json(), found.cores.value, found.clock_hz.value, found)


def _gpu_sheet(device: Device, name: str | None, user: UserSpecs | None) -> Sheet:
    if name:
        chosen: GpuSpec | None = find_gpu(name, user)
        why = ""
    else:
        match = match_gpu({"name": device.name, **device.facts}, user)
        chosen, why = match.spec, match.why
    if chosen is None:
        return Sheet({"name": device.name, "source": [], "why": why}, None, None, None)
    return Sheet(chosen.to_json(), None, chosen.boost_clock_hz, chosen)
