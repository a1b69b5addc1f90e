"""The plan of a CPU's roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..backends.base import Backend
from ..device import Device
from ..kernels import find, mixed
from ..spec import OperandClass, Problem
from .planner import Planner
from .records import Item, Mode

STREAM = ("read", "write", "copy", "scale", "add", "triad", "dot")
QUICK_STREAM = ("read", "copy", "triad")
SWEEP = tuple(2.0**power for power in range(-4, 9))  # 1/16 to 256 FLOP/byte
ARITHMETIC = (("peak.fma", ("float64", "float32")), ("peak.fma_add", ("float64", "float32")),
              ("peak.dot", ("bfloat16", "int8")))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Care:
    """How long each kind of measurement may take, in seconds a kernel: the budget that a mode buys."""

    target: float  # relative half-width of the interval
    cache_s: float
    dram_s: float
    peak_s: float
    gemm_s: float
    stream: tuple[str, ...]
    one_thread: tuple[str, ...]
    gemm_sizes: tuple[int, ...]
    intensities: tuple[float, ...]  # FLOP/byte of the mixed sweep


CARE: dict[Mode, Care] = {
    "quick": Care(0.05, 0.05, 0.2, 0.15, 0.3, QUICK_STREAM, (), (1024,), SWEEP[:11:2]),
    "default": Care(0.02, 0.1, 0.15, 0.2, 0.25, STREAM, QUICK_STREAM, (512, 1024, 2048), SWEEP),
    "thorough": Care(0.01, 0.5, 2.0, 1.0, 5.0, STREAM, STREAM, (256, 509, 512, 1024, 2048, 4096), SWEEP),
}
VERIFY_AND_SETUP_S = {"cache": 0.02, "dram": 0.25, "gemm": 0.15}  # a kernel, seen on two cores


class CpuPlanner(Planner):
    """Each `add_*` plans one room of the roofline."""

    def __init__(
        self, device: Device, backend: Backend, *, mode: Mode = "default", dtypes: Sequence[str] = (),
        operands: OperandClass = "uniform",
    ) -> None:  # fmt: skip
        super().__init__(device, backend, mode=mode, dtypes=dtypes, operands=operands)
        self.care = CARE[mode]
        self.target = self.care.target
        cores, quota = device.cores or len(device.cpus) or 1, device.facts.get("cgroup_cpus")
        # More threads than the cgroup's quota would be stopped in the middle of a measurement.
        self.threads = max(1, min(cores, int(quota) if isinstance(quota, (int, float)) else cores))

    def fill(self) -> None:
        self.note_dtypes()
        self.add_arithmetic()
        self.add_bandwidth()
        self.add_gemm()
        self.add_latency()

    def float_dtypes(self) -> tuple[str, ...]:
        """Of float64 and float32 those asked for."""
        return tuple(dtype for dtype in ("float64", "float32") if self.wants(dtype))

    def note_dtypes(self) -> None:
        """Say which of the dtypes asked for no kernel computes in."""
        computed = {dtype for _, dtypes in ARITHMETIC for dtype in dtypes}
        for dtype in self.dtypes:
            if dtype not in computed:
                self.plan.notes.append(f"{dtype}: no kernel of this version computes in it, so it has no ceiling.")
        if not self.float_dtypes():
            self.plan.notes.append("Bandwidth is measured with float64; GEMM and the sweep need float64 or float32.")

    # -- memory -------------------------------------------------------------------------------------------------

    def footprint_bytes(self, level: str, threads: int) -> int:
        """What all operands together take at a level: clearly inside the cache and clearly outside the next nearer.

        A shared last-level cache is filled to a quarter only: other tenants of the machine use it too.
        """
        cache = self.device.cache(level)
        assert cache is not None
        if len(cache.shared_by) <= 1 or level != self.last_level():
            return int(threads * cache.size_bytes * 0.5)
        inner = [c for c in self.device.caches if c.level != level]
        nearer = 2 * threads * max((c.size_bytes for c in inner), default=0)
        return min(max(cache.size_bytes * cache.count // 4, nearer), int(cache.size_bytes * cache.count * 0.75))

    def stream_items(self, level: str, dtype: str, names: Sequence[str], threads: int) -> list[Item]:
        itemsize = Problem.of(dtype).itemsize
        if level == "dram":
            n = self.dram_array_bytes() // itemsize
        else:
            n = max(64, self.footprint_bytes(level, threads) // 3 // itemsize // 64 * 64)
        items = []
        for name in names:
            spec = find(f"stream.{name}")
            # A store that bypasses the caches is a question of DRAM alone.
            variants = spec.variants if level == "dram" else spec.variants[:1]
            items += [self.item(spec.name, dtype, {"n": n}, threads, variant, level) for variant in variants]
        return items

    def add_bandwidth(self) -> None:
        for level in self.device.levels:
            budget_s, setup_s = (
                (self.care.dram_s, VERIFY_AND_SETUP_S["dram"])
                if level == "dram"
                else (self.care.cache_s, VERIFY_AND_SETUP_S["cache"])
            )
            wide, *rest = self.float_dtypes() or ("float64",)  # bandwidth needs some element
            cases = [(wide, self.care.stream, self.threads)]
            if self.threads > 1:
                cases.append((wide, self.care.one_thread, 1))
            if self.mode != "quick":
                # DRAM does not know element types: the second dtype gets its few only, but for those with time.
                few = level == "dram" and self.mode == "default"
                cases += [(dtype, QUICK_STREAM if few else self.care.stream, self.threads) for dtype in rest]
            for dtype, names, threads in cases:
                how = "all threads" if threads == self.threads else "one thread"
                items = self.stream_items(level, dtype, names, threads)
                if level == "dram" and dtype == wide and threads == self.threads and self.wants(dtype):
                    items += self.sweep_items(dtype)
                self.add(f"{level} bandwidth, {dtype}, {how}", items, budget_s, setup_s)

    # -- arithmetic ---------------------------------------------------------------------------------------------

    def add_arithmetic(self) -> None:
        items = [
            self.item(name, dtype, {}, threads)
            for name, dtypes in ARITHMETIC
            for dtype in dtypes
            if self.wants(dtype)
            for threads in dict.fromkeys((self.threads, 1) if self.mode != "quick" else (self.threads,))
        ]
        self.add("arithmetic peaks", items, self.care.peak_s, VERIFY_AND_SETUP_S["cache"])

    def add_gemm(self) -> None:
        one = () if self.mode == "quick" or self.threads == 1 else (1,)
        for dtype in self.float_dtypes():
            for size in self.care.gemm_sizes:
                threads = (self.threads, *one) if size == 1024 else (self.threads,)
                items = [
                    self.item(f"gemm.{kind}", dtype, {"m": size, "n": size, "k": size}, t, level="dram")
                    for t in threads
                    for kind in ("tiled", "vendor")
                ]
                self.add(f"GEMM {dtype} {size}", items, self.care.gemm_s, VERIFY_AND_SETUP_S["gemm"])

    def sweep_items(self, dtype: str) -> list[Item]:
        """The mixed-intensity sweep; it is measured beside the DRAM ceilings that it is set against."""
        n = self.dram_array_bytes() // Problem.of(dtype).itemsize
        return [
            self.item("mixed.fma", dtype, {"n": n, "k": mixed.k_for(intensity, dtype)}, self.threads, level="dram")
            for intensity in self.care.intensities
        ]

    # -- latency ------------------------------------------------------------------------------------------------

    def chase_bytes(self, level: str) -> list[int]:
        """What a chase at that level walks over.

        A lap over an eighth of a shared last level takes a millisecond, in which busy neighbours evict it: on a shared
        Zen 3 4 MiB took 160 ns a hop and 2 MiB 22 ns. So a second size as near to the next cache as can be told apart
        from it is measured too, and the two tell how much of the level can be counted on.
        """
        cache = self.device.cache(level)
        if cache is None:
            return [self.dram_array_bytes()]
        if level != self.last_level() or len(cache.shared_by) <= 1:
            return [cache.size_bytes // 2]
        nearer = max((c.size_bytes for c in self.device.caches if c.level != level), default=0)
        return sorted({size for size in (4 * nearer, cache.size_bytes // 8) if 0 < size < cache.size_bytes})

    def add_latency(self) -> None:
        items = [self.item("launch.empty", "int64", {}, self.threads)]
        line = self.device.caches[0].line_bytes if self.device.caches else 64
        for level in self.device.levels:
            for size in self.chase_bytes(level):
                items.append(self.item("latency.chase", "int64", {"n": max(2, size // line)}, 1, level=level))
        self.add("latency", items, self.care.peak_s, VERIFY_AND_SETUP_S["cache"])
