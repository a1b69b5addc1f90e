"""The cluster on one page: every file that the commands wrote, put together to facts, verdicts and what to do next.

Takes documents alone and measures nothing. A section whose file is missing says which command brings it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import SchemaError, UsageError
from ..result import read
from ..schema import SCHEMA as RESULT_SCHEMA
from .fleet_records import SCHEMA as FLEET_SCHEMA

Record = Mapping[str, Any]

SCHEMA = "gpumicro-cluster/1"
NO_GAIN = "not known in figures"
MOST_FILES = 500  # as one page; more nodes are fleet's work


@dataclass(frozen=True, slots=True)
class Part:
    """One file. `kinds`: what it has to say, of SECTIONS."""

    file: str
    kinds: tuple[str, ...]
    doc: Record


@dataclass(frozen=True, slots=True)
class Missing:
    """What a section lacks, and the command that brings it."""

    title: str
    command: str


# In the order of the page: what it is called, and how to get it.
SECTIONS: Mapping[str, Missing] = {
    "facts": Missing("Facts", "gpumicro roofline -o FILE"),
    "roofline": Missing("Roofline of each kind of device", "gpumicro roofline -o FILE"),
    "collectives": Missing("Collectives", "gpumicro collectives --ranks N -o FILE"),
    "scale": Missing("Scaling", "gpumicro scale ROOFLINE.json COLLECTIVES.json -o FILE"),
    "storage": Missing("Storage", "gpumicro io DIR -o FILE"),
    "monitor": Missing("A run as it was watched", "gpumicro monitor -o FILE -- COMMAND"),
    "cost": Missing("Cost", "gpumicro cost ROOFLINE.json --price USD -o FILE"),
    "precision": Missing("Precision", "gpumicro precision ROOFLINE.json -o FILE"),
    "memory": Missing("Memory pools", "gpumicro memory ROOFLINE.json -o FILE"),
    "fleet": Missing("Fleet", "gpumicro fleet RESULTS_DIR -o FILE"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict that a file holds, or that follows from one; `section` has the evidence."""

    state: str  # "failed", "note" or "passed"
    name: str
    text: str
    file: str
    section: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do. `gain`: 0.2 is a fifth more work from the same machines (None: not known, or it buys trust and
    no speed); `of` says what grows; `basis` whether that is measured or a model's word; `section` has the evidence."""

    gain: float | None
    of: str
    what: str
    why: str
    basis: str
    file: str
    section: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page shows. `advice` in the order of expected gain; first what makes figures unfit to be believed."""

    parts: tuple[Part, ...]
    findings: tuple[Finding, ...]
    advice: tuple[Advice, ...]

    def of(self, kind: str) -> list[Part]:
        """The files that speak of it, in the order given."""
        return [part for part in self.parts if kind in part.kinds]

    @property
    def missing(self) -> list[tuple[str, Missing]]:
        """Sections that no file fills."""
        return [(kind, missing) for kind, missing in SECTIONS.items() if not self.of(kind)]

    def to_json(self) -> dict[str, Any]:
        """Of schema "gpumicro-cluster/1"; the files themselves are named, not repeated."""
        keys = Advice.__slots__
        return {
            "schema": SCHEMA, "gpumicro_version": __version__,
            "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "files": [{"file": part.file, "kinds": list(part.kinds)} for part in self.parts],
            "findings": [{key: getattr(f, key) for key in Finding.__slots__} for f in self.findings],
            "advice": [
                {key: getattr(a, key) for key in keys} | ({} if a.gain is not None else {"gain_why": NO_GAIN})
                for a in self.advice
            ],
            "missing": [{"section": kind, "command": missing.command} for kind, missing in self.missing],
        }  # fmt: skip


def cluster_overview(paths: Sequence[str | Path]) -> Overview:
    """Read the files (a folder stands for every *.json in it) and judge them together.

    Raises SchemaError naming a file that is none of ours, UsageError for none or too many.
    """
    from .overview_advice import advise
    from .overview_findings import find

    parts = tuple(read_part(file) for file in _files(paths))
    findings = tuple(find(parts))
    return Overview(parts, findings, tuple(advise(parts, findings)))


def _files(paths: Sequence[str | Path]) -> list[str]:
    found: dict[str, str] = {}
    for path in map(Path, paths):
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise UsageError(f"{path}: no .json file in this folder")
        for file in files:
            found.setdefault(str(file.resolve()), str(file))
    if not found:
        raise UsageError("give the files that gpumicro wrote: gpumicro cluster results/*.json")
    if len(found) > MOST_FILES:
        raise UsageError(
            f"{len(found)} files, more than the {MOST_FILES} of one page; judge the nodes by `gpumicro fleet` and give "
            "its file"
        )
    return list(found.values())


def read_part(file: str) -> Part:
    """One file, of whatever command. Raises SchemaError with the kinds that are known."""
    doc = _plain(file)
    schema = doc.get("schema")
    for kind, tells in _TELLS.items():
        if tells(doc):
            return Part(file, (kind,), doc)
    if not isinstance(schema, str) or not schema.startswith(RESULT_SCHEMA.partition("/")[0] + "/"):
        raise SchemaError(f"{file}: none of gpumicro's files: {_named(doc)}")
    whole = read(file)
    return Part(file, tuple(_kinds(whole)), whole)


def _plain(file: str) -> dict[str, Any]:
    """The JSON object; what is wrong with a file that is none is said by `read`."""
    try:
        doc = json.loads(Path(file).read_bytes())
    except (OSError, ValueError, RecursionError):
        return read(file)
    return doc if isinstance(doc, dict) else read(file)


def _named(doc: Record) -> str:
    return f"its schema is {doc['schema']!r}"[:90] if "schema" in doc else 'no "schema" at the top'


_TELLS: Mapping[str, Callable[[Record], bool]] = {
    "fleet": lambda doc: doc.get("schema") == FLEET_SCHEMA,
    "scale": lambda doc: doc.get("schema") == "gpumicro/scale/1",
    "precision": lambda doc: doc.get("schema") == "gpumicro/precision/1",
    "cost": lambda doc: "cost" in (doc.get("kind"), doc.get("schema")) or doc.get("schema") == "gpumicro/cost/1",
    "memory": lambda doc: doc.get("schema") == "gpumicro/memory/1" or _is_memory(doc.get("devices")),
}


def _is_memory(devices: Any) -> bool:
    first = devices[0] if isinstance(devices, list) and devices else None
    return isinstance(first, dict) and first.get("kind") == "memory"


def _kinds(doc: Record) -> Iterator[str]:
    yield "facts"
    if doc["ceilings"]:
        yield "roofline"
    if any(item["family"] == "collective" for item in doc["measurements"]):
        yield "collectives"
    for key in ("storage", "monitor"):
        if isinstance(doc.get(key), Mapping):
            yield key
