"""CPU, memory, disks and network of this machine through psutil, and the CPUs' energy by RAPL where it may be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import BackendUnavailable
from ..limits import read_number, read_text
from .metrics import grown, rate_of

CURE = "pip install 'gpumicro[monitor]'"
_RAPL = Path("/sys/class/powercap")
_LOOPBACK = "lo"


@dataclass(frozen=True, slots=True)
class HostCounters:
    """Sums since boot, and memory now. `disks` and `nets` by name; seconds and bytes."""

    t_s: float
    cpu: Mapping[str, float]  # user, system, idle, iowait, steal ... of all CPUs
    cores: tuple[tuple[float, float], ...]  # (busy, all) of each
    memory_used: float
    memory_total: float
    disks: Mapping[str, tuple[float, float, float | None]]  # (read, written, busy seconds)
    nets: Mapping[str, tuple[float, float]]  # (received, sent)
    packages_j: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # (energy, where it wraps)


def load_psutil() -> Any:
    """The module. BackendUnavailable with the cure."""
    try:
        return import_module("psutil")
    except ImportError as error:
        raise BackendUnavailable(f"the monitor reads CPU, disks and network through psutil ({error})", CURE) from None


class HostReader:
    """Reads the counters. `why` says what can't be had."""

    def __init__(self, psutil: Any = None, root: Path = Path("/")) -> None:
        self._psutil = load_psutil() if psutil is None else psutil
        self._root = root
        self.why: dict[str, str] = {}
        self._domains = self._rapl()

    def read(self, t_s: float) -> HostCounters:
        """Now; `t_s` is the moment."""
        ps = self._psutil
        memory = ps.virtual_memory()
        return HostCounters(
            t_s, ps.cpu_times()._asdict(), tuple(_busy(one._asdict()) for one in ps.cpu_times(percpu=True)),
            float(memory.total - memory.available), float(memory.total), self._disks(), self._nets(), self._energy(),
        )  # fmt: skip

    def _disks(self) -> dict[str, tuple[float, float, float | None]]:
        """Of the disks themselves: partitions, RAID and LVM would count the same bytes again."""
        try:
            found = self._psutil.disk_io_counters(perdisk=True) or {}
        except (OSError, RuntimeError, NotImplementedError) as error:
            self.why["disk_read_bytes_per_s"] = self.why["disk_write_bytes_per_s"] = f"psutil: {error}"
            return {}
        real = {name: one for name, one in found.items() if (self._root / "sys/block" / name / "device").exists()}
        if not real:
            self.why["disk_read_bytes_per_s"] = self.why["disk_write_bytes_per_s"] = "no disk is seen here"
        return {
            name: (float(one.read_bytes), float(one.write_bytes), _milli(getattr(one, "busy_time", None)))
            for name, one in real.items()
        }

    def _nets(self) -> dict[str, tuple[float, float]]:
        try:
            found = self._psutil.net_io_counters(pernic=True)
        except (OSError, RuntimeError) as error:
            self.why["net_received_bytes_per_s"] = self.why["net_sent_bytes_per_s"] = f"psutil: {error}"
            return {}
        return {k: (float(v.bytes_recv), float(v.bytes_sent)) for k, v in found.items() if k != _LOOPBACK}

    def _rapl(self) -> list[tuple[str, Path, float]]:
        """The packages' domains (kernel documentation, power/powercap; AMD's have the same names)."""
        folders = sorted((self._root / _RAPL.relative_to("/")).glob("intel-rapl:*"))
        found = []
        for folder in folders:
            name = read_text(folder / "name") or ""
            if not name.startswith("package"):
                continue
            if read_number(folder / "energy_uj") is None:
                self.why["cpu_energy_j"] = f"{folder}/energy_uj may be read by root alone"
                continue
            found.append((folder.name, folder / "energy_uj", float(read_number(folder / "max_energy_range_uj") or 0)))
        if not found:
            self.why.setdefault("cpu_energy_j", "no RAPL under /sys/class/powercap (usual in virtual machines)")
            self.why["cpu_power_w"] = self.why["cpu_energy_j"]
        return found

    def _energy(self) -> dict[str, tuple[float, float]]:
        now = {name: (read_number(path), most) for name, path, most in self._domains}
        return {name: (value * 1e-6, most * 1e-6) for name, (value, most) in now.items() if value is not None}


def _milli(value: float | None) -> float | None:
    return None if value is None else value * 1e-3  # psutil counts in milliseconds


def _busy(times: Mapping[str, float]) -> tuple[float, float]:
    """(busy, all) seconds. A guest's time is in user's already; what the hypervisor took is neither busy nor idle."""
    whole = sum(value for key, value in times.items() if not key.startswith("guest"))
    return whole - times.get("idle", 0.0) - times.get("iowait", 0.0) - times.get("steal", 0.0), whole


def cpu_energy_j(now: HostCounters, before: HostCounters) -> float | None:
    """Joules of all packages between two readings; None where one of them is not known."""
    parts = [
        grown(value, before.packages_j[name][0], wrap or None) if name in before.packages_j else None
        for name, (value, wrap) in now.packages_j.items()
    ]
    return None if not parts or None in parts else sum(part for part in parts if part is not None)


def host_values(now: HostCounters, before: HostCounters) -> dict[str, float | None]:
    """The values of metrics.HOST between two readings; None where one can't be had."""
    seconds = now.t_s - before.t_s
    energy = cpu_energy_j(now, before)
    return {
        **_cpu(now, before),
        "memory_utilization": now.memory_used / now.memory_total if now.memory_total else None,
        "memory_used_bytes": now.memory_used,
        "disk_utilization": _busiest(now, before, seconds),
        "disk_read_bytes_per_s": _sum({k: v[0] for k, v in now.disks.items()}, _first(before.disks, 0), seconds),
        "disk_write_bytes_per_s": _sum({k: v[1] for k, v in now.disks.items()}, _first(before.disks, 1), seconds),
        "net_received_bytes_per_s": _sum({k: v[0] for k, v in now.nets.items()}, _first(before.nets, 0), seconds),
        "net_sent_bytes_per_s": _sum({k: v[1] for k, v in now.nets.items()}, _first(before.nets, 1), seconds),
        "cpu_power_w": energy / seconds if energy is not None and seconds > 0 else None,
    }


def _cpu(now: HostCounters, before: HostCounters) -> dict[str, float | None]:
    busy, whole = (b - a for a, b in zip(_busy(before.cpu), _busy(now.cpu), strict=True))
    if whole <= 0:  # two readings within a tick of the kernel's clock
        return dict.fromkeys(("cpu_utilization", "cpu_busiest", "cpu_iowait", "cpu_steal"))
    shares = [
        (b - a) / (whole_b - whole_a)
        for (a, whole_a), (b, whole_b) in zip(before.cores, now.cores, strict=False)
        if whole_b > whole_a
    ]

    def part(key: str) -> float | None:
        growth = now.cpu[key] - before.cpu.get(key, 0.0) if key in now.cpu else None
        return None if growth is None else _share(growth / whole)  # iowait may run backwards (proc(5))

    return {
        "cpu_utilization": _share(busy / whole), "cpu_busiest": _share(max(shares)) if shares else None,
        "cpu_iowait": part("iowait"), "cpu_steal": part("steal"),
    }  # fmt: skip


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _first(counters: Mapping[str, tuple[Any, ...]], index: int) -> dict[str, float]:
    return {name: values[index] for name, values in counters.items()}


def _sum(now: Mapping[str, float], before: Mapping[str, float], seconds: float) -> float | None:
    """Of those that were there both times and were not reset; a device that was plugged in counts from then on."""
    known = [rate_of(value, before[name], seconds) for name, value in now.items() if name in before]
    rates = [value for value in known if value is not None]
    return sum(rates) if rates else None


def _busiest(now: HostCounters, before: HostCounters, seconds: float) -> float | None:
    shares = [
        rate_of(busy, before.disks[name][2], seconds)
        for name, (_, _, busy) in now.disks.items()
        if name in before.disks
    ]
    known = [_share(value) for value in shares if value is not None]
    return max(known) if known else None
