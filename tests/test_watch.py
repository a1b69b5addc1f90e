"""Who else used the CPUs, from two readings of /proc/stat."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumicro.watch import CLOCK_TICKS_PER_S, CpuWatch, Ticks, throttle_events


def ticks(own_s: float, **seconds: float) -> Ticks:
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    fields = [round(seconds.get(name, 0) * CLOCK_TICKS_PER_S) for name in names]
    found = Ticks.parse("cpu  " + " ".join(map(str, fields)) + " 0 0\ncpu0 1 2 3", own_s)
    assert found is not None
    return found


def test_shares_of_steal_and_of_others() -> None:
    watch = CpuWatch()
    watch.see(ticks(5.0, user=10, idle=10), ticks(9.0, user=16, idle=13, steal=1))  # 10 s: 6 user, 3 idle, 1 steal
    assert watch.steal_fraction == pytest.approx(0.1)
    assert watch.others_fraction == pytest.approx(0.2)  # 6 s were used, 4 of them by us


def test_own_time_above_what_was_ticked_is_no_negative_share() -> None:
    watch = CpuWatch()
    watch.see(ticks(0.0), ticks(5.0, user=4, idle=1))
    assert watch.others_fraction == 0.0


@pytest.mark.parametrize("text", ["", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9"])
def test_a_proc_stat_that_does_not_tell_gives_a_reason(text: str) -> None:
    watch = CpuWatch()
    watch.see(Ticks.parse(text, 0.0), ticks(0.0, user=1))
    out = watch.to_json("cpu")
    assert out["steal_fraction"] is None
    assert "does not tell" in out["steal_fraction_why"]


def test_throttle_events_are_summed_over_cores_and_none_where_there_are_none(tmp_path: Path) -> None:
    assert throttle_events(tmp_path) is None
    for core, count in enumerate((2, 3)):
        folder = tmp_path / f"cpu{core}" / "thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_count").write_text(f"{count}\n")
    assert throttle_events(tmp_path) == 5
