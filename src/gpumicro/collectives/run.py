"""One run over all ranks: rank 0 measures row after row, the others follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import stats
from ..measure import measure
from ..measurement import Measurement, Policy
from . import loops
from .buffers import Buffers
from .operations import Collective, Counts
from .ranks import Case, Ranks
from .session import AGAIN, AVERAGE, CHECK, END, LOAD, RankTimer, Session
from .settings import ITERATIONS, Settings

_OVERHEAD_S = 0.1  # for finding out what a call alone costs


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
    call_s: tuple[float, float, float] | None  # the same call with one element on one rank: median and its interval


def lead(session: Session, settings: Settings, on_row: Callable[[Row], None]) -> None:
    """Rank 0's part: every case in turn; `on_row` gets each row when it is whole."""
    calls: dict[tuple[str, bool], tuple[float, float, float]] = {}
    for index, case in enumerate(session.cases):
        key = (case.kind.name, case.in_place)
        if key not in calls:
            calls[key] = call_overhead(session.ranks, case)
        on_row(_row(session, settings, index, calls[key]))
    session.command(END)


def _row(session: Session, settings: Settings, index: int, call_s: tuple[float, float, float]) -> Row:
    session.command(LOAD, index)
    wrong: int = session.command(CHECK)
    found = measure(session.loaded.run, settings.policy(), RankTimer(session))
    runs = settings.iters or ITERATIONS
    runs = max(1, min(runs, int(settings.max_time_s / max(found.estimate_s, 1e-9))))
    average_s: float = session.command(AVERAGE, runs)
    wrong = max(wrong, session.command(AGAIN))  # what the timed runs left
    return Row(
        session.cases[index], found, wrong, _middle(session.means[-found.n :]), _middle(session.skews[-found.n :]),
        session.clocks.uncertainty_ns * 1e-9, average_s, runs, call_s,
    )  # fmt: skip


def _middle(values: Sequence[float]) -> float:
    return stats.median(np.array(values))


def call_overhead(ranks: Ranks, case: Case) -> tuple[float, float, float]:
    """What the call costs with nobody to talk to: one element, a communicator of this rank alone (rank 0)."""
    kind: Collective = case.kind
    elements = min(1, case.counts.shown)
    alone = Case(kind, Counts(elements, elements, elements), case.dtype, case.op, 0, case.in_place)
    buffers = Buffers(case.dtype, 1)
    buffers.send[:] = buffers.receive[:] = 1
    run = ranks.alone().bind(alone, buffers.send, buffers.receive)
    if (compiled := loops.call_alone(run)) is not None:
        return compiled
    found = measure(
        run,
        Policy(target=0.05, max_time_s=_OVERHEAD_S, max_warmup_s=_OVERHEAD_S, max_samples=1000),
    )
    return found.estimate_s, *found.ci95_s
