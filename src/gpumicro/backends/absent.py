"""Backends that have a name and a place in the order, but are not part of this version. They say so."""

from __future__ import annotations

from ..device import Device
from ..errors import BackendUnavailable
from ..spec import Execution, KernelSpec, Problem
from .base import Availability, Prepared


class _Absent:
    name: str

    def availability(self) -> Availability:
        return Availability(False, f"this version has no {self.name} backend yet", "Use the cpu backend")

    def devices(self) -> tuple[Device, ...]:
        return ()

    def supports(self, spec: KernelSpec, dtype: str, device: Device) -> Availability:
        del spec, dtype, device
        return self.availability()

    def prepare(self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Prepared:
        del spec, problem, execution, device
        raise BackendUnavailable(self.availability().reason, self.availability().remedy)


class Cupy(_Absent):
    name = "cupy"
