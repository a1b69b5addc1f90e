"""Is b faster than a, in whichever process? Each of three fresh processes compares; for a claim take ten or more."""

from __future__ import annotations

import gpumicro as gm

numbers = list(range(2000))


def a() -> None:
    """Sorted copy."""
    sorted(numbers)


def b() -> None:
    """Copy, then sort."""
    numbers.copy().sort()


if __name__ == "__main__":  # the fresh processes run this file too
    result = gm.compare(a, b, processes=3, blocks=30)
    print(result)
    print("each process:", ", ".join(f"{run['ratio']:.4f}" for run in result.runs))
