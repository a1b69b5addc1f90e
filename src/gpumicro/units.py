"""Numbers with units, read and written: the only room that knows what a GB/s or a MiB is.

Rates are decimal (1 GB/s = 1e9 B/s, 1 GFLOP/s = 1e9 FLOP/s), sizes are binary (1 MiB = 2**20 B). Everything behind
this room is in SI base units. Text is plain ASCII ("us", "+-"), so that it prints in every locale.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from .errors import UsageError

_DECIMAL = {"p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
            "E": 1e18}  # fmt: skip
_BINARY = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}

# unit -> the prefixes it is written with
_RATE_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_WRITTEN = {
    "B/s": _RATE_PREFIXES,
    "FLOP/s": _RATE_PREFIXES,
    "OP/s": _RATE_PREFIXES,
    "FLOP": _RATE_PREFIXES,
    "Hz": _RATE_PREFIXES,
    "W": ("m", "", "k", "M"),
    "s": ("p", "n", "u", "m", ""),
}
UNITS = ("B", *_WRITTEN, "FLOP/B", "FLOP/cycle", "")
KIB, MIB, GIB = 2**10, 2**20, 2**30

_NUMBER = r"[+-]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d+)(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(rf"\s*(?:(\d+)\s*(?:\^|\*\*)\s*(\d+)|({_NUMBER}))\s*([^\d\s].*?)?\s*$")


def parse(text: str, unit: str) -> float:
    """The value of `text` in the base unit `unit` ("B", "B/s", "FLOP/s", "FLOP", "s", "Hz", "W" or "" for a count).

    A bare number is taken to be in the base unit. Prefixes are decimal; with "B" and counts the binary Ki, Mi, Gi ...
    are understood too. Raises UsageError.
    """
    match = _QUANTITY.match(text)
    if match is None:
        raise UsageError(f"{text!r} is not a number{f' of {unit}' if unit else ''}")
    base, exponent, number, suffix = match.groups()
    if base is not None and int(exponent) > 1023:
        raise UsageError(f"{text!r} is too large")
    value = float(int(base) ** int(exponent)) if base is not None else float(number.replace("_", ""))
    value *= _factor(suffix or "", unit, text)
    if not math.isfinite(value):
        raise UsageError(f"{text!r} is too large")
    return value


def _factor(suffix: str, unit: str, text: str) -> float:
    if suffix in ("", unit):
        return 1.0
    prefix = suffix[: -len(unit)] if unit and suffix.endswith(unit) else suffix
    prefix = {"K": "k", "µ": "u", "μ": "u"}.get(prefix, prefix)
    if prefix in _DECIMAL:
        return _DECIMAL[prefix]
    if unit in ("B", "") and prefix in _BINARY:
        return float(_BINARY[prefix])
    allowed = (
        "KiB, MiB, GiB, kB, MB, GB" if unit == "B" else f"for example {unit and 'G'}{unit}" if unit else "k, M, Ki, Mi"
    )
    raise UsageError(f"{text!r}: unknown unit {suffix!r} (allowed: {allowed})")


def parse_size(text: str) -> int:
    """Bytes of "32 MiB", "2^27", "1.5GiB" or "100 MB" (decimal). Raises UsageError unless a whole number >= 0."""
    return _whole(text, "B", "bytes")


def parse_count(text: str) -> int:
    """The count in "2^27", "1e6", "64Ki" or "100_000". Raises UsageError unless a whole number >= 0."""
    return _whole(text, "", "elements")


def _whole(text: str, unit: str, what: str) -> int:
    value = parse(text, unit)
    if value < 0 or value != int(value):
        raise UsageError(f"{text!r} is not a whole number of {what}")
    return int(value)


def parse_time(text: str) -> float:
    """Seconds of "10", "20 ms", "3us"."""
    return parse(text, "s")


def format_quantity(value: float, unit: str, ci95: Sequence[float] | None = None, digits: int = 3) -> str:
    """`38.3 GB/s`: with no more digits than the 95% interval supports (2 to 4), or `digits` where there is none."""
    if unit == "B":
        return format_size(value)
    prefix, places = _scale(value, unit, ci95, digits)
    number = _fixed(value / _DECIMAL[prefix], places)
    return f"{number} {prefix}{unit}".rstrip()


def format_interval(ci95: Sequence[float], value: float, unit: str) -> str:
    """`38.2 to 38.4`, both ends in the unit and with the places that `format_quantity(value, unit, ci95)` chose.

    One place more where rounding would hide the width: an interval is never shown as empty.
    """
    prefix, places = _scale(value, unit, ci95, 3)
    low, high = (end / _DECIMAL[prefix] for end in ci95)
    if _fixed(low, places) == _fixed(high, places) and low != high:
        places = min(places + 1, 15)
    return f"{_fixed(low, places)} to {_fixed(high, places)}"


def _scale(value: float, unit: str, ci95: Sequence[float] | None, digits: int) -> tuple[str, int]:
    """The prefix and the decimal places; a value that rounds up to 1000 moves on to the next prefix."""
    prefixes = _WRITTEN.get(unit, ("",))
    magnitude = abs(value)
    fitting = [p for p in prefixes if magnitude >= _DECIMAL[p]]
    index = prefixes.index(fitting[-1]) if fitting and magnitude else prefixes.index("") if not magnitude else 0
    places = _places(magnitude / _DECIMAL[prefixes[index]], _half_width(ci95) / _DECIMAL[prefixes[index]], digits)
    if index + 1 < len(prefixes) and round(magnitude / _DECIMAL[prefixes[index]], places) >= 1000:
        index += 1
        places = _places(magnitude / _DECIMAL[prefixes[index]], _half_width(ci95) / _DECIMAL[prefixes[index]], digits)
    return prefixes[index], places


def _half_width(ci95: Sequence[float] | None) -> float:
    return 0.0 if ci95 is None else abs(ci95[1] - ci95[0]) / 2


def _places(magnitude: float, half_width: float, digits: int) -> int:
    """Decimal places (negative: round to tens) for `digits` significant digits, or what the half-width leaves of 4."""
    if not magnitude:
        return 0
    order = math.floor(math.log10(magnitude))
    if half_width > 0:
        digits = min(4, max(2, order - math.floor(math.log10(half_width)) + 1))
    # rounding may carry into one more digit: 9.996 -> 10.0
    if round(magnitude, digits - 1 - order) >= 10.0 ** (order + 1):
        order += 1
    return digits - 1 - order


def _fixed(number: float, places: int) -> str:
    return f"{round(number, places):.{max(places, 0)}f}"


def format_size(size_bytes: float) -> str:
    """`32 MiB`, `1.5 GiB`, `640 B`: binary, up to 4 digits, no trailing zeros."""
    names = list(_BINARY)
    index = 0
    while index + 1 < len(names) and float(f"{size_bytes / _BINARY[names[index]]:.4g}") >= 1024:
        index += 1
    return f"{_plain(size_bytes / _BINARY[names[index]], 4)} {names[index]}B"


def format_tick(value: float, unit: str) -> str:
    """`10 GFLOP/s`: an axis tick, the shortest text that is exact to 4 digits."""
    prefix, _ = _scale(value, unit, None, 4)
    return f"{_plain(value / _DECIMAL[prefix], 4)} {prefix}{unit}".rstrip()


def format_count(count: float) -> str:
    """`33554432` as `33,554,432`."""
    return f"{count:,.0f}"


def format_fraction(fraction: float, digits: int = 3) -> str:
    """0.934 as `93.4%`; never `100%` or above for a fraction that is below one, nor the other way round."""
    percent = 100 * fraction
    if not math.isfinite(percent):
        return "-"
    places = 0 if not percent else max(0, digits - 1 - math.floor(math.log10(abs(percent))))
    text = f"{percent:.{min(places, 2)}f}"
    if (float(text) >= 100) != (percent >= 100):
        text = f"{percent:.2f}" if float(f"{percent:.2f}") < 100 else "99.99"
    return f"{text}%"


def _plain(number: float, digits: int) -> str:
    """Up to `digits` significant digits without an exponent or trailing zeros."""
    text = f"{float(f'{number:.{digits}g}'):.12f}" if abs(number) < 1e15 else f"{number:.{digits}g}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def from_prefix(number: float, prefix: str) -> float:
    """`from_prefix(3.5, "G")` is 3.5e9: for data files that keep a vendor's unit."""
    return number * _DECIMAL[prefix]


def shown_unit(unit: str, dtype: str | None) -> str:
    """Integer arithmetic is no floating point: OP/s where the dtype says so."""
    return "OP/s" if unit == "FLOP/s" and (dtype or "").startswith(("int", "uint")) else unit
