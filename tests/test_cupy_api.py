"""Whether the real CuPy has what the CuPy backend calls, with these arguments, and how it behaves without a GPU.

CuPy's compiled functions have no signature that Python could read: they have it as text, in their docstrings.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_cupy
import fake_cupy_runtime
import pytest

from gpumicro.cupy_cuda.compiler import STANDARD
from gpumicro.nvrtc import kernel_folder

pytest.importorskip("cupy", reason="CuPy is not installed (pip install 'gpumicro[cupy-cuda13]')")

# What the package calls of each part of CuPy; the stand-in has the same under the same names.
CALLED = {
    "runtime": """driverGetVersion runtimeGetVersion getDeviceCount getDeviceProperties deviceGetAttribute
        deviceGetPCIBusId getDevice setDevice deviceCanAccessPeer deviceEnablePeerAccess deviceDisablePeerAccess malloc
        mallocManaged hostAlloc free freeHost memGetInfo memcpyAsync memcpyPeerAsync memsetAsync memPoolCreate
        memPoolSetAttribute memPoolDestroy mallocFromPoolAsync freeAsync streamCreateWithFlags streamDestroy streamQuery
        streamSynchronize streamWaitEvent eventCreateWithFlags eventDestroy eventRecord eventQuery eventSynchronize
        eventElapsedTime streamBeginCapture streamEndCapture graphInstantiate graphDestroy graphExecDestroy
        graphLaunch""",
    "driver": "ctxGetCurrent launchKernel occupancyMaxActiveBlocksPerMultiprocessor",
    "nvrtc": """getVersion getSupportedArchs createProgram addNameExpression compileProgram getProgramLog getCUBIN
        getPTX getLoweredName destroyProgram""",
    "cublas": "create destroy getVersion gemmEx",
}
STAND_INS = {
    "runtime": fake_cupy_runtime.Runtime, "driver": fake_cupy.Driver, "nvrtc": fake_cupy.Nvrtc,
    "cublas": fake_cupy.Cublas,
}  # fmt: skip
NAMES = [(part, name) for part, names in CALLED.items() for name in names.split()]


def real(part: str) -> Any:
    import cupy

    try:
        return getattr(cupy.cuda, part)
    except ImportError as error:
        pytest.skip(f"cupy.cuda.{part} cannot be loaded here: {str(error).splitlines()[0]}")


def documented(function: Any) -> list[str]:
    """Names of the arguments that a Cython function's docstring begins with: "malloc(size_t size) -> intptr_t"."""
    first = (function.__doc__ or "").strip().splitlines()[0]
    found = re.match(r"\w+\((.*?)\)(?: ->.*)?$", first)
    assert found, f"no signature in {first!r}"
    return [one.partition("=")[0].split()[-1] for one in found[1].split(",") if one.strip()]


@pytest.mark.parametrize(("part", "name"), NAMES, ids=lambda text: text)
def test_a_call_exists_and_takes_what_the_stand_in_takes(part: str, name: str) -> None:
    arguments = documented(getattr(real(part), name))
    stand_in = list(inspect.signature(getattr(STAND_INS[part], name)).parameters)[1:]
    assert len(arguments) == len(stand_in)
    named = [(a, b) for a, b in zip(arguments, stand_in, strict=True) if not b.startswith("_") and len(b) > 2]
    if name != "launchKernel":  # the stand-in's are short
        assert [a for a, _ in named] == [b for _, b in named]


def test_every_call_of_the_package_is_among_those_that_are_checked() -> None:
    import gpumicro

    package = Path(gpumicro.__file__).parent
    files = [*package.glob("cupy_cuda/*.py"), package / "cupy_clock.py", package / "backends" / "cupy_gemm.py"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    aliases = {
        "runtime": r"(?:runtime\(\)|cuda)", "driver": r"driver\(\)", "nvrtc": r"(?:nvrtc\(\)|rtc)",
        "cublas": r"(?:_cublas\(\)|self\._blas|blas)",
    }  # fmt: skip
    for part, alias in aliases.items():
        known = {*CALLED[part].split(), "CUDARuntimeError", "MemPoolProps"}
        used = set(re.findall(rf"(?<![\w.]){alias}\.(\w+)", text))
        for name in used - known:
            assert name.startswith("cudaDevAttr") or name in (
                "cudaMemPoolAttrReleaseThreshold", "runtime", "driver", "nvrtc", "cublas", "Stream", "ExternalStream",
            ), f"{part}.{name} is called and not checked"  # fmt: skip


def test_constants_are_those_of_cuda() -> None:
    runtime = real("runtime")
    for name in fake_cupy_runtime.ATTRIBUTES:
        assert isinstance(getattr(runtime, name), int)
    assert (runtime.hostAllocPortable | runtime.hostAllocMapped, runtime.streamNonBlocking) == (3, 1)
    assert (runtime.memcpyDefault, runtime.eventDisableTiming) == (4, 2)
    assert runtime.cudaMemPoolAttrReleaseThreshold == fake_cupy_runtime.Runtime.cudaMemPoolAttrReleaseThreshold
    props = runtime.MemPoolProps(1, 0, 1, 0)
    assert type(props).__name__ == "MemPoolProps"


def test_errors_carry_a_status_and_a_name() -> None:
    error = real("runtime").CUDARuntimeError(700)
    assert isinstance(error, RuntimeError)
    assert error.status == 700
    assert str(error).startswith("cudaErrorIllegalAddress: ")


def test_a_raw_module_can_be_made_of_a_file_without_a_gpu(tmp_path: Path) -> None:
    import cupy

    module = cupy.RawModule(path=str(tmp_path / "no.cubin"))
    assert callable(module.get_function)
    for name in (
        "num_regs", "shared_size_bytes", "local_size_bytes", "ptx_version", "binary_version", "max_threads_per_block",
        "max_dynamic_shared_size_bytes", "kernel",
    ):  # fmt: skip
        assert hasattr(cupy.RawKernel, name)
        assert hasattr(fake_cupy.Kernel, name) or name == "kernel"
    assert hasattr(cupy.cuda.function.Function, "ptr")


def test_a_stream_s_handle_becomes_cupy_s_stream_without_a_warning() -> None:
    from gpumicro.cupy_cuda.memory import current

    real("runtime")
    stream = current(12345)
    assert stream.ptr == 12345
    assert hasattr(stream, "__enter__")


@pytest.mark.parametrize(
    ("symbol", "architecture"),
    [
        ("gm::triad<double, 2, 2>", "sm_75"), ("gm::triad<float, 8, 2>", "sm_100"), ("gm::gate", "sm_90"),
        ("gm::evict", "sm_80"), ("gm::chase<false>", "compute_90"), ("gm::fill_uniform<gm::bfloat16>", "sm_120"),
    ],
)  # fmt: skip
def test_the_kernels_of_the_package_compile_by_cupy_s_nvrtc(symbol: str, architecture: str) -> None:
    from gpumicro.cupy_cuda.compiler import _compile, source_of

    try:
        real("nvrtc").getVersion()
    except RuntimeError as error:
        pytest.skip(f"no NVRTC: {error}")
    source = source_of(symbol)
    options = (STANDARD, f"-I{kernel_folder()}", f"-arch={architecture}")
    lowered, image = _compile(f'#include "{source}"\n', source, symbol, options)
    assert lowered.startswith("_Z")
    if architecture.startswith("sm_"):
        assert image.startswith(b"\x7fELF")
        assert lowered.encode() in image
    else:
        assert f".entry {lowered}".encode() in image


def test_a_kernel_for_one_target_has_its_instructions() -> None:
    """Compiled for another it would be a trap."""
    from gpumicro.cupy_cuda.compiler import _architectures, _compile, _index

    real("nvrtc")
    target = _index(kernel_folder())[1]["gemm_wgmma.cuh"]
    [architecture] = _architectures((9, 0), target)
    options = (STANDARD, f"-I{kernel_folder()}", f"-arch=compute_{architecture.removeprefix('sm_')}")
    symbol = "gm::gemm_wgmma<gm::half, 128>"
    _, image = _compile('#include "gemm_wgmma.cuh"\n', "gemm_wgmma.cuh", symbol, options)
    assert b"wgmma.mma_async" in image


def test_info_says_why_cupy_cannot_run_and_nothing_more_is_printed() -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has NVIDIA's driver")
    quiet = "import warnings; warnings.simplefilter('error'); import cupy"
    done = subprocess.run([sys.executable, "-W", "error", "-c", quiet], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    environment = {**os.environ, "COLUMNS": "400"}
    done = subprocess.run(
        [sys.executable, "-m", "gpumicro", "info"], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = " ".join(done.stdout.split())
    assert "Backend cupy cannot run: this machine has no NVIDIA driver (libcuda.so.1 cannot be opened)." in told


def test_with_cupy_imported_the_reason_is_cuda_s_own() -> None:
    from gpumicro.backends.cupy_backend import CupyBackend
    from gpumicro.cupy_cuda.calls import versions

    real("runtime")
    if versions()["count"]:
        pytest.skip("this machine has a GPU")
    can = CupyBackend().availability()
    assert not can
    assert "no NVIDIA driver" in can.reason or "GPU" in can.reason
    assert CupyBackend().devices() == ()
