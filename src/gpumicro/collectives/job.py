"""A whole job on this rank: the meeting, the rows, the file that grows with them, and the end whatever happens."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ..errors import GpumicroError
from ..result import write
from . import settings as wishes
from .ranks import Ranks
from .records import Results
from .run import Row, lead
from .session import Session
from .settings import Settings
from .table import table
from .watchdog import GRACE_S, Watchdog, say


@dataclass(frozen=True, slots=True)
class Output:
    """Where rank 0 writes. `line` takes each line of the table as it comes; `file` the result, None for none."""

    line: Callable[[str], None]
    format: str = "table"
    file: str | None = None


def run(ranks: Ranks, settings: Settings, output: Output, *, expect: int | None = None, timeout_s: float = 120) -> int:
    """All of it; the exit code: 0, or 1 where an element was wrong.

    What is wrong on all ranks alike is raised on rank 0 and is a silent exit code on the others. An error of one rank
    ends all of them at once, after that rank has named itself and its host.
    """
    who = f"rank {ranks.rank} of {ranks.size} on {socket.gethostname()}"
    dog = Watchdog(who, timeout_s, ranks.abort)
    dog.start()
    with suppress(ValueError):  # not the main thread: a test, or somebody's program
        dog.listen()
    try:
        return _together(ranks, settings, output, expect, dog)
    except _Agreed as agreed:
        if ranks.rank == 0:
            raise agreed.error from None
        return agreed.error.exit_code
    except BaseException as error:
        if ranks.size == 1:
            raise
        _last_words(who, error, ranks)
        raise
    finally:
        dog.stop()


class _Agreed(Exception):
    """An error that every rank has found by itself."""

    def __init__(self, error: GpumicroError) -> None:
        super().__init__(str(error))
        self.error = error


def _last_words(who: str, error: BaseException, ranks: Ranks) -> None:
    if isinstance(error, KeyboardInterrupt):
        if ranks.rank == 0:
            say("interrupted; the rows so far are kept")
        else:
            time.sleep(GRACE_S)  # rank 0 speaks first, where it can
        ranks.abort(130)
    say(f"{who}: {f'{type(error).__name__}: ' if not isinstance(error, GpumicroError) else ''}{error}")
    ranks.abort(getattr(error, "exit_code", 1))


def _together(ranks: Ranks, settings: Settings, output: Output, expect: int | None, dog: Watchdog) -> int:
    try:
        peers = wishes.meet(ranks, settings, expect)
        cases, remarks = wishes.cases(settings, ranks, wishes.most_bytes(peers))
        results = Results(ranks, peers, settings, remarks)
        shown = table(output.format, results)
    except GpumicroError as error:
        raise _Agreed(error) from error
    dog.beat("the start")
    session = Session(ranks, cases, dog.beat)
    if ranks.rank != 0:
        session.follow()
        return 0

    def on_row(row: Row) -> None:
        results.rows.append(row)
        for line in shown.row(row):
            output.line(line)
        _keep(results, output, interrupted=True)  # until the last row is there

    for line in shown.head():
        output.line(line)
    lead(session, settings, on_row)
    for line in shown.foot():
        output.line(line)
    _keep(results, output, interrupted=False)
    return 1 if any(row.wrong for row in results.rows) else 0


def _keep(results: Results, output: Output, *, interrupted: bool) -> None:
    """The file as far as it goes: a job that is killed leaves its rows. Standard output gets the whole at the end."""
    if output.file is not None and not (interrupted and output.file == "-"):
        write(os.fspath(output.file), results.document(interrupted=interrupted))
