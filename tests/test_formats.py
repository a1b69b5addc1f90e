from __future__ import annotations

import numpy as np
import pytest

from gpumicro.kernels.formats import decode, encode, roundoff, stored

NARROW = ("bfloat16", "tf32", "float16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("dtype", NARROW)
def test_rounding_is_to_the_nearest_within_half_a_unit(dtype: str) -> None:
    values = np.random.default_rng(1).uniform(0.5, 2.0, 10_000) * np.where(np.arange(10_000) % 2, 1, -1)
    back = decode(encode(values, dtype), dtype)
    assert np.all(np.abs(back - values) <= roundoff(dtype) * np.abs(values))
    assert encode(values, dtype).dtype == stored(dtype)


@pytest.mark.parametrize("dtype", NARROW)
def test_numbers_of_the_format_come_back_as_they_went(dtype: str) -> None:
    values = np.array([0.0, 1.0, -1.0, 1.5, -0.25, 2.0**-6])
    assert decode(encode(values, dtype), dtype).tolist() == values.tolist()


def test_every_finite_pattern_of_eight_bits_survives() -> None:
    for dtype in ("float8_e4m3fn", "float8_e5m2"):
        patterns = np.arange(256, dtype=np.uint8)
        values = decode(patterns, dtype)
        finite = np.isfinite(values)
        assert encode(values[finite], dtype).tolist() == patterns[finite].tolist()


def test_known_values() -> None:
    assert decode(np.array([0x7E, 0x01], np.uint8), "float8_e4m3fn").tolist() == [448.0, 2.0**-9]
    assert decode(np.array([0x7B, 0x01], np.uint8), "float8_e5m2").tolist() == [57344.0, 2.0**-16]
    assert encode(np.array([1000.0, -1e9]), "float8_e4m3fn").tolist() == [0x7E, 0xFE]
    assert encode(np.array([1.0, -2.0]), "bfloat16").tolist() == [0x3F80, 0xC000]
    # ties go to the even neighbour: 1 + 2**-8 lies between 1 and 1 + 2**-7
    assert encode(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8]), "bfloat16").tolist() == [0x3F80, 0x3F82]
    assert encode(np.array([2.5, -3.4]), "int8").tolist() == [2, -3]
