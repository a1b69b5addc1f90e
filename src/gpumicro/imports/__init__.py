"""Results of other tools as our document: recognised by content, parsed, tagged with their source, never embellished.

A format is one file here with `claims(source)` and `read(source)`, and one entry in FORMATS; docs/import.md says what
of each is read. Nothing in this room measures; a figure that a tool does not state is null with its reason.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, unknown

if TYPE_CHECKING:
    from types import ModuleType

    from ..schema import Document
    from .record import Parsed, Record
    from .source import Source

# --format's name -> module; in the order of docs/import.md
FORMATS: Mapping[str, str] = {
    "nvbench": "nvbench",
    "nccl-tests": "nccl_tests",
    "nvbandwidth": "nvbandwidth",
    "babelstream": "babelstream",
    "mixbench": "mixbench",
    "fio": "fio",
    "osu": "osu",
    "google-benchmark": "google_benchmark",
    "pytest-benchmark": "pytest_benchmark",
}


def import_results(
    paths: Sequence[str], *, format: str | None = None, device: str | None = None, argv: Sequence[str] | None = None
) -> Document:
    """The document of these files together (`-`: stdin).

    format: a name of FORMATS, instead of telling it from the content. device: what to call a device that a file does
    not name; files with the same name then share a roof. Raises UsageError naming file, line and cure, and writes
    nothing.
    """
    from ..result import document, dumps, parse
    from .record import Parsed
    from .roof import ceilings, points, ridge_points
    from .source import read_source

    if not paths:
        raise UsageError("no file to import")
    if format is not None and format not in FORMATS:
        raise UsageError(unknown("format", format, FORMATS))
    if len({Path(path).absolute() for path in paths}) < len(paths):
        raise UsageError("a file is named twice: its figures would count twice")
    whole = Parsed("", None)
    sources = []
    for path in paths:
        source = read_source(path)
        found = _module(format or tell_format(source)).read(source)
        if not found.records:
            raise source.wrong(f"{found.tool}'s output without any figure; did its run fail, or print them elsewhere?")
        _join(whole, found, device)
        version = {"version": found.version} if found.version else {"version": None, "version_why": "not in the file"}
        when = {"when": found.when} if found.when else {"when": None, "when_why": "not in the file"}
        sources.append({"tool": found.tool, **version, "file": source.label, **when, "environment": found.environment})
    roofs = ceilings(whole.records)
    doc = document(
        argv=["import", *paths] if argv is None else argv,
        devices=whole.devices.values(),
        measurements=whole.records,
        ceilings=roofs,
        ridge_points=ridge_points(roofs),
        points=points(roofs, whole.records),
        notes=whole.notes,
        environment={"imported": "the machine that the tools ran on; what they said of it stands in imported.sources"},
        emulated=False,
        imported=_summary(sources),
    )
    return parse(dumps(doc).encode(), ", ".join(paths))


def tell_format(source: Source) -> str:
    """The one format whose marks the content bears. UsageError with the candidates, or with all there are."""
    fitting = [name for name in FORMATS if _module(name).claims(source)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise source.wrong(f"may be of {' or '.join(fitting)}; say which with --format")
    raise source.wrong(
        f"of no format that is known ({', '.join(FORMATS)}); import the tool's own output, headings included, or name "
        "its format with --format"
    )


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{FORMATS[name]}")


def _join(whole: Parsed, found: Parsed, device: str | None) -> None:
    """Put what a file held with the rest; devices of different files are one where they bear the same name and id."""
    renamed: dict[str, str] = {}
    for old, facts in found.devices.items():
        named = facts.pop("named", True)
        new = old
        if not named and device is not None:
            same = _same_name(whole, device)
            facts["name"] = device
            if same and same not in renamed.values():  # two devices of one file stay two
                new = same
        elif not named and old in whole.devices:
            new = _free(whole, old)
        if new in whole.devices and whole.devices[new]["name"] != facts["name"]:
            new = _free(whole, old)
        whole.devices.setdefault(new, {**facts, "id": new})
        renamed[old] = new
    for record in found.records:
        _rename(record, renamed[record["device"]])
        whole.add(record)
    whole.notes += [note for note in found.notes if note not in whole.notes]


def _same_name(whole: Parsed, name: str) -> str | None:
    return next((ident for ident, facts in whole.devices.items() if facts["name"] == name), None)


def _free(whole: Parsed, ident: str) -> str:
    return next(name for number in range(2, sys.maxsize) if (name := f"{ident}#{number}") not in whole.devices)


def _rename(record: Record, device: str) -> None:
    old = record["device"]
    if old != device:
        record["id"] = record["id"].replace(f"@{old}/", f"@{device}/")
        record["device"] = device


def _summary(sources: Sequence[Mapping[str, Any]]) -> Record:
    tools = list(dict.fromkeys(source["tool"] for source in sources))
    versions = {source["version"] for source in sources}
    one = versions.pop() if len(versions) == 1 and len(tools) == 1 else None
    why = {} if one else {"version_why": "not in the file" if len(sources) == 1 else "see sources"}
    files = ", ".join(str(source["file"]) for source in sources)
    return {"tool": " and ".join(tools), "version": one, **why, "file": files, "sources": list(sources)}
