"""The CPU's kernels compute what they say, on every ISA of this machine, and their checks find planted faults."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gpumicro import backends, topology
from gpumicro._core import cpu as native
from gpumicro.backends.cpu import SEED
from gpumicro.errors import UsageError, VerificationError
from gpumicro.kernels import CATALOGUE, find
from gpumicro.kernels.gemm import growth
from gpumicro.kernels.operands import operand

ISAS = native.usable_isas()
THREADS = range(1, min(2, len(topology.current_affinity())) + 1)
STREAMS = [spec.name for spec in CATALOGUE if spec.family == "stream"]


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GPUMICRO_CPU_ISA", request.param)
    return str(request.param)


@pytest.mark.parametrize("kind", ["uniform", "normal", "zeros"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_native_operands_are_numpy_s(kind: Any, dtype: str) -> None:
    arrays = native.Arrays(dtype, [1000, 7], [-1], kind, 42)
    for index, count in enumerate((1000, 7)):
        expected = operand(count, dtype, operands=kind, seed=42, index=index)
        if kind == "normal":  # two libraries' logarithms and cosines
            np.testing.assert_allclose(arrays.view(index), expected, rtol=1e-5 if dtype == "float32" else 1e-12)
        else:
            np.testing.assert_array_equal(arrays.view(index), expected)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [0, 1, 7, 1000, 100_003])
def test_stream_kernels_agree_with_numpy(isa: str, name: str, dtype: str, n: int) -> None:
    spec = find(name)
    inputs = {o: operand(n, dtype, seed=SEED, index=i) for i, o in enumerate("abc")}
    inputs["sum"] = np.zeros(1, dtype)
    assert spec.reference is not None
    expected = spec.reference(*(inputs[o.name] for o in spec.operands))
    eps = np.finfo(dtype).eps
    for variant in spec.variants:
        for threads in THREADS:
            with backends.prepare(name, n=n, dtype=dtype, variant=variant, threads=threads) as kernel:
                kernel.verify()
                (out,) = kernel.outputs().values()
            assert out.dtype == dtype
            if "a" in (o.name for o in spec.operands):
                np.testing.assert_allclose(out, expected, rtol=4 * eps, atol=eps, err_msg=isa)
            else:
                np.testing.assert_allclose(out.sum(keepdims=True), expected, rtol=1e3 * eps, atol=eps * max(n, 1))


@pytest.mark.parametrize("name", ["peak.fma", "peak.fma_add"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["uniform", "normal", "zeros"])
def test_chains_stay_bounded_and_never_rest(isa: str, name: str, dtype: str, kind: Any) -> None:
    with backends.prepare(name, dtype=dtype, operands=kind, threads=1) as kernel:
        assert kernel.verify().elements > 0
        (x,) = kernel.outputs().values()
        assert np.isfinite(x).all(), isa
        if kind == "zeros":
            assert not x.any()
            return
        assert np.abs(x).max() < 10
        assert np.abs(x).min() > np.finfo(dtype).tiny
        assert len(np.unique(x)) == x.size  # chains and lanes hold different numbers to the end
        kernel.verify()
        np.testing.assert_array_equal(x, *kernel.outputs().values())


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_dot_products_are_right_where_there_are_any(dtype: str) -> None:
    backend = backends.get("cpu")
    can = backend.supports(find("peak.dot"), dtype, backend.devices()[0])
    if not can:
        pytest.skip(can.reason)
    for threads in THREADS:
        with backends.prepare("peak.dot", dtype=dtype, threads=threads) as kernel:
            kernel.verify()
            assert kernel.facts["recipe"]


SHAPES = [
    (1, 1, 1),
    (1, 31, 7),
    (31, 1, 7),
    (13, 17, 1),
    (97, 101, 103),
    (64, 64, 64),
    (70, 50, 300),
    (0, 3, 2),
    (3, 2, 0),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_our_gemm_the_vendor_s_and_the_reference_agree(isa: str, shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    a = operand(m * k, dtype, seed=SEED, index=1).reshape(m, k)
    b = operand(k * n, dtype, seed=SEED, index=2).reshape(k, n)
    reference = find("gemm.tiled").reference
    assert reference is not None
    expected = reference(np.empty((m, n), dtype), a, b)
    bound = growth(k, dtype) * (np.abs(a).astype(np.float64) @ np.abs(b)) + np.finfo(dtype).tiny
    for threads in THREADS:
        results = []
        for name in ("gemm.tiled", "gemm.vendor"):
            with backends.prepare(name, m=m, n=n, k=k, dtype=dtype, threads=threads) as kernel:
                assert kernel.verify().elements == m * n
                results.append(kernel.outputs()["c"])
        for result in results:
            assert (np.abs(result - expected) <= bound).all(), isa
        assert (np.abs(results[0] - results[1]) <= 2 * bound).all()


def test_gemm_blocks_of_any_size_meet_without_seams() -> None:
    m, n, k = 83, 61, 97
    arrays = native.Arrays("float64", [m * n, m * k, k * n], [-1] * len(THREADS), "uniform", 1)
    want = arrays.view(1).reshape(m, k) @ arrays.view(2).reshape(k, n)
    for caches in ((1 << 10, 1 << 12, 1 << 13), (1 << 12, 1 << 13, 1 << 14), (1 << 15, 1 << 19, 1 << 22)):
        kernel = native.gemm(arrays, m, n, k, *caches, ISAS[0])
        kernel.poison()
        kernel.run(1)
        np.testing.assert_allclose(arrays.view(0).reshape(m, n), want, atol=1e-12)


@pytest.mark.parametrize("k", [1 << i for i in range(14)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_mixed_kernels_are_right(isa: str, k: int, dtype: str) -> None:
    for n in (0, 1, 1000, 4099):
        with backends.prepare("mixed.fma", n=n, k=k, dtype=dtype, threads=THREADS[-1]) as kernel:
            kernel.verify()
            words = operand(n, dtype, seed=SEED).view(np.int32)
            checksum = np.bitwise_xor.reduce(kernel.outputs()["checksum"], axis=None)
            assert checksum == np.bitwise_xor.reduce(words, initial=0), isa


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_a_chase_visits_every_line_once(n: int) -> None:
    with backends.prepare("latency.chase", n=n) as kernel:
        assert kernel.verify().elements == n
        reference = find("latency.chase").reference
        assert reference is not None
        assert sorted(reference(kernel.outputs()["next"]).tolist()) == list(range(n))


def test_a_chase_that_is_cut_short_is_found() -> None:
    chase = native.chase(100, 64, -1, 1)
    lines = chase.outputs()["next"]
    lines[0, 0] = lines[0].__array_interface__["data"][0]  # line 0 points to itself
    assert not chase.check()["passed"]


def test_an_empty_region_reaches_every_thread() -> None:
    with backends.prepare("launch.empty", threads=len(THREADS)) as kernel:
        kernel.verify()
        assert kernel.outputs()["regions"].tolist() == [1] * len(THREADS)


# --- planted faults ---


def flip_a_bit(x: npt.NDArray[Any], at: int) -> None:
    x.view(np.uint64)[at] ^= np.uint64(1 << 10)


def put_nan(x: npt.NDArray[Any], at: int) -> None:
    x[at] = np.nan


def forget_to_write(x: npt.NDArray[Any], at: int) -> None:
    x[at:].view(np.uint64)[:] = np.uint64(2**64 - 1)  # the poison


@pytest.mark.parametrize("tamper", [flip_a_bit, put_nan, forget_to_write])
@pytest.mark.parametrize("at", [0, 500, 999])
@pytest.mark.parametrize("name", ["stream.copy", "stream.triad", "stream.scale", "stream.add", "stream.write"])
def test_one_wrong_element_is_found_at_its_place(name: str, at: int, tamper: Any) -> None:
    with backends.prepare(name, n=1000) as kernel:
        kernel.verify()
        tamper(kernel._view(0), at)
        with pytest.raises(VerificationError, match=name) as caught:
            kernel._check()
        assert caught.value.index == at


@pytest.mark.parametrize("name", ["gemm.tiled", "gemm.vendor"])
@pytest.mark.parametrize("size", [32, 160])  # all elements in long double; a sample, and the rest against a product
def test_one_wrong_element_of_a_product_is_found(name: str, size: int) -> None:
    with backends.prepare(name, m=size, n=size, k=size) as kernel:
        kernel.verify()
        kernel._view(0)[size + 3] += 1e-6
        with pytest.raises(VerificationError) as caught:
            kernel._check()
        assert caught.value.index == size + 3


@pytest.mark.parametrize("name", ["stream.read", "stream.dot", "peak.fma", "mixed.fma"])
def test_an_output_that_is_not_written_is_found(name: str) -> None:
    sizes = {"n": 1000, "k": 8}
    with backends.prepare(name, **{size: sizes[size] for size in find(name).sizes}) as kernel:
        kernel._live.poison()
        with pytest.raises(VerificationError):
            kernel._check()


@pytest.mark.parametrize("name", ["stream.read", "stream.dot", "mixed.fma"])
def test_an_input_that_changed_under_way_is_found(name: str) -> None:
    sizes = {"n": 1000, "k": 8}
    with backends.prepare(name, **{size: sizes[size] for size in find(name).sizes}) as kernel:
        kernel.verify()
        kernel._view(0 if name == "mixed.fma" else 1)[700] += 0.5
        with pytest.raises(VerificationError):
            kernel._check()


# --- how it runs ---


def test_kernels_of_one_problem_share_their_arrays_while_one_lives() -> None:
    with backends.prepare("stream.copy", n=5000) as first:
        with backends.prepare("stream.triad", n=5000) as second:
            assert np.shares_memory(first._view(0), second._view(0))
        with backends.prepare("stream.triad", n=5001) as other:
            assert not np.shares_memory(first._view(0), other._view(0))


def test_the_caller_s_affinity_is_restored() -> None:
    before = os.sched_getaffinity(0)
    for name in ("stream.copy", "stream.dot"):
        with backends.prepare(name, n=1000) as kernel:
            kernel.verify()
    with backends.prepare("launch.empty") as kernel:
        kernel.verify()
    assert os.sched_getaffinity(0) == before


def test_work_outlives_its_kernel_and_a_closed_kernel_refuses() -> None:
    kernel = backends.prepare("stream.copy", n=1000)
    work = kernel.work
    kernel.close()
    assert work.owner.recipe == "temporal stores"
    work.owner.run(1)
    with pytest.raises(UsageError, match="closed"):
        kernel.verify()


def test_facts_say_how_it_runs() -> None:
    import json

    for spec in CATALOGUE:
        backend = backends.get("cpu")
        if not backend.supports(spec, spec.dtypes[0], backend.devices()[0]):
            continue
        with backends.prepare(spec.name, **dict.fromkeys(spec.sizes, 64)) as kernel:
            facts = json.loads(json.dumps(dict(kernel.facts)))
        assert facts["threads"] >= 1
        assert facts["recipe"]


def test_a_temporal_store_states_its_write_allocate() -> None:
    with backends.prepare("stream.triad", n=64, variant="temporal") as kernel:
        assert kernel.facts["write_allocate_factor"] == pytest.approx(4 / 3)
    with backends.prepare("stream.copy", n=64, variant="nontemporal") as kernel:
        assert "write_allocate_factor" not in kernel.facts


def test_several_python_threads_may_run_kernels_at_once() -> None:
    errors: list[BaseException] = []

    def check() -> None:
        try:
            with backends.prepare("stream.triad", n=10_007, threads=1) as kernel:
                kernel.verify()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=check) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors


def test_the_clock_is_a_core_s() -> None:
    clock = native.clock_hz(spans=3)
    assert clock == 0 or 2e8 < clock < 1e10
