"""The verdicts that the files of a cluster hold, each with where its evidence stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .figures import unreal
from .overview import Finding, Part

Record = Mapping[str, Any]


def find(parts: Sequence[Part]) -> Iterator[Finding]:
    """Those that failed first."""
    found = [finding for part in parts for finding in _of(part)]
    yield from sorted(found, key=lambda finding: ("failed", "note", "passed").index(finding.state))


def _state(passed: object) -> str:
    return "passed" if passed else "failed"


def _of(part: Part) -> Iterator[Finding]:
    doc = part.doc
    if "facts" in part.kinds:
        section = next((kind for kind in part.kinds if kind != "facts"), "facts")
        tag = unreal(doc)
        if tag:
            yield Finding("failed", "of a device", f"the figures are {tag}: no device was measured", part.file, section)
        if doc.get("interrupted"):
            yield Finding("failed", "complete", "the run was interrupted", part.file, section)
        for verdict in doc.get("verdicts") or ():
            yield Finding(_state(verdict["passed"]), str(verdict["name"]), str(verdict["text"]), part.file, section)
    for kind, tell in (("monitor", _monitor), ("fleet", _fleet), ("scale", _scale)):
        if kind in part.kinds:
            yield from tell(part, doc)


def _monitor(part: Part, doc: Record) -> Iterator[Finding]:
    for verdict in doc["monitor"].get("verdicts") or ():
        text = f"{verdict.get('verdict')}: {verdict.get('reason')}"
        yield Finding("note", str(verdict.get("subject")), text, part.file, "monitor")


def _fleet(part: Part, doc: Record) -> Iterator[Finding]:
    from ..report.fleet import headline, verdict_lines

    clean = not doc["slow"] and not doc["faults"] and not any(group["ratio"] < 1 for group in doc["groups"])
    yield Finding(_state(clean and doc["tests"]), "fleet", headline(doc), part.file, "fleet")
    if doc.get("acceptance"):
        text = verdict_lines(doc)[0]
        yield Finding(_state(doc["acceptance"]["passed"]), "acceptance", text, part.file, "fleet")


def _scale(part: Part, doc: Record) -> Iterator[Finding]:
    for curve in doc.get("curves") or ():
        name, stop, rows = curve["fabric"]["name"], curve.get("stop"), curve.get("rows") or ()
        if stop:
            text = (
                f"over {name} more than {stop['gpus']:,} GPUs do not pay: {stop['beyond'] // stop['gpus']} times as "
                f"many give {stop['gain']:.2f} times the throughput ({stop['reason']}; a model)"
            )
            yield Finding("note", "scaling", text, part.file, "scale")
        elif rows:
            text = f"over {name} adding GPUs pays up to {rows[-1]['gpus']:,} (a model)"
            yield Finding("passed", "scaling", text, part.file, "scale")
