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
from .ranks import Control, Ranks
from .records import Results
from .run import Row, lead
from .session import Session
from .settings import Settings
from .side import HostSide, Side
from .table import table
from .watchdog import GRACE_S, SPEAK_S, Watchdog, say


@dataclass(frozen=True, slots=True)
class Output:
    """Where rank 0 writes. `line` takes each line of the table as it comes; `file` the result, None for none."""

    line: Callable[[str], None]
    format: str = "table"
    file: str | None = None


Work = Callable[[Ranks, Settings, Output, "int | None", Watchdog], int]


def run(
    ranks: Ranks, settings: Settings, output: Output, *, expect: int | None = None, timeout_s: float = 120,
    work: Work | None = None,
) -> int:  # fmt: skip
    """Ranks on CPUs: see `run_on`. `work`: another thing to do than the sweep."""
    side = HostSide(ranks)
    if work is None:
        return run_on(side, settings, output, expect=expect, timeout_s=timeout_s)
    return _watched(side, timeout_s, lambda dog: work(ranks, settings, output, expect, dog))


def run_on(side: Side, settings: Settings, output: Output, *, expect: int | None = None, timeout_s: float = 120) -> int:
    """All of it; the exit code: 0, or 1 where an element was wrong.

    What is wrong on all ranks alike is raised on rank 0 and is a silent exit code on the others. An error of one rank
    ends all of them at once, after that rank has named itself and its host.
    """
    return _watched(side, timeout_s, lambda dog: _together(side, settings, output, expect, dog))


def _watched(side: Side, timeout_s: float, task: Callable[[Watchdog], int]) -> int:
    control = side.control
    who = f"rank {control.rank} of {control.size} on {socket.gethostname()}"

    def abort(code: int) -> None:
        side.abort()
        control.abort(code)

    dog = Watchdog(who, timeout_s, abort)
    dog.start()
    with suppress(ValueError):  # not the main thread: a test, or somebody's program
        dog.listen()
    try:
        return task(dog)
    except Agreed as agreed:
        side.abort()
        if control.rank == 0:
            raise agreed.error from None
        return agreed.error.exit_code
    except BaseException as error:
        if side.ended:  # whoever ended it has said why, and ends this process too
            time.sleep(GRACE_S)
            control.abort(1)
        if control.size == 1:
            side.abort()
            raise
        _last_words(f"{who}, in or after {dog.place}", error, control, abort)
        raise
    finally:
        dog.stop()


class Agreed(Exception):
    """An error that every rank has found by itself."""

    def __init__(self, error: GpumicroError) -> None:
        super().__init__(str(error))
        self.error = error


def _last_words(who: str, error: BaseException, control: Control, abort: Callable[[int], None]) -> None:
    if isinstance(error, KeyboardInterrupt):
        if control.rank == 0:
            say("interrupted; the rows so far are kept")
        else:
            time.sleep(GRACE_S)  # rank 0 speaks first, where it can
        abort(130)
    say(f"{who}: {f'{type(error).__name__}: ' if not isinstance(error, GpumicroError) else ''}{error}")
    if getattr(error, "timed_out", False):
        time.sleep(SPEAK_S)  # all that wait say so: the rank that does not is the one to look at
    abort(getattr(error, "exit_code", 1))


def _together(side: Side, settings: Settings, output: Output, expect: int | None, dog: Watchdog) -> int:
    control = side.control
    try:
        peers = wishes.meet(control, settings, expect, side.introduce(settings))
        cases, remarks = wishes.cases(settings, side.know(peers), wishes.most_bytes(peers))
        results = Results(side.medium(), peers, settings, remarks)
        shown = table(output.format, results)
    except GpumicroError as error:
        raise Agreed(error) from error
    dog.beat("the start")
    session = Session(control, cases, side.crew(cases, dog.beat), dog.beat)
    if control.rank != 0:
        session.follow()
        side.close()
        return 0

    def on_row(row: Row) -> None:
        results.rows.append(row)
        for line in shown.row(row):
            output.line(line)
        _keep(results, output, interrupted=True)  # until the last row is there

    for line in shown.head():
        output.line(line)
    lead(session, settings, on_row)
    results.notes += side.remarks()
    side.close()
    for line in shown.foot():
        output.line(line)
    _keep(results, output, interrupted=False)
    return 1 if any(row.wrong for row in results.rows) else 0


def _keep(results: Results, output: Output, *, interrupted: bool) -> None:
    """The file as far as it goes: a job that is killed leaves its rows. Standard output gets the whole at the end."""
    if output.file is not None and not (interrupted and output.file == "-"):
        write(os.fspath(output.file), results.document(interrupted=interrupted))
