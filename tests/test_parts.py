"""Large arrays in parts: every element once, in order, on threads; what a part raises is not lost."""

from __future__ import annotations

import threading
import time
from itertools import chain

import numpy as np
import pytest

from gpumicro.kernels.operands import operand
from gpumicro.kernels.parts import each_part, slices


@pytest.mark.parametrize(("total", "step"), [(0, 4), (1, 4), (4, 4), (9, 4), (1000, 7)])
def test_parts_cover_everything_once_and_in_order(total: int, step: int) -> None:
    assert [i for part in slices(total, step) for i in range(total)[part]] == list(range(total))
    assert list(chain(*each_part(total, lambda part: range(total)[part], step))) == list(range(total))


def test_several_threads_share_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4))
    together = threading.Barrier(4, timeout=60)  # breaks where fewer work at once
    assert each_part(4, lambda _: together.wait() >= 0, 1) == [True] * 4


def test_an_error_passes_and_ends_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(2))
    done = []

    def do(part: slice) -> None:
        if part.start == 0:
            raise ValueError("here")
        time.sleep(0.01)
        done.append(part.start)

    with pytest.raises(ValueError, match="here"):
        each_part(1000, do, 1)
    assert len(done) < 999


@pytest.mark.parametrize("operands", ["uniform", "normal"])
def test_operands_can_be_made_in_parts(operands: str) -> None:
    whole = operand(1000, "float32", operands=operands, seed=3, index=2)  # type: ignore[arg-type]
    parts = [operand(100, "float32", operands=operands, seed=3, index=2, first=at) for at in range(0, 1000, 100)]  # type: ignore[arg-type]
    assert np.array_equal(whole, np.concatenate(parts))
