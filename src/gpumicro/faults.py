"""Faults to be injected into a replay, from a small TOML file: what a sick machine would have shown.

    [[throttle]]              # slower from a moment on, and NVML says why
    from_s = 2.0
    factor = 1.5              # times as long
    reasons = ["hardware thermal"]
    [[slow]]                  # all along, and NVML says nothing
    factor = 1.2
    [[nvml]]                  # no answer
    missing = ["power_w", "reasons"]     # or "all"
    why = "Not Supported"
    [[dead]]                  # a CudaError at the n-th kernel that is measured
    at_measurement = 5
    lost = true               # the context with it
    [[missing]]               # not there when the devices are counted
    device = "cuda:3"
    [[events]]                # the event clock reads so many times what the wall clock does
    factor = 1.3
    [[others]]                # another process on the GPU
    pids = [4711]

Each takes `device = "cuda:1"` to mean that one alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from .errors import SchemaError, unknown
from .nvml import REASONS
from .peaks.toml import Reader, read_toml
from .telemetry import Counters, Reading

_MISSING = (*(field.name for field in fields(Reading) if field.name != "t_s"), "processes", "facts",
            *(field.name for field in fields(Counters) if field.name != "t_s"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Throttle:
    device: str | None
    from_s: float
    factor: float
    reasons: int  # bits of nvml.REASONS


@dataclass(frozen=True, slots=True)
class Slow:
    device: str | None
    factor: float


@dataclass(frozen=True, slots=True)
class Silent:
    """NVML gives nothing under these keys."""

    device: str | None
    missing: frozenset[str]
    why: str


@dataclass(frozen=True, slots=True)
class Dead:
    device: str | None
    at_measurement: int
    lost: bool


@dataclass(frozen=True, slots=True)
class Missing:
    device: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Events:
    device: str | None
    factor: float


@dataclass(frozen=True, slots=True)
class Others:
    device: str | None
    pids: tuple[int, ...]


Fault = Throttle | Slow | Silent | Dead | Missing | Events | Others
F = TypeVar("F", Throttle, Slow, Silent, Dead, Missing, Events, Others)


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults of a file."""

    found: tuple[Fault, ...] = ()

    def of(self, kind: type[F], device: str) -> list[F]:
        """Those of a kind that befall a device."""
        return [fault for fault in self.found if isinstance(fault, kind) and fault.device in (None, device)]


def read_faults(path: str | os.PathLike[str], devices: Iterable[str]) -> Faults:
    """The faults in a file; `devices` are the ids there are. Raises SchemaError naming file and place."""
    name = os.fspath(path)
    top = Reader(read_toml(Path(name), name), name)
    known = tuple(devices)
    for key in top.table:
        if key not in _MAKERS:
            raise SchemaError(f"{name}: {unknown('fault', key, _MAKERS)}")
    return Faults(tuple(_MAKERS[kind](one, _device(one, known)) for kind in top.table for one in top.tables(kind)))


def _device(table: Reader, known: tuple[str, ...]) -> str | None:
    device = table.text("device")
    if device is not None and device not in known:
        raise SchemaError(f"{table.place}.device: the recording has no {device!r}, only {', '.join(known)}")
    return device


def _factor(table: Reader) -> float:
    factor = table.number("factor")
    if factor is None or not 1e-3 <= factor <= 1e3:
        raise SchemaError(f"{table.place}.factor must be a number from 0.001 to 1000")
    return factor


def _throttle(table: Reader, device: str | None) -> Fault:
    table.only("device", "from_s", "factor", "reasons")
    bits = 0
    names = {name: bit for bit, name in REASONS.items()}
    for reason in table.texts("reasons") or ("hardware thermal",):
        if reason not in names:
            raise SchemaError(f"{table.place}.reasons: {unknown('reason', reason, names)}")
        bits |= names[reason]
    begin = table.table.get("from_s", 0)
    if isinstance(begin, bool) or not isinstance(begin, (int, float)) or not 0 <= begin < 1e6:
        raise SchemaError(f"{table.place}.from_s must be a number of seconds, not {begin!r}")
    return Throttle(device, float(begin), _factor(table), bits)


def _slow(table: Reader, device: str | None) -> Fault:
    table.only("device", "factor")
    return Slow(device, _factor(table))


def _silent(table: Reader, device: str | None) -> Fault:
    table.only("device", "missing", "why")
    missing = table.texts("missing") or ("all",)
    for key in missing:
        if key not in (*_MISSING, "all"):
            raise SchemaError(f"{table.place}.missing: {unknown('value', key, (*_MISSING, 'all'))}")
    return Silent(device, frozenset(_MISSING if "all" in missing else missing), table.text("why") or "Not Supported")


def _dead(table: Reader, device: str | None) -> Fault:
    table.only("device", "at_measurement", "lost")
    lost = table.table.get("lost", True)
    if not isinstance(lost, bool):
        raise SchemaError(f"{table.place}.lost must be true or false, not {lost!r}")
    return Dead(device, table.whole("at_measurement") or 1, lost)


def _missing(table: Reader, device: str | None) -> Fault:
    table.only("device", "why")
    if device is None:
        raise SchemaError(f"{table.place}.device must be given: all devices missing is no run")
    return Missing(device, table.text("why") or "the device was lost (injected)")


def _events(table: Reader, device: str | None) -> Fault:
    table.only("device", "factor")
    return Events(device, _factor(table))


def _others(table: Reader, device: str | None) -> Fault:
    table.only("device", "pids")
    pids = table.table.get("pids", [])
    if not (isinstance(pids, list) and pids and all(isinstance(p, int) and not isinstance(p, bool) for p in pids)):
        raise SchemaError(f"{table.place}.pids must be a list of process ids")
    return Others(device, tuple(pids))


_MAKERS = {
    "throttle": _throttle, "slow": _slow, "nvml": _silent, "dead": _dead, "missing": _missing, "events": _events,
    "others": _others,
}  # fmt: skip
