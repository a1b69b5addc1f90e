"""Inputs that are known only within bounds ("30%..45%"), and how far an answer moves because of each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import UsageError
from ..units import parse

MOST_INPUTS = 12  # 2^12 corners are evaluated in milliseconds
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "y": 365.0 * 86400.0}


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A value with the least and the most that it may be; all three are the same where it is known."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        return self.low == self.high


def exactly(value: float) -> Uncertain:
    """A value that is taken as known."""
    return Uncertain(value, value, value)


def parse_range(text: str, read: Callable[[str], float], name: str) -> Uncertain:
    """`LOW..HIGH` or one value, each read by `read`; between two ends the middle is taken.

    Raises UsageError naming the option for what cannot be read, ends in the wrong order, or no finite number.
    """
    low_text, dots, high_text = text.partition("..")
    try:
        low = read(low_text.strip())
        high = read(high_text.strip()) if dots else low
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UsageError(f"{name} must be a finite number, not {text!r}")
    if low > high:
        raise UsageError(f"{name}: {text!r} begins above its end; write LOW..HIGH")
    return Uncertain((low + high) / 2, low, high)


def number(text: str) -> float:
    """A plain number, with k, M, G ... where given ("7e9", "7G")."""
    return parse(text, "")


def share(text: str) -> float:
    """0.4 of "40%" or "0.4"."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"{text!r} is no share such as 40% or 0.4") from None


def duration(text: str) -> float:
    """Seconds of "90s", "15min", "20h", "3d", "4y" (of 365 days), "200ms". A bare number is refused: of what?"""
    bare = text.strip()
    for unit in ("min", "h", "d", "y"):
        head = bare.removesuffix(unit).rstrip()
        if head != bare and head[-1:].isdigit():
            return parse(head, "") * _SECONDS[unit]
    if not bare.endswith("s"):
        raise UsageError(f"{text!r} is no time; give its unit: 90s, 15min, 20h, 3d, 4y")
    return parse(bare, "s")


def positive(known: Uncertain, name: str) -> Uncertain:
    """Itself. Raises UsageError unless all of it is above zero."""
    if known.low <= 0:
        raise UsageError(f"{name} must be above zero, not {known.low:g}")
    return known


def at_least_zero(known: Uncertain, name: str) -> Uncertain:
    """Itself. Raises UsageError where some of it is below zero."""
    if known.low < 0:
        raise UsageError(f"{name} cannot be negative, and {known.low:g} is")
    return known


def as_pue(known: Uncertain) -> Uncertain:
    """Itself. Raises UsageError for a PUE below 1 (a site draws at least what its machines draw) or above 10."""
    if not (known.low >= 1 and known.high <= 10):
        raise UsageError(f"PUE must be at least 1 and at most 10, not {known.low if known.low < 1 else known.high:g}")
    return known


def within(known: Uncertain, name: str, low: float, high: float) -> Uncertain:
    """Itself. Raises UsageError unless all of it lies in low < x <= high."""
    if not (low < known.low and known.high <= high):
        end = known.low if known.low <= low else known.high
        raise UsageError(f"{name} must be above {low:g} and at most {high:g}, not {end:g}")
    return known


@dataclass(frozen=True, slots=True)
class Move:
    """What one uncertain input alone does to the answer, all others at their middle."""

    name: str
    at_low: float
    at_high: float

    @property
    def width(self) -> float:
        return abs(self.at_high - self.at_low)


@dataclass(frozen=True, slots=True)
class Spread:
    """An answer at the middle of all inputs, its least and most over their bounds, and the inputs by what they move."""

    value: float
    low: float
    high: float
    moves: tuple[Move, ...]

    @property
    def known(self) -> bool:
        return self.low == self.high


def spread(answer: Callable[..., float], inputs: Mapping[str, Uncertain]) -> Spread:
    """`answer(**inputs)` over all corners of the bounds: exact where it rises or falls steadily in each input alone,
    as every formula of this package does. Raises UsageError for more than 12 uncertain inputs."""
    middle = {name: known.value for name, known in inputs.items()}
    open_names = [name for name, known in inputs.items() if not known.known]
    if len(open_names) > MOST_INPUTS:
        raise UsageError(f"{len(open_names)} inputs are ranges; at most {MOST_INPUTS} can be")
    ends = [(inputs[name].low, inputs[name].high) for name in open_names]
    corners = [answer(**middle | dict(zip(open_names, corner, strict=True))) for corner in itertools.product(*ends)]
    value = answer(**middle)
    moves = [
        Move(name, answer(**middle | {name: low}), answer(**middle | {name: high}))
        for name, (low, high) in zip(open_names, ends, strict=True)
    ]
    moves.sort(key=lambda move: -move.width if math.isfinite(move.width) else -math.inf)
    return Spread(value, min(value, *corners), max(value, *corners), tuple(moves))
