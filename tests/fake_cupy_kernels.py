"""What some kernels of csrc/kernels do to memory, in NumPy, and how long a device would take; for fake_cupy.py."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpumicro.kernels import formats, latency, operands, peak_check

ARITY = {
    "read": 3, "write": 3, "copy": 3, "scale": 4, "add": 4, "triad": 5, "dot": 4, "fma_peak": 3, "dot_peak": 3,
    "gemm_tiled": 6, "chase": 5, "fill_uniform": 4, "touch": 3, "empty": 0, "spin_ns": 1, "spin_cycles": 1, "evict": 4,
    "filler": 3, "gate": 5,
}  # fmt: skip
BYTES_PER_S, FLOP_PER_S, LEAST_S = 2e12, 1e13, 3e-6
_TYPES = {
    "double": "float64", "float": "float32", "int": "int32", "signed char": "int8", "gm::half": "float16",
    "gm::bfloat16": "bfloat16", "gm::tf32": "tf32", "gm::e4m3": "float8_e4m3fn", "gm::e5m2": "float8_e5m2",
    "gm::pair<gm::half>": "float16", "gm::pair<gm::bfloat16>": "bfloat16",
}  # fmt: skip


@dataclass
class Call:
    """One launch: where its arguments lie, and its shape."""

    symbol: str
    parameters: int
    grid: int
    block: int

    def __post_init__(self) -> None:
        # As the driver does, copied now: 8 bytes of each, whatever of them is the argument.
        here = (ctypes.c_void_p * ARITY[self.symbol.removeprefix("gm::").partition("<")[0]]).from_address(
            self.parameters
        )
        self.copies = [ctypes.create_string_buffer(ctypes.string_at(address or 0, 8), 8) for address in here]
        self.name, _, rest = self.symbol.removeprefix("gm::").partition("<")
        self.template = re.split(r",\s*(?![^<]*>)", rest[:-1]) if rest else []
        self.dtype = _TYPES.get(self.template[0], "") if self.template else ""

    def value(self, place: int, kind: Any = ctypes.c_int64) -> Any:
        """The argument at that place."""
        return kind.from_buffer(self.copies[place]).value

    def array(self, place: int, count: int, dtype: str = "") -> Any:
        """The memory that the argument at that place points to."""
        return at(self.value(place), count, dtype or self.dtype)


def at(address: int, count: int, dtype: str) -> Any:
    """The numbers that lie at an address."""
    kind = formats.stored(dtype)
    raw = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, kind)


def _stream(call: Call) -> float:
    inputs = {"read": 1, "write": 0, "copy": 1, "scale": 1, "add": 2, "triad": 2, "dot": 2}[call.name]
    folds, scalar = call.name in ("read", "dot"), call.name in ("write", "scale", "triad")
    n = call.value(1 + inputs + scalar)
    real = formats.stored(call.dtype).type
    if folds:
        terms = call.array(0, n) * (call.array(1, n) if inputs == 2 else 1)
        call.array(inputs, 1)[:] = np.sum(terms, dtype=np.float64)
    else:
        s = call.value(1 + inputs, ctypes.c_double if call.dtype == "float64" else ctypes.c_float) if scalar else 0
        b = call.array(1, n) if inputs else None
        c = call.array(2, n) if inputs == 2 else None
        results: dict[str, Callable[[], Any]] = {
            "write": lambda: real(s), "copy": lambda: b, "scale": lambda: real(s) * b, "add": lambda: b + c,
            "triad": lambda: b + real(s) * c,
        }  # fmt: skip
        call.array(0, n)[:] = results[call.name]()
    return max(LEAST_S, (inputs + (not folds)) * n * np.dtype(real).itemsize / BYTES_PER_S)


@lru_cache(maxsize=8)
def _sums(name: str, seeds: bytes, dtype: str, steps: int) -> Any:
    known = peak_check.fma_chains if name == "fma_peak" else peak_check.dot_sums
    return known(np.frombuffer(seeds, formats.stored(dtype)), dtype, steps).sums


def _peak(call: Call) -> float:
    steps, words = call.value(2), peak_check.WORDS * peak_check.elements_per_word(call.dtype)
    sums = _sums(call.name, call.array(0, words).tobytes(), call.dtype, steps)
    wide = {"float64": "float64", "int8": "int32", "int32": "int32"}.get(call.dtype, "float32")
    count = call.grid * call.block
    call.array(1, count, wide)[:] = np.resize(sums, count)
    return max(LEAST_S, count * steps * 512 / FLOP_PER_S)


def _gemm(call: Call) -> float:
    m, n, k = (call.value(place) for place in (3, 4, 5))
    a, b = call.array(1, m * k).reshape(m, k), call.array(2, k * n).reshape(k, n)
    call.array(0, m * n)[:] = (a.astype(np.float64) @ b.astype(np.float64)).reshape(-1)
    return max(LEAST_S, 2 * m * n * k / FLOP_PER_S)


def _chase(call: Call) -> float:
    lines, warm, hops = (call.value(place) for place in (2, 3, 4))
    begin = call.value(0)
    order = latency.chase_order(lines)
    follow = np.empty(lines, np.int64)
    follow[order] = np.roll(order, -1)
    call.array(0, lines * 16, "int64").reshape(lines, 16)[:, 0] = begin + 128 * follow
    state = call.array(1, latency.STATE_WORDS, "int64")
    state[latency.HOPS] = max(0, state[latency.HOPS]) + warm + hops  # poison is no state of its own
    state[latency.POSITION] = begin + 128 * order[state[latency.HOPS] % lines]
    return max(LEAST_S, (warm + hops) * 4e-7)


def _fill(call: Call) -> float:
    seed, index, count = call.value(1, ctypes.c_uint64), call.value(2, ctypes.c_uint64), call.value(3)
    base = "float64" if call.dtype == "float64" else "float32"
    call.array(0, count)[:] = formats.encode(operands.operand(count, base, seed=seed, index=index), call.dtype)
    return LEAST_S


def _touch(call: Call) -> float:
    pages, stride = call.value(1), call.value(2)
    call.array(0, pages * stride, "int32")[::stride] += 1
    return LEAST_S


KERNELS: dict[str, Callable[[Call], float]] = {
    **dict.fromkeys(("read", "write", "copy", "scale", "add", "triad", "dot"), _stream),
    "fma_peak": _peak,
    "dot_peak": _peak,
    "gemm_tiled": _gemm,
    "chase": _chase,
    "fill_uniform": _fill,
    "touch": _touch,
    "empty": lambda _: 2e-6,
    "spin_cycles": lambda call: 1e-9 * call.value(0, ctypes.c_uint64),
    "spin_ns": lambda call: 1e-9 * call.value(0, ctypes.c_uint64),
    "evict": lambda call: 16 * call.value(1) / BYTES_PER_S,
    "filler": lambda call: 1e-9 * call.value(0, ctypes.c_uint64),
}
