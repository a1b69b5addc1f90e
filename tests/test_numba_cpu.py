"""The Numba backend on the CPU: the cpu backend's operands and checks, Numba's kernels."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from gpumicro import backends, topology
from gpumicro._core.timing import Work
from gpumicro.errors import BackendUnavailable, OutOfMemory, UsageError, VerificationError
from gpumicro.kernels import CATALOGUE, find
from gpumicro.kernels.gemm import growth

pytest.importorskip("numba", reason="needs Numba: pip install 'gpumicro[numba]'")

from gpumicro.numba_kernels import bodies, cpu, cpu_slices

THREADS = range(1, min(2, len(topology.current_affinity())) + 1)
MAPS = [f"stream.{name}" for name in bodies.MAPS]
FOLDS = [f"stream.{name}" for name in bodies.FOLDS]
X86 = platform.machine() in ("x86_64", "AMD64")


def prepare(name: str, **how: Any) -> Any:
    return backends.prepare(name, backend="numba", **how)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [0, 1, 7, 1000, 100_003])
def test_maps_give_the_native_kernels_numbers(name: str, dtype: str, n: int) -> None:
    for threads in THREADS:
        with backends.prepare(name, n=n, dtype=dtype, threads=threads) as native:
            native.verify()
            (expected,) = native.outputs().values()
        with prepare(name, n=n, dtype=dtype, threads=threads) as kernel:
            kernel.verify()
            (got,) = kernel.outputs().values()
        assert got.dtype == expected.dtype
        if name == "stream.triad":  # one rounding or two
            np.testing.assert_allclose(got, expected, rtol=2 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)
        else:
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [0, 1, 7, 1000, 100_003])
def test_sums_are_the_native_kernels_within_rounding(name: str, dtype: str, n: int) -> None:
    for threads in THREADS:
        sums = []
        for backend in ("cpu", "numba"):
            with backends.prepare(name, backend=backend, n=n, dtype=dtype, threads=threads) as kernel:
                kernel.verify()
                (parts,) = kernel.outputs().values()
            assert parts.shape == (threads,)
            sums.append(float(parts.astype(np.float64).sum()))
        eps = float(np.finfo(dtype).eps)
        assert sums[0] == pytest.approx(sums[1], rel=1e3 * eps, abs=eps * max(n, 1))


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 31, 7), (31, 1, 7), (13, 17, 1), (97, 101, 103), (3, 2, 0), (5, 600, 70)]
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gemm_agrees_with_the_native_one(shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    for threads in THREADS:
        products = []
        for backend in ("cpu", "numba"):
            with backends.prepare("gemm.tiled", backend=backend, m=m, n=n, k=k, dtype=dtype, threads=threads) as kernel:
                assert kernel.verify().elements == m * n
                products.append(kernel.outputs()["c"])
                a, b = (np.abs(kernel._view(i)).astype(np.float64) for i in (1, 2))  # type: ignore[attr-defined]
        bound = 2 * growth(k, dtype) * (a.reshape(m, k) @ b.reshape(k, n)) + np.finfo(dtype).tiny
        assert (np.abs(products[0] - products[1]) <= bound).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["uniform", "normal", "zeros"])
def test_peak_s_chains_are_those_of_the_gpu_s_kernel(dtype: str, kind: Any) -> None:
    for threads in THREADS:
        with prepare("peak.fma", dtype=dtype, operands=kind, threads=threads) as kernel:
            assert kernel.verify().elements == threads * cpu_slices.PAIRS
            first = kernel.outputs()["out"]
            kernel.verify()
            np.testing.assert_array_equal(kernel.outputs()["out"], first)
            kernel.run()  # goes on: no longer what one run leaves, or the chains would be at rest
            assert np.isfinite(kernel.outputs()["out"]).all()


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_a_chase_hops_where_the_pointers_lead(n: int) -> None:
    with prepare("latency.chase", n=n, threads=1) as kernel:
        assert kernel.verify().elements == n
        kernel.run()
        lines = kernel.outputs()["next"]
        order = find("latency.chase").reference(lines)  # type: ignore[misc]
        first = int(kernel._lines.ctypes.data)
        assert int(kernel._at[0]) == first + 64 * int(order[2 % n])


def test_a_wrong_element_is_found() -> None:
    for name in (*MAPS, *FOLDS):
        with prepare(name, n=1000, threads=1) as kernel:
            kernel.verify()
            array = kernel._sums if name in FOLDS else kernel._view(0)
            array[0] += 1
            with pytest.raises(VerificationError):
                kernel._check()
            kernel._poison()  # nothing was written
            with pytest.raises(VerificationError):
                kernel._check()


def test_an_unwritten_tail_and_idle_chains_are_found() -> None:
    with prepare("gemm.tiled", m=9, n=9, k=9, threads=1) as gemm:
        gemm.verify()
        gemm._view(0)[-1] = np.nan
        with pytest.raises(VerificationError):
            gemm._check()
    with prepare("peak.fma", threads=1) as peak:
        peak._poison()
        with pytest.raises(VerificationError):
            peak._check()
    with prepare("latency.chase", n=9, threads=1) as chase:
        chase._poison()
        with pytest.raises(VerificationError):
            chase._check()


def test_it_is_timed_by_the_native_loop_and_says_how_it_was_compiled() -> None:
    with prepare("stream.triad", n=1000, threads=THREADS[-1]) as kernel:
        assert isinstance(kernel.work, Work)
        facts = kernel.facts
    assert facts["compile_s"] > 0
    assert facts["compiler"].startswith("Numba ")
    assert facts["pinned"] is False
    assert facts["store"] == "temporal"
    assert facts["threading_layer"] in (("omp", "tbb", "workqueue") if THREADS[-1] > 1 else (None,))
    assert backends.get("numba").name == kernel.backend == "numba"


def test_the_user_s_number_of_threads_stays() -> None:
    import numba

    before = numba.get_num_threads()
    with prepare("stream.copy", n=1000, threads=THREADS[-1]) as kernel:
        kernel.verify()
    assert numba.get_num_threads() == before


def test_operands_are_shared_with_the_native_kernel() -> None:
    with (
        backends.prepare("stream.copy", n=1000, threads=1) as native,
        prepare("stream.triad", n=1000, threads=1) as one,
    ):
        assert np.shares_memory(native._view(1), one._view(1))  # type: ignore[attr-defined]


def test_what_numba_has_not_is_refused_with_a_reason() -> None:
    with pytest.raises(BackendUnavailable, match="bypass the caches"):
        prepare("stream.triad", n=8, variant="nontemporal")
    with pytest.raises(BackendUnavailable, match="numba backend has no form of it"):
        prepare("gemm.vendor", m=8, n=8, k=8)
    backend = backends.get("numba")
    cpu_device = backend.devices()[-1]
    for spec in CATALOGUE:
        for dtype in spec.dtypes:
            can = backend.supports(spec, dtype, cpu_device)
            assert bool(can) == (spec.name in cpu.NAMES), spec.name
            assert can or can.reason


def test_bad_input_is_refused_as_by_the_cpu_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="negative"):
        prepare("stream.copy", n=-1)
    with pytest.raises(UsageError, match="threads"):
        prepare("stream.copy", n=8, threads=100_000)
    with pytest.raises(OutOfMemory, match="MiB may be used"):
        prepare("stream.copy", n=1 << 45)
    import numba

    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 0)
    with pytest.raises(BackendUnavailable, match="there are 0, not 1"):
        prepare("stream.copy", n=8, threads=1)


def test_closed_is_closed() -> None:
    kernel = prepare("stream.copy", n=8, threads=1)
    kernel.close()
    for use in (lambda: kernel.work, kernel.verify, lambda: kernel.facts):
        with pytest.raises(UsageError, match="closed"):
            use()


def test_auto_leaves_the_cpu_to_the_cpu_backend() -> None:
    backend, skipped = backends.select()
    assert backend.name != "numba" or any(one.kind == "cuda" for one in backend.devices())
    if backend.name == "cpu":
        assert "leaves the CPU to the cpu backend" in dict(skipped)["numba"]
    assert backends.resolve("cpu")[0][0][0].name == "cpu"
    assert {device.id: one.name for one, device in backends.resolve("all")[0]}["cpu"] == "cpu"
    assert backends.resolve("cpu", "numba")[0][0][0].name == "numba"
    assert backends.select("numba")[0].name == "numba"


def test_numba_is_not_imported_before_it_is_needed() -> None:
    if any(one.kind == "cuda" for one in backends.get("numba").devices()):
        pytest.skip("asks numba-cuda for the GPUs that are here")
    code = (
        "import sys; from gpumicro import backends; backends.resolve('cpu'); backends.select();"
        "print(backends.get('numba').availability().usable, 'numba' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False"]
    assert found.stderr == ""


def test_a_missing_numba_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpumicro import numba_kernels

    monkeypatch.setattr(numba_kernels, "find_spec", lambda _: None)
    can = backends.get("numba").availability()
    assert not can
    assert can.reason == "Numba is not installed"
    assert "gpumicro[numba]" in can.remedy
    with pytest.raises(BackendUnavailable, match="Numba is not installed"):
        prepare("stream.copy", n=8)


# --- the machine code ---------------------------------------------------------------------------------------------


def instructions(name: str, dtype: str) -> str:
    return cpu.compiled(name, dtype).assembly()


@pytest.mark.skipif(not X86, reason="reads x86's instructions")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_loops_are_made_of_vectors(dtype: str) -> None:
    kind = "pd" if dtype == "float64" else "ps"
    fused = bool(topology.discover().isa and "fma" in topology.discover().isa)
    for name in ("stream.triad", "stream.dot", "peak.fma", "gemm.tiled"):
        text = instructions(name, dtype)
        packed = rf"\bvfn?madd\d+{kind}\b" if fused else rf"\bv?mul{kind}\b"
        assert re.search(packed, text), name
    for name in MAPS:
        text = instructions(name, dtype)
        assert re.search(r"\bv?movup[sd]\s+%[xyz]mm\d+, [-\d]*\(", text), f"{name} stores no vectors"
        assert "movnt" not in text  # the recipe says so
        assert "memcpy" not in text  # it would choose stores by itself
        assert "memset" not in text


@pytest.mark.skipif(not X86, reason="reads x86's instructions")
def test_what_a_body_does_not_use_is_not_loaded() -> None:
    loads = {
        name: len(re.findall(r"\bv?movup[sd]\s+[-\d]*\([^)]*\), %[xyz]mm", instructions(name, "float64")))
        for name in MAPS
    }
    assert loads["stream.write"] == 0
    assert loads["stream.copy"] > 0


@pytest.mark.skipif(not X86, reason="reads x86's instructions")
def test_a_hop_is_one_load() -> None:
    hops = [
        line
        for line in instructions("latency.chase", "int64").splitlines()
        if re.search(r"movq\s+\((%r\w+)\), \1", line)
    ]
    assert hops
