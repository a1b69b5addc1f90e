"""The sizes of a sweep, as nccl-tests' options name them: K, M, G are powers of 1024."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ..errors import UsageError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(iB|B)?\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
MOST = 10_000  # sizes of a sweep
LARGEST = 1 << 50


def parse_bytes(text: str) -> float:
    """Bytes of "8", "64M", "2.8G", "4KiB". UsageError for another text, and for KB or MB, which may be decimal."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a size: a number of bytes, or one with K, M, G or T (powers of 1024)")
    number, power, unit = match[1], match[2].upper(), (match[3] or "").lower()
    if power and unit == "b":
        raise UsageError(f"{text!r} may mean powers of 1000 or of 1024: write {number}{power} (1024)")
    value = float(number) * float(1024 ** _POWERS[power])
    if not 1 <= value <= LARGEST:
        raise UsageError(f"{text!r} is not a size from 1 byte to {LARGEST >> 40}T")
    return value


def parse_size(text: str) -> int:
    """As `parse_bytes`, of a buffer. UsageError for part of a byte as well."""
    value = parse_bytes(text)
    if value != int(value):
        raise UsageError(f"{text!r} is not a whole number of bytes")
    return int(value)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Sizes in bytes from `begin` to `end`, each `factor` times the last, or `step` bytes more where that is given."""

    begin: int
    end: int
    factor: float = 2.0
    step: int | None = None

    def __post_init__(self) -> None:
        if self.begin > self.end:
            raise UsageError(f"the sweep begins at {self.begin} B, above its end at {self.end} B")
        if not (self.factor > 1 and math.isfinite(self.factor)):
            raise UsageError(f"the factor from size to size must be above 1, not {self.factor:g}")
        if self.step is not None and self.step < 1:
            raise UsageError(f"the step from size to size must be at least 1 byte, not {self.step}")
        if self.step is not None and (self.end - self.begin) // self.step >= MOST:
            raise UsageError(f"a step of {self.step} B makes more than {MOST} sizes; take a larger one, or -f")
        if self.step is None and math.log(self.end / self.begin) / math.log(self.factor) >= MOST:
            raise UsageError(f"a factor of {self.factor} makes more than {MOST} sizes; take a larger one")

    def sizes(self) -> tuple[int, ...]:
        """All of them, before any rounding to elements."""
        if self.step is not None:
            return tuple(range(self.begin, self.end + 1, self.step))
        found, exact = [self.begin], float(self.begin)
        while (exact := exact * self.factor) <= self.end * (1 + 1e-12):
            found += [round(exact)] if round(exact) > found[-1] else []
        return tuple(found)
