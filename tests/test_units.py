"""Reading and writing of quantities."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumicro.errors import UsageError
from gpumicro.units import (
    format_count,
    format_fraction,
    format_interval,
    format_quantity,
    format_size,
    format_tick,
    parse,
    parse_count,
    parse_size,
    parse_time,
)

RATES = st.sampled_from(["B/s", "FLOP/s", "OP/s", "FLOP", "Hz"])
POSITIVE = st.floats(1e-3, 1e19, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "unit", "ci95", "text"),
    [
        (3.83e10, "B/s", None, "38.3 GB/s"),
        (3.834e10, "B/s", (3.82e10, 3.85e10), "38.3 GB/s"),
        (3.834e10, "B/s", (3.8339e10, 3.8341e10), "38.34 GB/s"),
        (3.8e10, "B/s", (2.6e10, 5.1e10), "38 GB/s"),
        (1.17e11, "FLOP/s", (0.9e11, 1.4e11), "120 GFLOP/s"),
        (9.9996e11, "FLOP/s", None, "1.00 TFLOP/s"),
        (2.0e-8, "s", None, "20.0 ns"),
        (1.5e-4, "s", None, "150 us"),
        (72.0, "s", None, "72.0 s"),
        (0.0, "B/s", None, "0 B/s"),
        (3.55e9, "Hz", None, "3.55 GHz"),
        (0.0833, "FLOP/B", None, "0.0833 FLOP/B"),
        (0.25, "W", None, "250 mW"),
        (33554432.0, "B", None, "32 MiB"),
    ],
)
def test_quantity_is_written(value: float, unit: str, ci95: tuple[float, float] | None, text: str) -> None:
    assert format_quantity(value, unit, ci95) == text


def test_interval_has_the_places_of_its_value() -> None:
    assert format_interval((3.82e10, 3.85e10), 3.834e10, "B/s") == "38.2 to 38.5"
    assert format_interval((9.98e8, 1.003e9), 1.0004e9, "B/s") == "0.998 to 1.003"
    assert format_interval((2.6e10, 5.1e10), 3.8e10, "B/s") == "26 to 51"


@given(value=POSITIVE, unit=RATES, width=st.floats(1e-9, 2.0))
def test_interval_is_never_shown_as_empty_where_four_digits_tell_its_ends_apart(
    value: float, unit: str, width: float
) -> None:
    low, high = value * (1 - width / 4), value * (1 + width / 4)
    left, right = map(float, format_interval((low, high), value, unit).split(" to "))
    assert left < right or width < 1e-3


@given(value=POSITIVE, unit=RATES, digits=st.integers(2, 8))
def test_quantity_round_trip(value: float, unit: str, digits: int) -> None:
    text = format_quantity(value, unit, digits=digits)
    back = parse(text, unit)
    # below one unit there is no smaller prefix for rates, so the digits are all there is
    assert back == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))
    assert format_quantity(back, unit, digits=digits) == text


@given(value=st.floats(1e-13, 1e6))
def test_time_round_trip(value: float) -> None:
    text = format_quantity(value, "s")
    assert parse_time(text) == pytest.approx(value, rel=0.0051)
    assert text.isascii()


@given(size=st.integers(0, 2**55))
def test_size_round_trip(size: int) -> None:
    text = format_size(size)
    assert parse(text, "B") == pytest.approx(size, rel=0.00051)
    assert format_size(parse(text, "B")) == text


@given(value=POSITIVE, unit=RATES, half=st.floats(1e-12, 0.9))
def test_digits_are_limited_by_the_interval(value: float, unit: str, half: float) -> None:
    text = format_quantity(value, unit, (value * (1 - half), value * (1 + half)))
    digits = text.split()[0].replace(".", "").lstrip("0")
    assert parse(text, unit) == pytest.approx(value, rel=max(0.051, half))
    # the last digit is no finer than a tenth of the half-width, unless two digits remain
    assert len(digits.rstrip("0")) <= 4
    assert abs(parse(text, unit) - value) <= max(value * half, 0.0005001 * value) + 0.0501 * value * (half > 0.05)


@given(count=st.integers(0, 2**50))
def test_count_round_trip(count: int) -> None:
    assert parse_count(format_count(count).replace(",", "_")) == count


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2^27", 2**27),
        ("2**27", 2**27),
        ("1e6", 10**6),
        ("64Ki", 65536),
        ("3M", 3_000_000),
        ("100_000", 100_000),
        (" 7 ", 7),
    ],
)
def test_counts_are_read(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("32 MiB", 2**25),
        ("1.5GiB", 3 * 2**29),
        ("100 MB", 10**8),
        ("4096", 4096),
        ("64 KiB", 65536),
        ("2^20 B", 2**20),
        ("1kB", 1000),
    ],
)
def test_sizes_are_read(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize(
    "text", ["", "GB", "1 2", "ten", "1.5", "-4", "32 Mib", "1e400", "2^99999", "nan", "inf", "12 GB/s"]
)
def test_bad_sizes_are_refused_with_the_text(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


def test_other_units_are_read() -> None:
    assert parse("38.3 GB/s", "B/s") == 38.3e9
    assert parse("1.2 TFLOP/s", "FLOP/s") == 1.2e12
    assert parse("3 us", "s") == parse("3 µs", "s") == pytest.approx(3e-6)
    with pytest.raises(UsageError, match="unknown unit 'GiB/s'"):
        parse("3 GiB/s", "B/s")


def test_ticks_are_short() -> None:
    assert [format_tick(10.0**power, "FLOP/s") for power in (9, 10, 12)] == ["1 GFLOP/s", "10 GFLOP/s", "1 TFLOP/s"]
    assert format_tick(2.5e9, "FLOP/s") == "2.5 GFLOP/s"


@given(st.floats(0, 3))
def test_fraction_keeps_its_side_of_one(fraction: float) -> None:
    shown = float(format_fraction(fraction).rstrip("%"))
    assert (shown >= 100) == (100 * fraction >= 100)
    assert math.isclose(shown, 100 * fraction, rel_tol=0.006, abs_tol=0.01)
