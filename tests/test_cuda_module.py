"""The module _cuda on a machine without a GPU: its errors, its reasons with a stand-in for the driver, its symbols."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cuda import H100

from gpumicro import cuda_native, libraries
from gpumicro.backends.gpu_backend import device_of
from gpumicro.device import Device
from gpumicro.errors import CudaError, OutOfMemory, UsageError
from gpumicro.kernels import CATALOGUE
from gpumicro.spec import Execution, KernelSpec, Problem

needs_module = pytest.mark.skipif(bool(cuda_native.missing()), reason=f"no CUDA module: {cuda_native.missing()}")


@pytest.fixture(scope="module")
def cuda() -> Any:
    return cuda_native.load()


# --- errors -----------------------------------------------------------------------------------------------------------


@needs_module
def test_an_error_of_a_kernel_names_call_code_kernel_and_shape(cuda: Any) -> None:
    with pytest.raises(CudaError) as caught:
        cuda._fail(700, "cudaStreamQuery(stream)", "gm::triad<float, 4>", "grid 2x1x1, block 256x1x1")
    error = caught.value
    assert (error.call, error.code, error.name) == ("cudaStreamQuery", 700, "cudaErrorIllegalAddress")
    assert (error.kernel, error.launch) == ("gm::triad<float, 4>", "grid 2x1x1, block 256x1x1")
    assert error.lost
    assert "illegal memory access" in error.text


@needs_module
@pytest.mark.parametrize(
    ("code", "lost"), [(1, False), (209, False), (700, True), (710, True), (716, True), (719, True), (214, True)]
)
def test_sticky_errors_lose_the_context(cuda: Any, code: int, lost: bool) -> None:
    with pytest.raises(CudaError) as caught:
        cuda._fail(code, "cudaEventQuery(event)", "gm::copy", "grid")
    assert caught.value.lost == lost
    assert bool(caught.value.kernel) == lost  # an error that no kernel made blames none


@needs_module
def test_want_of_memory_has_its_own_class(cuda: Any) -> None:
    with pytest.raises(OutOfMemory, match="cudaMalloc"):
        cuda._fail(2, "cudaMalloc(&address, size)")


@needs_module
def test_wrong_arguments_are_refused_in_words(cuda: Any) -> None:
    with pytest.raises(ValueError, match="unknown kind of memory 'vram'"):
        cuda.Buffer(0, 8, "vram")
    with pytest.raises(ValueError, match="no kernel is compiled under the name gm::nothing"):
        cuda.attributes("gm::nothing", 0)
    with pytest.raises(ValueError, match="no kernel is compiled under the name gm::nothing"):
        cuda.Launch("gm::nothing", (1, 1, 1), (1, 1, 1), 0, [], 0, None)
    with pytest.raises(ValueError, match="swizzle has 0, 32, 64 or 128 bytes, not 16"):
        cuda.tensor_map(0, "float32", [64], [], [64], 16)
    with pytest.raises(ValueError, match="one stride fewer"):
        cuda.tensor_map(0, "float32", [64, 64], [], [64, 64], 128)
    with pytest.raises(ValueError, match="no TMA descriptor holds complex64"):
        cuda.tensor_map(0, "complex64", [64], [], [64], 128)


@needs_module
def test_host_memory_needs_no_device(cuda: Any) -> None:
    numbers = np.arange(6, dtype=np.float64).reshape(2, 3)
    buffer = cuda.Buffer(0, numbers.nbytes, "host")
    assert buffer.address % 64 == 0
    buffer.upload(numbers)
    assert np.array_equal(buffer.download().view(np.float64), numbers.reshape(-1))
    buffer.upload(numbers[1], 24)
    with pytest.raises(ValueError, match="contiguous"):
        buffer.upload(numbers[:, :2])
    with pytest.raises(ValueError, match="the buffer 48"):
        buffer.upload(np.zeros(7))
    with pytest.raises(ValueError, match="do not fit"):
        buffer.upload(numbers, 8)
    buffer.fill(0xFF)
    assert np.isnan(buffer.download().view(np.float64)).all()
    buffer.close()
    buffer.close()
    assert buffer.size_bytes == 0


# --- reasons: a stand-in for the driver's library, in another process -------------------------------------------------

PROBE = """
import json
from gpumicro import backends
backend = backends.get("cuda")
can = backend.availability()
print(json.dumps([can.reason, can.remedy, backend._facts() if can else {}]))
"""
DRIVER = 'extern "C" int cuInit(unsigned) {{ return {init}; }}\n' + (
    'extern "C" int cuDriverGetVersion(int* version) {{ *version = {version}; return 0; }}\n'
)


def reasons(tmp_path: Path, init: int, version: int, **variables: str) -> tuple[str, str]:
    """What the backend says where libcuda.so.1 is one that answers so."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile a stand-in for the driver with")
    (tmp_path / "driver.cpp").write_text(DRIVER.format(init=init, version=version))
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["g++", "-shared", "-fPIC", "driver.cpp", "-o", str(library)], cwd=tmp_path, check=True, timeout=60)
    return probed({"LD_LIBRARY_PATH": str(tmp_path), **variables})


def probed(variables: dict[str, str]) -> tuple[str, str]:
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | variables
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    reason, remedy, _ = json.loads(done.stdout)
    return reason, remedy


@needs_module
def test_a_driver_that_is_too_old(tmp_path: Path) -> None:
    reason, remedy = reasons(tmp_path, init=0, version=11040)
    assert reason.startswith("the NVIDIA driver is too old: it serves CUDA 11.4, this build needs ")
    assert "Update the driver" in remedy


@needs_module
def test_a_driver_without_a_device(tmp_path: Path) -> None:
    reason, _ = reasons(tmp_path, init=100, version=13000)
    assert reason == "the NVIDIA driver finds no GPU"


@needs_module
def test_a_device_that_the_environment_hides(tmp_path: Path) -> None:
    reason, remedy = reasons(tmp_path, init=100, version=13000, CUDA_VISIBLE_DEVICES="")
    assert "CUDA_VISIBLE_DEVICES='' hides" in reason
    assert "Unset it" in remedy


@needs_module
def test_no_driver() -> None:
    reason, remedy = probed({})
    if "no NVIDIA driver" not in reason:
        pytest.skip(f"this machine has a driver ({reason or 'and a device'})")
    assert "libcuda.so.1" in reason
    assert "Install a driver for CUDA" in remedy


# --- symbols ----------------------------------------------------------------------------------------------------------

CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
PLACES = ("csrc/cuda", "src/gpumicro")  # host code that launches kernels by name, beside the catalogue
ROOT = Path(__file__).parent.parent


def representative_devices() -> list[Device]:
    """One of each capability that code is made for, with much memory, and small emulated ones."""
    found = []
    for capability, emulated in product(CAPABILITIES, (False, True)):
        for memory_bytes in (24 * 10**9, 140 * 10**9):
            facts = {**H100, "compute_capability": capability, "emulated": emulated, "memory_bytes": memory_bytes}
            found.append(device_of("cuda:0", facts))
    return found


def wanted_symbols(spec: KernelSpec, device: Device) -> set[str]:
    """Of every launch that the record may ask for on that device, at sizes that are round and that are not."""
    form = spec.gpu
    assert form is not None
    names = spec.sizes if form.sizes is None else form.sizes
    found = set()
    for dtype in form.dtypes:
        if form.why_not(dtype, device):
            continue
        for variant, size in product(form.variants(dtype, device), (1, 33, 1 << 12, 1 << 20)):
            problem = Problem.of(dtype, **dict.fromkeys(names, size))
            try:
                found.add(form.launch(problem, Execution(1, variant), device).symbol)
            except UsageError:  # a size that this kernel does not take
                continue
    return found


def catalogue_symbols() -> set[str]:
    launched = [spec for spec in CATALOGUE if spec.gpu and spec.gpu.source and spec.gpu.bind is None]
    assert launched
    return set().union(*(wanted_symbols(spec, device) for spec in launched for device in representative_devices()))


@needs_module
def test_every_kernel_of_the_catalogue_is_compiled_in(cuda: Any) -> None:
    symbols = cuda.symbols()
    assert len(symbols) == len(set(symbols))
    assert catalogue_symbols() - set(symbols) == set()


@needs_module
def test_every_kernel_compiled_in_is_launched_by_something(cuda: Any) -> None:
    texts = [
        path.read_text(encoding="utf-8")
        for place in PLACES
        for path in (ROOT / place).rglob("*")
        if path.suffix in (".cpp", ".py") and "kernels" not in path.parts
    ]
    by_host = {name for text in texts for name in re.findall(r'"(gm::\w+)', text)}
    spare = {s for s in set(cuda.symbols()) - catalogue_symbols() if s.partition("<")[0] not in by_host}
    assert spare == set()


@needs_module
def test_tables_name_what_the_sources_define(cuda: Any) -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "csrc/kernels").glob("*.cuh")))
    for symbol in cuda.symbols():
        assert re.search(rf"\b{symbol.partition('<')[0].removeprefix('gm::')}\(", sources), symbol


# --- libraries --------------------------------------------------------------------------------------------------------


def test_nccl_tells_its_version_without_a_gpu(tmp_path: Path) -> None:
    assert libraries.nccl_version(str(tmp_path / "libnccl.so.2")) == ""
    found = libraries.find("nccl")
    if not found:
        pytest.skip(found.reason)
    assert re.fullmatch(r"2\.\d+\.\d+", libraries.nccl_version(found.path))


def test_a_library_is_found_among_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "nvidia/nccl/lib"
    folder.mkdir(parents=True)
    (folder / "libnccl.so.2").touch()
    monkeypatch.setattr(libraries, "_by_pathfinder", lambda _: "")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = libraries.find("nccl")
    assert found
    assert found.path == str(folder / "libnccl.so.2")


def test_a_missing_library_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for search in ("_by_pathfinder", "_in_packages", "_by_linker", "_in_toolkit"):
        monkeypatch.setattr(libraries, search, lambda *_: "")
    found = libraries.find("cublasLt")
    assert not found
    assert "libcublasLt.so.13" in found.reason
    assert "nvidia-cublas" in found.reason
    with pytest.raises(UsageError, match="unknown library 'cudnn'"):
        libraries.find("cudnn")


def test_pathfinder_is_asked_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    found = SimpleNamespace(abs_path="/somewhere/libnccl.so.2")
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", {"nccl": found}.__getitem__)
    assert libraries.find("nccl").path == "/somewhere/libnccl.so.2"
    assert libraries._by_pathfinder("nvml") == ""  # whatever it raises
