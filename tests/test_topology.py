"""Topology from small fake trees: each stands for a kind of machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumicro import limits, topology
from gpumicro.device import Device


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def cpuinfo(count: int, flags: str = "sse2 avx2 fma") -> str:
    blocks = (
        f"processor\t: {i}\nvendor_id\t: AuthenticAMD\nmodel name\t: Test CPU\nflags\t\t: {flags}\n"
        for i in range(count)
    )
    return "\n".join(blocks)


def cache(cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
    facts = {"type": kind, "level": str(level), "size": size, "shared_cpu_list": shared, "coherency_line_size": "64"}
    return {f"{folder}/{name}": f"{text}\n" for name, text in facts.items()}


def smt_machine(root: Path) -> Path:
    """2 nodes of 2 cores of 2 threads: CPU i and i + 4 are one core; an L3 for each node."""
    files = {
        "proc/cpuinfo": cpuinfo(8, "sse2 avx2 fma avx512f"),
        "proc/meminfo": "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n",
        "sys/devices/system/cpu/online": "0-7\n",
        "sys/devices/system/node/node0/cpulist": "0-1,4-5\n",
        "sys/devices/system/node/node1/cpulist": "2-3,6-7\n",
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3500000\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    }
    for cpu in range(8):
        core, node = cpu % 4, "0-1,4-5" if cpu % 4 < 2 else "2-3,6-7"
        pair = f"{core},{core + 4}"
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"] = pair
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = str(core // 2)
        files |= cache(cpu, 0, 1, "Data", "32K", pair) | cache(cpu, 1, 1, "Instruction", "64K", pair)
        files |= cache(cpu, 2, 2, "Unified", "512K", pair) | cache(cpu, 3, 3, "Unified", "16M", node)
    return plant(root, files)


def test_smt_machine_lists_one_thread_of_each_core_first(tmp_path: Path) -> None:
    device = topology.discover(smt_machine(tmp_path), range(8))
    assert device.cpus == (0, 1, 2, 3, 4, 5, 6, 7)
    assert device.cores == 4
    assert device.facts["smt"] == 2
    assert device.facts["packages"] == 2
    assert device.numa_nodes == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert device.isa == ("sse2", "avx2", "fma", "avx512f")
    assert device.name == "Test CPU"
    assert device.clock_max_hz == 3.5e9
    assert device.facts["governor"] == "performance"
    assert device.virtual is None


def test_caches_come_from_sysfs_with_their_sharing(tmp_path: Path) -> None:
    device = topology.discover(smt_machine(tmp_path), range(8))
    assert device.levels == ("l1", "l2", "l3", "dram")
    found = [(c.level, c.size_bytes, c.line_bytes, c.shared_by, c.count) for c in device.caches]
    assert found == [
        ("l1", 32 << 10, 64, (0, 4), 4),
        ("l2", 512 << 10, 64, (0, 4), 4),
        ("l3", 16 << 20, 64, (0, 1, 4, 5), 2),
    ]


def test_the_affinity_mask_limits_what_is_used(tmp_path: Path) -> None:
    device = topology.discover(smt_machine(tmp_path), {2, 5, 6})
    assert device.cpus == (2, 5, 6)  # 2 and 6 are one core: 6 comes last
    assert device.cores == 2
    assert device.numa_nodes == ((5,), (2, 6))


@pytest.mark.parametrize("version", [1, 2])
def test_the_least_cgroup_limit_of_the_hierarchy_counts(tmp_path: Path, version: int) -> None:
    smt_machine(tmp_path)
    group = tmp_path / "sys/fs/cgroup"
    if version == 2:
        files = {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/memory.max": f"{256 << 20}\n",
            "sys/fs/cgroup/a/memory.current": f"{100 << 20}\n",
            "sys/fs/cgroup/a/memory.stat": f"anon 1\ninactive_file {40 << 20}\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
        }
    else:
        files = {
            "proc/self/cgroup": "4:memory:/a\n1:cpu,cpuacct:/a/b\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{256 << 20}\n",
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": f"{100 << 20}\n",
            "sys/fs/cgroup/memory/a/memory.stat": f"total_inactive_file {40 << 20}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        }
    plant(tmp_path, files)
    assert group.is_dir()
    assert limits.cpu_quota(tmp_path) == 1.5
    assert limits.memory_limit(tmp_path) == 256 << 20
    assert limits.memory_available(tmp_path) == (256 - 100 + 40) << 20
    assert topology.discover(tmp_path, range(8)).memory_bytes == 256 << 20


def test_without_a_limit_the_machine_s_memory_counts(tmp_path: Path) -> None:
    smt_machine(tmp_path)
    assert limits.memory_limit(tmp_path) == 1 << 30
    assert limits.memory_available(tmp_path) == 512 << 20
    assert limits.cpu_quota(tmp_path) is None


def test_an_empty_tree_gives_a_marked_guess_and_reasons(tmp_path: Path) -> None:
    device = topology.discover(tmp_path, {0, 1}, use_cpuid=False)
    assert device.cores == 2
    assert device.cpus == (0, 1)
    assert device.memory_bytes is None
    assert [c.level for c in device.caches] == ["l1", "l2", "l3"]
    assert "guess" in device.why["caches"]
    assert {"name", "memory_bytes", "clock_max_hz", "governor", "caches"} <= set(device.why)


def test_cpuid_steps_in_where_sysfs_has_no_caches(tmp_path: Path) -> None:
    native = pytest.importorskip("gpumicro._core").cpu
    if not native.cpuid_caches():
        pytest.skip("no cpuid on this architecture or hypervisor")
    device = topology.discover(tmp_path, {0, 1})
    assert "cpuid" in device.why["caches"]
    assert device.caches[0].level == "l1"
    assert 8 << 10 <= device.caches[0].size_bytes <= 1 << 20


def test_arm_features_are_read_from_its_own_keys(tmp_path: Path) -> None:
    text = "processor\t: 0\nFeatures\t: fp asimd asimddp sve bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"
    device = topology.discover(plant(tmp_path, {"proc/cpuinfo": text}), {0}, use_cpuid=False)
    assert device.isa == ("asimd", "asimddp", "bf16", "sve")
    assert device.name == "0xd40"
    assert device.facts["cpu_part"] == 0xD40


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"sys/class/dmi/id/sys_vendor": "QEMU"}, "KVM"),
        ({"sys/class/dmi/id/product_name": "VMware Virtual Platform"}, "VMware"),
        ({"sys/hypervisor/type": "xen"}, "xen"),
        ({}, "unknown hypervisor"),
    ],
)
def test_virtual_machines_are_named(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    plant(tmp_path, {"proc/cpuinfo": cpuinfo(1, "sse2 hypervisor"), **files})
    assert topology.discover(tmp_path, {0}, use_cpuid=False).virtual == expected


@pytest.mark.parametrize(("text", "numbers"), [("0-2,5", (0, 1, 2, 5)), ("", ()), ("7\n", (7,))])
def test_cpu_lists_parse(text: str, numbers: tuple[int, ...]) -> None:
    assert topology.parse_cpu_list(text) == numbers


def test_this_machine_can_be_described() -> None:
    device = topology.discover()
    assert isinstance(device, Device)
    assert set(device.cpus) == topology.current_affinity()
    assert device.caches[0].size_bytes < device.caches[-1].size_bytes
    assert device.memory_bytes is None or device.memory_bytes > 1 << 20


def test_level_sizes_stay_inside_their_level(tmp_path: Path) -> None:
    device = topology.discover(smt_machine(tmp_path), range(8))
    l1, l2, l3, dram = (topology.level_bytes(device, level, 4) for level in device.levels)
    assert l1 == 4 * (32 << 10) // 2
    assert 4 * (32 << 10) < l2 <= 4 * (512 << 10)
    assert 4 * (512 << 10) < l3 <= 2 * (16 << 20)
    assert dram >= 4 * 2 * (16 << 20)
    assert topology.level_bytes(device, "l1", 1) == 16 << 10


def test_ulimit_v_counts_as_memory(tmp_path: Path) -> None:
    smt_machine(tmp_path)
    plant(
        tmp_path,
        {
            "proc/self/limits": f"Limit Soft Hard Units\nMax address space  {400 << 20}  unlimited  bytes\n",
            "proc/self/status": f"Name: python\nVmSize:  {100 << 10} kB\n",
        },
    )
    assert limits.memory_limit(tmp_path) == 300 << 20
    assert limits.memory_available(tmp_path) == 300 << 20
    plant(tmp_path, {"proc/self/limits": "Max address space  unlimited  unlimited  bytes\n"})
    assert limits.memory_available(tmp_path) == 512 << 20
