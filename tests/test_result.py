"""The result document: what is derived from what, every null explained, and the golden file's builder."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpumicro import result
from gpumicro.backends.base import Check
from gpumicro.device import Cache, Device
from gpumicro.spec import Execution, KernelSpec, Problem

DATA = Path(__file__).parent / "data"
GOLDEN = DATA / "roofline-cpu.json"
UPDATE = os.environ.get("GPUMICRO_UPDATE_GOLDEN") == "1"


# -- a run that never happened, complete in every part ---------------------------------------------------------------


@dataclass
class FakeMeasurement:
    """What result.py needs of a Measurement: seven noisy samples around a chosen time, from a fixed seed."""

    seconds: float
    noise: float = 0.004
    flags: tuple[str, ...] = ()
    stop_reason: str = "target-met"
    counts: list[int] = field(init=False)
    raw_s: list[float] = field(init=False)

    def __post_init__(self) -> None:
        draw = random.Random(repr(self.seconds))
        self.counts = [draw.choice((10, 11, 12)) for _ in range(7)]
        self.raw_s = [n * self.seconds * (1 + self.noise * draw.uniform(-1, 1)) + 2e-8 for n in self.counts]

    def to_json(self) -> dict[str, Any]:
        net = sorted((raw - 2e-8) / n for raw, n in zip(self.raw_s, self.counts, strict=True))
        timing = {
            "estimand": "host",
            "timer": "tsc",
            "loop": "native",
            "cache": "hot",
            "batch": 10,
            "kind": "median",
            "counts": self.counts,
            "raw_s": self.raw_s,
            "tick_s": 8.2e-10,
            "overhead_s": 2e-8,
            "n": 7,
            "seed": 0,
            "stop_reason": self.stop_reason,
            "flags": list(self.flags),
        }
        time_s = {
            "estimate": net[3],
            "ci95": [net[0], net[6]],
            "min": net[0],
            "p95": net[6],
            "cv": self.noise,
            "autocorrelation": None,
            "autocorrelation_why": "too few samples",
        }
        return {"timing": timing, "time_s": time_s}


def _stream(name: str, arrays: int, flops: int) -> KernelSpec:
    return KernelSpec(
        f"stream.{name}",
        "",
        ("float64", "float32"),
        ("n",),
        (),
        lambda p: arrays * p["n"] * p.itemsize,
        "exact",
        lambda p: flops * p["n"],
    )


TRIAD, COPY, READ = _stream("triad", 3, 2), _stream("copy", 2, 0), _stream("read", 1, 1)
FMA = KernelSpec(
    "peak.fma", "", ("float64", "float32"), (), (), lambda _: 0, "none", lambda _: 2 * 8_000_000, unit="FLOP/s"
)
DOT = KernelSpec("peak.dot", "", ("int8",), (), (), lambda _: 0, "none", lambda _: 2 * 64_000_000, unit="FLOP/s")
CHASE = KernelSpec("latency.chase", "", ("int64",), ("n",), (), lambda p: 64 * p["n"], "exact", lambda _: 0, unit="s")
MIXED = KernelSpec(
    "mixed.fma",
    "",
    ("float64",),
    ("n", "k"),
    (),
    lambda p: 8 * p["n"],
    "exact",
    lambda p: 2 * p["n"] * p["k"],
    unit="FLOP/s",
)


def _gemm(name: str) -> KernelSpec:
    return KernelSpec(
        f"gemm.{name}",
        "",
        ("float64", "float32"),
        ("m", "n", "k"),
        (),
        lambda p: p.itemsize * (p["m"] * p["k"] + p["k"] * p["n"] + 2 * p["m"] * p["n"]),
        "compulsory",
        lambda p: 2 * p["m"] * p["n"] * p["k"],
        unit="FLOP/s",
    )


CPU = Device(
    id="cpu",
    kind="cpu",
    name="AMD EPYC (Zen 3)",
    cores=2,
    cpus=(0, 1),
    caches=(Cache("l1", 2**15, 64, (0,), 2), Cache("l2", 2**19, 64, (0,), 2), Cache("l3", 2**25, 64, (0, 1), 1)),
    memory_bytes=8 * 2**30,
    numa_nodes=((0, 1),),
    isa=("avx2", "fma"),
    virtual="kvm",
    why={"uuid": "a CPU has none", "clock_max_hz": "virtual machine: maximum clock hidden"},
    facts={"vendor": "AuthenticAMD", "family": 25, "model": 1},
)
BOTH, ONE = Execution(threads=2), Execution(threads=1)
PASSED = Check(True, 2.2e-16, 8.9e-16, "long double", 4096)


class _Run:
    """Collects measurements and hands back what ceilings and points quote from them."""

    def __init__(self) -> None:
        self.measurements: list[dict[str, Any]] = []

    def add(
        self,
        spec: KernelSpec,
        rate: float,
        problem: Problem,
        execution: Execution = BOTH,
        level: str | None = None,
        flags: tuple[str, ...] = (),
        facts: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        work = spec.bytes_moved(problem) if spec.unit == "B/s" else spec.flops(problem)
        seconds = rate if spec.unit == "s" else work / rate
        measured = FakeMeasurement(
            seconds, flags=flags, stop_reason="max-time" if "target-missed" in flags else "target-met"
        )
        record = result.measurement_record(
            spec, problem, execution, CPU, "cpu", measured, PASSED, level=level, facts=facts
        )
        self.measurements.append(record)
        return record

    def ceiling(self, kind: str, record: dict[str, Any], recipe: str, **more: Any) -> dict[str, Any]:
        key = "bandwidth_bytes_per_s" if kind == "memory" else "flop_per_s"
        name = record["level"] if kind == "memory" else record["dtype"]
        return {
            "id": f"{name}@{record['threads']}",
            "kind": kind,
            "level": record["level"] if kind == "memory" else None,
            "dtype": record["dtype"] if kind == "arithmetic" else None,
            "unit": "B/s" if kind == "memory" else "FLOP/s",
            "threads": record["threads"],
            "recipe": recipe,
            "operands": record["operands"],
            "achieved": record[key]["estimate"],
            "ci95": record[key]["ci95"],
            "spec": None,
            "spec_why": "virtual machine: channels unknown"
            if kind == "memory"
            else "virtual machine: maximum clock hidden",
            "fraction_of_spec": None,
            "fraction_of_spec_why": "no spec peak",
            "measurement": record["id"],
            "flags": [],
            "alternatives": [],
            "scope": "roof" if record["threads"] == 2 else "shown",
        } | more

    def point(
        self,
        name: str,
        kind: str,
        record: dict[str, Any],
        bound_by: str,
        attainable: float,
        flags: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        rate = record["flop_per_s"]
        return {
            "name": name,
            "kind": kind,
            "dtype": record["dtype"],
            "level": record["level"] or "dram",
            "threads": record["threads"],
            "intensity_flop_per_byte": record["intensity_flop_per_byte"],
            "flop_per_s": rate["estimate"],
            "ci95": rate["ci95"],
            "time_s": record["time_s"]["estimate"],
            "bound_by": bound_by,
            "attainable_flop_per_s": attainable,
            "fraction_of_attainable": rate["estimate"] / attainable,
            "measurement": record["id"],
            "flags": list(flags),
        }


def build_document() -> dict[str, Any]:
    """A run on a two-core virtual machine: every section filled, a point flagged, a kernel failed, one skipped."""
    run = _Run()
    big, half = Problem.of("float64", n=33_554_432), Problem.of("float64", n=16_777_216)
    memory = [
        run.ceiling(
            "memory", run.add(TRIAD, 412e9, Problem.of("float64", n=1024), level="l1"), "stream.triad temporal"
        ),
        run.ceiling(
            "memory", run.add(TRIAD, 197e9, Problem.of("float64", n=16384), level="l2"), "stream.triad temporal"
        ),
        run.ceiling(
            "memory",
            run.add(TRIAD, 121e9, Problem.of("float64", n=524288), level="l3", flags=("drift",)),
            "stream.triad temporal",
            flags=["drift"],
        ),
    ]
    nontemporal = run.add(TRIAD, 38.3e9, big, Execution(2, "nontemporal"), "dram", ("correlated",))
    temporal = run.add(TRIAD, 29.6e9, big, Execution(2, "temporal"), "dram")
    other = {
        "recipe": "stream.triad temporal",
        "achieved": temporal["bandwidth_bytes_per_s"]["estimate"],
        "ci95": temporal["bandwidth_bytes_per_s"]["ci95"],
        "measurement": temporal["id"],
    }
    memory.append(run.ceiling("memory", nontemporal, "stream.triad nontemporal", alternatives=[other]))
    one_thread = run.add(TRIAD, 25.9e9, half, Execution(1, "nontemporal"), "dram")
    memory.append(run.ceiling("memory", one_thread, "stream.triad nontemporal"))
    fma64, fma32 = run.add(FMA, 108e9, Problem.of("float64")), run.add(FMA, 216.5e9, Problem.of("float32"))
    arithmetic = [
        run.ceiling(
            "arithmetic", fma64, "FMA only", spec=113.6e9, fraction_of_spec=fma64["flop_per_s"]["estimate"] / 113.6e9
        ),
        run.ceiling(
            "arithmetic", fma32, "FMA only", spec=227.2e9, fraction_of_spec=fma32["flop_per_s"]["estimate"] / 227.2e9
        ),
        run.ceiling("arithmetic", run.add(DOT, 431e9, Problem.of("int8")), "vpmaddubsw + vpmaddwd"),
    ]
    for ceiling in arithmetic[:2]:
        del ceiling["spec_why"], ceiling["fraction_of_spec_why"]
    dram, peak64, peak32 = memory[3]["achieved"], arithmetic[0]["achieved"], arithmetic[1]["achieved"]
    cube = {"m": 2048, "n": 2048, "k": 2048}
    vendor64, tiled64 = (
        run.add(_gemm("vendor"), 99.1e9, Problem.of("float64", **cube)),
        run.add(_gemm("tiled"), 96.4e9, Problem.of("float64", **cube)),
    )
    vendor32, tiled32 = (
        run.add(_gemm("vendor"), 203e9, Problem.of("float32", **cube)),
        run.add(_gemm("tiled"), 188e9, Problem.of("float32", **cube)),
    )
    read = run.add(READ, 45.9e9, half, level="dram", flags=("target-missed",))
    points = [
        run.point("gemm.vendor float64 2048", "gemm", vendor64, "float64", peak64),
        run.point("gemm.tiled float64 2048", "gemm", tiled64, "float64", peak64),
        run.point("gemm.vendor float32 2048", "gemm", vendor32, "float32", peak32),
        run.point("gemm.tiled float32 2048", "gemm", tiled32, "float32", peak32),
        run.point("stream.triad float64", "stream", nontemporal, "dram", dram / 12),
        run.point("stream.read float64", "stream", read, "dram", dram / 8, ("above-ceiling",)),
    ]
    for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
        problem = Problem.of("float64", n=8_388_608, k=k)
        roof = min(peak64, dram * k / 4)
        record = run.add(MIXED, roof * (0.97 if k not in (8, 16) else 0.88), problem, level="dram")
        points.append(
            run.point(f"mixed.fma float64 k={k}", "mixed", record, "dram" if roof < peak64 else "float64", roof)
        )
    for level, n, seconds in (
        ("l1", 256, 1.63e-9),
        ("l2", 4096, 4.9e-9),
        ("l3", 65536, 1.71e-8),
        ("dram", 4194304, 1.32e-7),
    ):
        run.add(CHASE, seconds * 1000, Problem.of("int64", n=n), ONE, level, facts={"hops": 1000})
    failed = result.measurement_record(
        COPY,
        big,
        BOTH,
        CPU,
        "cpu",
        None,
        None,
        status="failed",
        level="dram",
        error="wrong output at index 7: expected 0.5, got 0.25",
    )
    skipped = result.measurement_record(
        DOT,
        Problem.of("bfloat16"),
        BOTH,
        CPU,
        "cpu",
        None,
        None,
        status="skipped",
        reason="this CPU has no bfloat16 dot product",
    )
    environment = {
        "host": {
            "hostname_hash": "3f0c2a9d11aa",
            "kernel": "6.1.0",
            "hypervisor": "kvm",
            "clocksource": "tsc",
            "governor": None,
            "governor_why": "no cpufreq here",
        },
        "cpu": {"name": "AMD EPYC", "family": 25, "model": 1},
        "driver": None,
        "driver_why": "no GPU backend was used",
        "python": "3.11.7",
        "env": {"OMP_NUM_THREADS": "2"},
    }
    return result.document(
        argv=["roofline", "-o", "roofline-cpu.json"],
        devices=[CPU],
        measurements=[*run.measurements, failed, skipped],
        ceilings=[*memory, *arithmetic],
        points=points,
        ridge_points=_ridges(memory, arithmetic),
        gap=_gap(arithmetic, memory, vendor64, tiled64),
        sustained=[_sustained(arithmetic[0])],
        verdicts=[
            {"name": "outputs", "passed": False, "text": "stream.copy gave a wrong output"},
            {"name": "roof", "passed": True, "text": "the mixed sweep stays within 12% of the roof"},
        ],
        notes=[
            "Huge pages were had for all DRAM arrays.",
            "Bytes are counted as STREAM does: temporal stores also read the line (4/3 for triad).",
        ],
        spec={"name": "Zen 3, 2 cores", "source": ["AMD optimization guide 56665"]},
        settings={"mode": "default", "dtype": ["float64", "float32"]},
        environment=environment,
        created="2026-11-30T06:00:00Z",
    )


def _ridges(memory: list[dict[str, Any]], arithmetic: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "memory": low["level"],
            "arithmetic": high["dtype"],
            "threads": 2,
            "intensity_flop_per_byte": high["achieved"] / low["achieved"],
            "ci95": [high["ci95"][0] / low["ci95"][1], high["ci95"][1] / low["ci95"][0]],
        }
        for low in memory[:4]
        for high in arithmetic[:2]
    ]


def _gap(
    arithmetic: list[dict[str, Any]], memory: list[dict[str, Any]], vendor: dict[str, Any], tiled: dict[str, Any]
) -> list[dict[str, Any]]:
    peak, dram, one = arithmetic[0], memory[3], memory[4]
    return [
        {
            "quantity": "float64 arithmetic",
            "unit": "FLOP/s",
            "steps": [
                {
                    "name": "spec",
                    "label": "2 cores x 16 FLOP/cycle x 3.55 GHz",
                    "value": peak["spec"],
                    "ci95": None,
                    "ci95_why": "a spec",
                    "measurement": None,
                },
                {
                    "name": "ceiling",
                    "label": "peak.fma, 2 threads",
                    "value": peak["achieved"],
                    "ci95": peak["ci95"],
                    "measurement": peak["measurement"],
                },
                {
                    "name": "library",
                    "label": "gemm.vendor 2048 (OpenBLAS)",
                    "value": vendor["flop_per_s"]["estimate"],
                    "ci95": vendor["flop_per_s"]["ci95"],
                    "measurement": vendor["id"],
                },
                {
                    "name": "kernel",
                    "label": "gemm.tiled 2048",
                    "value": tiled["flop_per_s"]["estimate"],
                    "ci95": tiled["flop_per_s"]["ci95"],
                    "measurement": tiled["id"],
                },
            ],
            "causes": [
                {
                    "between": ["spec", "ceiling"],
                    "cause": "clock below spec",
                    "fraction": 0.041,
                    "evidence": "3.40 GHz held of 3.55 GHz",
                }
            ],
            "unattributed": [
                {"between": ["spec", "ceiling"], "fraction": 0.008, "note": "within the intervals"},
                {
                    "between": ["ceiling", "library"],
                    "fraction": 0.082,
                    "note": "packing and edges were not measured apart",
                },
            ],
        },
        {
            "quantity": "dram bandwidth",
            "unit": "B/s",
            "steps": [
                {
                    "name": "spec",
                    "label": "memory channels",
                    "value": None,
                    "value_why": "virtual machine: channels unknown",
                    "ci95": None,
                    "measurement": None,
                },
                {
                    "name": "ceiling",
                    "label": "stream.triad nontemporal, 2 threads",
                    "value": dram["achieved"],
                    "ci95": dram["ci95"],
                    "measurement": dram["measurement"],
                },
                {
                    "name": "one thread",
                    "label": "stream.triad nontemporal, 1 thread",
                    "value": one["achieved"],
                    "ci95": one["ci95"],
                    "measurement": one["measurement"],
                },
            ],
            "causes": [
                {
                    "between": ["ceiling", "one thread"],
                    "cause": "one thread cannot keep enough lines in flight",
                    "fraction": None,
                    "evidence": "1 thread against 2",
                }
            ],
            "unattributed": [],
        },
    ]


def _sustained(ceiling: dict[str, Any]) -> dict[str, Any]:
    value, (low, high) = ceiling["achieved"], ceiling["ci95"]
    series = [
        {"t_s": float(t), "value": value * (1 - 0.03 * min(1.0, t / 6)), "clock_hz": None, "power_w": None}
        for t in range(11)
    ]
    settled = {"value": value * 0.97, "ci95": [low * 0.97, high * 0.97]}
    return {
        "ceiling": ceiling["id"],
        "seconds": 10.0,
        "first": {"value": value, "ci95": [low, high]},
        "settled": settled,
        "series": series,
        "clock_hz_why": "no cpufreq in this virtual machine",
        "power_w_why": "no RAPL counters here",
    }


@pytest.fixture
def doc() -> dict[str, Any]:
    return build_document()


# -- the document ----------------------------------------------------------------------------------------------------


def test_golden_file_is_what_the_builder_makes(doc: dict[str, Any]) -> None:
    doc["gpumicro_version"] = "0.1.0"
    if UPDATE:
        result.write(GOLDEN, doc)
    assert result.read(GOLDEN) == doc


def test_every_null_has_its_reason(doc: dict[str, Any]) -> None:
    assert result.missing_reasons(doc) == []
    del doc["environment"]["driver_why"]
    assert result.missing_reasons(doc) == ["environment.driver"]


def test_derived_values_follow_from_raw_seconds_and_counts(doc: dict[str, Any]) -> None:
    timed = [m for m in doc["measurements"] if m["status"] == "ok"]
    assert len(timed) > 20
    for item in timed:
        timing, time = item["timing"], item["time_s"]
        runs = np.sort((np.array(timing["raw_s"]) - timing["overhead_s"]) / np.array(timing["counts"]))
        assert time["estimate"] == pytest.approx(np.median(runs), rel=1e-12)
        assert time["ci95"] == pytest.approx([runs[0], runs[-1]], rel=1e-12)
        for key, work in (("bandwidth_bytes_per_s", item["bytes_moved"]), ("flop_per_s", item["flops"])):
            if item[key] is None:
                assert work == 0 or item["family"] == "latency"
                continue
            low, high = item[key]["ci95"]
            assert low < item[key]["estimate"] < high
            assert [item[key]["estimate"], low, high] == pytest.approx(
                [work / np.median(runs), work / runs[-1], work / runs[0]]
            )
        if item["bytes_moved"]:
            assert item["intensity_flop_per_byte"] == item["flops"] / item["bytes_moved"]
        if item["family"] == "latency":
            assert item["latency_s"]["estimate"] == pytest.approx(np.median(runs) / 1000)


def test_ceilings_points_and_ridges_quote_their_measurements(doc: dict[str, Any]) -> None:
    by_id = {m["id"]: m for m in doc["measurements"]}
    for ceiling in doc["ceilings"]:
        rate = by_id[ceiling["measurement"]]["bandwidth_bytes_per_s" if ceiling["kind"] == "memory" else "flop_per_s"]
        assert (ceiling["achieved"], ceiling["ci95"]) == (rate["estimate"], rate["ci95"])
    for point in doc["points"]:
        assert point["flop_per_s"] == by_id[point["measurement"]]["flop_per_s"]["estimate"]
        assert point["fraction_of_attainable"] == point["flop_per_s"] / point["attainable_flop_per_s"]
    achieved = {c["level"] or c["dtype"]: c["achieved"] for c in doc["ceilings"] if c["threads"] == 2}
    for ridge in doc["ridge_points"]:
        assert ridge["intensity_flop_per_byte"] == achieved[ridge["arithmetic"]] / achieved[ridge["memory"]]


def test_unmeasured_record_has_a_reason_for_everything() -> None:
    record = result.measurement_record(
        TRIAD, Problem.of(n=8), BOTH, "cpu", "cpu", None, None, status="failed", error="boom"
    )
    assert record["error"] == "boom"
    for key in ("timing", "time_s", "bandwidth_bytes_per_s", "flop_per_s", "check"):
        assert record[key] is None
        assert record[f"{key}_why"] == "boom"


def test_interval_that_reaches_zero_gives_no_upper_bound() -> None:
    rate = result.rate(8.0, {"estimate": 2.0, "ci95": [0.0, 4.0]})
    assert rate == {"estimate": 4.0, "ci95": None, "ci95_why": "the time's interval reaches zero"}
    assert result.rate(8.0, {"estimate": 0.0, "ci95": [-1.0, 1.0]})["estimate"] is None


def test_numpy_values_become_plain() -> None:
    assert result.to_plain({"a": np.float64(1.5), "b": np.arange(3), "c": (np.int64(2), {"d": np.bool_(True)})}) == {
        "a": 1.5,
        "b": [0, 1, 2],
        "c": [2, {"d": True}],
    }
    with pytest.raises(TypeError, match="cannot be written"):
        result.to_plain({"a": object()})


def test_environment_is_collected_when_not_given() -> None:
    made = result.document(argv=[], devices=[], measurements=[])
    result.validate(made)
    assert made["environment"]["python"]
    assert result.missing_reasons(made) == []
