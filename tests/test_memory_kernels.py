"""Records of the device's memory kernels: a launch asks for what exists and covers everything, checks find errors."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpumicro.device import Cache, Device
from gpumicro.errors import VerificationError
from gpumicro.kernels import CATALOGUE, atomics, cache, find, latency, stream
from gpumicro.spec import Execution, KernelSpec, Launch, Problem

ROOT = Path(__file__).parent.parent
FAMILIES = ("stream", "cache", "latency", "atomics")
SPECS = [spec for spec in CATALOGUE if spec.family in FAMILIES and spec.gpu is not None]
GIB = 1 << 30


def device(capability: str, sms: int, memory_gib: int, l2_mib: int, emulated: bool = False) -> Device:
    caches = (Cache("l1", 128 << 10, 128, (), sms), Cache("l2", l2_mib << 20, 128, (), 1))
    facts = {"compute_capability": capability, "sm_count": sms, "emulated": emulated}
    return Device("cuda:0", "cuda", "a GPU", sms, (), caches, memory_gib * GIB, facts=facts)


DEVICES = {
    "T4": device("7.5", 40, 15, 4), "A100": device("8.0", 108, 80, 40), "RTX 4090": device("8.9", 128, 24, 72),
    "H100": device("9.0", 132, 80, 50), "H200": device("9.0", 132, 141, 50), "B200": device("10.0", 148, 180, 126),
    "RTX 5090": device("12.0", 170, 32, 96), "emulated": device("9.0", 4, 1, 1, emulated=True),
}  # fmt: skip


def sizes_of(spec: KernelSpec, dtype: str, on: Device) -> dict[str, int]:
    if spec.family == "stream":
        return {"n": 1_000_003}
    if spec.family == "cache":
        return cache.gpu_sizes(cache.level_of(spec), dtype, on)
    if spec.family == "atomics":
        return atomics.gpu_sizes(spec, on)
    return latency.gpu_sizes(spec, on)[0][1]


def launches(spec: KernelSpec, on: Device) -> list[tuple[Problem, Launch]]:
    assert spec.gpu is not None
    found = []
    for dtype in spec.gpu.dtypes:
        problem = Problem.of(dtype, **sizes_of(spec, dtype, on))
        for variant in spec.gpu.variants(dtype, on):
            found.append((problem, spec.gpu.launch(problem, Execution(1, variant), on)))
    return found


def test_every_launch_names_a_compiled_kernel() -> None:
    gxx = shutil.which("g++")
    if not gxx:
        pytest.skip("no g++ to expand the tables with")
    lines = ["#define X(...) #__VA_ARGS__"]
    for family in FAMILIES:
        lines += [f'#include "kernels/{family}.cuh"', f"GM_{family.upper()}_TABLE(X)"]
    command = [gxx, "-std=c++17", "-E", "-P", "-x", "c++", f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'tests' / 'cpusim'}",
               "-include", "cuda_cpu.hpp", "-"]  # fmt: skip
    expanded = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    compiled = set(re.findall(r'"(gm::[^"]*)"', expanded))
    asked = {launch.symbol for on in DEVICES.values() for spec in SPECS for _, launch in launches(spec, on)}
    assert asked <= compiled
    assert all(symbol.startswith("gm::") for symbol in asked)


@pytest.mark.parametrize("on", DEVICES.values(), ids=list(DEVICES))
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_launches_are_whole(spec: KernelSpec, on: Device) -> None:
    names = {operand.name for operand in spec.operands}
    for problem, launch in launches(spec, on):
        assert {argument for argument in launch.arguments if isinstance(argument, str)} == names
        assert all(isinstance(argument, str | np.generic) for argument in launch.arguments)
        assert 1 <= launch.grid[0] < 2**31
        assert launch.block == (256, 1, 1)
        assert launch.shared_bytes <= 48 * 1024
        assert all(operand.size(problem) > 0 for operand in spec.operands)


@pytest.mark.parametrize("on", DEVICES.values(), ids=list(DEVICES))
@pytest.mark.parametrize("inputs", [0, 1, 2])
def test_a_stream_has_enough_bytes_in_flight(inputs: int, on: Device) -> None:
    access, unroll = stream.batch(inputs, on)
    threads = stream.BLOCKS_PER_SM * stream.BLOCK
    assert threads * access * unroll * max(inputs, 1) >= 2 * stream.bytes_in_flight(on)


def test_bytes_in_flight_follow_the_architecture() -> None:
    kib = {name: stream.bytes_in_flight(on) // 1024 for name, on in DEVICES.items()}
    assert (kib["A100"], kib["H100"], kib["H200"], kib["B200"]) == (16, 32, 48, 64)
    assert [stream.batch(1, DEVICES[name])[0] for name in ("H200", "B200")] == [16, 32]


@pytest.mark.parametrize("n", [0, 1, 31, 33, 1023, 1_000_003, 5 * GIB])
@pytest.mark.parametrize("variant", ["wide", "persistent"])
def test_a_wide_grid_has_a_block_a_tile_and_a_persistent_one_fills_the_device(n: int, variant: str) -> None:
    on = DEVICES["H200"]
    launch = find("stream.copy").gpu.launch(Problem.of("float32", n=n), Execution(1, variant), on)  # type: ignore[union-attr]
    match = re.fullmatch(r"gm::copy<float, (\d), (\d)>", launch.symbol)
    assert match
    tile = 256 * int(match[1]) * int(match[2])
    tiles = max(1, -(-(n // int(match[1]) * int(match[1])) // tile))
    assert launch.grid[0] == (tiles if variant == "wide" else min(tiles, 4 * 132))


def test_extra_bytes_are_a_partial_sum_a_block_and_the_sum() -> None:
    problem, on = Problem.of("float64", n=1_000_003), DEVICES["H200"]
    for name, extra in (("dot", True), ("read", True), ("triad", False)):
        launch = find(f"stream.{name}").gpu.launch(problem, Execution(1, "persistent"), on)  # type: ignore[union-attr]
        assert stream.extra_bytes(problem, launch) == (2 * 8 * launch.grid[0] + 8 + 4 if extra else 0)


# --- checks ---


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_is_held_to_the_data(dtype: str) -> None:
    spec, n = find("stream.dot"), 1_000_003
    random = np.random.default_rng(1)
    b, c = (random.uniform(-1, 1, n).astype(dtype) for _ in range(2))
    check = spec.gpu.check  # type: ignore[union-attr]
    assert check is not None
    problem = Problem.of(dtype, n=n)
    right = {"b": b, "c": c, "sum": np.array([np.sum(b * c)])}
    assert check(spec, problem, right).passed
    largest = int(np.argmax(np.abs(b * c)))
    missing = np.array([right["sum"][0] - (b * c)[largest]])
    for wrong in (missing, np.array([np.nan], dtype), np.zeros(1, dtype)):
        with pytest.raises(VerificationError, match=r"stream\.dot"):
            check(spec, problem, {**right, "sum": wrong})


@pytest.mark.parametrize("name", ["private", "common", "shared"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_words_read_are_counted_exactly(name: str, dtype: str) -> None:
    spec, problem = find(f"cache.{name}"), Problem.of(dtype, blocks=3, n=33, reps=5)
    data = np.random.default_rng(2).uniform(-1, 1, spec.operands[0].size(problem)).astype(dtype)
    words, each = data.view(np.uint32).astype(np.uint64), 33 * problem.itemsize // 4
    stride = len(words) // 3 if name == "private" else 0
    sums = np.zeros((3, 8), np.uint32)
    for block in range(3):
        sums[block, 5] = 5 * int(words[block * stride : block * stride + each].sum()) % 2**32
    arrays = {"data": data, "sums": sums.reshape(-1).view(dtype)}
    assert len(arrays["sums"]) == spec.operands[1].size(problem)
    check = spec.gpu.check  # type: ignore[union-attr]
    assert check is not None
    assert check(spec, problem, arrays).elements == 3
    assert spec.bytes_moved(problem) == 3 * 33 * 5 * problem.itemsize
    sums[2, 0] += 1
    with pytest.raises(VerificationError, match="index 2"):
        check(spec, problem, {"data": data, "sums": sums.reshape(-1).view(dtype)})


def chased(lines: int, hops: int, runs: int) -> dict[str, np.ndarray]:
    """What a right chase leaves behind, at an invented address."""
    order, base = latency.chase_order(lines), 1 << 40
    following = np.full((lines, latency.GPU_LINE_WORDS), -1)
    following[order, 0] = base + latency.GPU_LINE_BYTES * np.roll(order, -1)
    walked = runs * (lines + hops)
    state = np.zeros(latency.STATE_WORDS, np.int64)
    state[latency.HOPS] = walked
    state[latency.POSITION] = base + latency.GPU_LINE_BYTES * order[walked % lines]
    state[latency.CYCLES], state[latency.NANOSECONDS] = 30 * hops, 20 * hops
    return {"next": following.reshape(-1), "state": state}


def test_a_chase_must_be_the_intended_cycle_and_stand_where_it_must() -> None:
    spec, problem = find("latency.gpu_chase"), Problem.of("int64", n=33, hops=7)
    check = spec.gpu.check  # type: ignore[union-attr]
    assert check is not None
    for runs in (1, 4):
        assert check(spec, problem, chased(33, 7, runs)).passed
    assert latency.last_hop(problem, chased(33, 7, 1)["state"]) == (30, pytest.approx(20e-9))
    for name, at in (("next", 16), ("state", latency.HOPS), ("state", latency.POSITION)):
        arrays = chased(33, 7, 1)
        arrays[name][at] += 128
        with pytest.raises(VerificationError):
            check(spec, problem, arrays)


@pytest.mark.parametrize("lines", [1, 2, 3, 5, 64, 1003, 40_000])
def test_the_order_of_a_chase_is_a_permutation_without_a_pattern(lines: int) -> None:
    order = latency.chase_order(lines)
    assert np.array_equal(np.sort(order), np.arange(lines))
    if lines > 1000:
        steps = np.abs(np.diff(order)) / lines
        assert 0.3 < steps.mean() < 0.37  # a third for independent places
        assert np.mean(steps * lines <= 4) < 0.02  # neighbours would be fetched together


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", ["one", "spread", "shared_one", "shared_spread"])
def test_additions_are_counted(name: str, dtype: str) -> None:
    spec, problem = find(f"atomics.{name}"), Problem.of(dtype, blocks=2, reps=3)
    totals = {
        "one": np.array([1536]), "spread": np.full(512, 3), "shared_spread": np.full(512, 3),
        "shared_one": np.tile([768] + [0] * 255, 2),
    }[name].astype(dtype)  # fmt: skip
    check = spec.gpu.check  # type: ignore[union-attr]
    assert check is not None
    assert check(spec, problem, {"totals": totals}).passed
    assert spec.flops(problem) == 1536
    totals[0] -= 1
    with pytest.raises(VerificationError, match="index 0"):
        check(spec, problem, {"totals": totals})


def test_float32_stops_counting_at_two_to_the_24() -> None:
    spec, problem = find("atomics.one"), Problem.of("float32", blocks=1 << 12, reps=17)
    check = spec.gpu.check  # type: ignore[union-attr]
    assert check is not None
    assert check(spec, problem, {"totals": np.array([2.0**24], np.float32)}).passed


def test_default_sizes_differ_by_level_and_fit_the_device() -> None:
    for on in DEVICES.values():
        problems = [sizes for _, sizes in latency.gpu_sizes(find("latency.gpu_chase"), on)]
        assert len({tuple(sizes.items()) for sizes in problems}) == 3
        lines = latency.sweep_lines(on)
        assert list(lines) == sorted(set(lines))
        assert lines[-1] * latency.GPU_LINE_BYTES > 4 * on.caches[-1].size_bytes
    small = replace(DEVICES["emulated"], caches=())
    assert latency.sweep_lines(small)[0] == 32


@pytest.mark.parametrize("level", ["l1", "shared"])
def test_a_launch_lasts_long_beside_its_start(level: str) -> None:
    """A start costs some thousand cycles, and an SM reads 128 bytes a cycle from its own memory."""
    for name, on in DEVICES.items():
        sizes = cache.gpu_sizes(level, "float32", on)
        cycles = sizes["blocks"] * sizes["n"] * 4 * sizes["reps"] / (on.cores or 1) / 128
        assert name == "emulated" or cycles > 300_000


def test_additions_nobody_waits_for_are_many() -> None:
    """32 a cycle and SM at most; all on one address stay where float32 counts."""
    h200 = DEVICES["H200"]
    for name in ("spread", "shared_spread"):
        sizes = atomics.gpu_sizes(find(f"atomics.{name}"), h200)
        assert sizes["blocks"] * atomics.BLOCK * sizes["reps"] / 132 / 32 > 30_000
    sizes = atomics.gpu_sizes(find("atomics.one"), h200)
    assert sizes["blocks"] * atomics.BLOCK * sizes["reps"] < 1 << 24
