"""A storage's facts and the loader's figure as they stand in a result: each missing value with its reason."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..result import or_why
from .loader import LoaderRead
from .storage_place import Place


def loader_json(read: LoaderRead) -> dict[str, Any]:
    plain = asdict(read) | {"bytes_per_s": read.bytes_per_s}
    del plain["why"]
    return (
        plain
        | or_why("ci95", read.ci95 and list(read.ci95), read.why)
        | or_why("cached", read.cached, "this file system does not tell")
    )


def place_json(place: Place) -> dict[str, Any]:
    """Facts, each missing one with its reason."""
    plain: dict[str, Any] = {"directory": place.directory}
    for key in ("mount", "file_system", "source"):
        plain |= or_why(key, getattr(place, key), "/proc/self/mountinfo does not tell")
    plain |= {"free_bytes": place.free_bytes, "size_bytes": place.size_bytes}
    plain |= or_why("free_files", place.free_files, "the file system has no such bound")
    disks = []
    for disk in place.disks:
        facts: dict[str, Any] = {"name": disk.name}
        for key in ("model", "rotational", "size_bytes"):
            facts |= or_why(key, getattr(disk, key), "sysfs does not tell")
        disks.append(facts | or_why("nvme", disk.nvme, "not an NVMe disk"))
    return plain | {"disks": disks, "cufile": place.cufile}
