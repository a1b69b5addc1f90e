"""A work that stands in a file of the user's: `FILE.py:FUNC`, with its counts and its arguments as the file names them.

What the file names, for FUNC:
    counts      by `@gm.measured(...)` on FUNC, else COUNTS in the file: a `gm.counts.Counts`, a function of FUNC's
                arguments that gives one, or a dict from FUNC's name to either;
    arguments   ARGS in the file: a list or tuple, a function without arguments that makes it, or a dict from FUNC's
                name to either.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from .counts import Counts, Declared, declared_of
from .errors import UsageError, unknown
from .reach import OwnCodeError, attribute_of, load_file


@dataclass(frozen=True, slots=True)
class OwnWork:
    """A function of the user's file, ready to be placed."""

    path: Path
    name: str
    function: Any
    args: tuple[Any, ...]
    counts: Counts

    def error(self, error: BaseException) -> OwnCodeError:
        """What its calls raised."""
        return OwnCodeError(f"{self.path.name}:{self.name}", error, self.path)


def load(target: str, arguments: Sequence[str] = (), declared: Declared | None = None, dtype: Any = None) -> OwnWork:
    """The work that `FILE.py:FUNC` means, with FUNC's arguments (texts: numbers where they read as such) and counts.

    `declared` comes before what the file says, `dtype` before both. The file is run as an import is: not as __main__.
    UsageError: no such file or function, a syntax error, arguments or counts that are missing. OwnCodeError: it raised.
    """
    file, _, name = (target, "", "") if target.endswith(".py") or ":" not in target else target.rpartition(":")
    if not file:
        raise UsageError(f"{target!r} names no file; give FILE.py:FUNC")
    path = Path(file)
    module = load_file(path)
    function = _function(module, path, name)
    name = name or function.__name__
    args = tuple(map(_argument, arguments)) if arguments else _own_args(module, path, name)
    _check_call(function, name, args)
    known = declared or declared_of(function) or Declared(counts=_named(module, "COUNTS", name))
    if not known:
        raise UsageError(
            f"{path.name} does not say how much {name} does: decorate it with @gm.measured(flops=..., bytes=...), set "
            "COUNTS in the file, or give --flops and --bytes"
        )
    if dtype is not None:
        known = replace(known, dtype=dtype)
    return OwnWork(path, name, function, args, known.of(*args))


def _function(module: ModuleType, path: Path, name: str) -> Any:
    own = [key for key, value in vars(module).items() if _is_own(value, module) and not key.startswith("_")]
    own = [key for key in own if key not in ("ARGS", "COUNTS")]
    if not own:
        raise UsageError(f"{path.name} defines no function")
    if not name:
        told = [key for key in own if declared_of(vars(module)[key])] or own
        if len(told) != 1:
            raise UsageError(f"which function? {path.name}:FUNC, one of {', '.join(told)}")
        name = told[0]
    found = attribute_of(module, name)
    if found is None:
        raise UsageError(f"{path.name} has no function {unknown('', name, own).removeprefix('unknown  ')}")
    if not callable(found) and not hasattr(found, "work"):
        raise UsageError(f"{name} in {path.name} is no function but {type(found).__name__}")
    return found


def _is_own(value: Any, module: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", "") == module.__name__


def _named(module: ModuleType, key: str, name: str) -> Any:
    """COUNTS or ARGS of the file for that function, None where there is none."""
    value = getattr(module, key, None)
    return value.get(name) if isinstance(value, dict) else value


def _own_args(module: ModuleType, path: Path, name: str) -> tuple[Any, ...]:
    found = _named(module, "ARGS", name)
    if callable(found):
        try:
            with contextlib.redirect_stdout(sys.stderr):
                found = found()
        except Exception as error:
            raise OwnCodeError(f"ARGS of {path.name}", error, path) from error
    if found is None:
        return ()
    if not isinstance(found, (list, tuple)):
        raise UsageError(f"ARGS of {path.name} must be a list or tuple of arguments, not {type(found).__name__}")
    return tuple(found)


def _argument(text: str) -> Any:
    """A whole number ("4096", "2^20"), a number, else the text itself."""
    if power := re.fullmatch(r"(\d{1,4})(?:\^|\*\*)(\d{1,3})", text):
        return int(power[1]) ** int(power[2])
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _check_call(function: Any, name: str, args: tuple[Any, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    streamed = {"stream": None} if "stream" in list(signature.parameters)[len(args) :] else {}  # it will be given one
    try:
        signature.bind(*args, **streamed)
    except TypeError as error:
        wanted = f"{name}({', '.join(signature.parameters)})"
        raise UsageError(
            f"{wanted} with {len(args)} arguments: {error}; give them as ARGS in the file or --arg"
        ) from None


class _Counting(io.TextIOBase):
    """Takes what is printed and keeps only how many lines it was."""

    def __init__(self) -> None:
        self.lines = 0
        self.first = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.lines += text.count("\n")
        self.first = self.first or text.strip()[:60]
        return len(text)


@contextlib.contextmanager
def printing_counted(name: str, remarks: list[str]) -> Iterator[None]:
    """What the work prints inside goes nowhere, and a remark says that it printed: thousands of calls drown a table."""
    sink = _Counting()
    try:
        with contextlib.redirect_stdout(sink):
            yield
    finally:
        if sink.first:
            lines = f"{sink.lines:,} line{'s' if sink.lines != 1 else ''}"
            remarks.append(f"{name} printed while it was timed ({lines}, {sink.first!r} first): that is in its time.")
