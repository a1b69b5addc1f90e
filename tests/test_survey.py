"""A survey refuses what makes no sense before it measures anything."""

from __future__ import annotations

from typing import Any

import pytest

from gpumicro.errors import UsageError
from gpumicro.survey import Survey


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"mode": "fast"}, "unknown mode 'fast'"),
        ({"operands": "ones"}, "unknown operand class 'ones'"),
        ({"sustained_s": -1.0}, "sustained_s"),
        ({"sustained_s": float("nan")}, "sustained_s"),
        ({"sustained_s": float("inf")}, "sustained_s"),
        ({"dtypes": ["float23"]}, "did you mean float"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Survey(device="cpu", **wrong)
