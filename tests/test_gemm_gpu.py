"""GEMM on a GPU as far as it is pure: launches, what they cover, and the check of a product."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gpumicro import cuda_native
from gpumicro.device import Device
from gpumicro.errors import UsageError, VerificationError
from gpumicro.kernels import find, formats, gemm_check, gemm_gpu
from gpumicro.kernels.gemm_check import TRANSPOSED_B, result_dtype
from gpumicro.spec import Execution, GpuForm, Launch, Problem, TensorMap

H100 = Device("cuda:0", "cuda", "H100", 132, (), (), 80 << 30, facts={"compute_capability": "9.0"})
A100 = Device("cuda:0", "cuda", "A100", 108, (), (), 80 << 30, facts={"compute_capability": "8.0"})
OURS = ("gemm.tiled", "gemm.mma", "gemm.wgmma")


def form_of(name: str) -> GpuForm:
    form = find(name).gpu
    assert form is not None
    return form


def launch(name: str, dtype: str, variant: str, m: int, n: int, k: int, device: Device = H100) -> Launch:
    return form_of(name).launch(Problem.of(dtype, m=m, n=n, k=k), Execution(variant=variant), device)


def cases() -> list[tuple[str, str, str]]:
    return [(name, d, v) for name in OURS for d in form_of(name).dtypes for v in form_of(name).variants(d, H100)]


@pytest.mark.skipif(bool(cuda_native.missing()), reason=cuda_native.missing() or "-")
def test_every_launch_is_in_the_tables_and_every_entry_is_launched() -> None:
    launched = set()
    for (name, dtype, variant), size in itertools.product(cases(), (64, 67)):
        if name != "gemm.wgmma" or size == 64:
            launched.add(launch(name, dtype, variant, 8, size, size).symbol)
    compiled = {symbol for symbol in cuda_native.load().symbols() if symbol.startswith("gm::gemm_")}
    assert launched == compiled


@pytest.mark.parametrize(("name", "dtype", "variant"), cases())
def test_the_blocks_cover_c(name: str, dtype: str, variant: str) -> None:
    height, width = map(int, variant.split("x"))
    for m, n in ((1, 8), (height, width), (height + 1, width + 8), (5 * height, 3 * width)):
        got = launch(name, dtype, variant, m, n, 64)
        tiles = -(-m // height) * -(-n // width)
        assert got.grid == ((min(tiles, 132) if name == "gemm.wgmma" else tiles), 1, 1)
        assert got.block[0] % 32 == 0
        assert got.shared_bytes <= (227 if name == "gemm.wgmma" else 99) << 10


def test_rows_that_do_not_begin_on_16_bytes_take_the_element_path() -> None:
    assert launch("gemm.tiled", "float32", "128x128", 5, 64, 64).symbol.endswith("true>")
    assert launch("gemm.tiled", "float32", "128x128", 5, 64, 66).symbol.endswith("false>")
    assert launch("gemm.tiled", "float64", "128x64", 5, 64, 66).symbol.endswith("true>")
    assert launch("gemm.mma", "bfloat16", "128x256", 5, 64, 68).symbol.endswith("128, 128, 64, 32, 3, false>")
    assert launch("gemm.mma", "tf32", "64x64", 5, 64, 68).symbol.endswith("true>")


def test_wgmma_describes_its_operands_to_the_copy_engine() -> None:
    got = launch("gemm.wgmma", "bfloat16", "128x256", 1000, 512, 320)
    assert got.arguments[:3] == ("c", TensorMap("a", (320, 1000), (64, 128)), TensorMap("b", (512, 320), (64, 64)))
    assert got.shared_bytes == 4 * (128 + 256) * 64 * 2 + 4 * 16 + 1024
    with pytest.raises(UsageError, match="multiples of 8"):
        launch("gemm.wgmma", "bfloat16", "128x256", 1000, 500, 320)


def test_what_a_device_lacks_is_said() -> None:
    turing = Device("cuda:0", "cuda", "T4", 40, (), (), 16 << 30, facts={"compute_capability": "7.5"})
    assert form_of("gemm.tiled").why_not("float32", turing) == ""
    assert form_of("gemm.mma").why_not("bfloat16", turing) == "needs compute capability 8.0, this is 7.5"
    assert form_of("gemm.wgmma").why_not("bfloat16", A100) == "needs compute capability 9.0 exactly, this is 8.0"
    assert form_of("gemm.wgmma").why_not("bfloat16", H100) == ""


@pytest.mark.parametrize("name", OURS)
def test_an_empty_product_is_refused(name: str) -> None:
    dtype = form_of(name).dtypes[0]
    with pytest.raises(UsageError, match="at least 1"):
        launch(name, dtype, form_of(name).variants(dtype, H100)[0], 0, 8, 8)


def test_bytes_count_each_matrix_once_in_its_own_type() -> None:
    spec = find("gemm.vendor")
    for dtype, c_bytes, bytes_ in (("bfloat16", 2, 2), ("int8", 4, 1), ("float8_e4m3fn", 2, 1), ("tf32", 4, 4)):
        assert spec.bytes_moved(Problem.of(dtype, m=2, n=3, k=5)) == 6 * c_bytes + (10 + 15) * bytes_


def test_edge_terms_are_whole_tiles_and_repeated_reads() -> None:
    small = Problem.of("float32", m=70, n=72, k=200)
    got = gemm_gpu.executed("gemm.tiled", small, "32x32")  # 3 x 3 tiles
    assert got == gemm_gpu.Executed(3 * (70 * 200 + 200 * 72) * 4, 70 * 72 * 4, 2 * 96 * 96 * 200)
    got = gemm_gpu.executed("gemm.mma", Problem.of("bfloat16", m=70, n=72, k=200), "64x64")  # 2 x 2 tiles, 32 along k
    assert got == gemm_gpu.Executed(2 * (70 * 200 + 200 * 72) * 2, 70 * 72 * 2, 2 * 128 * 128 * 224)
    whole = Problem.of("float64", m=128, n=64, k=64)
    got = gemm_gpu.executed("gemm.tiled", whole, "128x64")
    spec = find("gemm.tiled")
    assert (got.loaded_bytes + got.stored_bytes, got.flops) == (spec.bytes_moved(whole), spec.flops(whole))


def product(dtype: str, m: int, n: int, k: int) -> dict[str, Any]:
    """Random operands, and their product as a kernel of that type would round it."""
    random = np.random.default_rng(5)
    a, b = random.uniform(-1, 1, (m, k)), random.uniform(-1, 1, (k, n))
    if dtype == "int8":
        a, b = np.rint(a * 127), np.rint(b * 127)
    raw_a = formats.encode(a.reshape(-1), dtype)
    a = formats.decode(raw_a, dtype).reshape(m, k)
    b = formats.decode(formats.encode(b.reshape(-1), dtype), dtype).reshape(k, n)
    stored_b = b.T if dtype in TRANSPOSED_B else b
    sums = a @ b if dtype in ("float64", "int8") else (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64)
    return {
        "a": raw_a,
        "b": formats.encode(np.ascontiguousarray(stored_b).reshape(-1), dtype),
        "c": formats.encode(sums.reshape(-1), result_dtype(dtype)),
    }


DTYPES = ("float64", "float32", "tf32", "float16", "bfloat16", "int8", "float8_e4m3fn")


def check(dtype: str, m: int, n: int, k: int, operands: dict[str, Any]) -> Any:
    return gemm_check.check(find("gemm.vendor"), Problem.of(dtype, m=m, n=n, k=k), operands)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 33, 65), (130, 70, 200)])
def test_a_right_product_passes(
    dtype: str, shape: tuple[int, int, int], big: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if big:
        monkeypatch.setattr(gemm_check, "MOST_PRODUCTS", 0)
        monkeypatch.setattr(gemm_check, "_PART", 1000)
    found = check(dtype, *shape, product(dtype, *shape))
    assert found.passed
    assert found.elements == shape[0] * shape[1]
    assert found.worst <= found.bound
    assert ("signed sums" in found.reference) == big


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_wrong_element_fails(dtype: str, big: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if big:
        monkeypatch.setattr(gemm_check, "MOST_PRODUCTS", 0)
        monkeypatch.setattr(gemm_check, "SAMPLED_ROWS", 1)
    operands = product(dtype, 40, 50, 60)
    c = formats.decode(operands["c"], result_dtype(dtype))
    at = 17 * 50 + 23
    c[at] += 3 * np.abs(c).max()
    operands["c"] = formats.encode(c, result_dtype(dtype))
    with pytest.raises(VerificationError) as caught:
        check(dtype, 40, 50, 60, operands)
    assert caught.value.index == (17 * 50 if big else at)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "int8"])
def test_what_was_never_written_fails(dtype: str, big: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if big:
        monkeypatch.setattr(gemm_check, "MOST_PRODUCTS", 0)
        monkeypatch.setattr(gemm_check, "SAMPLED_ROWS", 1)
    operands = product(dtype, 40, 50, 60)
    operands["c"].view(np.uint8)[-operands["c"].itemsize :] = 0xFF  # the backend's poison
    with pytest.raises(VerificationError):
        check(dtype, 40, 50, 60, operands)


def test_a_small_error_everywhere_fails_in_the_norm() -> None:
    m, n, k = 64, 64, 512
    operands = product("float32", m, n, k)
    error = np.random.default_rng(1).choice([-2e-4, 2e-4], m * n).astype(np.float32)
    size = np.sqrt(np.mean(operands["c"].astype(float) ** 2))
    operands["c"] = operands["c"] + error * np.float32(size)
    with pytest.raises(VerificationError):
        check("float32", m, n, k, operands)


def test_what_is_known_of_a_product_is_kept_for_operands_that_cannot_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_check, "MOST_PRODUCTS", 0)
    asked = []
    find_out = gemm_check._find_out
    monkeypatch.setattr(gemm_check, "_find_out", lambda *given: asked.append(given) or find_out(*given))
    operands = product("float32", 40, 50, 60)
    for _ in range(2):
        assert check("float32", 40, 50, 60, operands).passed
    assert len(asked) == 2  # they might have changed
    for name in "ab":
        operands[name].setflags(write=False)
    for _ in range(3):
        assert check("float32", 40, 50, 60, operands).passed
    assert len(asked) == 3
    other = dict(operands, b=operands["b"] * np.float32(1.5))
    with pytest.raises(VerificationError):
        check("float32", 40, 50, 60, other)
    operands["c"][7] += 1
    with pytest.raises(VerificationError):
        check("float32", 40, 50, 60, operands)


def test_zeros_times_anything_is_zero() -> None:
    operands = {name: np.zeros(64, np.float32) for name in "abc"}
    assert check("float32", 8, 8, 8, operands).worst == 0
    operands["c"][3] = 1e-6
    with pytest.raises(VerificationError):
        check("float32", 8, 8, 8, operands)
