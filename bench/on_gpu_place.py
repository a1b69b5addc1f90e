"""Where a part of on_gpu.py runs, and the rows that it gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gpumicro.backends.base import Backend
from gpumicro.device import Device

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part runs, and for how long it may."""

    device: Device
    backend: Backend
    seconds: float

    @property
    def index(self) -> int:
        return self.device.index

    @property
    def emulated(self) -> bool:
        return bool(self.device.facts.get("emulated"))

    @property
    def tiny(self) -> Device:
        """The device as one for which every default size is small."""
        return replace(self.device, facts={**self.device.facts, "emulated": True})


def row(name: str, value: float | None = None, unit: str = "", note: str = "", **more: Any) -> Row:
    return {"name": name, "value": value, "unit": unit, "note": note, "status": "ok", **more}


def failed(name: str, error: object) -> Row:
    return row(name, note=f"failed: {error}") | {"status": "failed"}


def skipped(name: str, why: object) -> Row:
    return row(name, note=f"skipped: {why}") | {"status": "skipped"}
