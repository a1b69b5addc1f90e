"""Choosing a backend, and what preparing a kernel refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpumicro import backends, limits, topology
from gpumicro.backends import Availability
from gpumicro.backends.cpu import CpuBackend
from gpumicro.errors import BackendUnavailable, OutOfMemory, UsageError
from gpumicro.kernels import CATALOGUE, find
from gpumicro.spec import Execution, Problem


def test_auto_selects_the_first_usable_backend() -> None:
    backend, skipped = backends.select()
    assert backend.availability()
    assert [name for name, _ in skipped] == list(backends.BACKENDS[: backends.BACKENDS.index(backend.name)])
    assert all(reason for _, reason in skipped)


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMICRO_BACKEND", "cqu")
    with pytest.raises(UsageError, match="did you mean cpu"):
        backends.select()


def test_an_unusable_backend_is_passed_over_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "availability", lambda _: Availability(False, "it is broken", "Mend it"))
    with pytest.raises(BackendUnavailable, match="cpu: it is broken"):
        backends.select()
    with pytest.raises(BackendUnavailable, match="because it is broken"):
        backends.select("cpu")


@pytest.mark.parametrize(
    ("kernel", "arguments", "message"),
    [
        ("stream.traid", {"n": 8}, "stream.triad"),
        ("stream.triad", {}, "takes n"),
        ("stream.triad", {"n": 8, "m": 8}, "takes n"),
        ("stream.triad", {"n": -1}, "negative"),
        ("stream.triad", {"n": 4.5}, "whole number"),
        ("stream.triad", {"n": 8, "operands": "ones"}, "unknown operand class"),
        ("stream.triad", {"n": 8, "dtype": "int8"}, "no dtype 'int8'"),
        ("stream.triad", {"n": 8, "variant": "nontemporl"}, "no variant"),
        ("stream.triad", {"n": 8, "threads": 0}, "threads"),
        ("stream.triad", {"n": 8, "threads": 100_000}, "threads"),
        ("stream.triad", {"n": 8, "device": "gpu:0"}, "no device"),
        ("stream.triad", {"n": 8, "backend": "gpu"}, "no backend"),
        ("latency.chase", {"n": 8, "threads": 2}, "threads"),
        ("latency.chase", {"n": 0}, "at least one line"),
        ("mixed.fma", {"n": 8, "k": 3}, "power of two"),
    ],
)
def test_what_does_not_exist_is_refused(kernel: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        backends.prepare(kernel, **arguments)


def test_too_much_memory_is_refused_before_any_is_touched() -> None:
    available = limits.memory_available()
    if available is None:
        pytest.skip("this system does not tell how much memory is free")
    with pytest.raises(OutOfMemory, match="MiB may be used"):
        backends.prepare("stream.copy", n=available // 8)


def test_the_cgroup_s_limit_counts_as_memory(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 131072 kB\nMemAvailable: 65536 kB\n")
    backend = CpuBackend(tmp_path)
    device = topology.discover()
    spec = find("stream.copy")
    problem = Problem.of("float64", n=4 << 20)
    with pytest.raises(OutOfMemory, match="64 MiB may be used"):
        backend.prepare(spec, problem, Execution(1, "temporal"), device)


def test_an_isa_that_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpumicro._core import cpu as native

    absent = [isa for isa in ("avx512", "avx2", "neon", "baseline") if isa not in native.usable_isas()]
    monkeypatch.setenv("GPUMICRO_CPU_ISA", absent[0])
    with pytest.raises(BackendUnavailable, match="has only"):
        backends.prepare("stream.copy", n=8)
    monkeypatch.setenv("GPUMICRO_CPU_ISA", "avx3")
    with pytest.raises(UsageError, match="avx3"):
        backends.prepare("stream.copy", n=8)


def test_a_missing_dot_product_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpumicro._core import cpu as native

    if "sse2" not in native.usable_isas():
        pytest.skip("SSE2 is x86's baseline")
    monkeypatch.setenv("GPUMICRO_CPU_ISA", "sse2")
    backend = backends.get("cpu")
    can = backend.supports(find("peak.dot"), "bfloat16", backend.devices()[0])
    assert not can
    assert "AVX512_BF16" in can.reason
    with pytest.raises(BackendUnavailable, match="AVX512_BF16"):
        backends.prepare("peak.dot", dtype="bfloat16")


def test_all_kernels_are_supported_or_say_why() -> None:
    backend = backends.get("cpu")
    for spec in CATALOGUE:
        for dtype in spec.dtypes:
            can = backend.supports(spec, dtype, backend.devices()[0])
            assert can or can.reason
        assert not backend.supports(spec, "float8_e5m2", backend.devices()[0])


def test_a_variable_that_names_no_backend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMICRO_BACKEND", "gpu")
    with pytest.raises(UsageError, match="GPUMICRO_BACKEND=gpu: no such backend"):
        backends.resolve()


def test_a_known_device_that_cannot_run_is_said_not_to_run() -> None:
    with pytest.raises(BackendUnavailable, match="device 'cuda:0' cannot run here"):
        backends.resolve("cuda:0")
