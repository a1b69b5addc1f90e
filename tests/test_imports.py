"""Results of other tools: every figure of a hand-made sample of each documented format, in its unit."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import gpumicro as gm
from gpumicro import imports, schema
from gpumicro.errors import UsageError
from gpumicro.report import FORMATS

DATA = Path(__file__).parent / "data" / "imports"
SAMPLES = sorted(path.name for path in DATA.iterdir() if path.is_file())


def load(*names: str, **options: Any) -> dict[str, Any]:
    return imports.import_results([str(DATA / name) for name in names], **options)


def one(doc: Mapping[str, Any], kernel: str, **match: Any) -> dict[str, Any]:
    """The one measurement of that kernel, and of these values of its problem or itself."""
    found = [
        m
        for m in doc["measurements"]
        if m["kernel"] == kernel and all({**m, **m["problem"]}.get(key) == value for key, value in match.items())
    ]
    assert len(found) == 1, [m["id"] for m in found]
    return found[0]


def estimate(record: Mapping[str, Any], key: str) -> float:
    figure = record[key]
    assert figure["ci95"] is not None or figure["ci95_why"]
    return float(figure["estimate"])


# -- every format ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_recognised_valid_and_explains_every_null(name: str) -> None:
    doc = load(name)
    schema.validate(doc)
    assert schema.missing_reasons(doc) == []
    assert doc["imported"]["file"] == name
    assert doc["measurements"]
    assert all(m["imported"]["tool"] == doc["imported"]["tool"] for m in doc["measurements"])
    ids = [m["id"] for m in doc["measurements"]]
    assert len(set(ids)) == len(ids), "compare pairs by it"


DRAWN = ("babelstream.csv", "mixbench.txt", "osu.txt")  # a roof without peaks, a whole one, none


@pytest.mark.parametrize(
    ("name", "format"),
    [(name, format) for name in SAMPLES for format in ("console", "md", "csv")]
    + [(name, format) for name in DRAWN for format in ("html", "png", "svg")],
)
def test_every_report_says_who_measured(name: str, format: str) -> None:
    doc = load(name)
    content = FORMATS[format].render(doc)
    if format in ("console", "md", "html"):
        text = " ".join(content.decode().replace("\\", "").split())
        tool = doc["imported"]["tool"]
        assert f"IMPORTED from {tool}" in text
        assert "not measured by gpumicro" in text
    assert content


def test_csv_names_the_tool_and_holds_what_it_states() -> None:
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"].render(load("nvbandwidth.txt")).decode(), newline="")))
    assert (rows[0]["record"], rows[0]["name"]) == ("imported", "nvbandwidth v0.8 (nvbandwidth.txt)")
    assert (rows[1]["unit"], float(rows[1]["value"]), rows[1]["ci95_low"]) == ("B/s", 55.25e9, "")
    latency = next(row for row in rows if "latency_sm" in row["name"])
    assert (latency["unit"], float(latency["value"])) == ("s", pytest.approx(650.5e-9))


def test_there_is_a_sample_of_each_format() -> None:
    tools = {load(name)["imported"]["tool"].lower().removesuffix("-micro-benchmarks") for name in SAMPLES}
    assert tools == set(imports.FORMATS)


# -- nvbench ---------------------------------------------------------------------------------------------------------


def test_nvbench_samples_give_a_median_with_its_interval() -> None:
    doc = load("nvbench.json")
    assert doc["imported"]["version"] == "0.2.0"
    assert doc["devices"][0]["name"] == "Imaginary GPU 9000"
    cold = one(doc, "saxpy", variant="", status="ok", labels={"T": "F32"})
    assert cold["timing"]["n"] == len(cold["timing"]["raw_s"]) == 12
    assert cold["timing"]["estimand"] == "isolated"
    assert estimate(cold, "time_s") == pytest.approx(1.01e-4, rel=1e-6)
    low, high = cold["time_s"]["ci95"]
    assert low == pytest.approx(1.00e-4, rel=1e-6), "the third of twelve in order"
    assert high == pytest.approx(1.02e-4, rel=1e-6)
    assert cold["bytes_moved"] == 3 * 4 * 2097152
    assert estimate(cold, "bandwidth_bytes_per_s") == pytest.approx(3 * 4 * 2097152 / 1.01e-4, rel=1e-6)
    assert cold["problem"] == {"Elements": 2097152}
    assert cold["flops"] is None
    assert cold["dtype"] is None, "an axis called T is not a type that nvbench states"
    assert cold["facts"]["sm_clock_hz"] == 1.755e9
    assert cold["device"] == "cuda:0"


def test_nvbench_without_samples_has_no_interval() -> None:
    doc = load("nvbench.json")
    record = one(doc, "saxpy", labels={"T": "F64"})
    assert record["time_s"]["estimate"] == 2.0e-4
    assert record["time_s"]["location"] == "median"
    assert record["time_s"]["ci95"] is None
    assert record["timing"] is None
    assert record["runs"] == 20
    batch = one(doc, "saxpy", variant="batch")
    assert batch["time_s"]["estimate"] == 9.5e-5
    assert batch["time_s"]["location"] == "mean"
    assert batch["runs"] == 500
    skipped = one(doc, "saxpy", status="skipped")
    assert "not for I8" in skipped["reason"]


# -- collectives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nccl.txt", "nccl.json"])
def test_nccl_tests_microseconds_and_decimal_gigabytes(name: str) -> None:
    doc = load(name)
    big = one(doc, "nccl.all_reduce", size_bytes=67108864, in_place=False)
    assert estimate(big, "time_s") == pytest.approx(400e-6)
    assert estimate(big, "algbw_bytes_per_s") == pytest.approx(167.77e9, rel=1e-4)
    assert estimate(big, "busbw_bytes_per_s") == pytest.approx(251.66e9, rel=1e-4)
    assert big["busbw_bytes_per_s"]["estimate"] == pytest.approx(
        big["algbw_bytes_per_s"]["estimate"] * 2 * 3 / 4, rel=1e-3
    ), "as four ranks define it"
    assert (big["collective"], big["ranks"], big["op"], big["dtype"]) == ("all_reduce", 4, "sum", "float32")
    assert doc["devices"][0]["name"] == "4 ranks: 4 x Imaginary GPU 9000"


def test_nccl_tests_wrong_elements_fail_the_check() -> None:
    doc = load("nccl.txt")
    bad = one(doc, "nccl.all_reduce", size_bytes=67108864, in_place=True)
    assert bad["status"] == "failed"
    assert bad["wrong"] == 7
    assert bad["check"]["passed"] is False
    assert "7 wrong elements" in bad["error"]
    unchecked = one(doc, "nccl.all_reduce", size_bytes=8, in_place=True)
    assert unchecked["check"] is None
    assert unchecked["status"] == "ok", "another row was wrong"
    assert one(doc, "nccl.all_reduce", size_bytes=8, in_place=False)["check"]["passed"] is True
    assert unchecked["algbw_bytes_per_s"] is None, "0.00 GB/s is what two decimals hold of it"
    assert one(load("nccl.json"), "nccl.all_reduce", size_bytes=67108864, in_place=False)["wrong"] == 3


def test_nccl_tests_json_keeps_no_secrets() -> None:
    text = json.dumps(load("nccl.json"))
    assert "SECRET" not in text
    assert "host-a" not in text


def test_osu_units_ranks_and_validation() -> None:
    doc = load("osu.txt")
    assert doc["imported"]["version"] == "5.8", "the last test's"
    fast = one(doc, "osu.bandwidth", size_bytes=4194304)
    assert estimate(fast, "bandwidth_bytes_per_s") == 23987.18e6
    assert fast["check"]["passed"] is True
    assert fast["time_s"] is None
    bad = one(doc, "osu.bandwidth", size_bytes=8388608)
    assert bad["status"] == "failed"
    reduce = one(doc, "osu.allreduce_latency", size_bytes=1048576)
    assert estimate(reduce, "time_s") == pytest.approx(250.5e-6)
    assert reduce["collective"] == "all_reduce"
    assert reduce["ranks"] is None
    assert reduce["time_max_rank_s"] == pytest.approx(252e-6)
    assert reduce["runs"] == 100
    rate = one(doc, "osu.multiple_bandwidth_message_rate")
    assert estimate(rate, "bandwidth_bytes_per_s") == pytest.approx(2.36e6)
    assert estimate(rate, "operations_per_s") == 2356892.44
    assert estimate(one(doc, "osu.latency"), "time_s") == pytest.approx(0.8e-6)


# -- nvbandwidth -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nvbandwidth.txt", "nvbandwidth.json"])
def test_nvbandwidth_cells_waived_and_failed(name: str) -> None:
    doc = load(name)
    assert doc["imported"]["version"] == "v0.8"
    up = one(doc, "nvbandwidth.host_to_device_memcpy_ce", row=0, column=1)
    assert estimate(up, "bandwidth_bytes_per_s") == 54.75e9
    assert (up["device"], up["level"]) == ("cuda:1", "host")
    assert up["time_s"] is None
    assert up["timing"] is None
    peer = [m for m in doc["measurements"] if m["kernel"] == "nvbandwidth.device_to_device_memcpy_read_ce"]
    assert [(m["problem"], m["bandwidth_bytes_per_s"]["estimate"]) for m in peer] == [
        ({"row": 0, "column": 1}, 276.5e9),
        ({"row": 1, "column": 0}, 275.5e9),
    ]
    latency = one(doc, "nvbandwidth.host_device_latency_sm", column=1)
    assert estimate(latency, "latency_s") == pytest.approx(660.25e-9)
    assert latency["bandwidth_bytes_per_s"] is None
    assert [m["status"] for m in doc["measurements"] if m["status"] != "ok"] == ["skipped", "failed"]
    assert one(doc, "nvbandwidth.all_to_host_memcpy_ce")["status"] == "failed"


def test_nvbandwidth_in_both_directions_tells_the_three_matrices_apart(tmp_path: Path) -> None:
    """The text names each; the JSON stacks them."""
    name = "device_to_device_bidirectional_memcpy_read_ce"
    text = f"nvbandwidth Version: v0.8\nRunning {name}.\n"
    for number, part in enumerate(("Read1", "Read2", "Total")):
        text += f"memcpy CE GPU(row) <-> GPU(column) {part} bandwidth (GB/s)\n           0         1\n"
        text += f" 0       N/A    {100 + number}.00\n 1    {200 + number}.00       N/A\n\nSUM {name} 1.00\n"
    rows = [row for n in range(3) for row in (["N/A", f"{100 + n}"], [f"{200 + n}", "N/A"])]
    case = {
        "name": name, "status": "Passed", "bandwidth_matrix": rows,
        "bandwidth_description": "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
    }  # fmt: skip
    (tmp_path / "b.txt").write_text(text)
    (tmp_path / "b.json").write_text(json.dumps({"nvbandwidth": {"version": "v0.8", "testcases": [case]}}))
    for file in ("b.txt", "b.json"):
        cells = imports.import_results([str(tmp_path / file)])["measurements"]
        assert [
            (m["variant"], *m["problem"].values(), m["bandwidth_bytes_per_s"]["estimate"] / 1e9) for m in cells
        ] == [
            ("first", 0, 1, 100), ("first", 1, 0, 200), ("second", 0, 1, 101), ("second", 1, 0, 201),
            ("total", 0, 1, 102), ("total", 1, 0, 202),
        ]  # fmt: skip


# -- rooflines -------------------------------------------------------------------------------------------------------


def test_babelstream_csv_in_megabytes_of_1e6() -> None:
    doc = load("babelstream.csv")
    triad = one(doc, "stream.triad")
    assert estimate(triad, "bandwidth_bytes_per_s") == 2.2e12
    assert triad["bytes_moved"] == 3 * 8 * 33554432
    assert triad["time_s"]["estimate"] == 0.000366048
    assert triad["time_s"]["location"] == "min"
    assert (triad["time_s"]["max"], triad["time_s"]["mean"]) == (0.00038, 0.00037)
    assert (triad["dtype"], triad["level"], triad["runs"]) == ("float64", "dram", 99)
    assert triad["flags"] == ["best-run"]
    assert triad["flops"] is None
    assert [m["kernel"] for m in doc["measurements"]] == [
        f"stream.{name}" for name in ("copy", "scale", "add", "triad", "dot")
    ]
    (roof,) = doc["ceilings"]
    assert (roof["level"], roof["achieved"], roof["ci95"]) == ("dram", 2.2e12, None)


def test_babelstream_text_in_mebibytes() -> None:
    doc = load("babelstream.txt")
    assert doc["imported"]["version"] == "5.0"
    assert doc["devices"][0]["name"] == "NVIDIA Imaginary 9000"
    triad = one(doc, "stream.triad")
    assert estimate(triad, "bandwidth_bytes_per_s") == 1200000 * 2.0**20
    assert (triad["dtype"], triad["bytes_moved"]) == ("float32", 3 * 4 * 33554432)


@pytest.mark.parametrize(
    ("heading", "factor"),
    [
        ("max_mbytes_per_sec", 1e6),
        ("max_mibytes_per_sec", 2.0**20),
        ("max_GiB_per_sec", 2.0**30),
        ("max_TB_per_sec", 1e12),
    ],
)
def test_babelstream_unit_is_that_of_the_heading(tmp_path: Path, heading: str, factor: float) -> None:
    file = tmp_path / "b.csv"
    file.write_text(
        f"function,num_times,n_elements,sizeof,{heading},min_runtime,max_runtime,avg_runtime\n"
        "Copy,10,33554432,8,1.5,0.1,0.3,0.2\n"
    )
    (copy,) = imports.import_results([str(file)])["measurements"]
    assert estimate(copy, "bandwidth_bytes_per_s") == 1.5 * factor
    assert copy["bytes_moved"] is None, "rate and time of this file do not give the bytes of two arrays"


def test_mixbench_rows_become_points_under_its_own_roof() -> None:
    doc = load("mixbench.txt")
    row = one(doc, "mixbench.fma", dtype="float32", iterations=64)
    assert row["intensity_flop_per_byte"] == 32.25
    assert estimate(row, "time_s") == pytest.approx(0.7e-3)
    assert estimate(row, "flop_per_s") == 7371.43e9
    assert estimate(row, "bandwidth_bytes_per_s") == 228.57e9
    assert {m["status"] for m in doc["measurements"] if m["dtype"] == "float16"} == {"skipped"}
    roofs = {c["level"] or c["dtype"]: c["achieved"] for c in doc["ceilings"]}
    assert roofs == {"dram": 400e9, "float32": 10260e9, "float64": 129e9, "int32": 9000e9}
    point = next(p for p in doc["points"] if p["name"] == "mixbench.fma float32 at 32.25 FLOP/B")
    assert point["bound_by"] == "float32"
    assert point["fraction_of_attainable"] == pytest.approx(7371.43 / 10260)


def test_mixbench_of_hip_has_packed_operations_too(tmp_path: Path) -> None:
    head = "Experiment ID, Single Precision ops,,,,        Packed Single Precision ops,,,,   Double precision ops"
    columns = "Flops/byte, ex.time,  GFLOPS, GB/sec"
    file = tmp_path / "hip.txt"
    file.write_text(
        f"mixbench-hip (v0.04)\nDevice:              Imaginary 300\n{head},,,,\n"
        f"Compute iters, {columns}, {columns}, {columns}\n"
        "   64,  32.250, 0.70, 7371.43, 228.57, 32.250, 0.35, 14742.86, 457.14, 16.125, 20.00, 129.00, 8.00\n"
    )
    doc = imports.import_results([str(file)])
    packed = one(doc, "mixbench.fma", dtype="float32", variant="packed")
    assert estimate(packed, "flop_per_s") == 14742.86e9
    assert estimate(one(doc, "mixbench.fma", dtype="float64"), "flop_per_s") == 129e9
    file.write_text(file.read_text().replace("Packed Single", "Quadruple"))
    with pytest.raises(UsageError, match=r"hip\.txt:3.*Quadruple"):
        imports.import_results([str(file)])


def test_place_works_on_an_imported_roof(tmp_path: Path) -> None:
    doc = load("mixbench.txt")
    (tmp_path / "r.json").write_text(json.dumps(doc))
    roof = gm.Roofline.load(tmp_path / "r.json")
    assert roof.attainable(1.0, dtype="float32") == 400e9
    assert roof.attainable(1000.0, dtype="float32") == 10260e9
    timer = gm.FakeTimer(tick_s=1e-9, overhead_s=20e-9)
    placed = roof.place(gm.FakeWork(1e-3), flops=1e9, bytes=1e9, dtype="float32", timer=timer)
    assert placed["bound_by"] == "dram"
    assert placed["fraction_of_attainable"] == pytest.approx(1e12 / 400e9, rel=0.05)
    assert "impossible" in placed["flags"]


def test_a_sweep_that_never_leaves_memory_gives_no_peak(tmp_path: Path) -> None:
    lines = (DATA / "mixbench.txt").read_text().splitlines()
    short = tmp_path / "short.txt"
    short.write_text("\n".join(lines[:12]) + "\n")
    doc = imports.import_results([str(short)])
    assert [c["level"] for c in doc["ceilings"]] == ["dram"]


def test_two_tools_share_a_roof_under_one_name() -> None:
    apart = load("babelstream.csv", "mixbench.txt")
    assert len(apart["devices"]) == 2
    assert apart["imported"]["tool"] == "BabelStream and mixbench"
    doc = load("mixbench.txt", "babelstream.csv", device="Imaginary GPU 9000")
    assert [d["name"] for d in doc["devices"]] == ["Imaginary GPU 9000"]
    roofs = {c["level"] or c["dtype"]: c["achieved"] for c in doc["ceilings"]}
    assert roofs["dram"] == 2.2e12, "the faster of both"
    assert roofs["float32"] == 10260e9
    assert len({m["id"] for m in doc["measurements"]}) == len(doc["measurements"])


def test_two_unnamed_devices_of_one_file_stay_two(tmp_path: Path) -> None:
    lines = (DATA / "nvbandwidth.txt").read_text().splitlines()
    file = tmp_path / "n.txt"
    file.write_text("\n".join(line for line in lines if not line.startswith("Device ")) + "\n")
    doc = imports.import_results([str(file)], device="Imaginary GPU 9000")
    cells = [m["device"] for m in doc["measurements"] if m["kernel"] == "nvbandwidth.host_to_device_memcpy_ce"]
    assert cells == ["cuda:0", "cuda:1"]


def test_two_runs_on_one_gpu_share_its_roof(tmp_path: Path) -> None:
    file = tmp_path / "twice.txt"
    text = (DATA / "babelstream.txt").read_text()
    file.write_text(text + text.replace("Precision: float", "Precision: double").replace("0000.000 ", "1000.000 "))
    doc = imports.import_results([str(file)])
    assert [d["id"] for d in doc["devices"]] == ["gpu:0"]
    (roof,) = doc["ceilings"]
    assert roof["achieved"] == 1201000 * 2.0**20
    assert {m["dtype"] for m in doc["measurements"]} == {"float32", "float64"}


# -- storage and functions -------------------------------------------------------------------------------------------


def test_fio_bytes_nanoseconds_and_errors() -> None:
    doc = load("fio.json")
    assert doc["imported"]["version"] == "3.36"
    assert doc["devices"][0]["name"] == "nvme0n1"
    read = one(doc, "fio.randread")
    assert (read["level"], read["variant"], read["runs"]) == ("storage", "read", 150000)
    assert estimate(read, "bandwidth_bytes_per_s") == 61440000
    assert estimate(read, "operations_per_s") == 15000
    latency = read["latency_s"]
    assert (latency["estimate"], latency["location"]) == (pytest.approx(2e-3), "median")
    assert latency["mean"] == pytest.approx(2.1e-3)
    assert latency["percentiles"] == {"50": pytest.approx(2e-3), "99": pytest.approx(5e-3)}
    assert read["labels"] == {
        "rw": "randread", "bs": "4k", "iodepth": "32", "ioengine": "io_uring", "direct": "1",
    }  # fmt: skip
    write = one(doc, "fio.seqwrite")
    assert write["status"] == "failed"
    assert "error 5" in write["error"]
    assert write["latency_s"]["location"] == "mean"


def test_fio_snapshots_of_one_run_are_one(tmp_path: Path) -> None:
    text = (DATA / "fio.json").read_text()
    file = tmp_path / "status.json"
    file.write_text(text.replace("61440000", "50000000") + text)
    doc = imports.import_results([str(file)])
    assert estimate(one(doc, "fio.randread"), "bandwidth_bytes_per_s") == 61440000
    assert any("snapshots" in note for note in doc["notes"])


def test_google_benchmark_repetitions_are_samples_in_their_unit() -> None:
    doc = load("google-benchmark.json")
    assert doc["imported"]["version"] == "v1.9.4"
    copy = one(doc, "BM_copy/4096/repeats:6")
    assert estimate(copy, "time_s") == pytest.approx(1.015e-6)
    assert copy["time_s"]["ci95"] == [pytest.approx(0.99e-6), pytest.approx(1.05e-6)]
    assert copy["timing"]["counts"] == [1000] * 6
    assert copy["timing"]["raw_s"][0] == pytest.approx(1.02e-3), "whole spans: a thousand runs"
    assert estimate(copy, "bandwidth_bytes_per_s") == pytest.approx(8192 / 1.015e-6, rel=0.01)
    assert copy["threads"] == 1
    big = one(doc, "BM_big/threads:1")
    assert (big["time_s"]["estimate"], big["time_s"]["location"]) == (pytest.approx(2.25e-3), "median")
    assert big["time_s"]["ci95"] is None
    assert "no file" in one(doc, "BM_none")["error"]
    assert "no AVX-512" in one(doc, "BM_skip")["reason"]


@pytest.mark.parametrize(
    ("name", "threads", "bandwidth"),
    [
        ("BM_wait", 1, 8e9),  # by CPU time, of which half of the real time was
        ("BM_wait/real_time", 1, 16e9), ("BM_wait/manual_time", 1, 16e9),
        ("BM_wait/process_time/real_time/threads:4", 4, 16e9),
        ("BM_wait/threads:4", 4, None),
    ],
)  # fmt: skip
def test_google_benchmarks_bytes_are_per_second_of_real_time(
    name: str, threads: int, bandwidth: float | None, tmp_path: Path
) -> None:
    run = {"name": name, "run_name": name, "run_type": "iteration", "threads": threads, "iterations": 100,
           "real_time": 1.0, "cpu_time": 0.5, "time_unit": "us", "bytes_per_second": 1.6e10}  # fmt: skip
    file = tmp_path / "g.json"
    for runs in ([run], [run | {"name": f"{name}_mean", "run_type": "aggregate", "aggregate_name": "mean"}]):
        file.write_text(json.dumps({"context": {}, "benchmarks": runs}))
        (found,) = imports.import_results([str(file)])["measurements"]
        if bandwidth is None:
            assert found["bandwidth_bytes_per_s"] is None
            assert "CPU time of several threads" in found["bandwidth_bytes_per_s_why"]
        else:
            assert estimate(found, "bandwidth_bytes_per_s") == pytest.approx(bandwidth)


def test_fewer_than_six_samples_give_no_interval(tmp_path: Path) -> None:
    doc = json.loads((DATA / "google-benchmark.json").read_text())
    doc["benchmarks"] = doc["benchmarks"][:5]
    file = tmp_path / "five.json"
    file.write_text(json.dumps(doc))
    (copy,) = imports.import_results([str(file)])["measurements"]
    assert copy["timing"]["n"] == 5
    assert copy["time_s"]["ci95"] is None
    assert "fewer than 6" in copy["time_s"]["ci95_why"]


def test_pytest_benchmark_rounds_are_samples() -> None:
    doc = load("pytest-benchmark.json")
    assert doc["devices"][0]["name"] == "Imaginary CPU 16-Core"
    fast = one(doc, "tests/test_speed.py::test_fast[8]")
    assert estimate(fast, "time_s") == pytest.approx(2.0e-6)
    assert fast["time_s"]["ci95"] == [pytest.approx(1.9e-6), pytest.approx(2.2e-6)]
    assert fast["timing"]["counts"] == [50] * 8
    assert fast["runs"] == 400
    slow = one(doc, "tests/test_speed.py::test_slow")
    assert estimate(slow, "time_s") == 2.0e-6
    assert slow["time_s"]["ci95"] is None
    assert "--benchmark-save-data" in slow["time_s"]["ci95_why"]
