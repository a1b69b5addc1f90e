"""Where a directory lies: file system, free space, block device, NVMe and cuFile. Reads /proc and /sys below a root."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..limits import read_number, read_text

# they keep files in the machine's memory: what is read there is no storage
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
# a server and a network lie behind them, and other machines share both
REMOTE = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "virtiofs", "afs", "wekafs", "glusterfs",
})  # fmt: skip
_CUFILE_FOLDERS = ("usr/local/cuda/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64")
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Disk:
    """One block device under the directory; None where sysfs does not tell."""

    name: str
    model: str | None
    rotational: bool | None
    size_bytes: int | None
    nvme: dict[str, Any] | None  # controller's model, firmware, PCIe link, NUMA node


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of the directory's storage before anything is measured."""

    directory: str
    mount: str | None
    file_system: str | None
    source: str | None  # what is mounted there
    free_bytes: int  # for this user
    size_bytes: int
    free_files: int | None  # None where the file system has no such bound
    disks: tuple[Disk, ...] = ()
    cufile: dict[str, Any] = field(default_factory=dict)

    @property
    def in_memory(self) -> bool:
        """Whether the directory's files live in memory."""
        return self.file_system in IN_MEMORY

    @property
    def remote(self) -> bool:
        """Whether another machine keeps the files."""
        return self.file_system in REMOTE or (self.file_system or "").startswith("fuse.")


def look(directory: str, root: Path = Path("/")) -> Place:
    """What is there. Raises UsageError where the directory cannot be used, before anything is written."""
    path = Path(directory)
    try:
        if not path.is_dir():
            what = "is not a directory" if path.exists() else "there is no such directory"
            raise UsageError(f"{directory}: {what}; name one on the storage that is to be measured")
        here, room = path.resolve(), os.statvfs(path)
        device = path.stat().st_dev
    except OSError as error:
        raise UsageError(f"{directory}: cannot be looked at: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"{directory!r}: {error}") from None
    mount, kind, source = _mounted(here, read_text(root / "proc/self/mountinfo") or "")
    return Place(
        directory, mount, kind, source, room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize,
        room.f_favail if room.f_files else None, tuple(_disks(root, device, source)), cufile(root),
    )  # fmt: skip


def _mounted(here: Path, table: str) -> tuple[str | None, str | None, str | None]:
    """(mount point, type, source) of the mount that holds the path: the longest, of equals the last (proc(5))."""
    best: tuple[str | None, str | None, str | None] = (None, None, None)
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 5 or len(rest) < 2:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        if (Path(point) == here or Path(point) in here.parents) and len(point) >= len(best[0] or ""):
            best = (point, rest[0], _OCTAL.sub(lambda match: chr(int(match[1], 8)), rest[1]))
    return best


def _disks(root: Path, device: int, source: str | None) -> Iterable[Disk]:
    """The physical devices under a device number; btrfs and others number none of their own, then by the source."""
    link = root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    if not link.exists() and (source or "").startswith("/dev/"):
        link = root / "sys/class/block" / Path(str(source)).resolve().name
    seen = {folder.name: folder for folder in _physical(link)} if link.exists() else {}
    return [_disk(seen[name]) for name in sorted(seen)]


def _physical(link: Path) -> Iterable[Path]:
    """A partition's disk; the disks below a RAID, LVM or encryption."""
    folder = link.resolve()
    if (folder / "partition").exists():
        folder = folder.parent
    below = sorted((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
    for slave in below:
        yield from _physical(slave)
    if not below:
        yield folder


def _disk(folder: Path) -> Disk:
    spins, sectors = read_number(folder / "queue/rotational"), read_number(folder / "size")
    return Disk(
        folder.name, read_text(folder / "device/model"), None if spins is None else bool(spins),
        None if sectors is None else sectors * 512, _nvme(folder),  # sysfs counts in sectors of 512 bytes
    )  # fmt: skip


def _nvme(folder: Path) -> dict[str, Any] | None:
    """Of the controller; of a multipath namespace, whose device is a subsystem, only the model."""
    if not folder.name.startswith("nvme"):
        return None
    controller = folder / "device"
    facts = {
        "model": read_text(controller / "model"),
        "firmware": read_text(controller / "firmware_rev"),
        "transport": read_text(controller / "transport"),
        "pcie_speed": read_text(controller / "device/current_link_speed"),
        "pcie_speed_max": read_text(controller / "device/max_link_speed"),
        "pcie_width": read_text(controller / "device/current_link_width"),
        "pcie_width_max": read_text(controller / "device/max_link_width"),
        "numa_node": read_number(controller / "device/numa_node"),
        "scheduler": read_text(folder / "queue/scheduler"),
    }
    return {key: value for key, value in facts.items() if value is not None}


def cufile(root: Path = Path("/")) -> dict[str, Any]:
    """GPUDirect Storage as far as files tell: library, kernel module, settings. Nothing is loaded.

    Without nvidia-fs cuFile copies through the CPU's memory, unless the kernel's own peer-to-peer path serves NVMe.
    """
    import sys

    wheels = (Path(entry) / below for entry in sys.path for below in ("nvidia/cufile/lib", "nvidia/cu13/lib"))
    folders = [*(root / name for name in _CUFILE_FOLDERS), *wheels]
    library = next((str(path) for f in folders if (path := f / "libcufile.so.0").exists()), None)
    modules = read_text(root / "proc/modules") or ""
    version = read_text(root / "proc/driver/nvidia-fs/version")
    settings = root / "etc/cufile.json"
    return {
        **_or(library, "library", "no libcufile.so.0 in CUDA's folders or Python's packages"),
        "nvidia_fs": bool(re.search(r"^nvidia_fs\b", modules, re.MULTILINE)),
        **_or(version, "nvidia_fs_version", "the kernel module nvidia-fs is not loaded"),
        "settings_file": settings.exists(),
    }


def _or(value: str | None, key: str, why: str) -> dict[str, Any]:
    return {key: value} if value is not None else {key: None, f"{key}_why": why}
