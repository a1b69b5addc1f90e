"""The first call of a work: what it took, what it returned, and what it did besides."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from ..errors import GpumicroError, UsageError, add_note
from ..timers import default_timer
from .arguments import Inputs, name_of, signature_of
from .unfinished import refuse, waits_for


@dataclass(frozen=True, slots=True)
class FirstCall:
    """seconds: of the host, compilers and lazy loading included. flags: "prints", "changes-inputs"."""

    result: Any
    seconds: float
    flags: frozenset[str]


def first_call(call: Callable[[], Any], work: Any, args: Sequence[Any]) -> FirstCall:
    """Call the work once. What it raises passes through with a note; UsageError where its arguments do not fit."""
    inputs, printed = Inputs(work, args), _Counting(sys.stdout)
    results: list[Any] = []

    def run() -> None:
        results.append(call())
        refuse(results[0], name_of(work))
        wait = waits_for(results[0])
        if wait is not None:
            wait(results[0])

    try:
        with redirect_stdout(printed):
            seconds = float(default_timer().sample(run, [1])[0])
    except KeyboardInterrupt as stop:
        add_note(stop, "gpumicro: interrupted in the first call of the work; nothing was timed yet")
        raise
    except Exception as error:
        wrong = isinstance(error, (TypeError, ctypes.ArgumentError)) and signature_of(work) is None
        if wrong and _from_outside(error):
            raise UsageError(f"{name_of(work)} cannot be called with these {len(args)} arguments: {error}") from error
        if not isinstance(error, GpumicroError):
            add_note(error, "gpumicro: the work raised this in its first call, before anything was timed")
        raise
    found = {"prints": printed.writes > 0, "changes-inputs": inputs.changed()}
    return FirstCall(results[0], seconds, frozenset(name for name, seen in found.items() if seen))


def _from_outside(error: Exception) -> bool:
    """Whether no Python code of the work was running: then its call itself was wrong."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == __file__


class _Counting:
    """A stream that counts what is written to it on the way."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.writes = inner, 0

    def write(self, text: str) -> int:
        self.writes += 1
        return int(self._inner.write(text)) if self._inner is not None else len(text)

    def flush(self) -> None:
        if self._inner is not None:  # a process may be started without a standard output
            self._inner.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
