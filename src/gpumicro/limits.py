"""What this process may use: the cgroup's limits (v1 and v2, the least of the hierarchy) and the machine's memory.

Read below a `root`, so that a small fake tree can stand for any machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def read_text(path: Path) -> str | None:
    """The file's text without white space around it and NULs in it (device trees), None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").replace("\0", "").strip()
    except (OSError, ValueError):
        return None


def read_number(path: Path) -> int | None:
    """The whole number that the file holds, None where it holds none."""
    text = read_text(path)
    return int(text) if text and re.fullmatch(r"-?\d+", text) else None


def _cgroup_folders(root: Path) -> dict[str, list[Path]]:
    """For each controller ("" is v2) this process's cgroup folder and its ancestors, innermost first."""
    folders: dict[str, list[Path]] = {}
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        for controller in fields[1].split(","):
            mount = root / "sys/fs/cgroup" / controller
            if controller == "" and not (mount / "cgroup.controllers").exists():
                mount = root / "sys/fs/cgroup/unified"
            path = mount / fields[2].lstrip("/")
            # In a container the path is the host's, and only the mount itself can be seen.
            folders[controller] = [p for p in (path, *path.parents) if p == mount or mount in p.parents]
    return folders


def cpu_quota(root: Path) -> float | None:
    """CPUs' worth of time that the cgroup allows, the least of the hierarchy; None where there is no limit."""
    limits = []
    folders = _cgroup_folders(root)
    for folder in folders.get("", []):
        quota, _, period = (read_text(folder / "cpu.max") or "").partition(" ")
        if quota.isdigit() and period.isdigit():
            limits.append(int(quota) / int(period))
    for folder in folders.get("cpu", []):
        quota_us, period_us = read_number(folder / "cpu.cfs_quota_us"), read_number(folder / "cpu.cfs_period_us")
        if quota_us and period_us and quota_us > 0:
            limits.append(quota_us / period_us)
    return min(limits, default=None)


def _memory_limits(root: Path) -> Iterable[tuple[int, int]]:
    """(limit, usage) in bytes of each cgroup above this process that has a limit."""
    folders = _cgroup_folders(root)
    names = (("", "memory.max", "memory.current"), ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"))
    for controller, limit_name, usage_name in names:
        for folder in folders.get(controller, []):
            limit = read_number(folder / limit_name)  # v2 says "max" for none, v1 a number near 2^63
            if limit is not None and limit < 1 << 60:
                cached = 0
                for line in (read_text(folder / "memory.stat") or "").splitlines():
                    key, _, value = line.partition(" ")
                    if key in ("inactive_file", "total_inactive_file") and value.isdigit():
                        cached = int(value)  # given back under pressure: not in the way
                yield limit, max(0, (read_number(folder / usage_name) or 0) - cached)


def _meminfo(root: Path, key: str) -> int | None:
    match = re.search(rf"^{key}:\s*(\d+) kB", read_text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _address_space_left(root: Path) -> int | None:
    """Bytes that may still be mapped under `ulimit -v`, None where there is no such limit."""
    limit = re.search(r"^Max address space\s+(\d+)", read_text(root / "proc/self/limits") or "", re.MULTILINE)
    used = re.search(r"^VmSize:\s*(\d+) kB", read_text(root / "proc/self/status") or "", re.MULTILINE)
    return max(0, int(limit[1]) - (int(used[1]) * 1024 if used else 0)) if limit else None


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that this process could ever have: the machine's memory, the least cgroup limit, what ulimit -v leaves."""
    limits = (limit for limit, _ in _memory_limits(root))
    return _least([*limits, _meminfo(root, "MemTotal"), _address_space_left(root)])


def memory_available(root: Path = Path("/")) -> int | None:
    """Bytes that can be touched now without swapping or meeting the OOM killer; None where nothing tells."""
    room = (limit - usage for limit, usage in _memory_limits(root))
    return _least([*room, _meminfo(root, "MemAvailable"), _address_space_left(root)])
