"""One run over all ranks: rank 0 measures row after row, the others follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import stats
from ..measure import measure
from ..measurement import Measurement
from .crew import Crew, Interval
from .ranks import Case
from .session import AGAIN, AVERAGE, CHECK, END, LOAD, RankTimer, Session
from .settings import ITERATIONS, Settings


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """What was found of one case. Seconds."""

    case: Case
    measurement: Measurement  # of the longest rank of each run
    wrong: int  # elements, on all ranks
    mean_rank_s: float  # median over the runs of the mean over the ranks
    skew_s: float  # median over the runs of last start less first start
    skew_error_s: float  # by which the clocks of different hosts may falsify it; 0 on one
    average_s: float  # as nccl-tests has it
    average_runs: int
    call_s: Interval | None  # the same call with one element on one rank: median and its interval


def lead(session: Session, settings: Settings, on_row: Callable[[Row], None]) -> None:
    """Rank 0's part: every case in turn; `on_row` gets each row when it is whole."""
    calls: dict[tuple[str, bool], Interval | None] = {}
    for index, case in enumerate(session.cases):
        key = (case.kind.name, case.in_place)
        if key not in calls:
            calls[key] = session.crew.call_overhead(case)
        on_row(_row(session, settings, index, calls[key]))
    session.command(END)


def _row(session: Session, settings: Settings, index: int, call_s: Interval | None) -> Row:
    session.command(LOAD, index)
    wrong: int = session.command(CHECK)
    timer = RankTimer(session)
    found = measure(_Runs(session.crew), settings.policy(), timer)
    runs = settings.iters or ITERATIONS
    runs = max(1, min(runs, int(settings.max_time_s / max(found.estimate_s * session.crew.unit, 1e-9))))
    average_s: float = session.command(AVERAGE, runs)
    wrong = max(wrong, session.command(AGAIN))  # what the timed runs left
    return Row(
        session.cases[index], found, wrong, _middle(timer.means[-found.n :]), _middle(timer.skews[-found.n :]),
        session.crew.skew_error_s, average_s, runs * session.crew.unit, call_s,
    )  # fmt: skip


class _Runs:
    """What `measure` is given: work that only the timer of all ranks can run."""

    def __init__(self, crew: Crew) -> None:
        self.loop = crew.loop

    def __call__(self) -> None:
        raise AssertionError("the ranks run it together")


def _middle(values: Sequence[float]) -> float:
    return stats.median(np.array(values))
