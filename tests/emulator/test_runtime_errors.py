"""Errors of the double's runtime: refused launches, failures on demand, and what the environment chooses."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator.ptx_machine import Machine
from emulator.ptx_templates import ADD_ONE, SPIN, code_of

INVALID_VALUE = 1


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
    assert number == 702
    assert "timed out" in message


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
