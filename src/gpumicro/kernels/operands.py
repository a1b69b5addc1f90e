"""The numbers that operands hold: counter-based, so that NumPy here and the native threads make the same ones.

Element i of operand k depends on (seed, k, i) alone: SplitMix64's output function over a counter (csrc/cpu/random.hpp).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..spec import OperandClass

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


def _mix_one(z: int) -> int:
    return int(_mix(np.array([z & _MASK], dtype=np.uint64))[0])


def bits(count: int, seed: int, operand: int, first: int = 0) -> npt.NDArray[np.uint64]:
    """`count` random 64-bit words of operand number `operand`, from word number `first` on."""
    key = _mix_one(seed + _mix_one(operand + 1))
    counter = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    return _mix(counter + np.uint64(key))


def operand(
    count: int, dtype: str, *, operands: OperandClass = "uniform", seed: int = 0, index: int = 0, first: int = 0
) -> npt.NDArray[np.floating]:
    """`count` elements of operand number `index` from element `first` on: uniform in [-1, 1), standard normal, or
    zeros. float32 or float64."""
    if operands == "zeros":
        return np.zeros(count, dtype)
    words = bits(count, seed, index, first)
    if operands == "normal":
        u = ((words >> np.uint64(32)).astype(np.float64) + 0.5) * 2.0**-32
        v = (words & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-32
        numbers: npt.NDArray[np.floating] = np.sqrt(-2.0 * np.log(u)) * np.cos(2 * np.pi * v)
    else:  # as many random bits as the type's significand holds, so that the conversion is exact
        digits = 53 if dtype == "float64" else 24
        numbers = (words >> np.uint64(64 - digits)).astype(np.float64) * 2.0 ** (1 - digits) - 1.0
    return numbers.astype(dtype)
