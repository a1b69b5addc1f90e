"""The CUDA backend with a stand-in for its module: what it allocates, checks and says."""

from __future__ import annotations

import dataclasses
import gc
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import H100, NO_DRIVER, FakeCuda

import gpumicro
from gpumicro import backends, cuda_native
from gpumicro.backends import cuda_operands, cuda_reasons
from gpumicro.backends.cuda import CudaBackend
from gpumicro.backends.cuda_prepared import compare
from gpumicro.backends.gpu_backend import device_of
from gpumicro.device import Device
from gpumicro.errors import BackendUnavailable, CudaError, OutOfMemory, UsageError, VerificationError
from gpumicro.kernels import find
from gpumicro.kernels.gpu import ceil_div, needs
from gpumicro.kernels.operands import operand
from gpumicro.kernels.parts import PART
from gpumicro.spec import Execution, GpuForm, KernelSpec, Launch, Operand, Problem, TensorMap

TWICE = KernelSpec(
    name="own.twice",
    summary="a[i] = 2 b[i]",
    dtypes=("float64",),
    sizes=("n",),
    operands=(Operand("a", "out", lambda p: p["n"]), Operand("b", "in", lambda p: p["n"])),
    bytes_moved=lambda p: 2 * p["n"] * p.itemsize,
    traffic="exact",
    flops=lambda p: p["n"],
    reference=lambda _, b: 2 * b,
    on_cpu=False,
    gpu=GpuForm(
        source="own.cuh",
        launch=lambda p, _e, _d: Launch("gm::twice", (1, 1, 1), (128, 1, 1), ("a", "b", np.int64(p["n"])), 1024),
        dtypes=("float64", "float32", "bfloat16"),
        variants=lambda _dtype, _device: ("wide", "narrow"),
        why_not=lambda dtype, device: needs(device, 10, 0) if dtype == "bfloat16" else "",
    ),
)


def install(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> FakeCuda:
    monkeypatch.setitem(sys.modules, "gpumicro._cuda", cuda)
    monkeypatch.delattr(gpumicro, "_cuda", raising=False)
    return cuda


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = install(monkeypatch, FakeCuda([H100]))

    def twice(arguments: Any) -> None:
        a, b, n = arguments
        kind = "float32" if len(fake.at(a, "uint8")) == 4 * int.from_bytes(n, "little") else "float64"
        fake.at(a, kind)[:] = 2 * fake.at(b, kind)

    fake.kernels["gm::twice"] = twice
    return fake


@pytest.fixture
def backend() -> CudaBackend:
    return CudaBackend(Path("/nonexistent"), {})


def prepared(backend: CudaBackend, n: int = 1000, dtype: str = "float32", spec: KernelSpec = TWICE) -> Any:
    return backend.prepare(spec, Problem.of(dtype, n=n), Execution(1, "wide"), backend.devices()[0])


# --- what is here ---------------------------------------------------------------------------------------------------


def test_a_device_s_facts(cuda: FakeCuda, backend: CudaBackend) -> None:
    assert backend.availability()
    [device] = backend.devices()
    assert (device.id, device.kind, device.cores, device.uuid) == ("cuda:0", "cuda", 132, H100["uuid"])
    assert device.levels == ("l1", "l2", "dram")
    l1, l2 = device.caches
    assert (l1.size_bytes, l1.count, l2.size_bytes, l2.count) == (256 << 10, 132, 50 << 20, 1)
    assert device.facts["compute_capability"] == "9.0"
    cuda.devices[0] = {**H100, "compute_capability": "13.0"}
    assert device_of("cuda:0", cuda.devices[0]).caches[0].size_bytes == 228 << 10


def test_a_prohibited_device_is_left_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch, backend: CudaBackend) -> None:
    prohibited = {**H100, "compute_mode": 2}
    fake = install(monkeypatch, FakeCuda([prohibited, H100]))
    assert [device.id for device in backend.devices()] == ["cuda:1"]
    assert "cuda:0 is left out, because its compute mode is prohibited" in backend.notes()[0]
    install(monkeypatch, FakeCuda(fake.devices[:1]))
    assert re.search("no GPU may be used: cuda:0 is left out", backend.availability().reason)


def test_mig_and_emulation_are_said(monkeypatch: pytest.MonkeyPatch, backend: CudaBackend) -> None:
    mig = {**H100, "name": "NVIDIA H100 MIG 1g.10gb", "mig": True}
    install(monkeypatch, FakeCuda([mig, {**H100, "emulated": True}]))
    assert "cuda:0 is a MIG instance (NVIDIA H100 MIG 1g.10gb)" in backend.notes()[0]
    assert "cuda:1 is emulated" in backend.notes()[1]


def test_hidden_devices_are_counted(cuda: FakeCuda, tmp_path: Path) -> None:  # noqa: ARG001
    for gpu in range(8):
        (tmp_path / f"proc/driver/nvidia/gpus/{gpu}").mkdir(parents=True)
    backend = CudaBackend(tmp_path, {"CUDA_VISIBLE_DEVICES": "3"})
    assert backend.notes() == ["CUDA_VISIBLE_DEVICES='3' shows 1 of the 8 GPUs of this machine."]


@pytest.mark.parametrize(
    ("probe", "environment", "machine", "reason", "remedy"),
    [
        ({}, {}, None, "no NVIDIA driver", "--gpus all"),
        ({"driver": 12020}, {}, 8, r"too old: it serves CUDA 12\.2, this build needs 13\.0", "Update the driver"),
        ({"code": 100, "driver": 13000}, {}, None, "finds no GPU", "nvidia-smi"),
        ({"code": 100, "driver": 13000}, {"CUDA_VISIBLE_DEVICES": "0"}, 0, "finds no GPU", "nvidia-smi"),
        ({"code": 100, "driver": 13000}, {"CUDA_VISIBLE_DEVICES": ""}, 8, "'' hides the 8 GPUs", "Unset"),
        ({"code": 100, "driver": 13000}, {"CUDA_VISIBLE_DEVICES": "-1"}, None, "hides the machine's GPUs", "Unset"),
        ({"code": 100, "driver": 13000}, {"CUDA_VISIBLE_DEVICES": "9"}, 8, "names none of the 8", "Unset"),
        ({"code": 802, "error": "cudaErrorSystemNotReady"}, {}, 8, r"cudaErrorSystemNotReady \(802\)", "fabricmanager"),
        ({"code": 77, "error": "cudaErrorNew"}, {}, 8, r"cudaErrorNew \(77\)", ""),
    ],
)
def test_why_there_is_no_device(
    probe: dict[str, Any], environment: dict[str, str], machine: int | None, reason: str, remedy: str
) -> None:
    found = cuda_reasons.no_device({**NO_DRIVER, **probe}, environment, machine)
    assert re.search(reason, found[0])
    assert remedy in found[1]


def test_no_device_reaches_availability(monkeypatch: pytest.MonkeyPatch, backend: CudaBackend) -> None:
    install(monkeypatch, FakeCuda(probe=NO_DRIVER))
    can = backend.availability()
    assert not can
    assert "no NVIDIA driver" in can.reason
    assert backend.devices() == ()
    monkeypatch.setattr(backends, "_loaded", {**backends._loaded, "cuda": backend})
    with pytest.raises(BackendUnavailable, match="no NVIDIA driver"):
        backends.prepare("stream.triad", device="cuda:0", n=8)


def test_without_the_module_the_build_s_reason_is_given(monkeypatch: pytest.MonkeyPatch, backend: CudaBackend) -> None:
    core = sys.modules.get("gpumicro._core") or __import__("gpumicro._core")
    monkeypatch.setitem(sys.modules, "gpumicro._cuda", type(sys)("gpumicro._cuda"))  # the folder of stubs
    monkeypatch.setattr(core, "cuda_why", "no nvcc was found when gpumicro was built")
    assert "no nvcc was found" in backend.availability().reason
    assert backend.devices() == ()
    assert backend.notes() == []
    with pytest.raises(BackendUnavailable, match=r"no nvcc was found.*GPUMICRO_CUDA_WHEELS=13"):
        cuda_native.load()


@pytest.mark.parametrize(
    ("capability", "architectures", "covered"),
    [
        ((9, 0), ["90a-real"], True),
        ((9, 0), ["80-real"], False),
        ((8, 9), ["86-real"], True),
        ((8, 0), ["86-real"], False),
        ((10, 3), ["100a-real"], False),
        ((10, 3), ["100-real"], True),
        ((12, 1), ["120-virtual"], True),
        ((13, 0), ["75-real", "120-virtual"], True),
        ((11, 0), ["75-real", "100a-real", "120-virtual"], False),
        ((9, 0), ["90a-virtual"], True),
        ((10, 0), ["90a-virtual"], False),
        ((8, 6), ["80"], True),
        ((8, 6), ["native"], True),
    ],
)
def test_what_code_runs_where(capability: tuple[int, int], architectures: list[str], covered: bool) -> None:
    assert bool(cuda_reasons.not_covered(capability, architectures)) != covered


# --- what is refused ------------------------------------------------------------------------------------------------


def test_what_a_gpu_has_no_form_of(cuda: FakeCuda, backend: CudaBackend) -> None:
    [device] = backend.devices()
    assert backend.supports(find("mixed.fma"), "float32", device).reason == "the cuda backend has no form of it"
    assert backend.supports(TWICE, "float32", device)
    assert "has no int8, only float64" in backend.supports(TWICE, "int8", device).reason
    assert backend.supports(TWICE, "bfloat16", device).reason == "needs compute capability 10.0, this is 9.0"
    cuda.build["architectures"] = ["80-real"]
    can = backend.supports(TWICE, "float32", device)
    assert "no code for compute capability 9.0, only 80-real" in can.reason
    assert "GPUMICRO_CUDA_ARCHS=90-real" in can.remedy


def test_the_cpu_has_no_form_of_what_is_a_gpu_s() -> None:
    cpu = backends.get("cpu")
    [device] = cpu.devices()
    assert "no form of it" in cpu.supports(TWICE, "float64", device).reason
    with pytest.raises(BackendUnavailable, match="the cpu backend has no form of it"):
        cpu.prepare(TWICE, Problem.of("float64", n=8), Execution(1, ""), device)


@pytest.mark.parametrize(
    ("sizes", "dtype", "execution", "message"),
    [
        ({"m": 8}, "float32", Execution(1, "wide"), "takes n, not m"),
        ({"n": -1}, "float32", Execution(1, "wide"), "negative"),
        ({"n": 8}, "int8", Execution(1, "wide"), "no dtype 'int8'"),
        ({"n": 8}, "float32", Execution(1, "broad"), "no variant 'broad', only 'wide', 'narrow'"),
        ({"n": 8}, "float32", Execution(2, "wide"), "1 thread, not 2"),
    ],
)
def test_what_makes_no_sense_is_refused(
    cuda: FakeCuda, backend: CudaBackend, sizes: dict[str, int], dtype: str, execution: Execution, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        backend.prepare(TWICE, Problem.of(dtype, **sizes), execution, backend.devices()[0])
    assert cuda.made == []


def test_too_much_memory_is_refused_before_any_is_taken(cuda: FakeCuda, backend: CudaBackend) -> None:
    with pytest.raises(OutOfMemory, match=r"needs 1024 MiB and 1024 MiB of the 1024 MiB of cuda:0 are free"):
        prepared(backend, n=1 << 27)
    assert cuda.made == []


# --- what runs ------------------------------------------------------------------------------------------------------


def test_a_right_kernel_passes_and_says_how_it_ran(cuda: FakeCuda, backend: CudaBackend) -> None:
    with prepared(backend) as kernel:
        check = kernel.verify()
        assert (check.passed, check.elements, check.reference) == (True, 1000, "float64")
        assert cuda.launched == ["gm::twice"]
        b = operand(1000, "float32", seed=cuda_operands.SEED, index=1)
        assert np.array_equal(kernel.outputs()["a"], 2 * b)
        facts = kernel.facts
        assert facts["symbol"] == "gm::twice"
        assert (facts["registers"], facts["occupancy_blocks_per_sm"], facts["shared_bytes"]) == (40, 16, 1040)
        assert (facts["compiler"], facts["architecture"], facts["variant"]) == ("nvcc 13.0.88", "sm_90", "wide")
    with pytest.raises(UsageError, match="closed"):
        kernel.verify()


def test_outputs_begin_as_zeros_whatever_the_memory_held(cuda: FakeCuda, backend: CudaBackend) -> None:
    with prepared(backend) as kernel:
        assert cuda.launched == []
        assert not kernel.outputs()["a"].any()


@pytest.mark.parametrize("fault", ["nothing", "one element", "tail", "nan"])
def test_a_wrong_kernel_fails(cuda: FakeCuda, backend: CudaBackend, fault: str) -> None:
    right = cuda.kernels["gm::twice"]

    def wrong(arguments: Any) -> None:
        if fault == "nothing":
            return
        right(arguments)
        a = cuda.at(arguments[0], "float32")
        if fault == "one element":
            a[500] = np.nextafter(a[500], np.float32(np.inf), dtype=np.float32) + np.float32(1e-5)
        elif fault == "tail":
            cuda.at(arguments[0], "uint8")[-4:] = 0xFF
        else:
            a[0] = np.nan

    cuda.kernels["gm::twice"] = wrong
    with prepared(backend) as kernel, pytest.raises(VerificationError) as caught:
        kernel.verify()
    assert caught.value.index == {"nothing": 0, "one element": 500, "tail": 999, "nan": 0}[fault]


def test_inputs_are_read_once_for_all_kernels_that_share_them(cuda: FakeCuda, backend: CudaBackend) -> None:
    with prepared(backend) as one, backend.prepare(TWICE, one.problem, Execution(1, "narrow"), one.device) as other:
        for kernel in (one, other, one):
            assert kernel.verify().passed
    a, b = (cuda.buffers[address] for address in sorted(cuda.buffers))
    assert (a.downloads, b.downloads) == (3, 1)


@pytest.mark.parametrize("spoiled", [0, PART - 1, PART, 3 * PART + 4])
def test_an_elementwise_kernel_is_compared_part_by_part(spoiled: int) -> None:
    spec, n = find("stream.triad"), 3 * PART + 5
    assert spec.gpu is not None
    b, c = (operand(n, "float32", index=index) for index in (1, 2))
    a, problem = b + np.float32(0.4) * c, Problem.of("float32", n=n)
    found = compare(spec, spec.gpu, problem, {"b": b, "c": c}, {"a": a})
    assert (found.passed, found.elements) == (True, n)
    whole = compare(spec, dataclasses.replace(spec.gpu, elementwise=False), problem, {"b": b, "c": c}, {"a": a})
    assert whole == found
    a[spoiled] += 1
    with pytest.raises(VerificationError) as caught:
        compare(spec, spec.gpu, problem, {"b": b, "c": c}, {"a": a})
    assert caught.value.index == spoiled
    a[spoiled] = np.nan
    with pytest.raises(VerificationError, match=f"index {spoiled}:"):
        compare(spec, spec.gpu, problem, {"b": b, "c": c}, {"a": a})


def test_no_elements_are_right(cuda: FakeCuda, backend: CudaBackend) -> None:  # noqa: ARG001
    with prepared(backend, n=0) as kernel:
        assert kernel.verify().elements == 0


def test_kernels_of_a_family_share_operands_while_they_live(cuda: FakeCuda, backend: CudaBackend) -> None:
    with prepared(backend):
        assert cuda.made == [4000, 4000]
        with prepared(backend):
            assert len(cuda.made) == 2
        with prepared(backend, n=1001):
            assert len(cuda.made) == 4
    gc.collect()
    with prepared(backend):
        assert len(cuda.made) == 6


def test_what_is_changed_in_place_is_filled_again(cuda: FakeCuda, backend: CudaBackend) -> None:
    operands = (Operand("a", "inout", lambda p: p["n"]),)
    spec = dataclasses.replace(TWICE, operands=operands, reference=lambda a: 2 * a)
    spec = dataclasses.replace(
        spec, gpu=dataclasses.replace(spec.gpu, launch=lambda *_: Launch("gm::grow", (1, 1, 1), (1, 1, 1), ("a",)))
    )

    def grow(arguments: Any) -> None:
        cuda.at(arguments[0], "float32")[:] *= 2

    cuda.kernels["gm::grow"] = grow
    with prepared(backend, spec=spec) as one, prepared(backend, spec=spec) as other:
        assert one.verify().passed
        assert one.verify().passed
        assert other.verify().passed
    assert cuda.made == [4000, 4000]  # not shared


def test_a_driver_without_tma_is_a_reason(cuda: FakeCuda, backend: CudaBackend) -> None:
    import dataclasses

    def refuse(*_: Any) -> bytes:
        raise RuntimeError("this driver has no cuTensorMapEncodeTiled")

    cuda.tensor_map = refuse  # type: ignore[attr-defined]
    launch = Launch("gm::twice", (1, 1, 1), (1, 1, 1), ("a", TensorMap("b", (8, 8), (8, 8))))
    spec = dataclasses.replace(TWICE, gpu=dataclasses.replace(TWICE.gpu, launch=lambda *_: launch))
    with pytest.raises(BackendUnavailable, match="b gets no TMA descriptor: this driver has no cuTensorMap"):
        prepared(backend, n=64, spec=spec)


def test_large_uniform_operands_are_made_on_the_device(cuda: FakeCuda, backend: CudaBackend) -> None:
    def fill(arguments: Any) -> None:
        address, seed, index, count = (int.from_bytes(argument, "little") for argument in arguments)
        numbers = operand(count, "float32", seed=seed, index=index)
        cuda.buffers[address].memory.view("float32")[:] = numbers

    cuda.kernels["gm::fill_uniform<float>"] = fill
    n = cuda_operands.FILL_FROM
    with prepared(backend, n=n) as kernel:
        assert cuda.launched == ["gm::fill_uniform<float>"]
        assert kernel.verify().passed
    with prepared(backend, n=n - 1):
        assert cuda.launched.count("gm::fill_uniform<float>") == 1


@pytest.mark.parametrize(("operands", "sigma"), [("uniform", 127 / 3**0.5), ("normal", 32.0)])
def test_int8_operands_fill_their_range(cuda: FakeCuda, operands: Any, sigma: float) -> None:
    del cuda
    one, problem = Operand("b", "in", lambda p: p["n"]), Problem.of("int8", operands, n=100_000)
    held = cuda_operands.OperandBuffer(cuda_native.load().Buffer(0, 100_000), "int8", 100_000)
    assert TWICE.gpu is not None
    cuda_operands.fill(one, TWICE.gpu, problem, held, 0, cuda_native.load())
    values = held.read().astype(float)
    assert (values.min(), values.max()) == (-127, 127)
    assert np.std(values) == pytest.approx(sigma, rel=0.02)


def test_ceil_div() -> None:
    assert [ceil_div(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_exact_needs_are_told_from_least_needs() -> None:
    device = device_of("cuda:0", {**H100, "compute_capability": "10.0"})
    assert isinstance(device, Device)
    assert needs(device, 8, 0) == ""
    assert needs(device, 9, 0, exact=True) == "needs compute capability 9.0 exactly, this is 10.0"
    assert needs(device, 12, 0) == "needs compute capability 12.0, this is 10.0"


# --- errors ---------------------------------------------------------------------------------------------------------


def test_a_cuda_error_names_everything_and_says_what_is_lost() -> None:
    error = CudaError(
        "cudaStreamQuery", 700, "cudaErrorIllegalAddress", "an illegal memory access was encountered", "gm::triad",
        "grid 1x1x1, block 256x1x1", True,
    )  # fmt: skip
    for part in ("cudaStreamQuery", "700", "cudaErrorIllegalAddress", "gm::triad", "grid 1x1x1", "start a new process"):
        assert part in str(error)
    assert "process" not in str(CudaError("cudaMalloc", 1, "cudaErrorInvalidValue", "invalid argument"))
    assert gpumicro.CudaError is CudaError
