"""NVRTC compiles the package's device code as it is installed, for every architecture, with no driver."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest
from fake_cuda import H100

from gpumicro import kernels, libraries, nvrtc
from gpumicro.backends.gpu_backend import device_of
from gpumicro.errors import BackendUnavailable, CompileError, UsageError

needs_nvrtc = pytest.mark.skipif(bool(nvrtc.missing()), reason=nvrtc.missing() or "NVRTC is here")
ARCHITECTURES = {"75": "7.5", "80": "8.0", "90a": "9.0", "100a": "10.0", "120": "12.0"}
FOLDER = nvrtc.kernel_folder()
TABLES = {path.name: found[1] for path in sorted(FOLDER.glob("*.cuh"))
          if (found := re.search(r"#define (GM_\w+_TABLE)\(X\)", path.read_text(encoding="utf-8")))}  # fmt: skip
SLOW = ("peak_wgmma.cuh", "gemm_mma.cuh")  # unrolled so far that all their types take most of a minute
SAXPY = """
template <class T> __global__ void __launch_bounds__(256) saxpy(T a, const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
// __global__ void commented_out() {}
extern "C" __global__ void plain(float a) {}
"""


@lru_cache(maxsize=32)
def symbols(file: str) -> tuple[str, ...]:
    """The name expressions of a file's table, as the C preprocessor expands it."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler, whose preprocessor expands the tables")
    done = subprocess.run(
        [compiler, "-E", "-P", "-x", "c++", f"-I{FOLDER}", "-"],
        input=f'#include "{file}"\n#define SYMBOL(...) "@" #__VA_ARGS__\n{TABLES[file]}(SYMBOL)\n',
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return tuple(re.findall(r'"@" "(.*?)"', done.stdout))


def one_of_each(file: str) -> list[str]:
    """The first symbol of each template."""
    return list({symbol.split("<")[0]: symbol for symbol in reversed(symbols(file))}.values())


def runs_on(file: str, arch: str) -> bool:
    """Whether the catalogue has a kernel of that file that such a device can run; helpers run on all."""
    device = device_of("cuda:0", H100 | {"compute_capability": ARCHITECTURES[arch]})
    forms = [spec.gpu for spec in kernels.CATALOGUE if spec.gpu is not None and spec.gpu.source == file]
    if not forms:
        return True
    return any(
        form.target in ("", arch) and any(not form.why_not(dtype, device) for dtype in form.dtypes) for form in forms
    )


PAIRS = [(file, arch) for file in TABLES for arch in ARCHITECTURES if runs_on(file, arch)]


def compiled(file: str, wanted: list[str], arch: str) -> nvrtc.Program:
    source = nvrtc.kernel_file(file).read_text(encoding="utf-8")
    return nvrtc.compile(source, wanted, arch, [f"--include-path={FOLDER}"], name=file)


def test_the_tables_are_those_that_nvcc_compiles() -> None:
    families = {path.stem for path in (Path(__file__).parents[1] / "csrc/cuda/tables").glob("*.cu")}
    assert {Path(file).stem for file in TABLES} == families
    assert len(symbols("stream.cuh")) == 58
    assert "gm::triad<double, 2, 4>" in symbols("stream.cuh")


def test_instructions_of_one_architecture_are_asked_of_that_alone() -> None:
    assert {arch for file, arch in PAIRS if "wgmma" in file} == {"90a"}
    assert {arch for file, arch in PAIRS if "tcgen05" in file} == {"100a"}
    assert {arch for file, arch in PAIRS if file == "stream.cuh"} == set(ARCHITECTURES)


@needs_nvrtc
@pytest.mark.parametrize(("file", "arch"), PAIRS)
def test_each_template_becomes_machine_code(file: str, arch: str) -> None:
    wanted = one_of_each(file)
    made = compiled(file, wanted, f"sm_{arch}")
    assert made.kind == "cubin"
    assert made.image[:4] == b"\x7fELF"
    assert all(name.encode() in made.image for name in made.lowered.values())
    assert set(made.lowered) == set(wanted)
    assert made.log == ""


@needs_nvrtc
@pytest.mark.parametrize("file", sorted(set(TABLES) - set(SLOW)))
def test_every_symbol_becomes_ptx(file: str) -> None:
    arch = "100a" if "tcgen05" in file else "90a"
    made = compiled(file, list(symbols(file)), f"compute_{arch}")
    assert made.kind == "ptx"
    assert set(re.findall(r"\.entry (\w+)", made.image.decode())) == set(made.lowered.values())
    assert f".target sm_{arch}" in made.image.decode()


# --- the compiler itself ----------------------------------------------------------------------------------------------


@needs_nvrtc
def test_a_program_says_what_it_is() -> None:
    made = nvrtc.compile(SAXPY, ["saxpy<float>", "plain"], "compute_75")
    assert made.lowered == {"saxpy<float>": "_Z5saxpyIfEvT_PKS0_PS0_i", "plain": "plain"}
    assert made.image.endswith(b"\0")
    assert made.seconds > 0
    assert nvrtc.kernel_names(SAXPY) == ["saxpy", "plain"]


@needs_nvrtc
def test_what_the_compiler_says_keeps_file_and_line() -> None:
    with pytest.raises(CompileError, match=r"mine\.cu does not compile for sm_90") as caught:
        nvrtc.compile("\n__global__ void f() { undeclared = 1; }", ["f"], "sm_90", name="mine.cu")
    assert 'mine.cu(2): error: identifier "undeclared" is undefined' in caught.value.log
    assert isinstance(caught.value, UsageError)


@needs_nvrtc
def test_warnings_are_kept() -> None:
    made = nvrtc.compile("__global__ void f() { int unused; }", ["f"], "sm_90")
    assert "kernel.cu(1): warning" in made.log


@needs_nvrtc
def test_headers_of_cuda_are_found() -> None:
    if not nvrtc.cuda_include_folders():
        pytest.skip("CUDA's headers are not installed (nvidia-cuda-runtime)")
    code = "#include <cuda_fp16.h>\n__global__ void f(__half* p) { *p = __float2half(1.0f); }"
    assert nvrtc.compile(code, ["f"], "sm_90").image


@needs_nvrtc
@pytest.mark.parametrize(
    ("arch", "options", "says"),
    [
        ("90", [], "arch is as 'sm_90a'"),
        ("sm_90; rm", [], "arch is as 'sm_90a'"),
        ("sm_90", "-G", "options are a sequence of strings"),
        ("sm_90", [1], "options are a sequence of strings"),
        ("sm_90", ["-arch=sm_80"], "chosen by the device"),
        ("sm_90", ["--no-such-option"], "unrecognized option --no-such-option"),
    ],
)
def test_bad_requests_are_refused(arch: str, options: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        nvrtc.compile(SAXPY, [], arch, options)


@needs_nvrtc
def test_an_architecture_that_it_has_not_is_no_error_of_the_code() -> None:
    with pytest.raises(BackendUnavailable, match=r"makes no code for sm_999, only for .*90"):
        nvrtc.compile(SAXPY, [], "sm_999")


@needs_nvrtc
@pytest.mark.parametrize("number", nvrtc.supported() if not nvrtc.missing() else ())
def test_a_device_gets_its_own_machine_code(number: int) -> None:
    arch = nvrtc.arch_for(divmod(number, 10))
    assert arch == (f"sm_{number}a" if number >= 90 else f"sm_{number}")
    assert nvrtc.compile(SAXPY, ["saxpy<float>"], arch).kind == "cubin"


@needs_nvrtc
def test_a_newer_device_gets_ptx_and_an_older_one_a_reason() -> None:
    assert nvrtc.arch_for((99, 0)) == f"compute_{nvrtc.supported()[-1]}"
    with pytest.raises(BackendUnavailable, match=r"no code for compute capability 1\.0"):
        nvrtc.arch_for((1, 0))


def test_without_the_library_the_cure_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for search in ("_by_pathfinder", "_in_packages", "_by_linker", "_in_toolkit"):
        monkeypatch.setattr(libraries, search, lambda *_: "")
    with pytest.raises(BackendUnavailable, match=r"libnvrtc\.so\.13 is neither .* pip install 'nvidia-cuda-nvrtc"):
        nvrtc.compile(SAXPY, [], "sm_90")
    assert "pip install" in nvrtc.missing()


def test_a_library_that_is_something_else_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "find", lambda name: libraries.Library(name, "libm.so.6"))
    with pytest.raises(BackendUnavailable, match=r"NVRTC at libm\.so\.6 cannot be used"):
        nvrtc.load()


def test_files_of_device_code() -> None:
    assert nvrtc.kernel_file("stream.cuh").is_file()
    with pytest.raises(UsageError, match=r"did you mean stream\.cuh"):
        nvrtc.kernel_file("strean.cuh")
    with pytest.raises(UsageError, match="unknown file"):
        nvrtc.kernel_file("../cuda/launch.hpp")
