"""A user's kernel from source: compiled, bound to its arguments, run and timed; and what may be wrong with it.

These run inside a process on the test double: test_source_kernel.py starts it.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpumicro as gm
from gpumicro import cuda_native, nvrtc
from gpumicro.errors import BackendUnavailable, CompileError, CudaError, OutOfMemory, UsageError

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=nvrtc.missing() or "NVRTC is here")

N = 1000
CODE = """
template <class T> __global__ void saxpy(T a, const T* __restrict__ x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void plain(float a, double* out) { *out = a; }
__global__ void reversed(int* out) {
    extern __shared__ int held[];
    __shared__ int more[64];
    held[threadIdx.x] = more[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = held[63 - threadIdx.x] + more[0];
}
struct Pair { float a; int b; };
__global__ void by_value(Pair pair, double* out) { *out = pair.a + pair.b; }
__device__ int helper(int a) { return a; }
__constant__ int offset = 5;
__global__ void bounded(int* out) { *out = offset; }
__global__ void __launch_bounds__(64) narrow() {}
"""


class Foreign:
    """Another library's array on the device."""

    def __init__(self, array: np.ndarray[Any, Any], device: int = 0) -> None:
        self.buffer = cuda_native.load().Buffer(0, array.nbytes)
        self.buffer.upload(array)
        self.device = device
        self.typestr = array.dtype.str

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.buffer.address, False), "shape": (N,), "typestr": self.typestr, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def read(self) -> Any:
        return self.buffer.download().view(self.typestr)


@pytest.fixture
def xy() -> tuple[Any, Any]:
    return np.arange(N, dtype=np.float32), np.ones(N, np.float32)


@pytest.fixture
def double() -> Iterator[Any]:
    """The runtime under it, whose calls can be made to fail."""
    library = ctypes.CDLL("libcudart.so.13")
    yield library
    library.ptxemu_fail(b"")


def saxpy(*arguments: Any, **more: Any) -> gm.Kernel:
    return gm.Kernel.from_source(CODE, "saxpy<float>", arguments, (N + 255) // 256, 256, **more)


def test_arrays_go_to_the_device_and_can_be_read_back(xy: Any) -> None:
    x, y = xy
    with saxpy(2.0, x, y.reshape(10, 100), N) as kernel:
        kernel.run(3)
        np.testing.assert_array_equal(kernel.read(2), (6 * x + 1).reshape(10, 100))
        np.testing.assert_array_equal(kernel.read(1), x)
        assert (y == 1).all()
        facts = kernel.facts
        assert facts["architecture"] == "compute_90"
        assert facts["block"] == [256, 1, 1]
        assert facts["registers"] > 0
        assert facts["compile_s"] > 0
        assert facts["emulated"] is True
        assert facts["compiler"].startswith("NVRTC ")
        assert "saxpy<float>" in repr(kernel)
        with pytest.raises(UsageError, match=r"argument 0 of saxpy<float> was not given .*\[1, 2\]"):
            kernel.read(0)


def test_it_is_timed_and_placed_by_the_devices_clock(xy: Any) -> None:
    with saxpy(2.0, *xy, N) as kernel:
        seen = gm.time_kernel(kernel, max_samples=5, min_samples=5, max_time_s=2.0)
        assert seen.timer == "event"
        assert seen.n == 5


def test_the_code_and_the_memory_live_as_long_as_the_work(xy: Any) -> None:
    kernel = saxpy(2.0, *xy, N)
    work, timer = kernel.work, kernel.timer
    kernel.close()
    del kernel
    gc.collect()
    assert np.isfinite(timer.sample(work, [1, 2])).all()


def test_what_is_closed_says_so(xy: Any) -> None:
    kernel = saxpy(2.0, *xy, N)
    kernel.close()
    kernel.close()
    for use in (kernel.run, lambda: kernel.work, lambda: kernel.read(1)):
        with pytest.raises(UsageError, match="saxpy<float> is closed"):
            use()


def test_arrays_of_other_libraries_stay_where_they_are(xy: Any) -> None:
    x, y = map(Foreign, xy)
    with saxpy(2.0, x, y, N) as kernel:
        kernel.run()
    np.testing.assert_array_equal(y.read(), 2 * x.read() + 1)
    with saxpy(2.0, x.buffer.address, np.uint64(y.buffer.address), N) as kernel:
        kernel.run()
    np.testing.assert_array_equal(y.read(), 4 * x.read() + 1)


def test_shared_memory_structs_constants_and_scalars_of_numpy() -> None:
    with gm.Kernel.from_source(CODE, "reversed", [np.zeros(64, np.int32)], 1, 64, shared_bytes=100 << 10) as kernel:
        kernel.run()
        assert kernel.read(0).tolist() == list(range(63, -1, -1))
        assert kernel.facts["shared_bytes"] == (100 << 10) + 256
    with gm.Kernel.from_source(CODE, "plain", [np.float32(7), np.zeros(1)], 1, 1) as kernel:
        kernel.run()
        assert kernel.read(1).tolist() == [7]
    pair = np.array((1.5, 2), [("a", "f4"), ("b", "i4")])[()]
    for form in (pair, pair.tobytes()):
        with gm.Kernel.from_source(CODE, "by_value", [form, np.zeros(1)], 1, 1) as kernel:
            kernel.run()
            assert kernel.read(1).tolist() == [3.5]
    with gm.Kernel.from_source(CODE, "bounded", [np.zeros(1, np.int32)], 1, 1) as kernel:
        kernel.run()
        assert kernel.read(0).tolist() == [5]


def test_device_code_of_the_package_can_be_included() -> None:
    code = '#include "stream.cuh"\n'
    b = np.arange(1 << 12, dtype=np.float64)
    with gm.Kernel.from_source(code, "gm::copy<double, 2, 2>", [np.zeros_like(b), b, b.size], 4, 256) as kernel:
        kernel.run()
        np.testing.assert_array_equal(kernel.read(0), b)


@pytest.mark.parametrize(
    ("name", "args", "grid", "block", "more", "says"),
    [
        ("saxpy<float>", [], 1, 1, {}, r"takes 4 arguments \(float, float const\*, float\*, int\), not 0"),
        ("plain", [np.float32(1)], 1, 1, {}, "plain takes more than 1 arguments"),
        ("plain", [np.float32(1), np.zeros(1), np.int32(1)], 1, 1, {}, "plain takes 2 arguments, not 3"),
        ("plain", [np.float64(1), np.zeros(1)], 1, 1, {}, "argument 0 has 4 bytes, not 8"),
        ("plain", [1.0, np.zeros(1)], 1, 1, {}, r"say which type it has, as np\.float32"),
        ("saxpi<float>", [], 1, 1, {}, "unknown kernel 'saxpi<float>'; did you mean saxpy"),
        ("helper", [1], 1, 1, {}, "unknown kernel 'helper'; there are saxpy, plain"),
        ("", [], 1, 1, {}, "code and name are strings"),
        ("narrow", np.zeros(3), 1, 1, {}, "args is a list or a tuple"),
        ("narrow", [], 0, 1, {}, r"grid is 0: grid\.x must be from 1 to 2147483647"),
        ("narrow", [], (1, 65536), 1, {}, r"grid\.y must be from 1 to 65535"),
        ("narrow", [], 1, (1, 1, 65), {}, r"block\.z must be from 1 to 64"),
        ("narrow", [], 1, (32, 64), {}, "at most 1024 threads"),
        ("narrow", [], 1, 128, {}, "narrow runs with at most 64 threads a block, not 128"),
        ("narrow", [], 1.0, 1, {}, "grid is a whole number or up to three"),
        ("narrow", [], "1", 1, {}, "grid is a whole number or up to three"),
        ("narrow", [], (1, 1, 1, 1), 1, {}, "grid is a whole number or up to three"),
        ("narrow", [], 1, 1, {"shared_bytes": 1 << 20}, "at most 232448 bytes of dynamic shared memory, not 1048576"),
        ("narrow", [], 1, 1, {"shared_bytes": -1}, "shared_bytes is a whole number"),
        ("narrow", [], 1, 1, {"device": 7}, "unknown device 'cuda:7'"),
        ("narrow", [], 1, 1, {"options": "-G"}, "options are a sequence of strings"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(
    name: str, args: Any, grid: Any, block: Any, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        gm.Kernel.from_source(CODE, name, args, grid, block, **more)


def test_what_the_compiler_refuses_is_said_in_its_words() -> None:
    with pytest.raises(CompileError, match=r"kernel\.cu\(1\): error: .*nonsense"):
        gm.Kernel.from_source("nonsense f();", "f", [], 1, 1)
    with pytest.raises(CompileError, match="a template's name needs its arguments"):
        gm.Kernel.from_source(CODE, "saxpy", [], 1, 1)
    with pytest.raises(UsageError, match="the source has no __global__ function"):
        gm.Kernel.from_source("", "f", [], 1, 1)


def test_arrays_on_another_device_are_refused(xy: Any) -> None:
    with pytest.raises(UsageError, match="argument 1 of saxpy<float> lies on cuda:1, and the kernel runs on cuda:0"):
        saxpy(2.0, Foreign(xy[0], device=1), xy[1], N)


# --- what the driver may answer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "kind", "says"),
    [
        (b"cuLibraryLoadData:1:2", OutOfMemory, "cuLibraryLoadData"),
        (b"cuLibraryLoadData:1:222", CudaError, r"with cudaErrorUnsupportedPtxVersion \(222\)"),
        (b"cuLibraryGetKernel:1:400", CudaError, "cuLibraryGetKernel failed with cudaErrorInvalidResourceHandle"),
        (b"cudaFuncGetAttributes:1:1", CudaError, "cudaFuncGetAttributes failed"),
        (b"cudaMalloc:1:2", OutOfMemory, "cudaMalloc"),
    ],
)
def test_each_failure_of_the_driver_has_its_error(
    double: Any, xy: Any, failure: bytes, kind: type[Exception], says: str
) -> None:
    saxpy(2.0, *xy, N).close()
    double.ptxemu_fail(failure)
    with pytest.raises(kind, match=says):
        saxpy(2.0, *xy, N)
    double.ptxemu_fail(b"")
    with saxpy(2.0, *xy, N) as kernel:
        kernel.run()


@pytest.mark.parametrize(
    ("image", "code", "says"),
    [
        (b"\x7fELF machine code\0", 209, "the image is no PTX"),
        (b"nonsense\0", 218, "the image is no PTX"),
        (b".version 9.0\n.target sm_100\n.address_size 64\n\0", 209, "the PTX is for sm_100, the device is 90"),
    ],
)
def test_an_image_that_cannot_be_loaded_comes_with_the_drivers_words(image: bytes, code: int, says: str) -> None:
    with pytest.raises(CudaError, match=says) as caught:
        cuda_native.load().Module(image, 0)
    assert caught.value.code == code


def test_a_kernel_that_the_image_has_not() -> None:
    module = cuda_native.load().Module(nvrtc.compile(CODE, ["saxpy<float>"], "compute_90").image, 0)
    with pytest.raises(CudaError, match="no kernel _Z4gone in the image") as caught:
        module.kernel("_Z4gone")
    assert caught.value.code == 500


def test_code_of_a_newer_cuda_than_the_drivers_has_its_cure(
    double: Any, xy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = cuda_native.load().probe()
    monkeypatch.setattr(cuda_native.load(), "probe", lambda: probe | {"driver": 12040})
    double.ptxemu_fail(b"cuLibraryLoadData:1:200")
    with pytest.raises(BackendUnavailable, match=r"the driver, of CUDA 12\.4, cannot load what NVRTC .*nvrtc-cu12"):
        saxpy(2.0, *xy, N)


def test_a_driver_without_the_calls_is_too_old(monkeypatch: pytest.MonkeyPatch, xy: Any) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError("this driver has no cuLibraryLoadData")

    monkeypatch.setattr(cuda_native.load(), "Module", refuse)
    with pytest.raises(BackendUnavailable, match="no cuLibraryLoadData"):
        saxpy(2.0, *xy, N)
