"""One GPU's state and traffic through NVML, sample by sample. What the driver does not tell is None with its reason."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..nvml import Answer, Gpu, uuids
from ..telemetry import Counters, NvmlTelemetry, Reading
from ..units import KIB, from_prefix
from .metrics import grown, rate_of

HANG_S = 10.0  # a reading takes milliseconds; a driver that resets a GPU may take seconds
ALL_LINKS = 0xFFFFFFFF  # scopeId of the sum over NVLinks
# field ids and bytes of a unit (nvml.h): NVLink data in KiB; in bytes on GPUs that have only the newer counters
_NVLINK = {"sent": ((138, KIB), (202, 1)), "received": ((139, KIB), (204, 1))}
_PCIE_FIELDS = {"sent": 197, "received": 198}  # bytes since the driver was loaded
_PCIE_CALL = {"sent": 0, "received": 1}  # nvmlPcieUtilCounter_t; over 20 ms, in kB/s
_UNSIGNED_64 = (2, 3)  # nvmlValueType_t: unsigned long, unsigned long long


@dataclass(frozen=True, slots=True)
class GpuCounters:
    """A reading, sums since the driver was loaded (bytes, joules), and PCIe's rate where there is no sum."""

    reading: Reading
    memory_busy: float | None
    memory_used: float | None
    memory_total: float | None
    energy_j: float | None
    traffic: Mapping[str, float | None]  # "nvlink sent" ... -> bytes
    pcie_rate: Mapping[str, float | None]  # "sent", "received" -> B/s


class GpuReader:
    """Reads one GPU, named by its UUID. `facts` are NVML's; `why` says what can't be had."""

    def __init__(self, index: int, uuid: str, library: Any = None) -> None:
        self.index, self.uuid = index, uuid
        self.gpu = Gpu(uuid, library)
        self._telemetry = NvmlTelemetry(self.gpu)
        self.facts = self.gpu.facts()
        self.why: dict[str, str] = self._telemetry.why

    @property
    def name(self) -> str:
        return str(self.facts.get("name") or "unknown GPU")

    def counters(self) -> Counters:
        """Energy, and how long each policy held the clock down."""
        return self._telemetry.counters()

    def close(self) -> None:
        self.gpu.close()

    def read(self, t_s: float) -> GpuCounters:
        """Now; `t_s` is the moment. A driver that hangs is given up: it must hold neither watch nor command."""
        found: list[GpuCounters] = []
        asking = threading.Thread(target=lambda: found.append(self._read(t_s)), name="gpumicro-nvml", daemon=True)
        asking.start()
        asking.join(HANG_S)
        if not found:
            self.gpu.give_up(f"NVML did not answer for {HANG_S:g} s")
            return self._read(t_s)  # at once, and nothing is known
        return found[0]

    def _read(self, t_s: float) -> GpuCounters:
        state = self._telemetry.reading()
        memory = self._ask("memory_used_bytes", "nvmlDeviceGetMemoryInfo", convert=lambda v: (v.used, v.total))
        traffic = {f"nvlink {way}": self._nvlink(way) for way in _NVLINK}
        traffic |= {f"pcie {way}": self._wide(field) for way, field in _PCIE_FIELDS.items()}
        return GpuCounters(
            Reading(t_s, state.sm_hz, state.memory_hz, state.power_w, state.temperature_c, state.utilization,
                    state.reasons),
            self._ask("memory_busy", "nvmlDeviceGetUtilizationRates", convert=lambda v: v.memory / 100),
            memory[0] if memory else None, memory[1] if memory else None,
            self._ask("energy_j", "nvmlDeviceGetTotalEnergyConsumption", convert=lambda v: from_prefix(int(v), "m")),
            traffic,
            {way: None if traffic[f"pcie {way}"] is not None else self._pcie(way) for way in _PCIE_CALL},
        )  # fmt: skip

    def _ask(self, key: str, name: str, *arguments: Any, convert: Any = None) -> Any:
        answer = self.gpu.ask(name, *arguments, convert=convert)
        if answer.value is None:
            self.why[key] = answer.why
        return answer.value

    def _nvlink(self, way: str) -> float | None:
        answers = []
        for field, unit in _NVLINK[way]:
            answer = self._field((field, ALL_LINKS))
            if answer.value is not None:
                return float(answer.value[0] * unit)
            answers.append(answer)
        self.why[f"nvlink_{way}_bytes_per_s"] = answers[0].why
        return None

    def _wide(self, field: int) -> float | None:
        """A 64-bit counter; one of 32 bits wraps several times between two samples and is of no use."""
        value = self._field(field).value
        return float(value[0]) if value is not None and value[1] in _UNSIGNED_64 else None

    def _field(self, field: int | tuple[int, int]) -> Answer:
        return self.gpu.ask("nvmlDeviceGetFieldValues", [field], convert=_value)

    def _pcie(self, way: str) -> float | None:
        rate: float | None = self._ask(
            f"pcie_{way}_bytes_per_s", "nvmlDeviceGetPcieThroughput", _PCIE_CALL[way],
            convert=lambda v: from_prefix(int(v), "k"),
        )  # fmt: skip
        return rate


def _value(values: Any) -> tuple[int, int]:
    """(value, type) of an nvmlFieldValue_t, whose own error counts."""
    one = values[0]
    if int(one.nvmlReturn) != 0:
        raise ValueError(f"NVML error {int(one.nvmlReturn)}")
    return int(one.value.ullVal), int(getattr(one, "valueType", 3))


def find_gpus(wanted: Sequence[str] = (), library: Any = None) -> tuple[list[GpuReader], str]:
    """Readers of all GPUs that NVML shows, or of those named by index or UUID; with none, why.

    Raises UsageError for a name that none has.
    """
    from ..errors import UsageError, unknown

    answer = uuids(library)
    if answer.value is None:
        if wanted:
            raise UsageError(f"--gpu {wanted[0]}: no GPU can be asked: {answer.why}")
        return [], answer.why
    known = {str(index): uuid for index, uuid in enumerate(answer.value)}
    chosen = {}
    for name in wanted or known:
        uuid = known.get(name, name)
        if uuid not in answer.value:
            raise UsageError(unknown("GPU", name, [*known, *answer.value]))
        chosen[uuid] = answer.value.index(uuid)
    return [GpuReader(index, uuid, library) for uuid, index in chosen.items()], ""


def gpu_values(now: GpuCounters, before: GpuCounters) -> dict[str, float | None]:
    """The values of metrics.GPU between two readings; None where one can't be had."""
    reading, seconds = now.reading, now.reading.t_s - before.reading.t_s
    used = now.memory_used / now.memory_total if now.memory_used is not None and now.memory_total else None
    found: dict[str, float | None] = {
        "utilization": reading.utilization, "memory_busy": now.memory_busy, "memory_utilization": used,
        "memory_used_bytes": now.memory_used, "sm_hz": reading.sm_hz, "memory_hz": reading.memory_hz,
        "power_w": reading.power_w, "temperature_c": reading.temperature_c,
    }  # fmt: skip
    for way in _PCIE_CALL:
        key = f"pcie {way}"
        counted = rate_of(now.traffic[key], before.traffic[key], seconds)
        found[f"pcie_{way}_bytes_per_s"] = now.pcie_rate[way] if counted is None else counted
        key = f"nvlink {way}"
        found[f"nvlink_{way}_bytes_per_s"] = rate_of(now.traffic[key], before.traffic[key], seconds)
    return found


def energy_of(now: GpuCounters, before: GpuCounters) -> tuple[float | None, float | None]:
    """Joules between two readings: (by the counter, by the mean of both powers); None where it can't be had."""
    counted = None if now.energy_j is None or before.energy_j is None else grown(now.energy_j, before.energy_j)
    first, second = before.reading.power_w, now.reading.power_w
    known = [power for power in (first, second) if power is not None]
    seconds = now.reading.t_s - before.reading.t_s
    return counted, sum(known) / len(known) * seconds if known else None
