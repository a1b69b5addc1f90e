"""What a user's kernel is given: the right bytes, or a sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpumicro as gm
from gpumicro.backends.base import Availability
from gpumicro.backends.cuda import CudaBackend
from gpumicro.errors import BackendUnavailable, UsageError
from gpumicro.kernel_arguments import Parameter, argument, parameters_of
from gpumicro.source_kernel import compile_kernel

FLOAT, INT, BOOL = (
    Parameter("float", False, "float32"),
    Parameter("int", False, "int32"),
    Parameter("bool", False, "bool"),
)
FLOATS, BYTES = Parameter("float const*", True, "float32"), Parameter("void*", True, None)
STRUCT = Parameter("Pair", False, None)


class Buffer:
    """Device memory that keeps what was put there."""

    def __init__(self, size_bytes: int) -> None:
        self.address, self.size_bytes, self.held = 0x1000, size_bytes, b""

    def upload(self, array: np.ndarray[Any, Any]) -> None:
        assert array.flags.c_contiguous
        self.held = array.tobytes()


def bound(value: Any, parameter: Parameter | None, new_buffer: Callable[[int], Any] = Buffer) -> Any:
    return argument(value, parameter, "argument 1 of f", 0, new_buffer)


@pytest.mark.parametrize(
    ("symbol", "texts"),
    [
        ("_Z5saxpyIfEvT_PKS0_PS0_i", ["float", "float const*", "float*", "int"]),
        ("_Z1fv", []),
        ("_ZN2gm5triadIdLi2ELi4EEEvPT_PKS1_S4_S1_x", None),
        ("_Z1fPFvifESt4pairIidE", ["void (*)(int, float)", "std::pair<int, double>"]),
    ],
)
def test_a_mangled_name_tells_what_the_kernel_takes(symbol: str, texts: list[str] | None) -> None:
    found = parameters_of(symbol)
    assert found is not None
    if texts is None:
        assert [one.dtype for one in found] == ["float64", "float64", "float64", "float64", "int64"]
        assert [one.pointer for one in found] == [True, True, True, False, False]
    else:
        assert [one.text for one in found] == texts


def test_an_unmangled_name_tells_nothing() -> None:
    assert parameters_of("plain") is None


@pytest.mark.parametrize(
    ("value", "parameter", "raw"),
    [
        (2, FLOAT, np.float32(2)), (0.1, FLOAT, np.float32(0.1)), (True, FLOAT, np.float32(1)),
        (-3, INT, np.int32(-3)), (True, INT, np.int32(1)), (True, BOOL, np.bool_(True)),
        (np.uint32(2**31), INT, np.uint32(2**31)), (np.float32(1), None, np.float32(1)),
        (np.float16(1), STRUCT, np.float16(1)), (0x7000, FLOATS, np.uint64(0x7000)), (None, FLOATS, np.uint64(0)),
        (np.uint64(9), BYTES, np.uint64(9)),
    ],
)  # fmt: skip
def test_a_scalar_becomes_the_kernels_bytes(value: Any, parameter: Parameter | None, raw: np.generic) -> None:
    assert bound(value, parameter).raw == raw.tobytes()


def test_a_struct_is_given_by_its_bytes() -> None:
    assert bound(b"12345678", STRUCT).raw == b"12345678"


@pytest.mark.parametrize(
    ("value", "parameter", "says"),
    [
        (1.5, INT, "argument 1 of f is 1.5; the kernel takes int"),
        (2**31, INT, "does not fit into the kernel's int"),
        (None, INT, "argument 1 of f is None; the kernel takes int"),
        (2, BOOL, "is 2; the kernel takes bool"),
        (1.5, None, r"extern \"C\" hides its type; say which type it has, as np\.float32"),
        (1, None, r"as np\.int32"),
        (1, STRUCT, r"the kernel takes Pair; say which type it has, as np\.int32"),
        (1.5, FLOATS, r"is 1\.5; the kernel takes float const\*: an array, or an address"),
        (-1, FLOATS, "does not fit"),
        (np.float64(1), FLOAT, "is a NumPy float64; the kernel takes float"),
        (np.int32(1), FLOAT, "is a NumPy int32; the kernel takes float"),
        (np.float32(1), FLOATS, "is a NumPy float32; the kernel takes float const"),
        (np.zeros(3), FLOATS, "is an array of float64; the kernel takes float const"),
        (np.zeros(3, np.float32), FLOAT, "is an array; the kernel takes float"),
        (np.array([None]), FLOATS, "which a GPU cannot read"),
        (np.zeros(3, ">f4"), FLOATS, "which a GPU cannot read"),
        ("text", FLOATS, "is a str; a kernel takes NumPy scalars and arrays"),
        ([1, 2], FLOATS, "is a list; a kernel takes"),
    ],
)
def test_what_does_not_fit_is_refused(value: Any, parameter: Parameter | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        bound(value, parameter)


def test_an_array_is_copied_in_one_piece_and_keeps_its_form() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    one = bound(array, FLOATS)
    assert one.raw == (0x1000).to_bytes(8, "little")
    assert one.keep.held == array.tobytes()
    assert (one.shape, one.dtype) == ((4, 3), np.dtype("float32"))
    assert bound(np.zeros(0, np.float32), FLOATS).keep.size_bytes == 0
    assert bound(np.zeros(4, np.int8), BYTES).keep.size_bytes == 4


def test_an_array_of_another_library_is_used_where_it_lies() -> None:
    interface = {"data": (0x5000, False), "typestr": "<f4", "shape": (3,), "version": 3}
    theirs = SimpleNamespace(__cuda_array_interface__=interface)
    one = bound(theirs, FLOATS)
    assert one.raw == (0x5000).to_bytes(8, "little")
    assert one.keep is theirs
    assert one.shape is None
    interface["typestr"] = "<f8"
    with pytest.raises(UsageError, match="is an array of float64"):
        bound(theirs, FLOATS)


class OfDlpack:
    """What DLPack's protocol asks for, by NumPy: the memory is the host's, whatever `device` says."""

    def __init__(self, array: np.ndarray[Any, Any], device: tuple[int, int]) -> None:
        self.array, self.device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()


def test_dlpack_gives_the_address_of_the_first_element() -> None:
    array = np.arange(10, dtype=np.float32)[3:]
    one = bound(OfDlpack(array, (2, 0)), FLOATS)
    assert one.raw == array.ctypes.data.to_bytes(8, "little")
    with pytest.raises(UsageError, match="is an array; the kernel takes float"):
        bound(OfDlpack(array, (2, 0)), FLOAT)
    with pytest.raises(UsageError, match="lies on cuda:1, and the kernel runs on cuda:0"):
        bound(OfDlpack(array, (2, 1)), FLOATS)
    with pytest.raises(UsageError, match="lies in the host's memory"):
        bound(OfDlpack(array, (1, 0)), FLOATS)


def test_tensors_of_torch_say_where_they_lie() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(UsageError, match="lies in the host's memory; give it as a NumPy array"):
        bound(torch.ones(3), FLOATS)


def test_without_a_gpu_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaBackend, "availability", lambda _: Availability(False, "there is no driver", "Install one"))
    with pytest.raises(BackendUnavailable, match=r"a kernel from source needs a GPU, and there is no driver\. Install"):
        gm.Kernel.from_source("__global__ void f() {}", "f", [], 1, 1)


def test_a_wrong_option_is_not_taken_apart() -> None:
    with pytest.raises((UsageError, BackendUnavailable), match=r"options are a sequence|NVRTC"):
        compile_kernel("", "f", "sm_90", "-G")
