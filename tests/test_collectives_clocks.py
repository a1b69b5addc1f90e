"""Clocks of several hosts: found again where they were set apart, and only believed as far as a round trip allows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from fake_ranks import FakeRanks, World

from gpumicro import result
from gpumicro.collectives import crew, job, settings
from gpumicro.collectives.clocks import Clocks
from gpumicro.collectives.sizes import Sweep

APART_NS = {0: 0, 1: 7_000_000_000, 2: -3_000_000_000}  # by host


class Elsewhere:
    """A rank of a host whose clock is set apart; the rest is the inner one's."""

    def __init__(self, inner: FakeRanks, hosts: list[int], drift: float = 0.0) -> None:
        self._inner, self._host = inner, hosts[inner.rank]
        self._drift = drift if self._host else 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def clock_ns(self) -> int:
        now = time.perf_counter_ns()
        return now + APART_NS[self._host] + int(now * self._drift)


def looked(hosts: list[int], looks: int = 1, drift: float = 0.0) -> list[Clocks]:
    def work(ranks: FakeRanks) -> Clocks:
        clocks = Clocks(Elsewhere(ranks, hosts, drift), f"host{hosts[ranks.rank]}", trips=10)  # type: ignore[arg-type]
        for _ in range(looks):
            clocks.refresh()
        return clocks

    found: list[Clocks] = World(len(hosts)).each(work)
    assert all(isinstance(one, Clocks) for one in found), found
    return found


def test_offsets_come_back_within_what_is_said_of_them() -> None:
    hosts = [0, 1, 0, 2, 1]
    found = looked(hosts)
    for clocks, host in zip(found, hosts, strict=True):
        assert not clocks.one
        assert abs(clocks.offset_ns - APART_NS[host]) <= clocks.uncertainty_ns < 1e9
    assert len({clocks.uncertainty_ns for clocks in found}) == 1


def test_a_clock_that_runs_away_is_less_sure() -> None:
    steady, drifting = looked([0, 1], 2)[0], looked([0, 1], 2, drift=0.5)[0]
    assert drifting.uncertainty_ns > steady.uncertainty_ns
    drifting.forget()
    assert drifting.uncertainty_ns == 0


def test_one_clock_needs_no_look() -> None:
    (clocks,) = {(c.one, c.offset_ns, c.uncertainty_ns) for c in looked([0, 0, 0])}
    assert clocks == (True, 0, 0)


@pytest.mark.parametrize(("late_s", "known"), [(0.05, True), (0.0, False)])
def test_skew_across_hosts_is_given_where_it_is_surer_than_the_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_s: float, known: bool
) -> None:
    """Rank 1, with its clock seven seconds ahead, comes late to every run: that much is skew."""
    file = str(tmp_path / "r.json")

    class Slow(Elsewhere):
        def barrier(self) -> None:
            self._inner.barrier()
            if self._host:
                time.sleep(late_s)

    def run(ranks: FakeRanks) -> Any:
        own: Any = Slow(ranks, [0, 1])
        monkeypatch.setattr(crew, "Clocks", lambda control: Clocks(control, f"host{control.rank}", trips=5))
        wished = settings.Settings(("all_reduce",), Sweep(64, 64), places=(False,), iters=2, max_time_s=0.01)
        return job.run(own, wished, job.Output(lambda _: None, "table", file))

    assert World(2).each(run) == [0, 0]
    (row,) = result.read(file)["measurements"]
    assert row["skew_uncertainty_s"] > 0
    if known:
        assert late_s - row["skew_uncertainty_s"] <= row["skew_s"] < 1
    else:
        assert row["skew_s"] is None or row["skew_s"] > row["skew_uncertainty_s"]
    assert (row["skew_s"] is None) == ("skew_s_why" in row)
