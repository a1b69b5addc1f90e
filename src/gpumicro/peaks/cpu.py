"""CPU spec peaks: cores x clock x width x ports, each factor with its source; what is not known stays unknown.

The recipe "fma" counts fused multiply-adds only; "fma_add" is the absolute ceiling of cores whose adders work beside
the FMA ports (AMD's Zen), which a kernel of FMAs alone cannot reach.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..device import Device
from ..environment import cpu as cpu_identity
from ..errors import UsageError
from ..spec import DTYPE_ALIASES, ITEMSIZE
from .toml import read_toml

if TYPE_CHECKING:
    from .user import UserCpu, UserSpecs

RECIPES = ("fma", "fma_add")
# an instruction set that the CPU must report -> widest vector it gives in bits
_WIDTHS = (("avx512f", 512), ("avx2", 256), ("avx", 256), ("neon", 128), ("asimd", 128), ("sse2", 128))
_ARMV8 = 8  # the family that Arm's cpuinfo gives every 64-bit core
_DOTS = {"bfloat16": ("bf16_dot", ("avx512_bf16", "avx_ne_convert_bf16", "bf16")),
         "int8": ("int8_dot", ("avx512_vnni", "avx_vnni", "asimddp", "dotprod"))}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Factor:
    """A number and where it comes from, or None and why it is not known."""

    value: float | None
    source: str

    def to_json(self) -> dict[str, Any]:
        """{"value", "source"}, or {"value": null, "value_why"}."""
        return (
            {"value": self.value, "source": self.source}
            if self.value is not None
            else {"value": None, "value_why": self.source}
        )


@dataclass(frozen=True, slots=True)
class CpuPeak:
    """One peak: FLOP per cycle of one core, and FLOP/s of all cores where the clock is known."""

    dtype: str
    recipe: str
    flop_per_cycle: Factor
    flop_per_s: Factor


@dataclass(frozen=True, slots=True)
class CpuSpec:
    """A CPU as cores x clock x width x ports; memory bandwidth in B/s."""

    name: str
    cores: Factor
    clock_hz: Factor
    vector_bits: Factor
    fma_ports: Factor
    add_ports: Factor
    memory_bandwidth_bytes_per_s: Factor
    peaks: tuple[CpuPeak, ...]
    source: tuple[str, ...]

    def peak(self, dtype: str, recipe: str = "fma") -> CpuPeak:
        """The peak for a dtype; its factors say why where it is unknown. Raises UsageError for another recipe."""
        if recipe not in RECIPES:
            raise UsageError(f"unknown recipe {recipe!r} (known: {', '.join(RECIPES)})")
        wanted = DTYPE_ALIASES.get(dtype, dtype)
        for peak in self.peaks:
            if (peak.dtype, peak.recipe) == (wanted, recipe):
                return peak
        why = Factor(None, f"no {recipe} peak is given for {wanted}")
        return CpuPeak(wanted, recipe, why, why)

    def to_json(self) -> dict[str, Any]:
        """For `spec` of a result."""
        factors = ("cores", "clock_hz", "vector_bits", "fma_ports", "add_ports", "memory_bandwidth_bytes_per_s")
        peaks = [
            {
                "dtype": p.dtype,
                "recipe": p.recipe,
                "flop_per_cycle": p.flop_per_cycle.to_json(),
                "flop_per_s": p.flop_per_s.to_json(),
            }
            for p in self.peaks
        ]
        return {
            "name": self.name,
            "source": list(self.source),
            **{key: getattr(self, key).to_json() for key in factors},
            "peaks": peaks,
        }


def cpu_spec(device: Device, clock_hz: float | None = None, user: UserSpecs | None = None) -> CpuSpec:
    """The spec of the CPU that `device` describes.

    `clock_hz` takes the place of the maximum clock that the device reports. A user's file overrides factor by factor.
    """
    core = _core_of(device)
    own = _user_cpu(device, user)
    cores = _cores(device, own)
    clock = _clock(device, clock_hz, own)
    bits, ports, adds = _width(device, core), _ports(device, core), _add_ports(core)
    peaks = [
        _peak(dtype, recipe, _rate(dtype, recipe, device, core, (bits, ports, adds), own), cores, clock)
        for dtype in ("float64", "float32", "bfloat16", "int8")
        for recipe in (RECIPES if dtype.startswith("float") else ("fma",))
    ]
    source = (*(own.source if own else ()), *(core["source"] if core else ()))
    name = own.name if own and own.name else f"{device.name} ({core['name']})" if core else device.name
    return CpuSpec(name, cores, clock, bits, ports, adds, _bandwidth(device, own), tuple(peaks), source)


@lru_cache(maxsize=1)
def _table() -> Sequence[Mapping[str, Any]]:
    entries: Sequence[Mapping[str, Any]] = read_toml(Path(str(files("gpumicro") / "peaks" / "cpus.toml")), "cpus.toml")[
        "cpu"
    ]
    return entries


def _core_of(device: Device) -> Mapping[str, Any] | None:
    """The table entry for who the CPU says it is: the device's own facts, else /proc/cpuinfo of this machine."""
    facts: Mapping[str, Any] = device.facts
    vendor = _first(facts, "vendor", "vendor_id", "cpu_implementer")
    family = _number(_first(facts, "family", "cpu_family", "cpu_architecture"))
    model = _number(_first(facts, "cpu_part", "model"))
    if family is None and "cpu_part" in facts:
        family = _ARMV8
    if vendor is None or family is None or model is None:
        here = cpu_identity()
        vendor, family, model = here["vendor"], here["family"], here["model"]
    for entry in _table():
        if entry["vendor"] == vendor and any(
            f == family and low <= (model or 0) <= high for f, low, high in entry["models"]
        ):
            return entry
    return None


def _first(facts: Mapping[str, Any], *keys: str) -> Any:
    return next((facts[key] for key in keys if facts.get(key) is not None), None)


def _number(value: Any) -> int | None:
    """An integer, also from the text that /proc/cpuinfo has ("25", "0xd40")."""
    try:
        return int(value, 0) if isinstance(value, str) else None if value is None else int(value)
    except ValueError:
        return None


def _user_cpu(device: Device, user: UserSpecs | None) -> UserCpu | None:
    if user is None or not user.cpus:
        return None
    named = [own for own in user.cpus if own.name and own.name.casefold() in device.name.casefold()]
    fitting = (
        named or [own for own in user.cpus if own.name is None] or (list(user.cpus) if len(user.cpus) == 1 else [])
    )
    if len(fitting) != 1:
        names = ", ".join(repr(own.name) for own in user.cpus)
        raise UsageError(f"{user.path}: {'several' if fitting else 'none'} of its CPUs ({names}) fit {device.name!r}")
    return fitting[0]


def _cores(device: Device, own: UserCpu | None) -> Factor:
    if own and own.cores:
        return Factor(own.cores, own.source[0])
    if device.cores is None:
        return Factor(None, device.why.get("cores", "number of cores unknown"))
    return Factor(device.cores, "physical cores that this process may use")


def _clock(device: Device, clock_hz: float | None, own: UserCpu | None) -> Factor:
    if own and own.clock_hz:
        return Factor(own.clock_hz, own.source[0])
    if clock_hz is not None:
        return Factor(clock_hz, "given by the caller")
    if device.clock_max_hz is not None:
        return Factor(
            device.clock_max_hz,
            "cpuinfo_max_freq: the highest clock of one core, which all cores together may not hold",
        )
    if device.virtual:
        return Factor(None, "virtual machine: maximum clock hidden")
    return Factor(None, device.why.get("clock_max_hz", "maximum clock not reported"))


def _width(device: Device, core: Mapping[str, Any] | None) -> Factor:
    if core is None:
        return Factor(None, f"{device.name} is not in cpus.toml")
    if "hybrid" in core:
        return Factor(None, core["hybrid"])
    reported = next(((isa, bits) for isa, bits in _WIDTHS if isa in device.isa), None)
    if reported is None:
        return Factor(None, f"none of {', '.join(isa for isa, _ in _WIDTHS)} is reported")
    isa, bits = reported
    if bits < core["vector_bits"]:
        return Factor(
            bits, f"{isa} is the widest that is reported; the data path of {core['name']} has {core['vector_bits']}"
        )
    return Factor(core["vector_bits"], core["source"][0])


def _ports(device: Device, core: Mapping[str, Any] | None) -> Factor:
    if core is None:
        return Factor(None, f"{device.name} is not in cpus.toml")
    if "hybrid" in core:
        return Factor(None, core["hybrid"])
    if not {"fma", "neon", "asimd", "avx512f"} & set(device.isa):
        return Factor(None, "no fused multiply-add is reported")
    if "fma_ports" in core:
        return Factor(core["fma_ports"], core["source"][0])
    for pattern, ports in core["ports_by_name"]:
        if re.search(pattern, device.name):
            return Factor(ports, core["source"][-1])
    return Factor(
        None, f"{core['name']} parts have one or two 512-bit FMA ports and the name {device.name!r} does not say which"
    )


def _add_ports(core: Mapping[str, Any] | None) -> Factor:
    """Adders that work beside busy FMA ports."""
    if core is None or "hybrid" in core:
        return Factor(None, "not in cpus.toml" if core is None else core["hybrid"])
    return Factor(core.get("add_ports", 0), core["source"][0])


def _rate(
    dtype: str,
    recipe: str,
    device: Device,
    core: Mapping[str, Any] | None,
    factors: tuple[Factor, Factor, Factor],
    own: UserCpu | None,
) -> Factor:
    """FLOP per cycle of one core."""
    if own and recipe == "fma" and dtype in own.flop_per_cycle:
        return Factor(own.flop_per_cycle[dtype], own.source[0])
    bits, ports, adds = factors
    if bits.value is None:
        return bits
    lanes = bits.value / (8 * ITEMSIZE[dtype])
    if dtype in _DOTS:
        key, instruction_sets = _DOTS[dtype]
        if not set(instruction_sets) & set(device.isa):
            return Factor(None, f"this CPU reports no {dtype} dot product")
        if core is None or key not in core:
            return Factor(
                None, f"no source states the {dtype} dot product's ports for {core['name'] if core else device.name}"
            )
        return Factor(2 * core[key] * lanes, f"2 x {core[key]} ports x {lanes:g} lanes")
    if ports.value is None:
        return ports
    fma = 2 * ports.value * lanes
    if recipe == "fma":
        return Factor(fma, f"2 x {ports.value:g} FMA ports x {lanes:g} lanes")
    if adds.value is None:
        return adds
    return Factor(fma + adds.value * lanes, f"(2 x {ports.value:g} FMA + {adds.value:g} adder ports) x {lanes:g} lanes")


def _peak(dtype: str, recipe: str, rate: Factor, cores: Factor, clock: Factor) -> CpuPeak:
    for factor in (rate, clock, cores):
        if factor.value is None:
            return CpuPeak(dtype, recipe, rate, factor)
    assert rate.value is not None
    assert clock.value is not None
    assert cores.value is not None
    return CpuPeak(
        dtype, recipe, rate, Factor(cores.value * clock.value * rate.value, "cores x clock x FLOP per cycle")
    )


def _bandwidth(device: Device, own: UserCpu | None) -> Factor:
    if own and own.memory_bandwidth_bytes_per_s:
        return Factor(own.memory_bandwidth_bytes_per_s, own.source[0])
    why = (
        "virtual machine: memory channels hidden"
        if device.virtual
        else "memory channels and their clock cannot be read without root"
    )
    return Factor(None, device.why.get("memory_bandwidth", why))
