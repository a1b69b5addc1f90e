"""The device timers' cases, all in one process on the test double, where CUDA stays as it is between them."""

from __future__ import annotations

import re

from emulator.conftest import HERE, Emulated


def test_timers_graphs_copies_and_allocations(emulated: Emulated) -> None:
    done = emulated.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "timer_cases.py"))
    assert done.returncode == 0, done.stdout[-8000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 31, done.stdout[-2000:]
