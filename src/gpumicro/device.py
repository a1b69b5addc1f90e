"""Frozen facts about one device. How they were found is the backend's affair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache as a core sees it."""

    level: str  # "l1", "l2", "l3"
    size_bytes: int
    line_bytes: int
    shared_by: tuple[int, ...]  # logical CPUs, or empty where it has no meaning
    count: int  # how many of them the device has


@dataclass(frozen=True, slots=True)
class Device:
    """A CPU or a GPU. A fact that is not known is None, and `why` says why under the same key."""

    id: str  # "cpu", "cuda:0": what --device takes
    kind: str  # "cpu" or "cuda"
    name: str
    cores: int | None  # physical cores or SMs that this process may use
    cpus: tuple[int, ...]  # logical CPUs this process may use, one thread a core first
    caches: tuple[Cache, ...]
    memory_bytes: int | None  # what this process may allocate (the cgroup's limit where there is one)
    numa_nodes: tuple[tuple[int, ...], ...] = ()  # logical CPUs by node
    isa: tuple[str, ...] = ()  # "avx2", "avx512f", "avx512_bf16", ...
    clock_max_hz: float | None = None
    virtual: str | None = None  # hypervisor, None on bare metal
    uuid: str | None = None
    why: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)  # whatever else was found: model, stepping, governor ...

    @property
    def index(self) -> int:
        """The runtime's number of a GPU: 1 for "cuda:1"; 0 for the CPU."""
        return int(self.id.partition(":")[2] or 0)

    @property
    def levels(self) -> tuple[str, ...]:
        """Memory levels, nearest first."""
        return (*(cache.level for cache in self.caches), "dram")

    def cache(self, level: str) -> Cache | None:
        """The cache of that level, None where there is none."""
        return next((cache for cache in self.caches if cache.level == level), None)
