"""A kernel held for a while, on a fake clock: windows, the settled part, and what Ctrl-C leaves."""

from __future__ import annotations

from typing import Any

import pytest

from gpumicro.sustain import SustainInterrupted, sustain
from gpumicro.timers import FakeTimer, FakeWork


def test_a_sagging_clock_settles_below_its_first_second() -> None:
    held = sustain(FakeWork(1e-3), 10.0, 1000, "cpu/float64", FakeTimer(sag=0.2, sag_time_s=2.0)).to_json()
    assert held["first"]["value"] > held["settled"]["value"]
    assert held["settled"]["value"] == pytest.approx(1e6 / 1.2, rel=0.01)
    low, high = held["settled"]["ci95"]
    assert low < high
    assert len(held["series"]) == pytest.approx(100, abs=25)


def test_too_few_windows_have_no_interval_and_say_so() -> None:
    held = sustain(FakeWork(1e-3), 0.1, 1000, "cpu/float64", FakeTimer()).to_json()
    assert held["settled"]["ci95"] is None
    assert "too few" in held["settled"]["ci95_why"]


class StoppedTimer(FakeTimer):
    """Ctrl-C in the fourth window."""

    calls = 0

    def sample(self, work: Any, counts: Any) -> Any:
        self.calls += 1
        if self.calls == 5:  # the first call finds out how long one run takes
            raise KeyboardInterrupt
        return super().sample(work, counts)


def test_ctrl_c_keeps_the_windows_until_then() -> None:
    with pytest.raises(SustainInterrupted) as stop:
        sustain(FakeWork(1e-3), 60.0, 1000, "cpu/float64", StoppedTimer())
    assert stop.value.partial is not None
    assert len(stop.value.partial.value) == 3
    assert stop.value.partial.seconds == stop.value.partial.t_s[-1] < 1
