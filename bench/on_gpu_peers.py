"""What on_gpu.py sets beside our ceilings: the figures that other tools would give, taken their way by our own code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from on_gpu_place import Place, Row, failed, row, skipped

from gpumicro.errors import GpumicroError
from gpumicro.kernels import find
from gpumicro.spec import Execution, Problem


def best_of(prepared: Any, runs: int, each: int = 1) -> tuple[float, float]:
    """(least, median) seconds of one run by the work's own clock, as it reads: no overhead is subtracted."""
    spans = prepared.timer.sample(prepared.work, np.full(runs + 1, each))[1:] / each  # the first one is dropped
    return float(spans.min()), float(np.median(spans))


def stream(place: Place) -> list[Row]:
    """BabelStream's way: 2^25 doubles an array, 100 runs, the first dropped, the best one counts."""
    n, runs = (1024, 3) if place.emulated else (1 << 25, 100)
    rows = []
    for name, theirs in (("copy", "Copy"), ("scale", "Mul"), ("add", "Add"), ("triad", "Triad"), ("dot", "Dot")):
        spec, problem = find(f"stream.{name}"), Problem.of("float64", n=n)
        assert spec.gpu is not None
        variant = spec.gpu.variants("float64", place.device)[0]
        label = f"BabelStream-style {theirs}"
        try:
            with place.backend.prepare(spec, problem, Execution(1, variant), place.device) as prepared:
                least_s, _ = best_of(prepared, runs)
            rows.append(row(label, spec.bytes_moved(problem) / least_s, "B/s", "best of 100", beside="dram"))
        except GpumicroError as error:
            rows.append(failed(label, error))
    return rows


def copies(place: Place) -> list[Row]:
    """nvbandwidth's way: 512 MiB, 16 copies a sample, the median of 3 samples; payload bytes."""
    size, each = (1 << 16, 2) if place.emulated else (512 << 20, 16)
    rows = []
    for name, variant in (("h2d", "pinned"), ("d2h", "pinned"), ("bidirectional", "pinned"), ("d2d", "")):
        spec, problem, label = find(f"copy.{name}"), Problem.of("int8", n=size), f"nvbandwidth-style {name}"
        try:
            with place.backend.prepare(spec, problem, Execution(1, variant), place.device) as prepared:
                _, median_s = best_of(prepared, 3, each)
            rows.append(row(label, spec.bytes_moved(problem) / median_s, "B/s", variant, beside=f"copy.{name}"))
        except GpumicroError as error:
            rows.append(failed(label, error))
    return rows


def _torch(place: Place, size: int) -> Iterator[Row]:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = False
    for name in ("float32", "float16", "bfloat16"):
        a, b = (torch.rand(size, size, device=place.device.id).to(getattr(torch, name)) for _ in range(2))
        torch.matmul(a, b)
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(20)]
        for begin, end in pairs:
            begin.record()
            torch.matmul(a, b)
            end.record()
        torch.cuda.synchronize()
        yield _matmul_row("torch", name, size, min(begin.elapsed_time(end) for begin, end in pairs))


def _cupy(place: Place, size: int) -> Iterator[Row]:
    import cupy

    with cupy.cuda.Device(place.index):
        for name in ("float32", "float16"):
            a, b = (cupy.random.rand(size, size).astype(name) for _ in range(2))
            cupy.matmul(a, b)
            pairs = [[cupy.cuda.Event() for _ in range(2)] for _ in range(20)]
            for begin, end in pairs:
                begin.record()
                cupy.matmul(a, b)
                end.record()
            cupy.cuda.Device().synchronize()
            least_ms = min(cupy.cuda.get_elapsed_time(begin, end) for begin, end in pairs)
            yield _matmul_row("cupy", name, size, least_ms)


def _matmul_row(tool: str, dtype: str, size: int, least_ms: float) -> Row:
    return row(f"{tool} matmul {dtype} {size}", 2 * size**3 / (least_ms * 1e-3), "FLOP/s", "best of 20",
               beside=f"gemm {dtype}")  # fmt: skip


def matmul(place: Place) -> list[Row]:
    """torch's and CuPy's matmul where they are installed."""
    rows: list[Row] = []
    for name, make in (("torch", _torch), ("cupy", _cupy)):
        try:
            rows += make(place, 64 if place.emulated else 8192)
        except ImportError:
            rows.append(skipped(f"{name} matmul", "it is not installed"))
        except Exception as error:  # a peer's trouble is not ours
            rows.append(skipped(f"{name} matmul", error))
    return rows
