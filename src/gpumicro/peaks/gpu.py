"""GPU spec peaks: one record a model from gpus.toml, found by name or by the facts that a device reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, nearest
from ..spec import DTYPE_ALIASES
from ..units import GIB, MIB, from_prefix

if TYPE_CHECKING:
    from .user import UserSpecs

# key in the file -> (dtype, unit that computes it, accumulator or None)
FORMATS: Mapping[str, tuple[str, str, str | None]] = {
    "fp64": ("float64", "vector", None),
    "fp64_tensor": ("float64", "tensor", None),
    "fp32": ("float32", "vector", None),
    "fp32_matrix": ("float32", "tensor", None),
    "fp16": ("float16", "vector", None),
    "bf16": ("bfloat16", "vector", None),
    "tf32_tensor": ("tf32", "tensor", "float32"),
    "fp16_tensor": ("float16", "tensor", "float32"),
    "fp16_tensor_fp16acc": ("float16", "tensor", "float16"),
    "bf16_tensor": ("bfloat16", "tensor", "float32"),
    "fp8_tensor": ("float8_e4m3fn", "tensor", "float32"),
    "fp8_tensor_fp16acc": ("float8_e4m3fn", "tensor", "float16"),
    "fp6_tensor": ("float6", "tensor", "float32"),
    "fp4_tensor": ("float4_e2m1fn", "tensor", "float32"),
    "int8_tensor": ("int8", "tensor", "int32"),
    "int4_tensor": ("int4", "tensor", "int32"),
}
# the part of the labelled capacity that a driver reports: ECC and reserved pages take up to a tenth
_MEMORY_REPORTED = (0.90, 1.002)


MARKS = ("derived", "contested", "unverified")


@dataclass(frozen=True, slots=True)
class GpuPeak:
    """One dense peak in FLOP/s (OP/s for integers). `marks`: "derived", "contested", "unverified"."""

    key: str
    dtype: str
    unit: str
    accumulator: str | None
    flop_per_s: float
    marks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One model: SI base units; what no trustworthy source states is None and named in `unknown`."""

    id: str
    name: str
    aliases: tuple[str, ...]
    vendor: str
    architecture: str
    form_factor: str
    compute_capability: str
    sm_count: int | None
    boost_clock_hz: float | None
    tensor_clock_hz: float | None  # that the tensor peaks assume, where it is not the boost clock
    memory_type: str
    memory_bytes: int
    memory_reported_bytes: int | None
    memory_bus_bits: int | None
    memory_bandwidth_bytes_per_s: float
    l2_bytes: float | None
    tdp_w: float | None
    peaks: tuple[GpuPeak, ...]
    unknown: tuple[str, ...]
    not_applicable: tuple[str, ...]
    marked: Mapping[str, tuple[str, ...]]  # key in the file -> marks
    evidence: str
    source: tuple[str, ...]
    note: str

    def peak(self, dtype: str, unit: str | None = None, accumulator: str | None = None) -> GpuPeak | None:
        """The highest peak for that dtype ("float16", "f16", "tf32"), of the "vector" or "tensor" units or either.

        Peaks that accumulate in the narrower type are passed over where there is one that does not, unless that
        `accumulator` is asked for: they are no like-for-like bound. None where the file has none.
        """
        wanted = DTYPE_ALIASES.get(dtype, dtype)
        fitting = [p for p in self.peaks if p.dtype == wanted and unit in (None, p.unit)]
        if accumulator:
            fitting = [p for p in fitting if p.accumulator == accumulator]
        usual = [p for p in fitting if not p.key.endswith("_fp16acc")] or fitting
        return max(usual, key=lambda p: p.flop_per_s, default=None)

    def per_cycle(self, peak: GpuPeak) -> float | None:
        """FLOP a cycle of the whole device behind that peak, None where the clock it assumes is not known."""
        at_tensor_clock = peak.unit == "tensor" and peak.dtype != "float64"  # as the vendor's tables have it
        clock_hz = (self.tensor_clock_hz if at_tensor_clock else None) or self.boost_clock_hz
        return peak.flop_per_s / clock_hz if clock_hz else None

    def to_json(self) -> dict[str, Any]:
        """For `spec` of a result."""
        return {
            "name": self.name,
            "id": self.id,
            "source": list(self.source),
            "note": self.note,
            "evidence": self.evidence,
            "memory_bandwidth_bytes_per_s": self.memory_bandwidth_bytes_per_s,
            "peaks": {
                p.key: {"flop_per_s": p.flop_per_s, "dtype": p.dtype, "unit": p.unit, "marks": list(p.marks)}
                for p in self.peaks
            },
            "unknown": list(self.unknown),
            "not_applicable": list(self.not_applicable),
            "marks": {key: list(marks) for key, marks in self.marked.items()},
        }


def gpu_from_table(entry: Mapping[str, Any]) -> GpuSpec:
    """The record of one complete [[gpu]] table."""
    marked = {}
    for key in (*entry, *entry["peak"]):
        marks = tuple(mark for mark in MARKS if key in entry[mark])
        if marks:
            marked[key] = marks
    peaks = tuple(
        GpuPeak(key, *FORMATS[key], from_prefix(value, "T"), marked.get(key, ()))
        for key, value in entry["peak"].items()
    )

    def scaled(key: str, prefix: str) -> float | None:
        return from_prefix(entry[key], prefix) if key in entry else None

    return GpuSpec(
        id=entry["id"],
        name=entry["name"],
        aliases=tuple(entry["aliases"]),
        vendor=entry["vendor"],
        architecture=entry["architecture"],
        form_factor=entry["form_factor"],
        compute_capability=entry["compute_capability"],
        sm_count=entry.get("sm_count"),
        boost_clock_hz=scaled("boost_clock_mhz", "M"),
        tensor_clock_hz=scaled("tensor_clock_mhz", "M"),
        memory_type=entry["memory_type"],
        memory_bytes=entry["memory_gib"] * GIB,
        memory_reported_bytes=entry["memory_reported_mib"] * MIB if "memory_reported_mib" in entry else None,
        memory_bus_bits=entry.get("bus_width_bits"),
        memory_bandwidth_bytes_per_s=from_prefix(entry["memory_bandwidth_gbs"], "G"),
        l2_bytes=entry["l2_mib"] * MIB if "l2_mib" in entry else None,
        tdp_w=entry.get("tdp_w"),
        peaks=peaks,
        unknown=tuple(entry["unknown"]),
        not_applicable=tuple(entry["not_applicable"]),
        marked=marked,
        evidence=entry["evidence"],
        source=tuple(entry["source"]),
        note=entry["note"],
    )


@lru_cache(maxsize=1)
def _builtin() -> tuple[GpuSpec, ...]:
    from pathlib import Path

    from .toml import read_toml

    table = read_toml(Path(str(files("gpumicro") / "peaks" / "gpus.toml")), "gpus.toml")
    return tuple(map(gpu_from_table, table["gpu"]))


def gpu_specs(user: UserSpecs | None = None) -> tuple[GpuSpec, ...]:
    """Every known model; one of the user's takes the place of ours with the same id, new ones come first."""
    if user is None:
        return _builtin()
    own = {spec.id for spec in user.gpus}
    return (*user.gpus, *(spec for spec in _builtin() if spec.id not in own))


def find_gpu(name: str, user: UserSpecs | None = None) -> GpuSpec:
    """By id, name or alias, whatever the case; ids win over names over aliases. Raises UsageError with the nearest."""
    specs = gpu_specs(user)
    wanted = name.strip().casefold()
    for keys in (lambda s: (s.id,), lambda s: (s.name,), lambda s: s.aliases):
        found = [spec for spec in specs if wanted in (key.casefold() for key in keys(spec))]
        if len(found) > 1:
            raise UsageError(f"{name!r} may be {' or '.join(spec.id for spec in found)}; give one of these")
        if found:
            return found[0]
    hint = nearest(name, (spec.id for spec in specs), most=6)
    raise UsageError(f"unknown spec {name!r}{hint if '?' in hint else '; `gpumicro specs` lists them'}")


@dataclass(frozen=True, slots=True)
class GpuMatch:
    """The spec of a device, or None and the reason."""

    spec: GpuSpec | None
    why: str


def match_gpu(facts: Mapping[str, Any], user: UserSpecs | None = None) -> GpuMatch:
    """The model of a device by what it reports, before what it calls itself.

    `facts`: "compute_capability" ("9.0" or "gfx942"), "sm_count", "memory_bytes", "memory_bus_bits", "name". All but
    the name must fit where both sides know them; the name only chooses among those that fit, so a slice of a GPU or a
    renamed one never gets the peaks of another.
    """
    fitting = [spec for spec in gpu_specs(user) if _fits(spec, facts)]
    if not fitting:
        return GpuMatch(None, f"no known model has {_facts_words(facts)}")
    name = _bare(str(facts.get("name") or ""))
    named = [spec for spec in fitting if name and name in {_bare(key) for key in (spec.name, *spec.aliases)}]
    exact = [spec for spec in named if name == _bare(spec.name)] or named
    if len(exact) == 1:
        return GpuMatch(exact[0], "facts and name")
    solid = all(facts.get(key) for key in ("compute_capability", "sm_count", "memory_bytes"))
    if len(fitting) == 1 and solid and fitting[0].sm_count is not None:
        return GpuMatch(fitting[0], "facts only; the name is not in the table")
    return GpuMatch(None, f"{', '.join(spec.id for spec in (exact or fitting)[:6])} all fit; name one with --spec")


def _fits(spec: GpuSpec, facts: Mapping[str, Any]) -> bool:
    capability, sms, memory = facts.get("compute_capability"), facts.get("sm_count"), facts.get("memory_bytes")
    if capability and str(capability) != spec.compute_capability:
        return False
    if sms and spec.sm_count and int(sms) != spec.sm_count:
        return False
    bus = facts.get("memory_bus_bits")
    if bus and spec.memory_bus_bits and int(bus) != spec.memory_bus_bits:
        return False
    if memory and spec.memory_reported_bytes and 0.99 < memory / spec.memory_reported_bytes < 1.01:
        return True
    low, high = _MEMORY_REPORTED
    return not memory or low * spec.memory_bytes <= memory <= high * spec.memory_bytes


def _bare(name: str) -> str:
    """The name without what vendors put in or leave out at will."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"nvidia|amd|intel|\(r\)|\(tm\)|tesla|graphics", "", name.lower()))


def _facts_words(facts: Mapping[str, Any]) -> str:
    return (
        ", ".join(
            f"{key} {facts[key]}"
            for key in ("compute_capability", "sm_count", "memory_bytes", "memory_bus_bits", "name")
            if facts.get(key)
        )
        or "these facts"
    )
