"""The vendor's GEMM: the library's calls against a stand-in of it, and the choice among its algorithms."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpumicro import cuda_native, libraries
from gpumicro.device import Device
from gpumicro.errors import BackendUnavailable, CudaError, UsageError
from gpumicro.kernels import find, formats, gemm_vendor
from gpumicro.kernels.gemm_check import TRANSPOSED_B, result_dtype
from gpumicro.spec import Execution, Problem

needs_module = pytest.mark.skipif(bool(cuda_native.missing()), reason=cuda_native.missing() or "-")
H100 = Device("cuda:0", "cuda", "H100", 132, (), (), 80 << 30, facts={"compute_capability": "9.0"})


@pytest.fixture(scope="module")
def fake_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("lt") / "libcublasLt.so.13"
    source = Path(__file__).parent / "fakes" / "cublaslt.cpp"
    subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", path, source], check=True)
    return str(path)


@pytest.fixture
def log(fake_path: str) -> Callable[[], list[str]]:
    fake = ctypes.CDLL(fake_path)
    fake.fake_log.restype = ctypes.c_char_p
    fake.fake_clear()
    return lambda: fake.fake_log().decode().splitlines()


@pytest.fixture
def device() -> int:
    """A device to call the library on: a real one, or the double of the runtime."""
    count = cuda_native.load().probe()["count"]
    if not count:
        pytest.skip("no CUDA device, real or emulated")
    return 0


@needs_module
def test_the_version_is_read_from_the_library(fake_path: str) -> None:
    lt = cuda_native.load().gemm.Lt(fake_path)
    assert lt.path == fake_path
    assert gemm_vendor.version_of(lt.version) == (13, 10, 0)
    assert gemm_vendor.version_of(120805) == (12, 8, 5)


@needs_module
def test_a_library_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="cannot open shared object file"):
        cuda_native.load().gemm.Lt(str(tmp_path / "libcublasLt.so.13"))


@needs_module
def test_a_library_without_a_function_is_a_reason(tmp_path: Path) -> None:
    source, path = tmp_path / "empty.cpp", tmp_path / "libempty.so"
    source.write_text("", encoding="utf-8")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", path, source], check=True)
    with pytest.raises(RuntimeError, match="has no function cublasLtGetVersion"):
        cuda_native.load().gemm.Lt(str(path))


@needs_module
def test_an_unknown_dtype_is_refused_before_anything_is_made(fake_path: str, log: Any) -> None:
    cuda = cuda_native.load()
    with pytest.raises(ValueError, match="int64"):
        cuda.gemm.LtMatmul(cuda.gemm.Lt(fake_path), 1, 1, 1, "int64", 0, 0, 0, 0, 1024)
    assert log() == []


@needs_module
def test_without_a_device_cuda_says_so(fake_path: str, log: Any) -> None:
    cuda = cuda_native.load()
    if cuda.probe()["count"]:
        pytest.skip("there is a device")
    with pytest.raises(CudaError, match="cudaErrorInsufficientDriver"):
        cuda.gemm.LtMatmul(cuda.gemm.Lt(fake_path), 2, 3, 4, "float32", 0, 0, 0, 0, 1024)
    assert log() == []


class Bound:
    """A product of random operands by the stand-in, on the device there is."""

    def __init__(self, path: str, dtype: str, m: int, n: int, k: int) -> None:
        cuda = cuda_native.load()
        random = np.random.default_rng(3)
        self.shape, self.dtype = (m, n, k), dtype
        a, b = random.integers(-3, 4, (m, k)).astype(float), random.integers(-3, 4, (k, n)).astype(float)
        self.want = a @ b
        b = b.T if dtype in TRANSPOSED_B else b
        raw = [formats.encode(np.ascontiguousarray(x).reshape(-1), dtype) for x in (a, b)]
        self.result = formats.stored(result_dtype(dtype))
        self.buffers = [cuda.Buffer(0, x.nbytes) for x in raw] + [cuda.Buffer(0, m * n * self.result.itemsize)]
        for buffer, x in zip(self.buffers, raw, strict=False):
            buffer.upload(x)
        self.buffers[2].fill(0xFF)
        addresses = [buffer.address for buffer in self.buffers]
        self.lt = cuda.gemm.Lt(path)
        self.matmul = cuda.gemm.LtMatmul(self.lt, m, n, k, dtype, *addresses, 0, 1 << 20)

    def run(self, n: int = 1) -> Any:
        from gpumicro._core import timing

        timing.WallClock().sample(self.matmul.work, np.array([n], np.int64))
        cuda_native.load().synchronize(0)
        got = formats.decode(self.buffers[2].download().view(self.result), result_dtype(self.dtype))
        return got.reshape(self.shape[:2])


@needs_module
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("dtype", ["float64", "float32", "tf32", "bfloat16", "int8", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 7), (16, 32, 48)])
def test_the_product_is_row_major(fake_path: str, dtype: str, shape: tuple[int, int, int]) -> None:
    bound = Bound(fake_path, dtype, *shape)
    assert bound.matmul.transposed_b == (dtype in TRANSPOSED_B)
    np.testing.assert_array_equal(bound.run(), bound.want)


@needs_module
@pytest.mark.usefixtures("device")
def test_the_calls_are_those_of_the_documentation(fake_path: str, log: Any) -> None:
    bound = Bound(fake_path, "float8_e4m3fn", 16, 32, 48)
    assert [a["id"] for a in bound.matmul.algorithms] == [0, 1]  # the third has failed
    assert bound.matmul.algorithms[1] == {
        "id": 1, "tile": 101, "split_k": 201, "stages": 601, "cluster": None, "workspace_bytes": 1024, "waves": 0.5,
    }  # fmt: skip
    bound.matmul.choose(1)
    bound.run(2)
    del bound
    assert log() == [
        "create", "desc 68,0", "desc-set 3/4",
        "layout 28:48x32/48", "layout 28:48x16/48", "layout 14:32x16/32",
        "desc-set 17/8", "desc-set 18/8",
        "preference", "preference-set 1/8", "heuristic 16", "preference-destroy",
        "matmul 1", "matmul 1",
        "layout-destroy", "layout-destroy", "layout-destroy", "desc-destroy", "destroy",
    ]  # fmt: skip


@needs_module
@pytest.mark.usefixtures("device")
def test_a_failing_call_becomes_a_cuda_error_with_the_status(fake_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LT_FAIL", "heuristic")
    with pytest.raises(CudaError, match=r"cublasLtMatmulAlgoGetHeuristic failed with CUBLAS_STATUS_EXECUTION_FAILED"):
        Bound(fake_path, "float32", 2, 3, 4)
    monkeypatch.setenv("FAKE_LT_FAIL", "matmul")
    bound = Bound(fake_path, "float32", 2, 3, 4)
    with pytest.raises(CudaError, match=r"m=2, n=3, k=4, float32"):
        bound.run()


@needs_module
@pytest.mark.usefixtures("device")
def test_no_algorithm_is_not_supported(fake_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LT_ALGORITHMS", "0")
    with pytest.raises(CudaError, match="CUBLAS_STATUS_NOT_SUPPORTED"):
        Bound(fake_path, "float32", 2, 3, 4)


@needs_module
@pytest.mark.usefixtures("device")
def test_an_algorithm_that_is_not_there_cannot_be_chosen(fake_path: str) -> None:
    with pytest.raises(IndexError, match="2 algorithms"):
        Bound(fake_path, "float32", 2, 3, 4).matmul.choose(2)


class FakeMatmul:
    """Algorithms of chosen durations; None fails, NaN is a gate's time-out."""

    durations: tuple[float | None, ...] = (3e-3, 1e-3, None, float("nan"), 2e-3)

    def __init__(self, *arguments: Any) -> None:
        self.arguments, self.chosen, self.transposed_b = arguments, 0, False
        self.count = len(self.durations)
        self.algorithms = [{"id": i} for i in range(self.count)]

    def choose(self, i: int) -> None:
        self.chosen = i

    @property
    def work(self) -> FakeMatmul:
        return self


class FakeClock:
    gates: list[bool]

    def __init__(self, device: int) -> None:
        assert device == 0
        FakeClock.gates = []

    def sample(self, work: FakeMatmul, counts: Any, gated: bool) -> Any:
        FakeClock.gates.append(gated)
        duration = work.durations[work.chosen]
        if duration is None:
            raise CudaError("cublasLtMatmul", 15, "CUBLAS_STATUS_NOT_SUPPORTED", "no")
        return np.full(len(counts), duration)


@pytest.fixture
def fake_module(monkeypatch: pytest.MonkeyPatch) -> None:
    lt = SimpleNamespace(Lt=lambda path: SimpleNamespace(path=path, version=131000), LtMatmul=FakeMatmul)
    module = SimpleNamespace(gemm=lt, timing=SimpleNamespace(EventClock=FakeClock))
    monkeypatch.setattr(cuda_native, "load", lambda: module)
    monkeypatch.setattr(libraries, "find", lambda name: libraries.Library(name, "/lib/x.so"))
    gemm_vendor._open.cache_clear()
    # SimpleNamespace cannot be hashed
    monkeypatch.setattr(gemm_vendor, "_open", lambda cuda, path: cuda.gemm.Lt(path))


@pytest.mark.usefixtures("fake_module")
def test_the_fastest_algorithm_is_kept_and_named() -> None:
    form = find("gemm.vendor").gpu
    assert form is not None
    assert form.bind is not None
    problem = Problem.of("float32", m=2, n=3, k=4)
    bound = form.bind(problem, Execution(), H100, {"a": 1, "b": 2, "c": 3})
    assert bound.work.arguments[1:8] == (2, 3, 4, "float32", 1, 2, 3)
    assert bound.facts["algorithm"] == {"id": 1}
    assert bound.facts["algorithm_rank"] == 1
    assert bound.facts["algorithms_tried"] == 5
    assert bound.facts["trials_s"] == [3e-3, 1e-3, None, None, 2e-3]
    assert bound.facts["recipe"] == "cuBLASLt 13.10.0"
    assert FakeClock.gates == [False] * 5 + [True] * 15  # loaded first: loading behind a gate deadlocks


@pytest.mark.usefixtures("fake_module")
def test_where_every_algorithm_fails_the_error_is_cublas_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeMatmul, "durations", (None, None))
    with pytest.raises(CudaError, match="CUBLAS_STATUS_NOT_SUPPORTED"):
        gemm_vendor.VendorGemm(Problem.of("float32", m=2, n=3, k=4), H100, {"a": 1, "b": 2, "c": 3})


def test_without_the_library_the_reason_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "find", lambda name: libraries.Library(name, "", "not here; pip install it"))
    form = find("gemm.vendor").gpu
    assert form is not None
    assert form.why_not("float32", H100) == "not here; pip install it"
    with pytest.raises(BackendUnavailable, match="pip install it"):
        gemm_vendor.VendorGemm(Problem.of("float32", m=2, n=3, k=4), H100, {})


def test_a_library_that_cannot_be_opened_is_a_reason_and_no_crash() -> None:
    def broken(_path: str) -> Any:
        raise RuntimeError("/lib/x.so has no function cublasLtMatmul")

    with pytest.raises(BackendUnavailable, match="has no function cublasLtMatmul"):
        gemm_vendor._open.__wrapped__(SimpleNamespace(gemm=SimpleNamespace(Lt=broken)), "/lib/x.so")


def test_an_emulated_device_and_an_old_one_have_reasons() -> None:
    form = find("gemm.vendor").gpu
    assert form is not None
    emulated = Device("cuda:0", "cuda", "x", 1, (), (), 1, facts={"compute_capability": "9.0", "emulated": True})
    assert "emulated" in form.why_not("float32", emulated)
    ampere = Device("cuda:0", "cuda", "A100", 108, (), (), 1, facts={"compute_capability": "8.0"})
    assert form.why_not("float8_e4m3fn", ampere) == "needs compute capability 8.9, this is 8.0"


def test_the_vendor_form_has_no_launch() -> None:
    form = find("gemm.vendor").gpu
    assert form is not None
    with pytest.raises(UsageError, match="cuBLASLt"):
        form.launch(Problem.of("float32", m=1, n=1, k=1), Execution(), H100)
