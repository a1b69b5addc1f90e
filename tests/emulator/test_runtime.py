"""The runtime API of the double: streams that run by themselves, gates, events, graphs, memory, devices, errors."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator.ptx_machine import EmulatedError, Machine

ADD_ONE = """.visible .entry add_one(.param .u64 p_a) { .reg .b32 %r<4>; .reg .b64 %x<4>;
mov.u32 %r1, %tid.x; ld.param.u64 %x1, [p_a]; mul.wide.u32 %x2, %r1, 4; add.u64 %x1, %x1, %x2;
ld.global.u32 %r2, [%x1]; add.u32 %r2, %r2, 1; st.global.u32 [%x1], %r2; ret; }"""
# Waits until the host writes something else than 0 to the flag.
GATE = """.visible .entry gate(.param .u64 p_flag) { .reg .b32 %r<4>; .reg .b64 %x<2>; .reg .pred %p;
ld.param.u64 %x1, [p_flag]; again: nanosleep.u32 20000; ld.relaxed.sys.u32 %r1, [%x1]; setp.eq.u32 %p, %r1, 0; @%p bra again; ret; }"""
SPIN = ".visible .entry spin() { again: bra again; }"
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


def code_of(call: Callable[[], Any]) -> int:
    with pytest.raises(EmulatedError) as caught:
        call()
    return caught.value.code


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
    assert machine.download(a, zeros).sum() == 15 * 32 and machine.download(b, zeros).sum() == 5 * 32
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


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "block", "shared", "code"),
    [(0, 1, 0, 9), (1, 0, 0, 9), (1, 1025, 0, 9), ((1, 65536), 1, 0, 9), (1, (1, 1, 65), 0, 9), (1, 1, 60000, 1)],
)
def test_a_launch_that_cannot_be_is_refused(machine: Machine, grid: Any, block: Any, shared: int, code: int) -> None:
    machine.load(ADD_ONE)
    a = machine.upload(np.zeros(32, np.uint32))
    assert code_of(lambda: machine.run("add_one", grid, block, a, shared=shared)) == code
    assert machine.cuda.cudaGetLastError() == code
    assert machine.cuda.cudaGetLastError() == 0
    machine.run("add_one", 1, 32, a)  # not sticky


def test_launch_bounds_hold(machine: Machine) -> None:
    machine.load(ADD_ONE.replace("(.param .u64 p_a)", "(.param .u64 p_a) .maxntid 16, 1, 1"))
    a = machine.upload(np.zeros(32, np.uint32))
    assert code_of(lambda: machine.run("add_one", 1, 32, a)) == 701
    machine.run("add_one", 1, 16, a)


def test_dynamic_shared_memory_is_opted_into(machine: Machine) -> None:
    machine.load(ADD_ONE)
    a = machine.upload(np.zeros(32, np.uint32))
    stub = machine.stub("add_one")
    assert code_of(lambda: machine.call("cudaFuncSetAttribute", stub, 8, 1 << 20)) == INVALID_VALUE
    machine.call("cudaFuncSetAttribute", stub, 8, 100000)
    machine.run("add_one", 1, 32, a, shared=100000)


def test_unknown_kernels_and_ptx_that_is_too_new(machine: Machine) -> None:
    machine.load(".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry there() { ret; }")
    machine._names["gone"] = ctypes.create_string_buffer(b"gone")
    assert code_of(lambda: machine.run("gone", 1, 1)) == 98


@pytest.mark.parametrize(("name", "wanted"), [(b"cudaMalloc:2:2", [0, 2, 0]), (b"cudaMalloc:0:999", [999, 999, 999])])
def test_failures_on_demand(machine: Machine, name: bytes, wanted: list[int]) -> None:
    machine.cuda.ptxemu_fail(name)
    got = []
    for _ in wanted:
        out = ctypes.c_void_p()
        got.append(machine.cuda.cudaMalloc(ctypes.byref(out), ctypes.c_size_t(64)))
    assert got == wanted


def test_error_names(machine: Machine) -> None:
    assert machine.cuda.cudaGetErrorName(700) == b"cudaErrorIllegalAddress"
    assert machine.cuda.cudaGetErrorString(2) == b"out of memory"
    assert machine.cuda.cudaGetErrorName(12345) == b"cudaErrorUnrecognized"


# --- what the environment chooses: in processes of their own ----------------------------------------------------------


def in_process(double: Path, code: str, **environment: str) -> Any:
    program = f"""
import ctypes, json, sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from pathlib import Path
import numpy as np
from emulator.ptx_machine import EmulatedError, Machine
m = Machine(Path({str(double)!r}))
{code}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PATH": "", **environment}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_a_kernel_that_hangs_times_out(double: Path) -> None:
    code = f"""
m.load({SPIN!r})
try:
    m.run("spin", 1, 1)
except EmulatedError as error:
    print(json.dumps([error.code, m.message()]))
"""
    number, message = in_process(double, code, PTXEMU_TIMEOUT="0.2")
    assert number == 702 and "timed out" in message


def test_two_devices_reach_each_other_only_when_allowed(double: Path) -> None:
    code = f"""
m.load({ADD_ONE!r})
count = ctypes.c_int(); m.call("cudaGetDeviceCount", ctypes.byref(count))
a = m.upload(np.zeros(32, np.uint32))
m.call("cudaSetDevice", 1)
b = m.upload(np.ones(32, np.uint32))
m.call("cudaMemcpyPeer", ctypes.c_void_p(a), 0, ctypes.c_void_p(b), 1, ctypes.c_size_t(128))
m.call("cudaDeviceEnablePeerAccess", 0, 0)
m.run("add_one", 1, 32, a)
got = int(m.download(a, np.zeros(32, np.uint32)).sum())
m.call("cudaDeviceDisablePeerAccess", 0)
try:
    m.run("add_one", 1, 32, a); code = 0
except EmulatedError as error:
    code = error.code
m.call("cudaSetDevice", 0)
m.upload(np.zeros(1))  # the other device is none the worse
print(json.dumps([count.value, got, code]))
"""
    assert in_process(double, code, PTXEMU_DEVICES="2") == [2, 64, 700]


def test_facts_come_from_the_environment(double: Path) -> None:
    code = """
values = []
for attribute in (16, 38, 75, 76):
    out = ctypes.c_int(); m.call("cudaDeviceGetAttribute", ctypes.byref(out), attribute, 0); values.append(out.value)
free, total = ctypes.c_size_t(), ctypes.c_size_t(); m.call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
print(json.dumps([*values, total.value]))
"""
    facts = {"PTXEMU_SMS": "7", "PTXEMU_L2": "1048576", "PTXEMU_CC": "8.6", "PTXEMU_MEMORY": "8388608"}
    assert in_process(double, code, **facts) == [7, 1 << 20, 8, 6, 8 << 20]
    assert in_process(double, code) == [2, 64 << 10, 9, 0, 256 << 20]


def test_failures_from_the_environment_and_the_log(double: Path, tmp_path: Path) -> None:
    code = """
out = ctypes.c_void_p()
first = m.cuda.cudaMalloc(ctypes.byref(out), ctypes.c_size_t(64))
m.load(".visible .entry k() { .reg .b64 %x; .reg .b32 %r; mov.u64 %x, 8; ld.global.u32 %r, [%x]; ret; }")
try:
    m.run("k", 1, 1)
except EmulatedError as error:
    print(json.dumps([first, error.code]))
"""
    log = tmp_path / "log"
    assert in_process(double, code, PTXEMU_FAIL="cudaMalloc:1:2", PTXEMU_LOG=str(log)) == [2, 700]
    assert "out of bounds: load of 4 bytes at 0x8" in log.read_text()
