"""Result files of runs that never happened: known works on a fake clock, for what compares and exports files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpumicro import CATALOGUE, FakeTimer, FakeWork, result, time_kernel
from gpumicro.device import Cache, Device
from gpumicro.measure import Measurement
from gpumicro.spec import Execution, KernelSpec, Problem

CREATED = "2026-11-30T06:00:00Z"


def cpu(**more: Any) -> Device:
    """A two-core CPU."""
    facts = {
        "id": "cpu", "kind": "cpu", "name": "Model 1", "cores": 2, "cpus": (0, 1), "memory_bytes": 1 << 33,
        "caches": (Cache("l1", 32768, 64, (0,), 2),), "isa": ("avx2",),
    }  # fmt: skip
    return Device(**(facts | more))


def gpu(uuid: str = "GPU-1") -> Device:
    """A GPU with a uuid."""
    return Device("cuda:0", "cuda", "Model G", 132, (), (), 80 << 30, uuid=uuid)


def kernel(name: str) -> KernelSpec:
    """A kernel of the catalogue by name."""
    return next(spec for spec in CATALOGUE if spec.name == name)


def measurement(true_s: float, seed: int = 0, spread: float = 0.01, **policy: Any) -> Measurement:
    """Of a work that takes so long."""
    return time_kernel(FakeWork(true_s, spread=spread), timer=FakeTimer(seed=seed), seed=seed, warmup=0, **policy)


def entry(
    n: int = 1024, true_s: float = 1e-3, *, device: Device | None = None, name: str = "stream.triad",
    dtype: str = "float64", seed: int = 0, **policy: Any,
) -> dict[str, Any]:  # fmt: skip
    """One measurement of a result."""
    where = device or cpu()
    sizes = tuple((size, n) for size in kernel(name).sizes)
    timed = measurement(true_s, seed, **({"min_samples": 100, "max_samples": 100} | policy))
    return result.measurement_record(
        kernel(name), Problem(sizes, dtype), Execution(2), where, where.kind, timed, None, facts={"hops": 1000}
    )


def file(
    *records: Mapping[str, Any], device: Device | None = None, created: str = CREATED, **more: Any
) -> dict[str, Any]:
    """A whole result."""
    made = result.document(
        argv=[], devices=[device or cpu()], measurements=records, environment={"python": "3.12"}, created=created
    )
    result.validate(made | more)
    return made | more


def machine(seconds: Mapping[int, float], seed: int, process_sd: float = 0.0, **more: Any) -> dict[str, Any]:
    """A run of one process: a measurement for each size, off by what a process is off by."""
    rng = np.random.default_rng(seed)
    records = [
        entry(n, true_s * float(np.exp(process_sd * rng.normal())), seed=int(rng.integers(1 << 31)), **more)
        for n, true_s in seconds.items()
    ]
    return file(*records)
