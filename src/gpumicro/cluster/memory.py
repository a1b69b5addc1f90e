"""What a result's allocation figures advise: cudaMalloc and cudaFree against a pool that keeps memory.

`alloc.malloc` and `alloc.pool` time a pair of calls, get and give back, by the host's clock (kernels/alloc.py). What
they cannot show is that cudaMalloc and cudaFree make all streams of the device wait (CUDA C++ Programming Guide, stream
ordered memory allocator), so in a program that overlaps work a pair costs at least what is shown here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..result import or_why
from ..units import format_fraction, format_quantity, format_size
from .figures import Figure, figures_of, origin_of
from .uncertain import Spread, Uncertain, spread

MALLOC, POOL, LAUNCH = "alloc.malloc", "alloc.pool", "launch.stream"
SAME = 1.1  # a ratio nearer to 1 gives no advice
GROWS = 1.5  # times, from the smallest to the largest size


@dataclass(frozen=True, slots=True)
class AllocationCost:
    """One size: seconds of a pair of calls, and what DRAM moves in the time of cudaMalloc's pair (bytes, "model")."""

    size_bytes: int
    malloc_s: Figure | None
    pool_s: Figure | None
    malloc_over_pool: Spread | None
    dram_bytes: float | None


@dataclass(frozen=True, slots=True)
class MemoryAdvice:
    """Of one device of one result."""

    file: str
    device: str
    origin: str
    costs: tuple[AllocationCost, ...]
    advice: tuple[str, ...]
    missing: tuple[str, ...]  # why a figure is not there

    def to_json(self) -> dict[str, Any]:
        """For -o."""
        return {
            "kind": "memory", "file": self.file, "device": self.device, "origin": self.origin,
            "allocations": [_cost_json(cost) for cost in self.costs], "advice": list(self.advice),
            "missing": list(self.missing),
        }  # fmt: skip


def _cost_json(cost: AllocationCost) -> dict[str, Any]:
    ratio = cost.malloc_over_pool
    bounds = ratio and {"value": ratio.value, "low": ratio.low, "high": ratio.high}
    return {
        "size_bytes": cost.size_bytes,
        **or_why("malloc_s", cost.malloc_s and cost.malloc_s.to_json(), "not measured"),
        **or_why("pool_s", cost.pool_s and cost.pool_s.to_json(), "not measured"),
        **or_why("malloc_over_pool", bounds, "needs both"),
        **or_why("dram_bytes", cost.dram_bytes, "no bandwidth of DRAM was measured"),
    }  # fmt: skip


def memory_advice(
    doc: Mapping[str, Any], file: str = "result", *, pairs_per_step: int | None = None, step_s: float | None = None
) -> tuple[MemoryAdvice, ...]:
    """For each device of a result that has allocation figures, what they advise.

    `pairs_per_step`, `step_s`: how often a step of that length allocates and frees. Raises UsageError where the result
    has no such figures (a CPU's, or a quick one), or only one of the two is given.
    """
    if (pairs_per_step is None) != (step_s is None):
        raise UsageError("a share of the step needs both: how many pairs of calls it makes, and how long it takes")
    if pairs_per_step is not None and step_s is not None and not (pairs_per_step >= 0 and step_s > 0):
        raise UsageError(f"pairs cannot be negative and a step must be above zero: {pairs_per_step}, {step_s:g} s")
    found = tuple(
        _advice(doc, file, device, pairs_per_step, step_s)
        for device in dict.fromkeys(record["device"] for record in _records(doc, (MALLOC, POOL)))
    )
    if not any(advice.costs for advice in found):
        why = "; ".join(dict.fromkeys(text for advice in found for text in advice.missing))
        raise UsageError(
            f"{file} holds no figures of {MALLOC} and {POOL}" + (f" ({why})" if why else "")
            + ": `gpumicro roofline --device cuda:0` measures them, without --quick"
        )  # fmt: skip
    return found


def _records(doc: Mapping[str, Any], names: tuple[str, ...]) -> list[Mapping[str, Any]]:
    return [record for record in doc["measurements"] if record["kernel"] in names]


def _advice(doc: Mapping[str, Any], file: str, device: str, pairs: int | None, step_s: float | None) -> MemoryAdvice:
    mine = [record for record in _records(doc, (MALLOC, POOL, LAUNCH)) if record["device"] == device]
    timed = {(r["kernel"], r["problem"].get("n")): _time(doc, r, file) for r in mine if r["status"] == "ok"}
    sizes = sorted({n for kernel, n in timed if kernel in (MALLOC, POOL) and n is not None})
    figures = next((one for one in figures_of(doc, file).devices if one.device == device), None)
    dram = figures.dram.estimate if figures and figures.dram else None
    costs = tuple(_cost(n, timed.get((MALLOC, n)), timed.get((POOL, n)), dram) for n in sizes)
    missing = tuple(
        f"{record['kernel']}: {record.get('reason') or record.get('error')}"
        for record in mine if record["status"] != "ok" and record["kernel"] != LAUNCH
    )  # fmt: skip
    launch = next((figure for (kernel, _), figure in timed.items() if kernel == LAUNCH), None)
    lines = (*_choice(costs), *_growth(costs), *_scale(costs, launch), *_share(costs, pairs, step_s))
    tag = origin_of(doc, mine[0]) if mine else "measured"
    return MemoryAdvice(file, device, tag, costs, lines, tuple(dict.fromkeys(missing)))


def _time(doc: Mapping[str, Any], record: Mapping[str, Any], file: str) -> Figure:
    time = record["time_s"]
    ends = tuple(time["ci95"]) if time["ci95"] else None
    tag = origin_of(doc, record)
    return Figure(time["estimate"], "s", tag, f"{file}: {record['id']}", ends, "" if ends else "imported without one")


def _cost(n: int, malloc: Figure | None, pool: Figure | None, dram: float | None) -> AllocationCost:
    ratio = None
    if malloc and pool and pool.estimate > 0 and _bounds(pool).low > 0:
        ratio = spread(lambda malloc, pool: malloc / pool, {"malloc": _bounds(malloc), "pool": _bounds(pool)})
    return AllocationCost(n, malloc, pool, ratio, malloc.estimate * dram if malloc and dram else None)


def _bounds(figure: Figure) -> Uncertain:
    low, high = figure.ci95 or (figure.estimate, figure.estimate)
    return Uncertain(figure.estimate, low, high)


def _s(figure: Figure) -> str:
    return format_quantity(figure.estimate, "s", figure.ci95)


def _choice(costs: tuple[AllocationCost, ...]) -> Iterator[str]:
    """Pool or not, by the size at which it matters most."""
    both = [cost for cost in costs if cost.malloc_over_pool]
    if not both:
        return
    widest = max(both, key=lambda cost: cost.malloc_over_pool.value if cost.malloc_over_pool else 0)
    ratio = widest.malloc_over_pool
    assert ratio is not None
    assert widest.malloc_s is not None
    assert widest.pool_s is not None
    at = (
        f"at {format_size(widest.size_bytes)} a pair takes {_s(widest.malloc_s)} by cudaMalloc, {_s(widest.pool_s)} "
        "from the pool"
    )
    if ratio.low > SAME:
        yield (
            f"take memory from a pool that keeps it: {at} ({ratio.value:.3g} times). cudaMallocAsync with "
            "cudaMemPoolAttrReleaseThreshold raised does so, as does a framework's caching allocator"
        )
    elif ratio.high < 1 / SAME:
        yield f"the pool costs more here: {at}; check that its release threshold is raised, or keep your buffers"
    else:
        yield f"pool or not makes no resolved difference here: {at}"


def _growth(costs: tuple[AllocationCost, ...]) -> Iterator[str]:
    for what, key, advice in (
        ("cudaMalloc", "malloc_s", "allocate the large buffers once, outside the loop"),
        ("the pool", "pool_s", "its pages are not kept: raise its release threshold"),
    ):
        known = [(cost.size_bytes, figure) for cost in costs if (figure := getattr(cost, key)) is not None]
        if len(known) < 2 or known[0][1].estimate <= 0:
            continue
        (small, first), (large, last) = known[0], known[-1]
        if _bounds(last).low > GROWS * _bounds(first).high:
            yield (
                f"{what} takes longer for more: {_s(first)} for {format_size(small)}, {_s(last)} for "
                f"{format_size(large)}; {advice}"
            )


def _scale(costs: tuple[AllocationCost, ...], launch: Figure | None) -> Iterator[str]:
    """What a pair costs in other terms."""
    slow = max((cost for cost in costs if cost.malloc_s), key=lambda cost: cost.size_bytes, default=None)
    if slow is None or slow.malloc_s is None:
        return
    terms = []
    if launch and launch.estimate > 0:
        terms.append(f"{slow.malloc_s.estimate / launch.estimate:.3g} kernel launches")
    if slow.dram_bytes:
        terms.append(f"{format_size(slow.dram_bytes)} of DRAM traffic")
    if terms:
        yield f"a pair of {format_size(slow.size_bytes)} by cudaMalloc takes as long as {' or '.join(terms)}"


def _share(costs: tuple[AllocationCost, ...], pairs: int | None, step_s: float | None) -> Iterator[str]:
    """Of the step, by each way, at the largest size."""
    if pairs is None or step_s is None:
        return
    for what, key in (("cudaMalloc", "malloc_s"), ("the pool", "pool_s")):
        figures = [figure for cost in costs if (figure := getattr(cost, key)) is not None]
        if figures:
            spent = pairs * figures[-1].estimate
            share = format_fraction(spent / step_s) if spent < step_s else "more than the whole step"
            yield f"{pairs} pairs a step by {what}: {format_quantity(spent, 's')}, {share} of {step_s:g} s (model)"
