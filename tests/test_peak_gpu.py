"""The peak kernels of a GPU: run on the CPU by the shim, held to the records' own closed forms; records and sizes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpumicro.device import Device
from gpumicro.errors import VerificationError
from gpumicro.kernels import find, formats, peak, peak_check, peak_gpu
from gpumicro.spec import Check, Execution, KernelSpec, Launch, Problem

ROOT = Path(__file__).parent.parent
PEAKS = [find(name) for name in ("peak.fma", "peak.dot", "peak.mma", "peak.mma_half", "peak.wgmma", "peak.tcgen05")]
RUNNABLE = [spec for spec in PEAKS if spec.name not in ("peak.wgmma", "peak.tcgen05")]
BLOCKS = 5  # more threads than there are seeds


def gpu(capability: str, cores: int = 132, **facts: Any) -> Device:
    known = {"compute_capability": capability, "max_threads_per_sm": 2048, **facts}
    return Device("cuda:0", "cuda", "test", cores, (), (), None, facts=known)


H200, B200, A100 = gpu("9.0"), gpu("10.0", 148), gpu("8.0", 108)


def form(spec: KernelSpec) -> Any:
    assert spec.gpu is not None
    return spec.gpu


def problem_of(dtype: str, operands: Any = "uniform", steps: int = 3) -> Problem:
    return Problem((("blocks", BLOCKS), ("steps", steps)), dtype, operands)


def launch_of(spec: KernelSpec, problem: Problem, device: Device = H200) -> Launch:
    launch: Launch = form(spec).launch(problem, Execution(), device)
    return launch


def seeds_of(spec: KernelSpec, problem: Problem) -> tuple[str, Any]:
    name = form(spec).operands[0].name
    return name, form(spec).contents(name, problem)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The kernels compiled for the CPU, by source."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to compile the kernels for the CPU with")
    folder = tmp_path_factory.mktemp("cpusim")
    made = {}
    for source, program in (("peak.cuh", "peak_test"), ("peak_mma.cuh", "peak_mma_test")):
        made[source] = folder / program
        shim = ROOT / "tests" / "cpusim"
        include = ["-I", str(ROOT / "csrc"), "-I", str(shim), "-include", "cuda_cpu.hpp"]
        flags = ["-std=c++17", "-O1", "-Wno-unknown-pragmas"]
        subprocess.run([compiler, *flags, *include, shim / f"{program}.cpp", "-o", made[source]], check=True)
    return made


def run(programs: dict[str, Path], spec: KernelSpec, problem: Problem, folder: Path) -> dict[str, Any]:
    """The operands after one run, as a backend would hand them to the check."""
    name, seeds = seeds_of(spec, problem)
    (folder / "seeds").write_bytes(seeds.tobytes())
    launch = launch_of(spec, problem)
    arguments = [launch.symbol, str(problem["blocks"]), str(problem["steps"])]
    subprocess.run([programs[form(spec).source], *arguments, folder / "seeds", folder / "sums"], check=True)
    out = np.frombuffer((folder / "sums").read_bytes(), peak_gpu.sum_dtype(problem))
    assert out.size == form(spec).operands[1].size(problem)
    return {name: seeds, "out": out}


CASES = [(spec, dtype) for spec in RUNNABLE for dtype in form(spec).dtypes]


@pytest.mark.parametrize(("spec", "dtype"), CASES, ids=lambda x: x if isinstance(x, str) else x.name)
@pytest.mark.parametrize("operands", ["uniform", "normal", "zeros"])
def test_the_kernels_leave_what_their_records_know(
    programs: dict[str, Path], spec: KernelSpec, dtype: str, operands: str, tmp_path: Path
) -> None:
    problem = problem_of(dtype, operands)
    after = run(programs, spec, problem, tmp_path)
    check: Check = form(spec).check(spec, problem, after)
    assert check.passed
    assert check.elements == after["out"].size
    assert np.isfinite(after["out"]).all()
    if operands == "zeros":
        assert not after["out"].any()
        return
    assert len(np.unique(after["out"])) > 100, "threads differ, so the check cannot pass by a constant"
    for index in (0, 1100, after["out"].size - 1):
        wrong = after["out"].copy()
        wrong[index] = np.nan if wrong.dtype.kind == "f" else wrong[index] ^ 1
        with pytest.raises(VerificationError, match=f"index {index}"):
            form(spec).check(spec, problem, {**after, "out": wrong})


@pytest.mark.parametrize(("spec", "dtype"), CASES, ids=lambda x: x if isinstance(x, str) else x.name)
def test_a_step_too_few_is_seen_where_sums_grow(
    programs: dict[str, Path], spec: KernelSpec, dtype: str, tmp_path: Path
) -> None:
    """Chains that have settled and sums that cancel cannot show it; the count of instructions does."""
    after = run(programs, spec, problem_of(dtype, steps=2), tmp_path)
    claimed = problem_of(dtype, steps=3)
    settles = spec.name == "peak.fma" and dtype != "int32"
    cancels = spec.name == "peak.mma_half" or dtype == "float8_e4m3fn"
    if settles or cancels:
        assert form(spec).check(spec, claimed, after).passed
        with pytest.raises(VerificationError):  # no run at all is seen in any case
            form(spec).check(spec, claimed, {**after, "out": np.zeros_like(after["out"])})
    else:
        with pytest.raises(VerificationError):
            form(spec).check(spec, claimed, after)


def tile_element(values: Any, itemsize: int, operand: int, block: int, row: int, byte: int) -> float:
    """Byte `byte` of k of a row, by the matrix descriptor's rule (PTX ISA 9.0, 9.7.15.5.1.2) and the kernel's fill."""
    leading, stride = 128, 512
    address = row // 8 * stride + row % 8 * 16 + byte // 16 * leading + byte % 16
    word = address // 4
    seed = (word + 37 * (word // 1024) + 512 * operand + 32 * block) % 1024
    return float(values[(seed * 4 + address % 4) // itemsize])


@pytest.mark.parametrize("dtype", find("peak.wgmma").dtypes)
def test_the_sums_of_wgmma_and_tcgen05_follow_from_descriptors_and_fragments(dtype: str) -> None:
    steps, block = 1, 3
    seeds = peak_gpu.seeds("seeds", Problem.of(dtype))
    part, size = peak_check.FRAGMENTS[dtype], formats.stored(dtype).itemsize
    values = formats.decode(seeds, dtype)

    def product(row: int, column: int, tile: int) -> float:
        bytes_of_k = range(32 * tile, 32 * tile + 32, size)
        return sum(
            tile_element(values, size, 0, block, row, k) * tile_element(values, size, 1, block, column, k)
            for k in bytes_of_k
        )

    def accumulated(row: int, column: int) -> float:
        if part.cancels:
            return product(row, column, 0)
        return steps * 64 * (product(row, column, 0) + product(row, column, 1))

    wgmma = peak_check.wgmma_sums(seeds, dtype, steps)
    for thread in (0, 37, 127):  # register i: row 16 w + g + 8 (i / 2 % 2), column 8 (i / 4) + 2 t + i % 2
        w, g, t = thread // 32, thread % 32 // 4, thread % 4
        rows = [16 * w + g + 8 * (i // 2 % 2) for i in range(128)]
        columns = [8 * (i // 4) + 2 * t + i % 2 for i in range(128)]
        exact = sum(map(accumulated, rows, columns))
        for warpgroup in range(2):
            got = wgmma.sums[block * 256 + warpgroup * 128 + thread]
            assert got == pytest.approx(_wrap(exact, dtype), rel=1e-9, abs=1e-6)

    tcgen05 = peak_check.tcgen05_sums(seeds, dtype, steps)
    for row in (0, 77):
        exact = sum(
            2 * product(row, column, 0) + (0 if part.cancels else accumulated(row, column)) for column in range(256)
        )
        assert tcgen05.sums[block * 128 + row] == pytest.approx(_wrap(exact, dtype), rel=1e-9, abs=1e-6)


def _wrap(value: float, dtype: str) -> float:
    return (int(value) + 2**31) % 2**32 - 2**31 if dtype == "int8" else value


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_few_digit_operands_cancel_exactly(dtype: str) -> None:
    """However large the class's numbers: |a| |b| over k fits the digits that narrow sums are sure to have."""
    name = "few_digits" if dtype == "float16" else "seeds"
    part, quantum, digits = (peak_check.HALF_SUMS, 8, 11) if dtype == "float16" else (
        peak_check.FRAGMENTS[dtype], 16, 13)  # fmt: skip
    for operands in ("uniform", "normal"):
        values = formats.decode(peak_gpu.seeds(name, Problem.of(dtype, operands)), dtype) * quantum
        assert (values == np.rint(values)).all()
        assert part.k * np.abs(values).max() ** 2 <= 2**digits
        assert len(np.unique(values)) > 8


def test_flops_count_every_multiply_add() -> None:
    def count(name: str, dtype: str) -> int:
        return find(name).flops(Problem.of(dtype, blocks=3, steps=5))

    assert count("peak.fma", "float32") == 3 * 256 * 5 * 16 * 16 * 2
    assert count("peak.fma", "float64") == 3 * 256 * 5 * 16 * 8 * 2
    assert count("peak.fma", "float16") == count("peak.fma", "bfloat16") == 3 * 256 * 5 * 16 * 16 * 4
    assert count("peak.dot", "int8") == 3 * 256 * 5 * 16 * 16 * 8
    assert count("peak.mma", "bfloat16") == 3 * 8 * 5 * 16 * 8 * 2 * 16 * 8 * 16
    assert count("peak.mma", "float64") == 3 * 8 * 5 * 24 * 4 * 2 * 16 * 8 * 16
    assert count("peak.mma", "float8_e4m3fn") == 3 * 8 * (5 * 32 + 1) * 8 * 2 * 16 * 8 * 32
    assert count("peak.mma_half", "float16") == 3 * 8 * (5 * 16 + 1) * 8 * 2 * 16 * 8 * 16
    assert count("peak.wgmma", "bfloat16") == 3 * 2 * 5 * 128 * 2 * 64 * 256 * 16
    assert count("peak.tcgen05", "int8") == 3 * (5 * 128 + 2) * 2 * 128 * 256 * 32
    assert find("peak.fma").flops(Problem.of("float64")) == peak.FMA_FLOP, "a CPU's problem has no sizes"


def test_launches_name_symbols_of_the_tables() -> None:
    for spec in PEAKS:
        text = (ROOT / "csrc" / "kernels" / form(spec).source).read_text()
        for dtype in form(spec).dtypes:
            launch = launch_of(spec, problem_of(dtype))
            assert f"X({launch.symbol})" in text
            assert launch.grid == (BLOCKS, 1, 1)
            assert launch.block == (128 if spec.name == "peak.tcgen05" else 256, 1, 1)
            assert launch.arguments[:2] == (form(spec).operands[0].name, "out")
            assert launch.arguments[2] == np.int64(3)


@pytest.mark.parametrize(
    "device",
    [A100, H200, B200, gpu("8.9", 128), gpu("7.5", 40)],
    ids=lambda d: d.facts["compute_capability"],
)
def test_default_sizes_last_a_fraction_of_a_millisecond(device: Device) -> None:
    for spec in PEAKS:
        for dtype in form(spec).dtypes:
            if form(spec).why_not(dtype, device):
                continue
            sizes = peak.gpu_sizes(spec, dtype, device)
            assert sizes["blocks"] % (device.cores or 1) == 0
            assert 1 <= sizes["steps"] < 2**20
            products = sizes["steps"] * 128
            assert products < 2**17, "a bound that grows with the products must stay one"


def test_an_emulated_device_gets_tiny_sizes() -> None:
    device = gpu("9.0", emulated=True)
    assert peak.gpu_sizes(find("peak.fma"), "float32", device) == {"blocks": 2, "steps": 1}
    assert peak.gpu_sizes(find("peak.mma"), "bfloat16", device) == {"blocks": 2, "steps": 1}


@pytest.mark.parametrize(
    ("name", "dtype", "capability", "reason"),
    [
        ("peak.fma", "bfloat16", "7.5", "needs compute capability 8.0"),
        ("peak.fma", "float16", "7.5", ""),
        ("peak.mma", "bfloat16", "7.5", "needs compute capability 8.0"),
        ("peak.mma", "float8_e4m3fn", "8.6", "needs compute capability 8.9"),
        ("peak.mma", "float8_e4m3fn", "8.9", ""),
        ("peak.mma", "float8_e4m3fn", "9.0", "converts fp8 to half"),
        ("peak.mma", "float8_e4m3fn", "12.0", ""),
        ("peak.mma", "float64", "8.6", "no fp64 tensor cores"),
        ("peak.mma", "float64", "9.0", ""),
        ("peak.wgmma", "bfloat16", "8.0", "needs compute capability 9.0 exactly"),
        ("peak.wgmma", "bfloat16", "10.0", "needs compute capability 9.0 exactly"),
        ("peak.tcgen05", "int8", "10.0", ""),
        ("peak.tcgen05", "int8", "12.0", "needs compute capability 10.0 exactly"),
    ],
)
def test_why_a_device_cannot(name: str, dtype: str, capability: str, reason: str) -> None:
    found = form(find(name)).why_not(dtype, gpu(capability))
    assert reason in found
    assert bool(found) == bool(reason)
