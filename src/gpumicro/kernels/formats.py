"""Element types that NumPy has not: how they are stored, and exact conversion to and from float64.

bfloat16 and the 8-bit floats are stored as unsigned integers of their width; everything else as NumPy's own type.
8-bit floats: "FP8 formats for deep learning", arXiv 2209.05433 (E4M3 has no infinity, its largest finite is 448).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

_STORED = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "tf32": "float32"}
_DIGITS = {
    "float64": 53, "float32": 24, "tf32": 11, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3,
}  # fmt: skip


def stored(dtype: str) -> np.dtype[np.generic]:
    """The NumPy type that holds elements of `dtype`."""
    return np.dtype(_STORED.get(dtype, dtype))


def roundoff(dtype: str) -> float:
    """Half the distance from 1 to the next number: 2**-24 for float32; 0 for integers."""
    return 2.0 ** -_DIGITS[dtype] if dtype in _DIGITS else 0.0


def decode(raw: npt.NDArray[np.generic], dtype: str) -> npt.NDArray[np.float64]:
    """float64 values of stored elements; exact (int64 beyond 2**53 is not)."""
    if dtype == "bfloat16":
        wide: npt.NDArray[np.float64] = (raw.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return wide
    if dtype in ("float8_e4m3fn", "float8_e5m2"):
        return _eight_bits(dtype)[raw.astype(np.intp)]
    return raw.astype(np.float64)


def encode(values: npt.NDArray[np.floating], dtype: str) -> npt.NDArray[np.generic]:
    """Stored elements nearest to `values`, ties to even; beyond the largest finite of an 8-bit float: that one.

    Integers are rounded likewise. tf32 keeps float32's form with the low 13 bits zero.
    """
    if dtype in ("bfloat16", "tf32"):
        dropped = 16 if dtype == "bfloat16" else 13
        bits = values.astype(np.float32).view(np.uint32)
        odd = (bits >> np.uint32(dropped)) & np.uint32(1)
        bits = (bits + np.uint32((1 << (dropped - 1)) - 1) + odd) >> np.uint32(dropped)
        nearest: npt.NDArray[np.generic] = (
            bits.astype(np.uint16) if dtype == "bfloat16" else (bits << np.uint32(dropped)).view(np.float32)
        )
        return nearest
    if dtype in ("float8_e4m3fn", "float8_e5m2"):
        return _nearest_eight_bits(values.astype(np.float64), dtype)
    if dtype in ("int8", "int32", "int64"):
        values = np.rint(values)
    converted: npt.NDArray[np.generic] = values.astype(dtype)
    return converted


@lru_cache(maxsize=2)
def _eight_bits(dtype: str) -> npt.NDArray[np.float64]:
    """The values of all 256 patterns."""
    exponent_bits, bias = (4, 7) if dtype == "float8_e4m3fn" else (5, 15)
    fraction_bits = 7 - exponent_bits
    patterns = np.arange(256)
    exponent = (patterns >> fraction_bits) & ((1 << exponent_bits) - 1)
    fraction = (patterns & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    values = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if dtype == "float8_e4m3fn":
        values[patterns & 0x7F == 0x7F] = np.nan
    else:
        values[exponent == 31] = np.where(fraction[exponent == 31] == 0, np.inf, np.nan)
    return np.where(patterns >= 128, -values, values)


def _nearest_eight_bits(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.generic]:
    table = _eight_bits(dtype)[:128]
    finite = table[np.isfinite(table)]  # ascending with the pattern
    size = np.minimum(np.abs(values), finite[-1])
    above = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
    below = above - 1
    down, up = size - finite[below], finite[above] - size
    pick = np.where((down < up) | ((down == up) & (below % 2 == 0)), below, above)
    sign = np.where(np.signbit(values), 128, 0)
    pattern = np.where(np.isnan(values), 127, pick + sign)
    return pattern.astype(np.uint8)
