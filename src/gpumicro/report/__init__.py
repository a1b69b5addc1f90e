"""Reports from the result document alone: it may come from another machine, and nothing here touches a device.

A new format is one file with a function document -> bytes and one entry in FORMATS.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import UsageError, unknown
from ..result import replace_file


@dataclass(frozen=True, slots=True)
class Format:
    """One way to show a result. The module is imported on first use: drawing is slow to load."""

    extensions: tuple[str, ...]
    module: str
    function: str = "to_bytes"

    def render(self, doc: Mapping[str, Any]) -> bytes:
        """The whole file's content."""
        content: bytes = getattr(import_module(f"{__name__}.{self.module}"), self.function)(doc)
        return content


FORMATS: Mapping[str, Format] = {
    "console": Format((".txt",), "console"),
    "md": Format((".md", ".markdown"), "markdown"),
    "csv": Format((".csv",), "csv"),
    "png": Format((".png",), "plot", "to_png"),
    "svg": Format((".svg",), "plot", "to_svg"),
    "html": Format((".html", ".htm"), "page"),
    "action-smaller": Format((".smaller.json",), "action", "to_smaller"),
    "action-bigger": Format((".bigger.json",), "action", "to_bigger"),
    "bencher": Format((".bmf.json",), "bencher"),
}


def find_format(name: str) -> Format:
    """By name ("md") or extension (".md"). Raises UsageError with the list."""
    wanted = name.lower()
    for key, known in FORMATS.items():
        if wanted == key or wanted in known.extensions:
            return known
    raise UsageError(unknown("report format", name, FORMATS))


def known_format(path: str | os.PathLike[str]) -> Format | None:
    """By the ending of a file's name; None where no report has it (".json" alone is a result)."""
    name = Path(path).name.lower()
    return next((known for known in FORMATS.values() if name.endswith(known.extensions)), None)


def format_for(path: str | os.PathLike[str]) -> Format:
    """By the ending of a file's name. Raises UsageError with the list of endings."""
    known = known_format(path)
    if known is None:
        endings = ", ".join(end for known in FORMATS.values() for end in known.extensions)
        raise UsageError(f"cannot tell the format of {os.fspath(path)!r} from its extension (known: {endings})")
    return known


def check_report_format(path: str | os.PathLike[str], formats: Sequence[str]) -> None:
    """Raises UsageError unless the file's extension is one of these formats'."""
    endings = [end for name in formats for end in FORMATS[name].extensions]
    if Path(path).suffix.lower() not in endings:
        raise UsageError(f"{os.fspath(path)!r} should end in {' or '.join(endings)}")


def write_report(doc: Mapping[str, Any], path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write the report; the extension says in which format unless `format` does. Raises UsageError."""
    chosen = find_format(format) if format else format_for(path)
    replace_file(path, chosen.render(doc))
