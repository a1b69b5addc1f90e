"""Launches, copies and allocations as records, and what the CUDA backend makes of them, on a stand-in for _cuda."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpumicro import cuda_native
from gpumicro.backends import cuda_host
from gpumicro.backends.cuda_rotation import sets_needed
from gpumicro.device import Device
from gpumicro.errors import BackendUnavailable, UsageError, VerificationError
from gpumicro.kernels import CATALOGUE, copy, find
from gpumicro.spec import Execution, Problem

ACTIONS = [spec for spec in CATALOGUE if spec.family in ("copy", "alloc") or spec.name in cuda_host.ACTIONS]


def gpu(index: int = 0, **facts: Any) -> Device:
    return Device(f"cuda:{index}", "cuda", "GPU", 132, (), (), 1 << 36, facts=facts)


class Buffer:
    def __init__(self, _device: int, size_bytes: int, kind: str = "device") -> None:
        self.memory, self.kind, self.size_bytes = np.full(size_bytes, 0xA5, np.uint8), kind, size_bytes
        self.address = id(self)

    def upload(self, array: Any) -> None:
        self.memory[...] = array

    def download(self) -> Any:
        return self.memory.copy()

    def fill(self, byte: int) -> None:
        self.memory[...] = byte


class Timing:
    """Does at once what the native works enqueue; `wrong` spoils the last byte of each copy."""

    def __init__(self) -> None:
        self.wrong, self.made = False, []  # type: ignore[var-annotated]

    def _copy(self, to: Buffer, source: Buffer) -> None:
        to.memory[...] = source.memory
        to.memory[-1] ^= self.wrong

    def copy(self, _device: int, _to: int, _source: int, _size: int, direction: str, keep: Any) -> Any:
        self.made.append((direction, keep[0].kind, keep[1].kind))
        return lambda: self._copy(*keep)

    def copy_both(self, _device: int, _in: Any, _out: Any, _size: int, keep: Any) -> Any:
        return lambda: [self._copy(*pair) for pair in keep]

    def synced(self, _device: int, work: Any, each: bool = True) -> Any:
        self.made.append(("synced", each))
        return work or (lambda: None)

    def touch(self, _device: int, _address: int, _size: int, page_bytes: int, keep: Any) -> Any:
        def run() -> None:
            keep.memory[::page_bytes] += 2

        return run

    def prefetch(self, _device: int, _address: int, _size: int, _keep: Any) -> Any:
        return lambda: None

    def malloc_free(self, _device: int, _size: int) -> Any:
        return lambda: None


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    stand_in = SimpleNamespace(
        timing=Timing(), Buffer=Buffer, synchronize=lambda _device: None, probe=lambda: {"count": 2},
        Launch=lambda *_: SimpleNamespace(work=lambda: None),
    )  # fmt: skip
    monkeypatch.setattr(cuda_native, "load", lambda: stand_in)
    return stand_in


def prepared(name: str, variant: str = "", **sizes: int) -> cuda_host.HostActionPrepared:
    return cuda_host.prepare(find(name), Problem.of("int8", **sizes), Execution(1, variant), gpu(managed=True))


def test_every_host_action_has_a_record_and_every_record_an_action() -> None:
    assert {spec.name for spec in ACTIONS} == set(cuda_host.ACTIONS)
    for spec in ACTIONS:
        assert not spec.on_cpu
        assert spec.gpu is not None
        assert spec.gpu.source == ""
        assert spec.gpu.variants("int8", gpu()) == spec.variants
        with pytest.raises(NotImplementedError, match="no launch"):
            spec.gpu.launch(Problem.of("int8"), Execution(), gpu())


def test_a_copy_is_credited_with_its_payload() -> None:
    for name in ("copy.h2d", "copy.d2h", "copy.d2d"):
        assert find(name).bytes_moved(Problem.of("int8", n=1000)) == 1000
    assert find("copy.bidirectional").bytes_moved(Problem.of("int8", n=1000)) == 2000
    assert find("copy.managed").bytes_moved(Problem.of("int8", n=4096)) == 8192
    assert find("alloc.malloc").bytes_moved(Problem.of("int8", n=1000)) == 0


def test_the_peer_matrix_holds_every_ordered_pair_of_gpus() -> None:
    devices = [gpu(0), gpu(1), gpu(3), Device("cpu", "cpu", "CPU", 1, (0,), (), None)]
    pairs = [(device.id, problem["to"]) for device, problem in copy.peer_matrix(devices, 64)]
    assert pairs == [("cuda:0", 1), ("cuda:0", 3), ("cuda:1", 0), ("cuda:1", 3), ("cuda:3", 0), ("cuda:3", 1)]
    assert copy.peer_matrix([gpu(0)], 64) == []


def test_managed_memory_needs_a_device_that_has_it() -> None:
    form = find("copy.managed").gpu
    assert form is not None
    assert form.why_not("int8", gpu(managed=True)) == ""
    assert "managed" in form.why_not("int8", gpu(managed=False))


@pytest.mark.parametrize(
    ("name", "variant", "sizes"),
    [
        ("copy.h2d", "pinned", {"n": 33}), ("copy.h2d", "pageable", {"n": 1}), ("copy.d2h", "pinned", {"n": 31}),
        ("copy.d2h", "pageable", {"n": 1000}), ("copy.d2d", "", {"n": 7}), ("copy.bidirectional", "pinned", {"n": 9}),
    ],
)  # fmt: skip
def test_copies_compare_every_byte(cuda: SimpleNamespace, name: str, variant: str, sizes: dict[str, int]) -> None:
    with prepared(name, variant, **sizes) as action:
        check = action.verify()
        assert check.passed
        assert check.elements == sizes["n"] * (2 if name == "copy.bidirectional" else 1)
        cuda.timing.wrong = True
        with pytest.raises(VerificationError, match=name):
            action.verify()
    with pytest.raises(UsageError, match="closed"):
        _ = action.work


def test_pageable_copies_are_read_by_the_hosts_clock(cuda: SimpleNamespace) -> None:
    assert prepared("copy.h2d", "pageable", n=8).timer is None
    assert cuda.timing.made == [("h2d", "device", "host"), ("synced", True)]
    assert prepared("copy.d2h", "pinned", n=8).facts["timed_by"] == "device events"
    assert cuda.timing.made[-1] == ("d2h", "pinned", "device")


@pytest.mark.usefixtures("cuda")
def test_managed_memory_is_touched_once_a_page_by_each_side() -> None:
    assert prepared("copy.managed", "touch", n=3 * copy.PAGE_BYTES).verify().elements == 3 * copy.PAGE_BYTES
    assert prepared("copy.managed", "prefetch", n=100).verify().passed
    with pytest.raises(UsageError, match="whole pages"):
        prepared("copy.managed", "touch", n=100)


def test_queued_launches_wait_once_and_ask_for_long_spans(cuda: SimpleNamespace) -> None:
    queued, synced = prepared("launch.stream", "queued"), prepared("launch.stream", "synced")
    assert cuda.timing.made == [("synced", False), ("synced", True)]
    assert queued.facts["least_span_s"] == cuda_host.LEAST_SPAN_S
    assert "least_span_s" not in synced.facts
    assert queued.verify().elements == 0
    assert queued.timer is None
    assert prepared("alloc.malloc", n=64).verify().passed


@pytest.mark.usefixtures("cuda")
def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="n of at least 1"):
        prepared("copy.h2d", "pinned", n=0)
    for to in (0, 2, -1):
        with pytest.raises(UsageError, match="number of another device"):
            prepared("copy.peer", "staged", n=8, to=to)


def test_peers_that_cannot_reach_each_other_are_a_reason_in_words(cuda: SimpleNamespace) -> None:
    cuda.timing.PeerAccess = SimpleNamespace(possible=lambda _a, _b: False)
    with pytest.raises(BackendUnavailable, match="cuda:0 and cuda:1 cannot reach"):
        prepared("copy.peer", "access", n=8, to=1)


def test_a_rotation_leaves_the_cache_three_times_over() -> None:
    assert sets_needed(10 << 20, 50 << 20) == 15
    assert sets_needed(1 << 40, 50 << 20) == 2
    assert sets_needed(1, 50 << 20) == 4096
