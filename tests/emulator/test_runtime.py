"""The runtime API of the double: streams that run by themselves, gates, events, graphs, memory, devices, errors."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np
from emulator.ptx_machine import Machine
from emulator.ptx_templates import ADD_ONE, GATE, code_of

NOT_READY, INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION, INVALID_HANDLE = 600, 1, 2, 9, 400


def handle(machine: Machine, call: str, *arguments: Any) -> ctypes.c_void_p:
    """What `call` makes: a stream, an event, a graph."""
    out = ctypes.c_void_p()
    machine.call(call, ctypes.byref(out), *arguments)
    return out


class Gate:
    """A stream that waits until the gate is opened."""

    def __init__(self, machine: Machine, stream: Any) -> None:
        self.machine = machine
        self.address = machine.allocate(4, "cudaHostAlloc", 0)
        self.flag = ctypes.c_uint32.from_address(self.address)
        self.flag.value = 0
        machine.load(GATE)
        machine.enqueue("gate", 1, 32, self.address, stream=stream)

    def open(self) -> None:
        self.flag.value = 1


def test_a_gate_holds_its_stream_and_no_other(machine: Machine) -> None:
    machine.load(ADD_ONE)
    held = handle(machine, "cudaStreamCreateWithFlags", 1)
    free = handle(machine, "cudaStreamCreateWithFlags", 1)
    zeros = np.zeros(32, np.uint32)
    a, b = machine.upload(zeros), machine.upload(zeros)
    gate = Gate(machine, held)
    machine.enqueue("add_one", 1, 32, a, stream=held)
    machine.enqueue("add_one", 1, 32, b, stream=free)
    machine.call("cudaStreamSynchronize", free)
    assert code_of(lambda: machine.call("cudaStreamQuery", held)) == NOT_READY
    assert np.ctypeslib.as_array((ctypes.c_uint32 * 32).from_address(a)).sum() == 0
    gate.open()
    machine.call("cudaStreamSynchronize", held)
    machine.call("cudaStreamQuery", held)
    assert machine.download(a, zeros).sum() == machine.download(b, zeros).sum() == 32


def test_the_legacy_stream_waits_for_blocking_streams_only(machine: Machine) -> None:
    machine.load(ADD_ONE)
    blocking, other = handle(machine, "cudaStreamCreate"), handle(machine, "cudaStreamCreateWithFlags", 1)
    a = machine.upload(np.zeros(32, np.uint32))
    gate = Gate(machine, blocking)
    machine.enqueue("add_one", 1, 32, a)  # in the legacy stream: behind the gate
    machine.enqueue("add_one", 1, 32, a, stream=other)
    machine.call("cudaStreamSynchronize", other)
    assert code_of(lambda: machine.call("cudaStreamQuery", None)) == NOT_READY
    gate.open()
    machine.call("cudaStreamSynchronize", None)
    assert machine.download(a, np.zeros(1, np.uint32))[0] == 2


def test_events_are_stamped_when_the_stream_comes_to_them(machine: Machine) -> None:
    stream = handle(machine, "cudaStreamCreateWithFlags", 1)
    first, second, untimed = (handle(machine, "cudaEventCreateWithFlags", flags) for flags in (0, 0, 2))
    milliseconds = ctypes.c_float()
    elapsed = lambda x, y: machine.call("cudaEventElapsedTime", ctypes.byref(milliseconds), x, y)  # noqa: E731
    assert code_of(lambda: elapsed(first, second)) == INVALID_HANDLE  # never recorded
    machine.call("cudaEventRecord", first, stream)
    gate = Gate(machine, stream)
    machine.call("cudaEventRecord", second, stream)
    machine.call("cudaEventRecord", untimed, stream)
    machine.call("cudaEventSynchronize", first)
    assert code_of(lambda: machine.call("cudaEventQuery", second)) == NOT_READY
    assert code_of(lambda: elapsed(first, second)) == NOT_READY
    time.sleep(0.03)
    gate.open()
    machine.call("cudaEventSynchronize", second)
    machine.call("cudaEventQuery", second)
    elapsed(first, second)
    assert milliseconds.value >= 30
    assert code_of(lambda: elapsed(first, untimed)) == INVALID_HANDLE


def test_a_stream_waits_for_an_event_of_another(machine: Machine) -> None:
    machine.load(ADD_ONE)
    first, second = (handle(machine, "cudaStreamCreateWithFlags", 1) for _ in range(2))
    event = handle(machine, "cudaEventCreateWithFlags", 2)
    a = machine.upload(np.zeros(32, np.uint32))
    gate = Gate(machine, first)
    machine.call("cudaEventRecord", event, first)
    machine.call("cudaStreamWaitEvent", second, event, 0)
    machine.enqueue("add_one", 1, 32, a, stream=second)
    time.sleep(0.02)
    assert code_of(lambda: machine.call("cudaStreamQuery", second)) == NOT_READY
    gate.open()
    machine.call("cudaStreamSynchronize", second)


def test_host_functions_run_in_order(machine: Machine) -> None:
    stream = handle(machine, "cudaStreamCreate")
    seen: list[int] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda value: seen.append(value or 0))
    for number in range(1, 6):
        machine.call("cudaLaunchHostFunc", stream, callback, ctypes.c_void_p(number))
    machine.call("cudaStreamSynchronize", stream)
    assert seen == [1, 2, 3, 4, 5]


def test_a_captured_graph_runs_when_it_is_launched(machine: Machine) -> None:
    machine.load(ADD_ONE)
    stream, side = (handle(machine, "cudaStreamCreateWithFlags", 1) for _ in range(2))
    fork, join = (handle(machine, "cudaEventCreateWithFlags", 2) for _ in range(2))
    zeros = np.zeros(32, np.uint32)
    a, b = machine.upload(zeros), machine.upload(zeros)
    machine.call("cudaStreamBeginCapture", stream, 0)
    for _ in range(3):
        machine.enqueue("add_one", 1, 32, a, stream=stream)
    machine.call("cudaEventRecord", fork, stream)
    machine.call("cudaStreamWaitEvent", side, fork, 0)
    machine.enqueue("add_one", 1, 32, b, stream=side)
    machine.call("cudaEventRecord", join, side)
    machine.call("cudaStreamWaitEvent", stream, join, 0)
    assert code_of(lambda: machine.call("cudaStreamSynchronize", stream)) == 900
    assert code_of(lambda: machine.download(a, zeros)) == 906  # would make the legacy stream wait for the capture
    graph = handle_of_capture(machine, stream)
    assert machine.download(a, zeros).sum() == 0
    count = ctypes.c_size_t()
    machine.call("cudaGraphGetNodes", graph, None, ctypes.byref(count))
    assert count.value == 4
    ready = handle(machine, "cudaGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
    machine.call("cudaGraphDestroy", graph)
    for _ in range(5):
        machine.call("cudaGraphLaunch", ready, stream)
    machine.call("cudaStreamSynchronize", stream)
    assert machine.download(a, zeros).sum() == 15 * 32
    assert machine.download(b, zeros).sum() == 5 * 32
    machine.call("cudaGraphExecDestroy", ready)
    assert code_of(lambda: machine.call("cudaGraphLaunch", ready, stream)) == INVALID_VALUE


def handle_of_capture(machine: Machine, stream: ctypes.c_void_p) -> ctypes.c_void_p:
    out = ctypes.c_void_p()
    machine.call("cudaStreamEndCapture", stream, ctypes.byref(out))
    return out


# --- memory ---------------------------------------------------------------------------------------------------------


def free_bytes(machine: Machine) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    machine.call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value


def test_memory_runs_out_and_comes_back(machine: Machine) -> None:
    before = free_bytes(machine)
    assert code_of(lambda: machine.allocate(1 << 40)) == OUT_OF_MEMORY
    address = machine.allocate(before)
    assert free_bytes(machine) == 0
    assert code_of(lambda: machine.allocate(1)) == OUT_OF_MEMORY
    machine.free(address)
    assert free_bytes(machine) == before
    assert code_of(lambda: machine.free(address)) == INVALID_VALUE  # twice
    assert code_of(lambda: machine.free(machine.allocate(64) + 16)) == INVALID_VALUE


def test_new_memory_is_aligned_and_holds_nan(machine: Machine) -> None:
    for size in (1, 100, 4096, 5000):
        address = machine.allocate(size)
        assert address % 256 == 0
        assert np.all(machine.download(address, np.zeros(size, np.uint8)) == 0xFF)


def test_copies_check_their_ranges(machine: Machine) -> None:
    a, host = machine.upload(np.arange(16, dtype=np.uint32)), np.zeros(64, np.uint32)
    assert code_of(lambda: machine.download(a, host)) == INVALID_VALUE  # longer than what is there
    to = ctypes.c_void_p(host.ctypes.data)
    assert code_of(lambda: machine.call("cudaMemcpy", to, to, ctypes.c_size_t(4), 1)) == INVALID_VALUE
    machine.call("cudaMemset", ctypes.c_void_p(a), 7, ctypes.c_size_t(16))
    assert machine.download(a, np.zeros(5, np.uint32)).tolist() == [0x07070707] * 4 + [4]
    pitch = ctypes.c_size_t(16)
    machine.call(
        "cudaMemcpy2D", to, pitch, ctypes.c_void_p(a), ctypes.c_size_t(8), ctypes.c_size_t(4), ctypes.c_size_t(8), 4
    )
    assert host[:32:4].tolist() == [0x07070707] * 2 + [4, 6, 8, 10, 12, 14]


def test_a_kernel_reaches_host_memory_only_where_it_is_mapped(machine: Machine) -> None:
    machine.load(ADD_ONE)
    data = np.zeros(32, np.uint32)
    address = ctypes.c_void_p(data.ctypes.data)
    machine.call("cudaHostRegister", address, ctypes.c_size_t(data.nbytes), 0)
    machine.run("add_one", 1, 32, data.ctypes.data)
    assert np.all(data == 1)
    managed = machine.allocate(128, "cudaMallocManaged", 1)
    ctypes.memset(managed, 0, 128)
    machine.run("add_one", 1, 32, managed)
    assert ctypes.c_uint32.from_address(managed).value == 1
    machine.call("cudaHostUnregister", address)
    assert code_of(lambda: machine.run("add_one", 1, 32, data.ctypes.data)) == 700


def test_a_pool_gives_the_same_memory_again(machine: Machine) -> None:
    stream = handle(machine, "cudaStreamCreateWithFlags", 1)
    pool = handle(machine, "cudaDeviceGetDefaultMemPool", 0)
    keep = ctypes.c_ulonglong(1 << 62)
    machine.call("cudaMemPoolSetAttribute", pool, 4, ctypes.byref(keep))
    seen = set()
    for _ in range(20):
        address = machine.allocate(1 << 20, "cudaMallocAsync", stream)
        machine.call("cudaFreeAsync", ctypes.c_void_p(address), stream)
        seen.add(address)
    machine.call("cudaStreamSynchronize", stream)
    assert len(seen) == 1
    reserved = ctypes.c_ulonglong()
    machine.call("cudaMemPoolGetAttribute", pool, 5, ctypes.byref(reserved))
    assert reserved.value == 1 << 20
    machine.call("cudaMemPoolTrimTo", pool, ctypes.c_size_t(0))
    machine.call("cudaMemPoolGetAttribute", pool, 5, ctypes.byref(reserved))
    assert reserved.value == 0
