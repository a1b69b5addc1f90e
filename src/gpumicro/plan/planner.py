"""What planning for a CPU and for a GPU have in common."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends.base import Backend
from ..device import Device
from ..kernels import find
from ..measure import Policy
from ..spec import Execution, OperandClass, Problem, measurement_id
from .records import DRAM_OVER_CACHE, MIB, Group, Item, Mode, Plan


class Planner:
    """Fills a Plan for one device; a child's `fill` plans room by room."""

    target = 0.02  # relative half-width of the interval
    least_array_bytes = 64 * MIB  # of a DRAM array, whatever the caches

    def __init__(
        self, device: Device, backend: Backend, *, mode: Mode = "default", dtypes: Sequence[str] = (),
        operands: OperandClass = "uniform",
    ) -> None:  # fmt: skip
        self.device, self.backend, self.mode, self.operands = device, backend, mode, operands
        self.dtypes = tuple(dtypes)
        self.plan = Plan()
        self.dram_flags: tuple[str, ...] = ()

    def fill(self) -> None:
        """Plan everything."""
        raise NotImplementedError

    def wants(self, dtype: str) -> bool:
        return not self.dtypes or dtype in self.dtypes

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
            policy = Policy(target=self.target, max_time_s=budget_s, max_warmup_s=warmup_s)
            self.plan.groups.append(Group(title, tuple(can), policy, len(can) * (budget_s + warmup_s + setup_s)))

    def last_level(self) -> str | None:
        return self.device.caches[-1].level if self.device.caches else None

    def dram_array_bytes(self) -> int:
        """Bytes of one array for DRAM, smaller where memory is short (and then said)."""
        caches = self.device.caches
        cache_bytes = caches[-1].size_bytes * caches[-1].count if caches else 32 * MIB
        wanted = max(DRAM_OVER_CACHE * cache_bytes, self.least_array_bytes)
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
