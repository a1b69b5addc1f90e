"""What a roofline run measures, in which groups, and how long that will take. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from .backends.base import Backend
from .device import Device
from .kernels import find, mixed
from .measure import Policy
from .spec import Execution, KernelSpec, OperandClass, Problem, measurement_id

Mode = Literal["quick", "default", "thorough"]

STREAM = ("read", "write", "copy", "scale", "add", "triad", "dot")
QUICK_STREAM = ("read", "copy", "triad")
SWEEP = tuple(2.0**power for power in range(-4, 9))  # 1/16 to 256 FLOP/byte
ARITHMETIC = (("peak.fma", ("float64", "float32")), ("peak.fma_add", ("float64", "float32")),
              ("peak.dot", ("bfloat16", "int8")))  # fmt: skip
DRAM_OVER_CACHE = 4  # STREAM's rule: each array at least four times the last-level cache
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """One measurement to take; `id` is the name it will have in the result."""

    id: str
    spec: KernelSpec
    problem: Problem
    execution: Execution
    level: str | None = None
    flags: tuple[str, ...] = ()  # known before measuring


@dataclass(frozen=True, slots=True)
class Group:
    """Measurements that are compared with each other, so they are interleaved; `seconds` is the estimate for all."""

    title: str
    items: tuple[Item, ...]
    policy: Policy
    seconds: float
    repeat: bool = False  # measured again at the end, to see whether the machine moved


@dataclass(slots=True)
class Plan:
    """Groups in the order of measuring, what cannot run here with its reason, and remarks for the report."""

    groups: list[Group] = field(default_factory=list)
    skipped: list[tuple[Item, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """About how long all takes, with the roofs once more at the end."""
        return sum(group.seconds for group in self.groups) + REPEAT_S * ROOFS


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
REPEAT_S = 0.5  # one roof measured again, with its set-up
ROOFS = 7  # about: four memory levels, three dtypes
VERIFY_AND_SETUP_S = {"cache": 0.02, "dram": 0.25, "gemm": 0.15}  # a kernel, seen on two cores


class Planner:
    """Fills a Plan for one device; each `add_*` plans one room of the roofline."""

    def __init__(
        self, device: Device, backend: Backend, *, mode: Mode = "default", dtypes: Sequence[str] = (),
        operands: OperandClass = "uniform",
    ) -> None:  # fmt: skip
        self.device, self.backend, self.mode, self.operands = device, backend, mode, operands
        self.care = CARE[mode]
        self.dtypes = tuple(dtypes)
        self.plan = Plan()
        self.dram_flags: tuple[str, ...] = ()
        cores, quota = device.cores or len(device.cpus) or 1, device.facts.get("cgroup_cpus")
        # More threads than the cgroup's quota would be stopped in the middle of a measurement.
        self.threads = max(1, min(cores, int(quota) if isinstance(quota, (int, float)) else cores))

    def wants(self, dtype: str) -> bool:
        return not self.dtypes or dtype in self.dtypes

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

    def item(
        self, name: str, dtype: str, sizes: dict[str, int], threads: int, variant: str = "", level: str | None = None
    ) -> Item:
        spec, problem, execution = find(name), Problem.of(dtype, self.operands, **sizes), Execution(threads, variant)
        name = measurement_id(spec, problem, execution, self.device.id, self.backend.name)
        return Item(
            name, spec, problem, execution, level, self.dram_flags if level == "dram" and spec.family != "gemm" else ()
        )

    def add(self, title: str, items: Sequence[Item], budget_s: float, setup_s: float) -> None:
        can: list[Item] = []
        for item in items:
            able = self.backend.supports(item.spec, item.problem.dtype, self.device)
            if able:
                can.append(item)
            else:
                self.plan.skipped.append((item, able.reason))
        if can:
            warmup_s = budget_s / 3
            policy = Policy(target=self.care.target, max_time_s=budget_s, max_warmup_s=warmup_s)
            self.plan.groups.append(Group(title, tuple(can), policy, len(can) * (budget_s + warmup_s + setup_s)))

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

    def last_level(self) -> str | None:
        return self.device.caches[-1].level if self.device.caches else None

    def dram_array_bytes(self) -> int:
        """Bytes of one array for DRAM, smaller where memory is short (and then said)."""
        caches = self.device.caches
        cache_bytes = caches[-1].size_bytes * caches[-1].count if caches else 32 * MIB
        wanted = max(DRAM_OVER_CACHE * cache_bytes, 64 * MIB)
        # Two thirds of what is there, for the stream kernels' three arrays and the sweep's one.
        limit = (self.device.memory_bytes or 1 << 62) * 2 // 3 // 4
        if wanted <= limit:
            return wanted
        self.dram_flags = ("cache-resident",)
        self.plan.notes.append(
            f"Memory is short: DRAM arrays are {limit / MIB:.0f} MiB, {limit / cache_bytes:.1f} times the last-level "
            f"cache instead of {DRAM_OVER_CACHE}; DRAM figures may contain cache hits."
        )
        return limit // (64 * 1024) * (64 * 1024)

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


def make_plan(
    device: Device, backend: Backend, *, mode: Mode = "default", dtypes: Sequence[str] = (),
    operands: OperandClass = "uniform",
) -> Plan:  # fmt: skip
    """The whole plan of a roofline run on one device."""
    planner = Planner(device, backend, mode=mode, dtypes=dtypes, operands=operands)
    planner.note_dtypes()
    planner.add_arithmetic()
    planner.add_bandwidth()
    planner.add_gemm()
    planner.add_latency()
    notes = dict.fromkeys(planner.plan.notes)
    planner.plan.notes = list(notes)
    return planner.plan


def repeat_group(plan: Plan, ceilings: Sequence[dict[str, object]]) -> Group | None:
    """The kernels behind the roofs once more, to be measured at the end of the run; None where nothing was measured."""
    ids = {ceiling["measurement"] for ceiling in ceilings if ceiling["scope"] == "roof"}
    again = [(item, group.policy) for group in plan.groups for item in group.items if item.id in ids]
    if not again:
        return None
    budget_s = max(policy.max_time_s for _, policy in again) / 2
    target = min(policy.target for _, policy in again)
    policy = Policy(target=target, max_time_s=budget_s, max_warmup_s=budget_s / 3)
    return Group("ceilings again", tuple(item for item, _ in again), policy, REPEAT_S * len(again), repeat=True)
