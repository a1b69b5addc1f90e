"""What each record claims to move and to compute, held against what the double counted.

`check(case, result)` raises AssertionError where they differ. Exact for STREAM and for peaks, where every extra that
the kernel needs beside its work (the sum over a block, the result that keeps the work alive) is named here; for GEMM
within the tiles that stick out over the edges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import ceil, prod
from typing import Any

from emulator.cases import Case

from gpumicro.spec import ITEMSIZE

Result = Mapping[str, Any]
FLOPS_OF = {"fma.f64": 2, "fma.f32": 2, "fma.f16x2": 4, "fma.bf16x2": 4, "mad.s32": 2, "dp4a.s32": 8}  # of one thread
CLAIMED = {
    "float64": "fma.f64", "float32": "fma.f32", "float16": "fma.f16x2", "bfloat16": "fma.bf16x2", "int32": "mad.s32",
}  # fmt: skip


def bytes_of(result: Result, space: str = "global") -> int:
    """Loaded and stored, by all kernels of the run."""
    return sum(sum(one["bytes"][space].values()) for one in result["counts"])


def instructions(result: Result, pattern: str) -> dict[str, int]:
    """Executions by threads, of the classes that match."""
    found: dict[str, int] = {}
    for one in result["counts"]:
        for name, count in one["instructions"].items():
            if re.fullmatch(pattern, name):
                found[name] = found.get(name, 0) + count
    return found


def total(result: Result, key: str) -> int:
    return sum(one[key] for one in result["counts"])


def stream(case: Case, result: Result) -> None:
    name, item = case.kernel, ITEMSIZE[case.dtype]
    summed = name in ("stream.read", "stream.dot")
    blocks = prod(result["facts"]["grid"])
    # A sum over all blocks: each block's part is written and read once more, then the result and the ticket's reset.
    partial = 2 * item * blocks + item + 4 if summed else 0
    assert bytes_of(result) == result["bytes"] + partial
    flops = total(result, "flops")
    if not summed:
        assert flops == result["flops"]
        return
    products = sum(instructions(result, r"(fma|mul)\.f(32|64)").values())
    assert products == (case.sizes["n"] if name == "stream.dot" else 0)
    assert result["flops"] == case.sizes["n"] + products  # an addition for each element
    # Adding up: at most 16 additions of each thread for its own parts, its warp's and its block's.
    assert result["flops"] <= flops <= result["flops"] + 16 * total(result, "threads")


def peak(case: Case, result: Result) -> None:
    """The claimed instruction alone makes the claimed operations."""
    assert result["bytes"] == 0
    if case.kernel.startswith("peak.mma"):
        done = 0
        for name, count in instructions(result, r"mma\..*").items():
            m, n, k = map(int, re.findall(r"\d+", name.split(".")[1]))
            done += count * 2 * m * n * k // 32
    else:
        name = "dp4a.s32" if case.kernel == "peak.dot" else CLAIMED[case.dtype]
        count = instructions(result, re.escape(name))[name]
        own_number = total(result, "threads") if name == "mad.s32" else 0  # block * threads + thread
        done = (count - own_number) * FLOPS_OF[name]
    assert done == result["flops"]


def gemm(case: Case, result: Result) -> None:
    """Each tile of C reads its rows of A and columns of B once; tiles are whole, with zeros beyond the edges."""
    m, n, k = (case.sizes[name] for name in ("m", "n", "k"))
    tile_m, tile_n = map(int, re.findall(r"\d+", result["facts"]["symbol"].partition(",")[2])[:2])
    down, across = ceil(m / tile_m), ceil(n / tile_n)
    assert prod(result["facts"]["grid"]) == down * across
    item = ITEMSIZE[case.dtype]
    assert result["bytes"] == item * (m * k + k * n + m * n)
    assert bytes_of(result) == item * (across * m * k + down * k * n + m * n)
    assert result["flops"] == 2 * m * n * k
    area = 2 * down * tile_m * across * tile_n
    depth, odd = divmod(total(result, "flops"), area)
    assert odd == 0
    assert k <= depth < k + 64


def cache(case: Case, result: Result) -> None:
    blocks = prod(result["facts"]["grid"])
    warps = blocks * prod(result["facts"]["block"]) // 32
    if case.kernel == "cache.shared":  # once from global memory into shared memory, then read there
        loaded = sum(one["bytes"]["shared"]["loaded"] for one in result["counts"])
        assert loaded == result["bytes"]
    else:
        assert bytes_of(result) == result["bytes"] + 4 * warps  # a word of each warp keeps the reads alive


def latency(case: Case, result: Result) -> None:
    """A load for each hop; before them one for each line, and one of each thread, bring the walk to where it starts."""
    assert result["bytes"] == 0
    assert result["flops"] == 0
    if case.kernel == "latency.gpu_chase":
        loads = instructions(result, r"ld\.global")["ld.global"]
        assert loads == case.sizes["hops"] + case.sizes["n"] + total(result, "threads") + 2


def atomics(case: Case, result: Result) -> None:
    space = "shared" if "shared" in case.kernel else "global"
    done = instructions(result, rf"(red|atom)\.{space}")
    # atomics.one counts its blocks, and the last one resets the count.
    ticket = prod(result["facts"]["grid"]) + 1 if case.kernel == "atomics.one" else 0
    assert sum(done.values()) == result["flops"] + ticket


CHECKS: Mapping[str, Callable[[Case, Result], None]] = {
    "stream": stream, "peak": peak, "gemm": gemm, "cache": cache, "latency": latency, "atomics": atomics,
}  # fmt: skip


def check(case: Case, result: Result) -> None:
    """All that is claimed for the case, and that no kernel goes through local memory."""
    CHECKS[case.spec.family](case, result)
    assert bytes_of(result, "local") == 0
