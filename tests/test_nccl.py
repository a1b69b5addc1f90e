"""NCCL opened for real where its wheel is, which needs no GPU; and what is said where it is not."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from gpumicro import cuda_native, libraries
from gpumicro.errors import CudaError, GpumicroError, NcclError, OutOfMemory

pytestmark = pytest.mark.skipif(bool(cuda_native.missing()), reason=f"no CUDA module: {cuda_native.missing()}")


@pytest.fixture
def nccl() -> Any:
    return cuda_native.load().nccl


@pytest.fixture
def library(nccl: Any) -> Any:
    found = libraries.find("nccl")
    if not found:
        pytest.skip(found.reason)
    return nccl.Nccl(found.path)


def test_the_version_is_the_librarys_own(library: Any) -> None:
    version = ctypes.c_int()
    assert ctypes.CDLL(library.path).ncclGetVersion(ctypes.byref(version)) == 0
    assert library.version == version.value
    major, minor, patch = map(int, library.version_text.split("."))
    assert major * 10000 + minor * 100 + patch == library.version


def test_every_unique_id_is_new(library: Any) -> None:
    ids = {library.unique_id() for _ in range(3)}
    assert len(ids) == 3
    assert {len(one) for one in ids} == {128}


def test_which_types_it_has(library: Any) -> None:
    assert library.why_not("bfloat16") == ""
    assert bool(library.why_not("float8_e4m3fn")) == (library.version < 22400)
    with pytest.raises(ValueError, match="NCCL has no type 'float8': int8, "):
        library.why_not("float8")


def test_without_a_gpu_the_devices_are_what_is_missing(library: Any) -> None:
    if cuda_native.load().probe()["count"]:
        pytest.skip("there is a GPU")
    for make in (
        lambda: cuda_native.load().nccl.Communicators(library, 1, library.unique_id(), [0], [0]),
        lambda: cuda_native.load().nccl.Communicators.local(library, [0]),
    ):
        with pytest.raises(CudaError, match="cudaGetDeviceCount failed"):
            make()


@pytest.mark.parametrize(
    ("path", "words"), [("/nowhere/libnccl.so.2", "cannot open shared object"), ("libm.so.6", "has no function nccl")]
)
def test_a_file_that_is_no_nccl(nccl: Any, path: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        nccl.Nccl(path)


def test_a_file_named_by_the_environment_goes_first(tmp_path: Path) -> None:
    mine = tmp_path / "libnccl.so.2"
    lost = libraries.find("nccl", {"GPUMICRO_NCCL": str(mine)})
    assert not lost
    assert lost.reason == f"GPUMICRO_NCCL names {mine}, which is no file"
    mine.touch()
    assert libraries.find("nccl", {"GPUMICRO_NCCL": str(mine)}).path == str(mine)


def test_an_error_says_where_and_what() -> None:
    error = NcclError("ncclAllReduce", 6, "ncclRemoteError", "remote process exited", "socket closed", 3, False)
    assert str(error) == (
        "ncclAllReduce failed at rank 3 with ncclRemoteError (6): remote process exited: socket closed"
    )
    assert isinstance(error, GpumicroError)
    assert not isinstance(error, CudaError | OutOfMemory)
    assert str(NcclError("ncclGroupEnd", 5, "ncclInvalidUsage", "invalid usage")) == (
        "ncclGroupEnd failed with ncclInvalidUsage (5): invalid usage"
    )
