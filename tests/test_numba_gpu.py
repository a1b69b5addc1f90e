"""Numba's kernels for GPUs without one: in its simulator and as PTX; the host code on a stand-in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import simulated_numba
from fake_cuda import H100

from gpumicro import backends, numba_kernels
from gpumicro.backends import numba_devices, numba_launch
from gpumicro.backends.cpu import SEED
from gpumicro.backends.gpu_backend import device_of
from gpumicro.device_timers import EventTimer
from gpumicro.errors import BackendUnavailable
from gpumicro.kernels import find, peak, peak_gpu, stream
from gpumicro.kernels.gemm import growth
from gpumicro.kernels.operands import operand
from gpumicro.kernels.peak_check import fma_chains
from gpumicro.spec import Execution, Problem

if numba_kernels.cuda_missing():
    pytest.skip(f"{numba_kernels.cuda_missing()}: pip install 'gpumicro[numba]'", allow_module_level=True)

from gpumicro.backends.numba_clock import NumbaClock
from gpumicro.numba_kernels import bodies, gpu

GPU = device_of("cuda:0", H100)
Arrays = dict[str, npt.NDArray[Any]]


# --- what the kernels compute, in the simulator -------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    """The outputs of all cases; each was verified, twice in a row, where it ran."""
    path = tmp_path_factory.mktemp("numba") / "out.npz"
    script = Path(simulated_numba.__file__)
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(path)], env=environment, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with np.load(path) as found:
        return dict(found)


def test_auto_does_not_take_the_simulator() -> None:
    code = "from gpumicro import backends; print(backends.resolve()[0][0][1].facts.get('simulator'))"
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["None"]


def test_all_kernels_ran_in_the_simulator(simulated: Arrays) -> None:
    assert {name.partition("/")[0] for name in simulated} == set(gpu.NAMES)


def test_maps_give_the_cpu_s_numbers(simulated: Arrays) -> None:
    maps = [case for case in simulated_numba.CASES if case[0].removeprefix("stream.") in bodies.MAPS]
    for name, sizes, dtypes in maps:
        for dtype in dtypes:
            with backends.prepare(name, device="cpu", backend="cpu", dtype=dtype, threads=1, **sizes) as native:
                native.verify()
                expected = native.outputs()["a"]
            for variant in ("wide", "persistent") if name == "stream.copy" else ("wide",):
                got = simulated[simulated_numba.label(name, sizes, dtype, variant)]
                eps = float(np.finfo(dtype).eps)  # the simulator fuses nothing
                np.testing.assert_allclose(got, expected, rtol=2 * eps, atol=eps if name == "stream.triad" else 0)


def test_a_product_is_numpy_s_of_the_same_numbers(simulated: Arrays) -> None:
    m, n, k = 17, 19, 23
    for dtype in ("float64", "float32"):
        # On a GPU the operands a and b are the numbers 0 and 1 of the seed, on the CPU 1 and 2.
        a, b = (operand(size, dtype, seed=SEED, index=i) for i, size in enumerate((m * k, k * n)))
        expected = a.reshape(m, k).astype(np.float64) @ b.reshape(k, n).astype(np.float64)
        got = simulated[simulated_numba.label("gemm.tiled", {"m": m, "n": n, "k": k}, dtype, "64x64")]
        bound = growth(k, dtype) * (np.abs(a).reshape(m, k) @ np.abs(b).reshape(k, n))
        assert (np.abs(got.reshape(m, n) - expected) <= bound + np.finfo(dtype).tiny).all()


def test_chains_are_those_of_the_cuda_kernel_and_of_the_cpu_form(simulated: Arrays) -> None:
    for dtype in ("float64", "float32"):
        seeds = peak_gpu.seeds("seeds", Problem.of(dtype))
        assert seeds is not None
        known = fma_chains(seeds, dtype, 2)  # what both are held to
        got = simulated[simulated_numba.label("peak.fma", {"blocks": 2, "steps": 2}, dtype, "")]
        assert (np.abs(got - known.sums[: len(got)]) <= known.bound[: len(got)]).all()
        assert len(np.unique(got)) > 500


# --- what the compiler makes of them ------------------------------------------------------------------------------


def ptx(name: str, dtype: str, capability: tuple[int, int]) -> str:
    cuda = numba_kernels.load_cuda()
    try:
        text, _ = cuda.compile_ptx(gpu.source(name, dtype), gpu.signature(name, dtype), cc=capability)
    except Exception as error:
        if "nvvm" in str(error).lower() and "not found" in str(error).lower():
            pytest.skip(f"numba-cuda has no compiler here ({error})")
        raise
    return str(text)


def count(text: str) -> Counter[str]:
    """Instructions by name, parameters' loads left out; f64 and b64 are one: newer compilers write bits."""
    found = re.findall(r"^\s+(?:@%p\d+ +)?([a-z][\w.:]*) ", text, re.M)
    return Counter(re.sub(r"\.[fbu](32|64)$", r".\1", name) for name in found if not name.startswith("ld.param"))


ARCHITECTURES = [(8, 0), (9, 0), (12, 0)]


LOADS = {"write": 0, "copy": 1, "scale": 1, "add": 2, "triad": 2, "read": 1, "dot": 2}  # arrays that are read


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", LOADS)
def test_arrays_are_read_and_written_16_bytes_at_once(name: str, dtype: str) -> None:
    for capability in ARCHITECTURES if name in ("write", "triad") else ARCHITECTURES[1:2]:
        made = count(ptx(f"stream.{name}", dtype, capability))
        loads, stores = (made[f"{how}.global.v2.64"] + made[f"{how}.global.v4.32"] for how in ("ld", "st"))
        # Two accesses a tile; loops may have been unrolled.
        assert loads == 2 * LOADS[name]
        assert (stores >= 2) == (name not in ("read", "dot"))
        assert stores % 2 == 0
        if name in ("triad", "dot"):
            assert made[f"fma.rn.{dtype[-2:]}"] > 0


@pytest.mark.parametrize("capability", ARCHITECTURES, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_peak_s_loop_is_fma_in_registers(capability: tuple[int, int], dtype: str) -> None:
    text = ptx("peak.fma", dtype, capability)
    (loop,) = [loop for loop in loops_of(text) if "fma.rn" in loop]
    assert ".local" not in text
    made = count(loop)
    chains = 8 if dtype == "float64" else 16
    assert made.pop(f"fma.rn.{dtype[-2:]}") == 16 * chains
    moves = [name for name in made if name.startswith("mov")]  # of a loop's values; none is left in the machine code
    assert sum(made[name] for name in made if name not in moves) <= 4  # the loop's own


def loops_of(text: str) -> list[str]:
    """The text between each label and a later branch back to it."""
    loops = []
    for label in re.findall(r"^(\$L\w+):", text, re.M):
        start = text.index(f"\n{label}:")
        for branch in re.finditer(rf"bra(?:\.uni)?\s+{re.escape(label)};", text):
            if branch.start() > start:
                loops.append(text[start : branch.end()])
    return loops


@pytest.mark.parametrize("capability", ARCHITECTURES, ids=str)
def test_a_gemm_s_tiles_are_in_shared_memory(capability: tuple[int, int]) -> None:
    for dtype in ("float64", "float32"):
        text = ptx("gemm.tiled", dtype, capability)
        made = count(text)
        assert ".local" not in text
        assert sum(n for name, n in made.items() if name.startswith("bar")) >= 2
        assert sum(n for name, n in made.items() if name.startswith("fma.rn")) >= 16
        assert sum(n for name, n in made.items() if name.startswith("ld.shared")) >= 8


@pytest.mark.parametrize("capability", ARCHITECTURES, ids=str)
def test_a_hop_is_one_load_from_global_memory(capability: tuple[int, int]) -> None:
    text = ptx("latency.gpu_chase", "int64", capability)
    assert re.search(r"ld\.global\.[ub]64 +\t?%rd\d+, \[%rd\d+\];", text)
    chain = [loop for loop in loops_of(text) if "ld.global" in loop]
    assert chain
    hops = re.findall(r"ld\.global\.[ub]64\s+(%rd\d+), \[(%rd\d+)\]", max(chain, key=len))
    assert all(hops[i][0] == hops[i + 1][1] for i in range(len(hops) - 1))  # each loads from where the last one led


# --- launches -----------------------------------------------------------------------------------------------------


def shape(name: str, dtype: str, variant: str = "", **sizes: int) -> numba_launch.Shape:
    spec, problem, execution = find(name), Problem.of(dtype, **sizes), Execution(1, variant)
    assert spec.gpu is not None
    native = spec.gpu.launch(problem, Execution(1, "64x64" if spec.family == "gemm" else variant), GPU)
    return numba_launch.shape_of(spec, problem, execution, GPU, native)


def test_launches_cover_the_problem() -> None:
    wide = shape("stream.triad", "float64", "wide", n=1 << 24)
    assert wide.grid[0] * wide.block[0] * 4 == 1 << 24
    assert wide.scalars == (np.float64(0.4), 1 << 24)
    assert shape("stream.triad", "float64", "persistent", n=1 << 28).grid == (8 * 132, 1)
    assert shape("stream.read", "float32", "wide", n=1 << 30).grid[0] <= stream.MOST_PARTIALS
    assert shape("stream.copy", "float32", "wide", n=1).grid == (1, 1)
    assert shape("gemm.tiled", "float32", m=65, n=129, k=7).grid == (3, 2)
    sizes = peak.gpu_sizes(find("peak.fma"), "float64", GPU)
    assert shape("peak.fma", "float64", **sizes).grid == (sizes["blocks"], 1)
    assert shape("latency.gpu_chase", "int64", n=64, hops=5).scalars == (64, 5)
    assert shape("latency.gpu_chase", "int64", n=1 << 20, hops=5).scalars == (0, 5)


def test_variants_that_numba_has_not_are_not_offered() -> None:
    backend: Any = backends.get("numba")
    assert backend.variants(find("gemm.tiled"), "float32", GPU) == ("64x64",)
    assert backend.variants(find("latency.gpu_chase"), "int64", GPU) == ("",)
    assert backend.variants(find("stream.read"), "float32", GPU) == ("persistent", "wide")
    with pytest.raises(BackendUnavailable, match="'64x64'"):
        backend.prepare(find("gemm.tiled"), Problem.of("float32", m=8, n=8, k=8), Execution(1, "128x128"), GPU)


def test_kernels_without_a_form_say_so() -> None:
    backend = backends.get("numba")
    for name, dtype in (
        ("gemm.mma", "bfloat16"),
        ("peak.mma", "float16"),
        ("copy.h2d", "int8"),
        ("launch.stream", "int8"),
    ):
        can = backend.supports(find(name), dtype, GPU)
        assert not can
        assert "no form" in can.reason
    assert "only" in backend.supports(find("peak.fma"), "float16", GPU).reason
    assert backend.supports(find("peak.fma"), "float32", GPU)


# --- host code on a stand-in --------------------------------------------------------------------------------------


class FakeGpu:
    """What numba.cuda tells of a GPU, and its stream's clock: an empty span takes 2 us, a run 10."""

    name, uuid, compute_capability = "NVIDIA H100 80GB HBM3", H100["uuid"], (9, 0)
    MULTIPROCESSOR_COUNT, L2_CACHE_SIZE, CLOCK_RATE = 132, 50 << 20, 1_980_000
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, COMPUTE_MODE = 228 << 10, 0

    def __init__(self) -> None:
        self.entered, self.now_ms = 0, 0.0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *_: object) -> None: ...

    def work(self) -> None:
        self.now_ms += 0.010


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.at_ms = gpu, 0.0

    def record(self, stream: object) -> None:
        assert stream == "a stream"
        self.gpu.now_ms += 0.001
        self.at_ms = self.gpu.now_ms

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at_ms - self.at_ms


def fake_numba_cuda(*gpus: FakeGpu) -> Any:
    memory = SimpleNamespace(total=85 * 10**9, free=84 * 10**9)
    context = SimpleNamespace(get_memory_info=lambda: memory)
    return SimpleNamespace(
        gpus=gpus, current_context=lambda: context, stream=lambda: "a stream", event=lambda: FakeEvent(gpus[0]),
        jit=lambda _: {},
    )  # fmt: skip


def test_facts_of_a_gpu_match_the_native_ones() -> None:
    gpu_ = FakeGpu()
    facts = numba_devices._facts(fake_numba_cuda(gpu_), gpu_)
    for key, value in facts.items():
        assert value == H100[key], key
    assert device_of("cuda:0", facts).cores == 132


def test_numba_s_clock_reads_events_and_is_flagged_ungated(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_ = FakeGpu()
    monkeypatch.setattr("gpumicro.backends.numba_clock.load_cuda", lambda: fake_numba_cuda(gpu_))
    clock = NumbaClock(0)
    spans = clock.sample(gpu_.work, np.array([1, 3, 0]))
    np.testing.assert_allclose(spans, [11e-6, 31e-6, 1e-6])
    assert len(clock.walls_s) == 3
    timer = EventTimer(0, clock=clock, spin=clock.spin(0))
    assert not timer.gates
    np.testing.assert_allclose(timer.sample(gpu_.work, [2]), [21e-6])
    assert "ungated" in timer.take_flags()


def test_a_gpu_that_cannot_be_read_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise RuntimeError("\n  the driver is too old\nfor this")

    monkeypatch.setattr(numba_devices, "load_cuda", broken)
    monkeypatch.setattr(numba_devices, "_driver_missing", lambda: "")
    devices, reason = numba_devices._found.__wrapped__()
    assert devices == ()
    assert reason == "numba-cuda finds no GPU (the driver is too old)"


def test_numpy_gets_the_name_that_numba_cuda_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(np, "row_stack", raising=False)
    numba_kernels._mend_numpy()
    assert np.row_stack is np.vstack  # noqa: NPY201
