"""What the CPU is: cores, caches, NUMA nodes, limits, as /proc and sysfs say.

Never sysconf: it tells ten times the L3 that there is on some virtual machines.

Everything reads below a `root`, so that a small fake tree can stand for any machine. What cannot be read is None, and
`Device.why` says why; what is guessed is said there to be a guess.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import limits
from .device import Cache, Device
from .limits import read_number, read_text

# Used only where neither sysfs nor cpuid tells: typical of server cores of the last ten years, and marked as a guess.
GUESSED_CACHES = (("l1", 32 << 10), ("l2", 512 << 10), ("l3", 8 << 20))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The numbers of a kernel CPU list: `0-2,5` is (0, 1, 2, 5)."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def parse_size(text: str) -> int:
    """Bytes of a sysfs size: `512K` is 524288."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    text = text.strip()
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def _cpuinfo(root: Path) -> list[dict[str, str]]:
    """One mapping for each logical CPU of /proc/cpuinfo."""
    blocks: list[dict[str, str]] = []
    for block in (read_text(root / "proc/cpuinfo") or "").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        if "processor" in fields and fields["processor"].isdigit():
            blocks.append(fields)
    return blocks


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core: its logical CPUs (SMT siblings), in order."""

    cpus: tuple[int, ...]


def cores(root: Path, cpus: Iterable[int]) -> list[Core]:
    """The physical cores of the given logical CPUs; a CPU whose siblings are unknown is a core of its own."""
    allowed = set(cpus)
    found: list[Core] = []
    seen: set[int] = set()
    for cpu in sorted(allowed):
        if cpu in seen:
            continue
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = read_text(folder / "core_cpus_list") or read_text(folder / "thread_siblings_list")
        mine = tuple(sorted(allowed & {*parse_cpu_list(siblings or ""), cpu}))
        seen.update(mine)
        found.append(Core(mine))
    return found


def physical_first(found: Sequence[Core]) -> tuple[int, ...]:
    """Logical CPUs, one of each core before any second one."""
    depth = max((len(core.cpus) for core in found), default=0)
    return tuple(core.cpus[i] for i in range(depth) for core in found if i < len(core.cpus))


def _sysfs_caches(root: Path, cpus: Sequence[int]) -> list[Cache]:
    shared: dict[str, dict[tuple[int, ...], Cache]] = {}
    for cpu in cpus:
        for folder in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            kind, level, size = (read_text(folder / name) for name in ("type", "level", "size"))
            if kind not in ("Data", "Unified") or not level or not size:
                continue
            by = parse_cpu_list(read_text(folder / "shared_cpu_list") or str(cpu))
            line = read_number(folder / "coherency_line_size") or 64
            shared.setdefault(f"l{level}", {})[by] = Cache(f"l{level}", parse_size(size), line, by, 0)
    caches = []
    for _, groups in sorted(shared.items()):
        first = next(iter(groups.values()))
        caches.append(Cache(first.level, first.size_bytes, first.line_bytes, first.shared_by, len(groups)))
    return caches


def _cpuid_caches(cpus: Sequence[int]) -> list[Cache]:
    try:
        from ._core import cpu as native
    except ImportError:
        return []
    caches = []
    for one in native.cpuid_caches():
        by = max(1, min(one["shared_by"], len(cpus)))
        count = -(-len(cpus) // by)
        caches.append(Cache(f"l{one['level']}", one["size_bytes"], one["line_bytes"], tuple(cpus[:by]), count))
    return caches


def caches(root: Path, cpus: Sequence[int], why: dict[str, str], *, use_cpuid: bool = True) -> tuple[Cache, ...]:
    """Data and unified caches, nearest first, as the first CPU sees them: sysfs, else cpuid, else a marked guess."""
    found = _sysfs_caches(root, cpus)
    if not found and use_cpuid:
        found = _cpuid_caches(cpus)
        if found:
            why["caches"] = "sysfs has no cache directory: from cpuid; who shares what is assumed"
    if not found:
        why["caches"] = "neither sysfs nor cpuid tells: guessed sizes, typical of server cores"
        found = [
            Cache(level, size, 64, tuple(cpus) if level == "l3" else tuple(cpus[:1]), 1 if level == "l3" else len(cpus))
            for level, size in GUESSED_CACHES
        ]
    return tuple(found)


def numa_nodes(root: Path, cpus: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Usable logical CPUs by NUMA node; nodes without any are left out."""
    allowed = set(cpus)
    folders = sorted(
        (root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda folder: int(folder.name.removeprefix("node"))
    )
    nodes = (tuple(sorted(allowed & set(parse_cpu_list(read_text(folder / "cpulist") or "")))) for folder in folders)
    return tuple(node for node in nodes if node) or (tuple(sorted(allowed)),)


def _hypervisor(root: Path, flags: Sequence[str], *, use_cpuid: bool) -> str | None:
    """Name of the hypervisor, None on bare metal."""
    product = " ".join(
        filter(None, (read_text(root / f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")))
    )
    kind = read_text(root / "sys/hypervisor/type")
    known = {
        "KVM": "KVM", "QEMU": "KVM", "VMware": "VMware", "VirtualBox": "VirtualBox", "Microsoft": "Hyper-V",
        "Xen": "Xen", "Amazon EC2": "KVM", "Google": "KVM", "Firecracker": "Firecracker",
    }  # fmt: skip
    if kind:
        return kind
    if "hypervisor" not in flags:
        return None
    by_product = next((name for word, name in known.items() if word in product), None)
    return by_product or (_cpuid_hypervisor() if use_cpuid else None) or "unknown hypervisor"


def _cpuid_hypervisor() -> str | None:
    try:
        from ._core import cpu as native
    except ImportError:
        return None
    signature = native.cpuid_hypervisor()
    known = {"KVMKVMKVM": "KVM", "Microsoft Hv": "Hyper-V", "VMwareVMware": "VMware", "XenVMMXenVMM": "Xen"}
    return known.get(signature, signature) or None


def _clock(root: Path, cpu: int, why: dict[str, str], facts: dict[str, object]) -> float | None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
    facts["governor"] = read_text(folder / "scaling_governor")
    top = read_number(folder / "cpuinfo_max_freq")
    if top is None:
        why["clock_max_hz"] = "no cpufreq in sysfs (usual in virtual machines)"
    if facts["governor"] is None:
        why["governor"] = "no cpufreq in sysfs (usual in virtual machines)"
    return top * 1e3 if top else None


_FEATURES = (
    "sse2", "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni",
    "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8",
    "asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip


def _allowed(root: Path, entries: Sequence[Mapping[str, str]], affinity: Iterable[int] | None) -> tuple[int, ...]:
    if affinity is not None:
        return tuple(sorted(affinity))
    online = parse_cpu_list(read_text(root / "sys/devices/system/cpu/online") or "")
    return online or tuple(int(entry["processor"]) for entry in entries) or (0,)


def current_affinity() -> set[int]:
    """The logical CPUs that the calling thread may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _number_or_name(text: str) -> int | str:
    """ "25" and "0x19" as numbers, a name as it is."""
    try:
        return int(text, 0)
    except ValueError:
        return text


def discover(root: Path = Path("/"), affinity: Iterable[int] | None = None, *, use_cpuid: bool = True) -> Device:
    """The CPU that this process may use. `affinity`: its logical CPUs; the calling thread's own on the real root."""
    why: dict[str, str] = {}
    facts: dict[str, object] = {}
    real = root == Path("/")
    entries = _cpuinfo(root)
    cpus = _allowed(root, entries, current_affinity() if affinity is None and real else affinity)
    first = next((entry for entry in entries if int(entry["processor"]) == cpus[0]), entries[0] if entries else {})
    flags = (first.get("flags") or first.get("Features") or "").split()
    if not first:
        why["name"] = f"{root / 'proc/cpuinfo'} cannot be read"
    found = cores(root, cpus)
    for key in ("vendor_id", "cpu family", "model", "stepping", "microcode", "CPU implementer", "CPU part"):
        if key in first:
            facts[key.replace(" ", "_").lower()] = _number_or_name(first[key])
    online = parse_cpu_list(read_text(root / "sys/devices/system/cpu/online") or "")
    facts["cpus_online"] = len(online) or None
    facts["smt"] = max((len(core.cpus) for core in found), default=1)
    facts["packages"] = len(
        {read_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id") for cpu in cpus}
    )
    facts["cgroup_cpus"] = limits.cpu_quota(root)
    if facts["cgroup_cpus"] is None:
        why["cgroup_cpus"] = "no CPU limit in this process's cgroups"
    facts["huge_pages"] = read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    facts["machine"] = platform.machine() if real else None
    memory = limits.memory_limit(root)
    if memory is None:
        why["memory_bytes"] = "neither /proc/meminfo nor a cgroup tells"
    return Device(
        id="cpu",
        kind="cpu",
        name=first.get("model name") or first.get("Hardware") or first.get("CPU part") or "unknown CPU",
        cores=len(found),
        cpus=physical_first(found),
        caches=caches(root, cpus, why, use_cpuid=use_cpuid),
        memory_bytes=memory,
        numa_nodes=numa_nodes(root, cpus),
        isa=tuple(name for name in _FEATURES if name in flags),
        clock_max_hz=_clock(root, cpus[0], why, facts),
        virtual=_hypervisor(root, flags, use_cpuid=use_cpuid),
        why=why,
        facts=facts,
    )


def level_bytes(device: Device, level: str, threads: int) -> int:
    """Bytes of all arrays together that make `threads` threads work in `level`.

    A cache is half filled, so that stacks and tables do not push lines out; the last level only to an eighth (cpu.md 5:
    neighbours on the same socket take the rest), but twice what the level before it holds. DRAM: four times the
    last level **for each array**, so the caller multiplies.
    """
    spread = min(threads, device.cores or threads)
    totals = []
    for cache in device.caches:
        private = len(cache.shared_by) <= max(1, len(device.cpus) // max(1, device.cores or 1))
        totals.append(cache.size_bytes * (spread if private else min(spread, cache.count)))
    if level == "dram":
        last = device.caches[-1]
        return 4 * last.size_bytes * last.count
    index = [cache.level for cache in device.caches].index(level)
    if index and index == len(device.caches) - 1:
        return min(max(totals[index] // 8, 2 * totals[index - 1]), totals[index] // 2)
    return totals[index] // 2
