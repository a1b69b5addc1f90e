"""The CuPy backend with a stand-in for CuPy: what it compiles, allocates, launches, checks and says."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cupy import H100, TINY, FakeCupy

from gpumicro import backends, cupy_cuda
from gpumicro.backends import cuda_operands
from gpumicro.backends.cupy_backend import CupyBackend
from gpumicro.cupy_cuda import calls, found
from gpumicro.errors import BackendUnavailable, CudaError, OutOfMemory, UsageError, VerificationError
from gpumicro.kernels import CATALOGUE, find
from gpumicro.kernels.operands import operand
from gpumicro.spec import Execution, Problem, TensorMap


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeCupy, cache: Path) -> FakeCupy:
    monkeypatch.setitem(sys.modules, "cupy", fake)  # type: ignore[arg-type]
    monkeypatch.setenv("CUPY_CACHE_DIR", str(cache))
    monkeypatch.setattr(calls, "_hung", set())
    return fake


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCupy]:
    yield install(monkeypatch, FakeCupy(), tmp_path)
    gc.collect()


@pytest.fixture
def backend() -> CupyBackend:
    return CupyBackend(Path("/nonexistent"), {})


def prepared(backend: CupyBackend, name: str, dtype: str = "float64", variant: str | None = None, **sizes: int) -> Any:
    [device, *_] = backend.devices()
    spec = find(name)
    assert spec.gpu is not None
    chosen = spec.gpu.variants(dtype, device)[0] if variant is None else variant
    return backend.prepare(spec, Problem.of(dtype, **sizes), Execution(1, chosen), device)


# --- what is here ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("cupy")
def test_a_device_s_facts_are_those_of_the_cuda_backend(backend: CupyBackend) -> None:
    from fake_cuda import H100 as NATIVE

    assert backend.availability()
    [device] = backend.devices()
    assert (device.id, device.kind, device.cores, device.clock_max_hz) == ("cuda:0", "cuda", 132, 1.98e9)
    assert device.uuid == "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"
    assert set(device.facts) == set(NATIVE)
    same = {key for key in NATIVE if key not in ("uuid", "pci_bus_id", "l2_bytes")}
    assert {key: device.facts[key] for key in same} == {key: NATIVE[key] for key in same}
    assert [cache.size_bytes for cache in device.caches] == [256 << 10, 1 << 20]
    assert backend.notes() == []
    assert backend.versions()["build"]["compiler"] == "NVRTC 13.5 through CuPy 14.2.0"


def test_a_uuid_that_was_cut_at_a_zero_byte_names_no_gpu() -> None:
    from gpumicro.cupy_cuda.facts import uuid_text

    assert uuid_text(b"\x01\x02", mig=False) is None
    assert uuid_text(bytes(16), mig=True) == "MIG-00000000-0000-0000-0000-000000000000"


def test_without_cupy_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch, backend: CupyBackend) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(found, "find_spec", lambda _name: None)
    can = backend.availability()
    assert (can.usable, can.reason) == (False, "CuPy is not installed")
    assert "gpumicro[cupy-cuda13]" in can.remedy
    assert backend.devices() == ()
    assert backend.notes() == []
    assert backend.versions() == {}
    with pytest.raises(BackendUnavailable, match="because CuPy is not installed"):
        cupy_cuda.load()


def test_without_a_driver_cupy_is_not_imported(monkeypatch: pytest.MonkeyPatch, backend: CupyBackend) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(found, "find_spec", lambda _name: object())
    monkeypatch.setattr(found, "_driver", lambda: False)
    monkeypatch.setattr(found, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    can = backend.availability()
    assert "no NVIDIA driver" in can.reason
    assert "--gpus all" in can.remedy


def test_what_an_import_says_is_cut_to_a_line_and_its_warnings_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, backend: CupyBackend, recwarn: pytest.WarningsRecorder
) -> None:
    def broken(_name: str) -> None:
        import warnings

        warnings.warn("several CuPy packages are installed", stacklevel=1)
        raise ImportError("\n\n  CuPy failed to load libnvrtc.so.13.\nA page of advice\n")

    monkeypatch.setitem(sys.modules, "cupy", None)  # type: ignore[arg-type]
    monkeypatch.setattr(found, "import_module", broken)
    assert backend.availability().reason == "CuPy cannot be imported (CuPy failed to load libnvrtc.so.13)"
    assert len(recwarn) == 0


def test_without_nvrtc_nothing_can_be_compiled(
    cupy: FakeCupy, backend: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise RuntimeError("CuPy failed to load libnvrtc.so.13: OSError: cannot open")

    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", fails)
    can = backend.availability()
    assert "finds no NVRTC" in can.reason
    assert "nvidia-cuda-nvrtc" in can.remedy


@pytest.mark.parametrize(
    ("fails", "reason", "remedy"),
    [
        ({"getDeviceCount": 35, "driverGetVersion": 35}, "no NVIDIA driver", "--gpus all"),
        ({"getDeviceCount": 35}, r"too old: it serves CUDA 13\.0, this CuPy is made for 13\.0", "cupy-cuda13x"),
        ({"getDeviceCount": 100}, "finds no GPU", "nvidia-smi"),
        ({"getDeviceProperties": 700}, "cannot read them: cudaGetDeviceProperties failed with cudaErrorIllegal", ""),
    ],
)
def test_why_there_is_no_device(
    cupy: FakeCupy, backend: CupyBackend, fails: dict[str, int], reason: str, remedy: str
) -> None:
    cupy.fails = fails
    can = backend.availability()
    assert not can
    assert re.search(reason, can.reason)
    assert remedy in can.remedy


def test_a_prohibited_device_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: CupyBackend) -> None:
    fake = install(monkeypatch, FakeCupy(H100, {**H100, "name": b"NVIDIA H100 MIG 1g.10gb"}), tmp_path)
    assert "cuda:1 is a MIG instance" in backend.notes()[0]
    monkeypatch.setattr(fake.cuda.runtime, "deviceGetAttribute", lambda _what, _device: 2)
    assert "left out, because its compute mode is prohibited" in CupyBackend().availability().reason


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("cupy")
def test_every_gpu_form_of_the_catalogue_can_run_or_says_why(backend: CupyBackend) -> None:
    [device] = backend.devices()
    refused = {}
    for spec in CATALOGUE:
        for dtype in spec.gpu.dtypes if spec.gpu else spec.dtypes:
            can = backend.supports(spec, dtype, device)
            if not can:
                assert can.reason
                refused[spec.name, dtype] = can.reason
    assert "cuTensorMapEncodeTiled" in refused["gemm.wgmma", "bfloat16"]
    assert "cublasGemmEx has no float8_e4m3fn" in refused["gemm.vendor", "float8_e4m3fn"]
    assert "needs compute capability 10.0 exactly" in refused["peak.tcgen05", "bfloat16"]
    assert refused["mixed.fma", "float32"] == "the cupy backend has no form of it"
    kept = {name for name, _ in refused}
    assert not {"stream.triad", "peak.wgmma", "gemm.mma", "launch.graph", "alloc.pool", "copy.managed"} & kept


def test_tensor_maps_are_announced_by_the_forms_that_pass_them() -> None:
    from test_plan_gpu import gpu, items

    for item in (*items(gpu("9.0")), *items(gpu("10.0"))):
        form = item.spec.gpu
        if form is not None and not form.bind and form.source:
            launch = form.launch(item.problem, item.execution, gpu())
            assert any(isinstance(a, TensorMap) for a in launch.arguments) == form.tensor_maps, item.id


@pytest.mark.usefixtures("cupy")
def test_a_problem_that_makes_no_sense_is_refused(backend: CupyBackend) -> None:
    for arguments, message in (
        ({"n": -1}, "negative"), ({"m": 1}, "takes n"), ({"n": 8, "dtype": "int8"}, "no dtype"),
        ({"n": 8, "variant": "sideways"}, "no variant"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            prepared(backend, "stream.triad", **arguments)  # type: ignore[arg-type]
    with pytest.raises(BackendUnavailable, match="TMA descriptors"):
        prepared(backend, "gemm.wgmma", "bfloat16", m=64, n=64, k=64)
    with pytest.raises(BackendUnavailable, match="devices only, not back to the host"):
        prepared(backend, "copy.managed", "int8", "prefetch", n=4096)


# --- what runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["read", "write", "copy", "scale", "add", "triad", "dot"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_kernel_runs_on_the_operands_of_its_record_and_is_checked(
    cupy: FakeCupy, backend: CupyBackend, name: str, dtype: str
) -> None:
    with prepared(backend, f"stream.{name}", dtype, n=1001) as kernel:
        check = kernel.verify()
        assert check.passed
        assert check.elements == (1 if name in ("read", "dot") else 1001)
        assert cupy.launched[-1].startswith(f"gm::{name}<")
        facts = kernel.facts
        assert kernel.backend == "cupy"
        assert facts["compiler"] == "NVRTC 13.5 through CuPy 14.2.0"
        assert (facts["registers"], facts["compiled_for"]) == (40, "sm_90")
        assert facts["flags"] == "-std=c++17 -arch=sm_90"
        assert facts["compile_s"] >= 0
        cupy.wrong = {name}
        with pytest.raises(VerificationError, match=f"stream.{name}"):
            kernel.verify()
    with pytest.raises(UsageError, match="closed"):
        _ = kernel.work


@pytest.mark.usefixtures("cupy")
def test_operands_hold_the_numbers_of_every_other_backend(backend: CupyBackend) -> None:
    n = cuda_operands.FILL_FROM  # made on the device
    with prepared(backend, "stream.copy", "float32", n=n) as kernel:
        kernel.verify()
        assert np.array_equal(kernel.outputs()["a"], operand(n, "float32", seed=cuda_operands.SEED, index=1))


@pytest.mark.parametrize(
    ("name", "dtype", "sizes"),
    [
        ("peak.fma", "float32", {"blocks": 2, "steps": 2}), ("peak.dot", "int8", {"blocks": 2, "steps": 2}),
        ("gemm.tiled", "float64", {"m": 33, "n": 17, "k": 9}), ("latency.gpu_chase", "int64", {"n": 64, "hops": 100}),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("cupy")
def test_other_families_run_too(backend: CupyBackend, name: str, dtype: str, sizes: dict[str, int]) -> None:
    with prepared(backend, name, dtype, **sizes) as kernel:
        assert kernel.verify().passed
        kernel.run(3)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8"])
def test_the_vendor_s_gemm_is_cublas_by_rows(cupy: FakeCupy, backend: CupyBackend, dtype: str) -> None:
    with prepared(backend, "gemm.vendor", dtype, m=24, n=20, k=12) as kernel:
        assert kernel.verify().passed
        assert kernel.facts["recipe"] == "cuBLAS 13.1.0"
        assert cupy.cuda.cublas.handles == 1
    del kernel
    gc.collect()
    assert cupy.cuda.cublas.handles == 0


def test_without_cublas_the_vendor_s_gemm_says_so(cupy: FakeCupy, backend: CupyBackend) -> None:
    del cupy.cuda.cublas
    [device] = backend.devices()
    assert "CuPy finds no cuBLAS" in backend.supports(find("gemm.vendor"), "float32", device).reason


@pytest.mark.parametrize(
    ("name", "variant", "sizes"),
    [
        ("copy.h2d", "pinned", {"n": 100}), ("copy.h2d", "pageable", {"n": 100}), ("copy.d2h", "pinned", {"n": 7}),
        ("copy.d2h", "pageable", {"n": 7}), ("copy.d2d", "", {"n": 5000}), ("copy.bidirectional", "pinned", {"n": 64}),
        ("copy.managed", "touch", {"n": 8192}), ("copy.peer", "access", {"n": 64, "to": 1}),
        ("copy.peer", "staged", {"n": 64, "to": 1}), ("launch.stream", "queued", {}), ("launch.stream", "synced", {}),
        ("launch.graph", "queued", {"nodes": 4}), ("launch.graph", "synced", {"nodes": 4}), ("launch.sync", "", {}),
        ("launch.event", "", {}), ("alloc.malloc", "", {"n": 4096}), ("alloc.pool", "", {"n": 4096}),
    ],
)  # fmt: skip
def test_host_actions_do_what_they_say_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: CupyBackend,
    name: str, variant: str, sizes: dict[str, int],
) -> None:  # fmt: skip
    fake = install(monkeypatch, FakeCupy(H100, H100), tmp_path)
    runtime = fake.cuda.runtime
    with prepared(backend, name, "int8", variant, **sizes) as action:
        assert action.verify().passed
        timer = action.timer
        assert timer is not None
        spans = timer.sample(action.work, [1, 2] if name != "launch.graph" else [1, 1])
        assert np.all(spans > 0)
        if name.startswith("copy"):
            assert action.verify().passed
        held = len(runtime.memory)
        if name == "copy.h2d":
            fake.wrong = {"memcpyAsync"}
            with pytest.raises(VerificationError, match=r"copy\.h2d"):
                action.verify()
    del action, timer
    gc.collect()
    assert len(runtime.memory) <= held
    assert not runtime.graphs
    assert not runtime.pools


# --- errors ---------------------------------------------------------------------------------------------------------


def test_memory_that_is_not_there_is_out_of_memory(cupy: FakeCupy, backend: CupyBackend) -> None:
    with pytest.raises(OutOfMemory, match=r"needs .* MiB and 1024 MiB"):
        prepared(backend, "stream.triad", n=1 << 30)
    cupy.fails = {"malloc": 2}
    with pytest.raises(OutOfMemory, match="cudaMalloc: cudaErrorMemoryAllocation: out of memory"):
        prepared(backend, "stream.triad", n=1000)


def test_a_kernel_s_error_names_the_kernel_and_that_the_context_is_lost(cupy: FakeCupy, backend: CupyBackend) -> None:
    with prepared(backend, "stream.triad", n=1000) as kernel:
        cupy.fails = {"streamQuery": 700}
        with pytest.raises(CudaError, match=r"IllegalAddress.*lost its CUDA context") as caught:
            kernel.verify()
        assert (caught.value.code, caught.value.lost) == (700, True)
        cupy.fails = {"launchKernel": 701}
        with pytest.raises(CudaError, match=r"cuLaunchKernel failed with .*gm::triad<double.*grid ") as caught:
            kernel.run()
        assert not caught.value.lost
        cupy.fails = {}
        assert kernel.verify().passed


def test_a_kernel_that_hangs_is_told_and_its_memory_is_not_waited_for(
    cupy: FakeCupy, backend: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpumicro.cupy_cuda import memory

    kernel = prepared(backend, "stream.triad", n=1000)
    cupy.hangs = {"triad"}
    monkeypatch.setattr(memory.synchronize, "__defaults__", (0.01,))
    with pytest.raises(CudaError, match=r"hangs: it did not end within 0\.01 s") as caught:
        kernel.verify()
    assert (caught.value.code, caught.value.lost) == (702, True)
    with pytest.raises(CudaError, match="an earlier kernel still hangs"):
        kernel.run()
    held = len(cupy.cuda.runtime.memory)
    kernel.close()
    del kernel
    gc.collect()
    assert len(cupy.cuda.runtime.memory) == held


def test_memory_of_an_interrupted_run_is_freed_once_the_device_is_done(
    cupy: FakeCupy, backend: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, kernel = cupy.cuda.runtime, prepared(backend, "stream.triad", n=1000)

    def interrupted(_stream: int) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(runtime, "streamQuery", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kernel.run()
    assert calls.is_hung(0)
    held = len(runtime.memory)
    kernel.close()
    del kernel
    gc.collect()
    assert len(runtime.memory) < held
    with prepared(backend, "stream.triad", n=1000) as again:
        assert again.verify().passed
    assert not calls.is_hung(0)


def test_cublas_s_errors_are_told_apart_from_cuda_s(cupy: FakeCupy, backend: CupyBackend) -> None:
    def refuses(status: int, name: str) -> None:
        error = RuntimeError(name)
        error.status = status  # type: ignore[attr-defined]
        raise error

    kernel = prepared(backend, "gemm.vendor", "float32", m=4, n=4, k=4)
    for status, name, kind, message in (
        (3, "CUBLAS_STATUS_ALLOC_FAILED", OutOfMemory, "cublasGemmEx: CUBLAS_STATUS_ALLOC_FAILED"),
        (15, "CUBLAS_STATUS_NOT_SUPPORTED", CudaError, r"cublasGemmEx failed with CUBLAS_STATUS_NOT_SUPPORTED \(15\)"),
    ):
        cupy.cuda.cublas.gemmEx = lambda *_, s=status, n=name: refuses(s, n)  # type: ignore[method-assign,misc]
        with pytest.raises(kind, match=message):
            kernel.verify()


def test_what_nvrtc_does_not_compile_is_unavailable_with_its_first_error(cupy: FakeCupy, backend: CupyBackend) -> None:
    with pytest.raises(BackendUnavailable, match=r"cannot compile gm::mma_peak<.*a\.cuh\(1\): error: the stand-in"):
        prepared(backend, "peak.mma", "bfloat16", blocks=2, steps=1)
    assert not cupy.cuda.nvrtc.alive


# --- compiling ------------------------------------------------------------------------------------------------------


def test_a_kernel_is_compiled_once_for_all_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: CupyBackend
) -> None:
    for again in (False, True):
        fake = install(monkeypatch, FakeCupy(), tmp_path)
        with prepared(backend, "stream.copy", n=10) as kernel:
            assert kernel.verify().passed
            assert (kernel.facts["compile_s"] > 0) == (not again)
        assert len(fake.compiled) == (0 if again else 1)
    [image] = tmp_path.glob("*.cubin")
    image.write_bytes(b"cut")  # by a full disk, say
    fake = install(monkeypatch, FakeCupy(), tmp_path)
    with prepared(backend, "stream.copy", n=10) as kernel:
        assert kernel.verify().passed
    assert len(fake.compiled) == 1


def test_a_cache_that_cannot_be_written_is_done_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: CupyBackend
) -> None:
    (tmp_path / "file").write_text("in the way")
    install(monkeypatch, FakeCupy(), tmp_path / "file")
    with prepared(backend, "stream.copy", n=10) as kernel:
        assert kernel.verify().passed


def test_the_target_of_a_kernel_is_named_and_an_unknown_gpu_gets_ptx(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: CupyBackend
) -> None:
    from gpumicro.cupy_cuda.compiler import _architectures, _index, source_of
    from gpumicro.nvrtc import kernel_folder

    targets = _index(kernel_folder())[1]
    assert (targets["peak_wgmma.cuh"], targets["peak_tcgen05.cuh"]) == ("90a", "100a")
    assert "stream.cuh" not in targets
    fake = install(monkeypatch, FakeCupy({**H100, "major": 13}), tmp_path)
    assert _architectures((13, 0), "") == ["compute_120", "compute_100", "compute_90", "compute_80", "compute_75"]
    assert _architectures((9, 0), "90a") == ["sm_90a"]
    with prepared(backend, "stream.copy", n=10) as kernel:
        assert kernel.facts["compiled_for"] == "compute_120"
    assert fake.compiled[0][1][-1] == "-arch=compute_120"
    with pytest.raises(UsageError, match="no kernel of csrc/kernels is named 'gm::nothing<float>'"):
        source_of("gm::nothing<float>")


def test_every_symbol_of_the_catalogue_is_found_in_its_file() -> None:
    from test_plan_gpu import gpu, items

    from gpumicro.cupy_cuda.compiler import source_of

    seen = set()
    for item in (*items(gpu("9.0")), *items(gpu("10.0")), *items(gpu("7.5"))):
        form = item.spec.gpu
        if form is not None and not form.bind and form.source:
            seen.add(symbol := form.launch(item.problem, item.execution, gpu()).symbol)
            assert source_of(symbol) == form.source, item.id
    assert len(seen) > 30
    assert source_of("gm::gate") == source_of("gm::touch") == "spin.cuh"


# --- choosing -------------------------------------------------------------------------------------------------------


def test_auto_takes_cuda_then_cupy_then_numba_then_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: CupyBackend
) -> None:
    install(monkeypatch, FakeCupy(TINY), tmp_path)
    monkeypatch.delenv("GPUMICRO_BACKEND", raising=False)
    monkeypatch.setitem(backends._loaded, "cupy", backend)
    if backends.get("cuda").availability():
        pytest.skip("this machine has a GPU that the CUDA module runs")
    assert backends.BACKENDS == ("cuda", "cupy", "numba", "cpu")
    chosen, skipped = backends.select()
    assert (chosen.name, [name for name, _ in skipped]) == ("cupy", ["cuda"])
    assert all(reason for _, reason in skipped)
    [(engine, device)], skipped = backends.resolve("cuda:0")
    assert (engine.name, device.id, [name for name, _ in skipped]) == ("cupy", "cuda:0", ["cuda"])
    with backends.prepare("stream.triad", device="cuda:0", n=100) as kernel:
        assert kernel.backend == "cupy"
        assert kernel.verify().passed


def test_sets_of_operands_are_rotated_through_cupy_too(cupy: FakeCupy, backend: CupyBackend) -> None:
    from gpumicro.backends.cuda_rotation import Rotation

    with prepared(backend, "stream.triad", n=1000) as kernel:
        rotation = Rotation(kernel, sets=3)
        assert rotation.verify().passed
        assert (rotation.backend, rotation.facts["sets"]) == ("cupy", 3)
        cupy.launched.clear()
        assert rotation.timer.sample(rotation.work, [5])[0] > 0
        # once without a gate, once behind one, then the span itself
        assert sum("triad" in name for name in cupy.launched) == 3 * 5
        rotation.close()
