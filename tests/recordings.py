"""Recordings of GPUs that nobody measured: facts from the spec table, times from a simple model, tagged synthetic.

The model is a roofline at a fixed share of the spec with some noise, read by a clock with a tick. It stands for no
real device: its figures serve to see what the tool makes of spans, flags and faults.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from fake_nvml import FakeNvml

from gpumicro.backends.base import Availability
from gpumicro.backends.gpu_backend import device_of
from gpumicro.device import Device
from gpumicro.nvml import Gpu
from gpumicro.peaks.gpu import GpuSpec, find_gpu
from gpumicro.plan import Item, Plan, make_plan
from gpumicro.recording import SCHEMA, Recording, check

KINDS = ("a100-pcie-40", "a100-sxm4-80", "h100-sxm5-80", "h200-sxm-141", "rtx-4090", "b200-sxm6-180")
TICK_S = {"a100-pcie-40": 1.024e-6, "rtx-4090": 1.024e-6}  # both kinds of event clock are about; else 32 ns
SHARE, GEMM_SHARE = 0.9, 0.7  # of the spec that the model reaches
FASTER = {"dram": 1.0, "l2": 3.0, "l1": 10.0, "shared": 10.0}  # a level's bandwidth over DRAM's
HOST_LINK_BYTES_PER_S = 50e9
HOP_S = {"l1": 20e-9, "shared": 15e-9, "l2": 150e-9, "dram": 400e-9}
SPANS, NOISE, OVERHEAD_S = 48, 0.004, 2e-6
_SHARED_BYTES = {"8.0": 164 << 10, "8.9": 100 << 10, "9.0": 228 << 10, "10.0": 228 << 10}


def gpu(kind: str, index: int = 0) -> Device:
    """A device with the facts that CUDA would tell of that model."""
    spec = find_gpu(kind)
    shared = _SHARED_BYTES[spec.compute_capability]
    return device_of(f"cuda:{index}", {
        "name": spec.name, "uuid": f"GPU-{index:08d}-0000-0000-0000-{zlib.crc32(kind.encode()):012d}",
        "pci_bus_id": f"0000:{index:02x}:00.0", "compute_capability": spec.compute_capability,
        "sm_count": spec.sm_count, "memory_bytes": int(0.99 * spec.memory_bytes), "shared_bytes_per_sm": shared,
        "l2_bytes": int(spec.l2_bytes or 126 << 20), "shared_bytes_per_block": shared - 1024,
        "max_threads_per_sm": 1536 if spec.compute_capability == "8.9" else 2048, "clock_hz": spec.boost_clock_hz,
        "memory_clock_hz": 2.6e9, "memory_bus_bits": spec.memory_bus_bits, "ecc": True, "unified_addressing": True,
        "managed": True, "integrated": False, "copy_engines": 2, "compute_mode": 0, "tcc": False, "emulated": False,
    })  # fmt: skip


class Permissive:
    """A backend that would run whatever has a GPU form: what a plan for a recording is made with."""

    name = "cuda"

    def devices(self) -> tuple[Device, ...]:
        return ()  # one device alone: no copies between peers

    def supports(self, spec: Any, dtype: str, device: Device) -> Availability:
        if spec.gpu is None or dtype not in spec.gpu.dtypes:
            return Availability(False, "no form of it")
        # The vendor's library is on no machine where this runs; that of a recording has it.
        reason = "" if spec.name == "gemm.vendor" else spec.gpu.why_not(dtype, device)
        return Availability(not reason, reason)


def model_s(item: Item, spec: GpuSpec) -> float:
    """Seconds of one run by the model."""
    if item.spec.unit == "s":
        return HOP_S.get(item.level or "", 1e-6) * dict(item.problem.sizes).get("hops", 1) + 2e-6
    bandwidth = SHARE * FASTER.get(item.level or "dram", 1.0) * spec.memory_bandwidth_bytes_per_s
    if item.spec.family == "copy" and item.spec.name != "copy.d2d":
        bandwidth = HOST_LINK_BYTES_PER_S
    unit = (item.spec.gpu.unit if item.spec.gpu else "") or None
    peak = spec.peak(item.problem.dtype, unit) or spec.peak(item.problem.dtype) or spec.peak("float32")
    assert peak is not None
    moved_s = item.spec.bytes_moved(item.problem) / bandwidth
    # Small problems do not fill the device; what has no peak of its own (atomics) gets the float32 one.
    share = GEMM_SHARE if item.spec.family == "gemm" else SHARE
    return max(moved_s, item.spec.flops(item.problem) / (share * peak.flop_per_s)) + 1e-6


def _facts(item: Item) -> dict[str, Any]:
    """What a prepared kernel says of itself, as far as a model can."""
    unit = item.spec.gpu.unit if item.spec.gpu else ""
    return {"compiler": "none: synthetic", "emulated": False} | ({"unit": unit} if unit else {})


def _take(item: Item, spec: GpuSpec, tick_s: float) -> dict[str, Any]:
    rng = np.random.default_rng(zlib.crc32(item.id.encode()))
    true_s = model_s(item, spec)
    counts = np.full(SPANS, max(1, int(400 * tick_s / true_s)))
    raw = OVERHEAD_S + counts * true_s * (1 + NOISE * rng.standard_normal(SPANS))
    raw[0] *= 3  # the first run of all is never like the others
    return {"flags": [], "counts": counts.tolist(), "spans_s": _ticks(raw, tick_s, rng)}


def _ticks(raw: Any, tick_s: float, rng: np.random.Generator) -> list[float]:
    """On the clock's grid, at a random phase."""
    whole = np.floor(np.asarray(raw) / tick_s + rng.random(len(raw)))
    return [float(value) for value in np.maximum(whole, 0) * tick_s]


def track(kind: str, index: int = 0, mode: Any = "quick", plan: Plan | None = None) -> dict[str, Any]:
    """One device's part of a recording: an entry for every item of its plan."""
    device, spec, tick_s = gpu(kind, index), find_gpu(kind), TICK_S.get(kind, 32e-9)
    plan = plan or make_plan(device, Permissive(), mode=mode)  # type: ignore[arg-type]
    rng = np.random.default_rng(index)
    overheads = _ticks(OVERHEAD_S * (1 + 0.02 * rng.standard_normal(256)), tick_s, rng)
    boost = spec.boost_clock_hz or 1.5e9
    moments = np.arange(200) * 0.02
    power = 0.8 * (spec.tdp_w or 300.0)
    entries = {
        item.id: {
            "status": "ok", "timer": "event", "loop": "native", "facts": _facts(item),
            "check": {"passed": True, "worst": 0.0, "bound": 1.0, "reference": "none: synthetic", "elements": 1},
            "takes": [_take(item, spec, tick_s)],
        }
        for group in plan.groups for item in group.items
    }  # fmt: skip
    return {
        "device": json.loads(json.dumps(asdict(device))), "backend": "cuda",
        "refused": {f"{item.spec.name} {item.problem.dtype}": reason for item, reason in plan.skipped},
        "timers": {"event": {
            "name": "event", "tick_s": tick_s, "lsb_s": tick_s, "how": "chosen", "overhead_s": overheads,
            "about": {"estimand": "isolated", "cache": "hot", "largest_batch": 1 << 20},
        }},
        "measurements": entries,
        "watch": {
            "kind": "gpu", "facts": Gpu(FakeNvml().uuids[0], FakeNvml()).facts() | {"clock_max_hz": boost},
            "series": {
                "t_s": moments.tolist(), "sm_hz": [boost] * 200, "memory_hz": [2.6e9] * 200, "power_w": [power] * 200,
                "temperature_c": [60.0] * 200, "utilization": [1.0] * 200, "reasons": [0] * 200,
            },
            "counters": {"t_s": 4.0, "energy_j": 4 * power, "limited_s": {"power": 0.02, "hardware thermal": 0.0}},
            "others": [], "why": {},
        },
    }  # fmt: skip


def synthetic(*kinds: str, mode: Any = "quick") -> Recording:
    """A recording of a machine with these GPUs, in order."""
    made = {
        "schema": SCHEMA, "synthetic": True, "gpumicro_version": "0", "created": "2026-01-01T00:00:00Z",
        "settings": {"mode": mode, "dtypes": [], "operands": "uniform", "sustained_s": 0.0},
        "environment": {"driver": "synthetic"}, "devices": [track(k, i, mode) for i, k in enumerate(kinds)],
    }  # fmt: skip
    check(made, "synthetic")
    return made


def save(path: Path, recording: Recording) -> Path:
    """Write it as a user would have it."""
    path.write_text(json.dumps(recording), encoding="utf-8")
    return path
