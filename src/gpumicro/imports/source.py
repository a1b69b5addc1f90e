"""The file that is imported: read once within a limit, decoded, split into lines; figures in it turned into numbers.

Whatever is wrong is a UsageError that names file and line and says what to do. Nothing here knows a format.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import UsageError

MOST_BYTES = 256 * 2**20  # of one file: a hundred times what the largest sweep of these tools writes
MOST_NUMBER = 1e100  # so that products and ratios of two figures stay finite
MOST_COUNT = 2**62
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Source:
    """One file's content. `name` is what messages call it, `folder` where files beside it lie (None for stdin)."""

    name: str
    content: bytes
    folder: Path | None = field(default=None)

    @property
    def label(self) -> str:
        """The name without its folders, which are nobody's business in a result."""
        return Path(self.name).name

    @cached_property
    def text(self) -> str:
        """Decoded (UTF-8, or UTF-16 with its mark, as PowerShell writes), line ends as "\\n", NULs left out."""
        encoding = next((name for mark, name in _BOMS if self.content.startswith(mark)), "utf-8")
        decoded = self.content.decode(encoding, errors="replace").replace("\0", "")
        return decoded.replace("\r\n", "\n").replace("\r", "\n")

    @cached_property
    def lines(self) -> list[str]:
        """Line 1 is the first of the list."""
        return self.text.split("\n")

    @cached_property
    def documents(self) -> list[dict[str, Any]]:
        """The JSON objects of the file, in order; text before the first and between them (a tool's remarks) is passed.

        Empty where the file holds no JSON object. Raises UsageError for one that is broken.
        """
        return list(self._objects())

    def _objects(self) -> Iterator[dict[str, Any]]:
        decoder = json.JSONDecoder()
        place = 0
        while (found := _OBJECT.search(self.text, place)) is not None:
            start = found.end() - 1
            try:
                value, place = decoder.raw_decode(self.text, start)
            except json.JSONDecodeError as error:
                ended = error.pos >= len(self.text.rstrip()) or error.msg.startswith("Unterminated")
                what = "the JSON ends too early: the file is cut off" if ended else f"not JSON: {error.msg}"
                cure = "write it again with the tool" if ended else "import the file as the tool wrote it"
                raise self.wrong(f"{what}; {cure}", error.lineno) from None
            except (RecursionError, ValueError) as error:  # nested too deeply, or an integer of too many digits
                line = self.text.count("\n", 0, start) + 1
                raise self.wrong(f"not JSON that can be read: {error or 'nested too deeply'}", line) from None
            yield value

    def wrong(self, what: str, line: int | None = None) -> UsageError:
        """The error to raise: `file:line: what`."""
        where = f"{self.name}:{line}" if line else self.name
        return UsageError(f"{where}: {what}")

    def ragged(self, found: int, expected: int, line: int) -> UsageError:
        """The error for a row that has not the heading's number of fields."""
        cure = "cut off, mixed with another, or with decimal commas (run the tool under LC_ALL=C)"
        return self.wrong(f"{found} fields where the heading has {expected}: {cure}", line)

    def number(self, value: Any, what: str, line: int | None = None, *, least: float = 0.0) -> float:
        """A finite number of at least `least`, from a JSON value or a column's text; UsageError says which was not."""
        found = _float(value)
        if found is None:
            comma = isinstance(value, str) and re.fullmatch(r"\d+,\d+", value.strip())
            cure = " (a decimal comma? run the tool under LC_ALL=C)" if comma else ""
            raise self.wrong(f"{what} is {_shown(value)}, not a number{cure}", line)
        if not math.isfinite(found) or abs(found) > MOST_NUMBER:
            raise self.wrong(f"{what} is {_shown(value)}: that run gave no figure; take it out or run it again", line)
        if found < least:
            raise self.wrong(f"{what} is {_shown(value)}, below {least:g}: the file is damaged", line)
        return found

    def positive(self, value: Any, what: str, line: int | None = None) -> float:
        """`number`, above zero: a time or a rate that something is divided by."""
        found = self.number(value, what, line)
        if not found > 1 / MOST_NUMBER:
            raise self.wrong(f"{what} is {_shown(value)}, where only more than 0 makes sense", line)
        return found

    def count(self, value: Any, what: str, line: int | None = None, *, least: int = 0) -> int:
        """`number`, a whole one."""
        found = self.number(value, what, line, least=least)
        if found != int(found):
            raise self.wrong(f"{what} is {_shown(value)}, not a whole number", line)
        if found > MOST_COUNT:
            raise self.wrong(f"{what} is {_shown(value)}: the file is damaged", line)
        return int(found)

    def objects(self, record: Any, key: str, where: str) -> list[dict[str, Any]]:
        """`record[key]`, a list that holds objects only."""
        found: list[dict[str, Any]] = self.entry(record, key, list, where)
        if not all(isinstance(item, dict) for item in found):
            raise self.wrong(f"{key!r} of {where} holds what is no object; is it from a newer or an altered tool?")
        return found

    def entry(self, record: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
        """`record[key]` of a JSON object, which must be there and of that type."""
        value = record.get(key) if isinstance(record, dict) else None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(f"{where} has no {key!r} as the format has it; is it from a newer or an altered tool?")
        return value


_OBJECT = re.compile(r"^[ \t]*\{", re.MULTILINE)


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str):
        text = value.strip()
        if text.lower().lstrip("+-") in ("nan", "inf", "infinity", "1.#inf", "1.#ind"):
            return math.nan
        return float(text) if _NUMBER.fullmatch(text) else None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def read_source(path: str) -> Source:
    """The file (`-`: stdin), whole. Raises UsageError where it cannot be read, is empty or larger than MOST_BYTES."""
    name = "<stdin>" if path == "-" else path
    try:
        if path == "-":
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"{name!r}: {error}") from error
    if len(content) > MOST_BYTES:
        raise UsageError(f"{name}: larger than {MOST_BYTES >> 20} MiB; split it and import the parts")
    source = Source(name, content, None if path == "-" else Path(path).parent)
    if not source.text.strip():
        raise source.wrong("the file is empty; did the tool write its results elsewhere (its standard output)?")
    return source


def columns(line: str, separator: str | None = None) -> Sequence[str]:
    """A line's fields, without white space around them."""
    return [part.strip() for part in line.split(separator)] if separator else line.split()
