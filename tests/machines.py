"""A hand-made machine for tests: two memory levels and one peak, in round figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpumicro.peaks.sheet import Promise, Sheet


def figure(value: float, width: float = 0.01) -> dict[str, Any]:
    return {"estimate": value, "ci95": [value * (1 - width), value * (1 + width)]}


def record(kernel: str, **more: Any) -> dict[str, Any]:
    """A measurement; `rate` is bytes/s for stream kernels and FLOP/s for the rest."""
    rate, width = more.pop("rate", 1e9), more.pop("width", 0.01)
    out = {
        "id": more.pop("id", f"{kernel}{sorted(more.items())}"), "status": "ok", "kernel": kernel,
        "family": kernel.partition(".")[0], "variant": "", "dtype": "float64", "level": None, "device": "cpu",
        "threads": 2, "problem": {}, "bytes_moved": 24, "flops": 2, "intensity_flop_per_byte": 2 / 24,
        "timing": {"flags": []}, "time_s": {"estimate": 1e-3}, "facts": {},
    }  # fmt: skip
    out.update(more)
    if out["family"] == "stream":
        out["bandwidth_bytes_per_s"] = figure(rate, width)
        if out["flops"]:
            out["flop_per_s"] = figure(rate * out["flops"] / out["bytes_moved"], width)
    else:
        out["flop_per_s"] = figure(rate, width)
    return out


def machine_records() -> list[dict[str, Any]]:
    """Two memory levels and one peak: 100 GB/s, 20 GB/s, 100 GFLOP/s; ridge points 1 and 5 FLOP/B."""
    return [
        record("stream.triad", level="l2", rate=100e9, variant="temporal"),
        record("stream.triad", level="dram", rate=15e9, variant="temporal"),
        record("stream.triad", level="dram", rate=20e9, variant="nontemporal"),
        record("stream.read", level="dram", rate=18e9, flops=0, intensity_flop_per_byte=0),
        record("stream.triad", level="dram", rate=12e9, variant="temporal", threads=1),
        record("peak.fma", rate=100e9, bytes_moved=0, intensity_flop_per_byte=None),
        record("peak.fma_add", rate=150e9, bytes_moved=0, intensity_flop_per_byte=None),
        record("peak.fma", rate=52e9, bytes_moved=0, intensity_flop_per_byte=None, threads=1),
    ]


def gemm(rate: float, kernel: str = "gemm.tiled") -> dict[str, Any]:
    """A GEMM of 1,024 at `rate` FLOP/s."""
    flops = 2 * 1024**3
    return record(
        kernel, level="dram", rate=rate, problem={"m": 1024, "n": 1024, "k": 1024}, flops=flops,
        bytes_moved=3 * 8 * 1024**2, intensity_flop_per_byte=85.0, time_s={"estimate": flops / rate},
    )  # fmt: skip


@dataclass(frozen=True, slots=True, init=False)
class FakeSheet(Sheet):
    """A spec of two cores at 4 GHz that promises `value` FLOP/s in float64, 16 a cycle and core, and nothing else."""

    value: float | None

    def __init__(self, value: float | None) -> None:
        for key, held in {"record": {}, "cores": 2, "clock_hz": 4e9, "spec": None, "value": value}.items():
            object.__setattr__(self, key, held)

    def bandwidth(self, level: str) -> Promise:
        return Promise(None, f"no {level} bandwidth is promised")

    def arithmetic(self, dtype: str, recipe: str = "fma") -> Promise:
        if (dtype, recipe) == ("float64", "fma"):
            return Promise(self.value, "virtual machine: clock hidden", 16.0)
        return Promise(None, "not promised")
