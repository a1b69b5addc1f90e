"""The plan of a GPU's roofline: whatever of the catalogue has a GPU form, sized by the device's facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..backends.base import Backend, variants_of
from ..device import Device
from ..kernels import CATALOGUE, atomics, cache, copy, find, latency, peak
from ..spec import KernelSpec, OperandClass
from ..units import KIB
from .planner import Planner
from .records import MIB, Item, Mode

# Nearest first: the order in which a GEMM's own forms and then the vendor's are shown.
GEMM_DTYPES = ("float64", "float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "int8")
SLOW_DTYPES = ("float64",)  # a consumer GPU has 1/64 of the float32 rate: a GEMM of 8192 would take a second


@dataclass(frozen=True, slots=True)
class Care:
    """How long each kind of measurement may take, in seconds a kernel, and how much is measured."""

    target: float  # relative half-width of the interval
    memory_s: float
    peak_s: float
    gemm_s: float
    stream: tuple[str, ...]
    dtypes: tuple[str, ...]  # of bandwidth
    gemm_sizes: tuple[int, ...]
    copy_bytes: tuple[int, ...]  # of copies and allocations; none are taken where it is empty


QUICK_STREAM = ("stream.read", "stream.copy", "stream.triad")
STREAM = tuple(spec.name for spec in CATALOGUE if spec.family == "stream")
COPY_BYTES = (64 * KIB, 2 * MIB, 64 * MIB)  # where a copy's own cost counts, where it fades, where it is gone
MANY_COPY_BYTES = tuple(4**step * KIB for step in range(1, 10))  # 4 KiB to 256 MiB
CARE: dict[Mode, Care] = {
    "quick": Care(0.05, 0.06, 0.06, 0.1, QUICK_STREAM, ("float64",), (4096,), ()),
    "default": Care(0.02, 0.1, 0.12, 0.15, STREAM, ("float64", "float32"), (1024, 4096, 8192), COPY_BYTES),
    "thorough": Care(
        0.01, 1.0, 1.0, 3.0, STREAM, ("float64", "float32"), (512, 1024, 2048, 4096, 8192, 16384), MANY_COPY_BYTES
    ),
}
SETUP_S = {"memory": 0.15, "peak": 0.02, "gemm": 0.25}  # a kernel: model, no GPU was measured
EMULATED_GEMM_SIZES = (64,)
GRAPH_NODES = {"nodes": 16}
SWEEP_HOPS = 1 << 13  # some milliseconds at DRAM's latency


class GpuPlanner(Planner):
    """Each `add_*` plans one room of the roofline."""

    def __init__(
        self, device: Device, backend: Backend, *, mode: Mode = "default", dtypes: Sequence[str] = (),
        operands: OperandClass = "uniform",
    ) -> None:  # fmt: skip
        super().__init__(device, backend, mode=mode, dtypes=dtypes, operands=operands)
        self.care = CARE[mode]
        self.target = self.care.target
        self.emulated = bool(device.facts.get("emulated"))
        self.least_array_bytes = MIB // 4 if self.emulated else 64 * MIB
        self.copy_bytes = (64 * KIB,) if self.emulated and self.care.copy_bytes else self.care.copy_bytes

    def fill(self) -> None:
        self.add_arithmetic()
        self.add_bandwidth()
        self.add_gemm()
        self.add_latency()
        if self.copy_bytes:
            self.add_copies()

    def forms(self, family: str) -> list[KernelSpec]:
        """The kernels of a family that a GPU can be given."""
        return [spec for spec in CATALOGUE if spec.family == family and spec.gpu is not None]

    def items(
        self, spec: KernelSpec, dtype: str, sizes: dict[str, int], level: str | None = None, *, best: bool = False
    ) -> list[Item]:
        """One item a variant, or the likeliest variant alone."""
        assert spec.gpu is not None
        variants = spec.gpu.variants(dtype, self.device) or ("",)  # those that a backend has not are listed as skipped
        if best:
            variants = variants_of(self.backend, spec, dtype, self.device)[:1]
        return [self.item(spec.name, dtype, sizes, 1, variant, level) for variant in variants]

    # -- arithmetic ---------------------------------------------------------------------------------------------

    def add_arithmetic(self) -> None:
        items: list[Item] = []
        for spec in self.forms("peak"):
            assert spec.gpu is not None
            for dtype in filter(self.wants, spec.gpu.dtypes):
                sizes = peak.gpu_sizes(spec, dtype, self.device)
                items += self.items(spec, dtype, sizes, best=self.mode == "quick")
        computed = {item.problem.dtype for item in items}
        for dtype in self.dtypes:
            if dtype not in computed:
                self.plan.notes.append(f"{dtype}: no kernel of this version computes in it, so it has no ceiling.")
        self.add("arithmetic peaks", items, self.care.peak_s, SETUP_S["peak"])

    # -- memory -------------------------------------------------------------------------------------------------

    def add_bandwidth(self) -> None:
        dtypes = [dtype for dtype in self.care.dtypes if self.wants(dtype)] or ["float64"]
        for dtype in dtypes:
            n = self.dram_array_bytes() // (8 if dtype == "float64" else 4)
            specs = [spec for spec in self.forms("stream") if spec.name in self.care.stream]
            items = [item for spec in specs for item in self.items(spec, dtype, {"n": n}, "dram")]
            self.add(f"dram bandwidth, {dtype}", items, self.care.memory_s, SETUP_S["memory"])
        for level in ("l2", "l1", "shared"):
            self.add(f"{level} bandwidth", self.cache_items(level), self.care.memory_s, SETUP_S["peak"])

    def cache_items(self, level: str) -> list[Item]:
        """Blocks that read a footprint of the level again and again."""
        return [
            item
            for spec in self.forms("cache")
            if cache.level_of(spec) == level
            for dtype in self.care.dtypes[:1]  # a read is a read, whatever the element
            for item in self.items(spec, dtype, cache.gpu_sizes(level, dtype, self.device), level)
        ]

    # -- GEMM ---------------------------------------------------------------------------------------------------

    def add_gemm(self) -> None:
        sizes = EMULATED_GEMM_SIZES if self.emulated else self.care.gemm_sizes
        for dtype in filter(self.wants, GEMM_DTYPES):
            for size in sizes:
                if size > 4096 and dtype in SLOW_DTYPES:
                    continue
                specs = [spec for spec in self.forms("gemm") if spec.gpu is not None and dtype in spec.gpu.dtypes]
                cube = {"m": size, "n": size, "k": size}
                best = self.mode == "quick"
                items = [item for spec in specs for item in self.items(spec, dtype, cube, "dram", best=best)]
                self.add(f"GEMM {dtype} {size}", items, self.care.gemm_s, SETUP_S["gemm"])

    # -- latency and copies -------------------------------------------------------------------------------------

    def add_latency(self) -> None:
        items: list[Item] = []
        for spec in self.forms("latency"):
            for level, sizes in latency.gpu_sizes(spec, self.device):
                items += self.items(spec, "int64", sizes, level, best=True)
        for spec in self.forms("launch"):
            items += self.items(spec, "int8", GRAPH_NODES if "nodes" in spec.sizes else {})
        if self.mode != "quick":
            for spec in self.forms("atomics"):
                for dtype in spec.dtypes:
                    items += self.items(spec, dtype, atomics.gpu_sizes(spec, self.device))
            for spec in self.forms("alloc"):
                for n in self.copy_bytes:
                    items += self.items(spec, "int8", {"n": n})
        self.add("latency", items, self.care.peak_s, SETUP_S["peak"])
        if self.mode != "quick" and not self.emulated:
            self.add_latency_sweep()

    def add_latency_sweep(self) -> None:
        """Footprints from L1 to DRAM, in whose latencies `knees.find` sees the caches' real sizes."""
        lines = latency.sweep_lines(self.device, per_octave=2 if self.mode == "thorough" else 1)
        spec = find("latency.gpu_chase")
        items = [item for n in lines for item in self.items(spec, "int64", {"n": n, "hops": SWEEP_HOPS}, best=True)]
        self.add("latency by footprint", items, self.care.peak_s / 2, SETUP_S["peak"])

    def add_copies(self) -> None:
        for n in self.copy_bytes:
            items: list[Item] = []
            for spec in self.forms("copy"):
                if "to" not in spec.sizes:
                    items += self.items(spec, "int8", {"n": n})
            for source, problem in copy.peer_matrix(self.backend.devices(), n):
                if source.id == self.device.id:
                    items += self.items(find("copy.peer"), "int8", dict(problem.sizes))
            self.add(f"copies of {n // KIB} KiB", items, self.care.memory_s, SETUP_S["memory"])
