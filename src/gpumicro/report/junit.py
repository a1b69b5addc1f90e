"""A comparison of results as JUnit XML: one test case a measurement, for the CI's own list of tests."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

from ..units import format_quantity
from .diff import change, headline
from .tables import Doc, clean


def to_junit(diff: Doc, fails: Callable[[str], bool]) -> bytes:
    """The XML file. A case fails where `fails(verdict)`; what was not compared is a skipped one with its reason."""
    suite = ElementTree.Element("testsuite", name="gpumicro compare", timestamp=diff["created"].removesuffix("Z"))
    failures = 0
    for record in diff["compared"]:
        case = _case(suite, record["id"])
        text = _words(record)
        if fails(record["verdict"]):
            failures += 1
            _failure(case, text, record["verdict"])
        else:
            ElementTree.SubElement(case, "system-out").text = text
    skipped = 0
    for left in diff["not_compared"]:
        case = _case(suite, left["id"])
        reason = clean("; ".join(left["reasons"]))
        if left["expected"] and fails("missing"):
            failures += 1
            _failure(case, reason, "missing")
        else:
            skipped += 1
            ElementTree.SubElement(case, "skipped", message=reason)
    tests = len(diff["compared"]) + len(diff["not_compared"])
    counts = {"tests": tests, "failures": failures, "errors": 0, "skipped": skipped}
    for name, count in counts.items():
        suite.set(name, str(count))
    suites = ElementTree.Element("testsuites", name=headline(diff))
    suites.append(suite)
    ElementTree.indent(suites)
    return bytes(ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)) + b"\n"


def _case(suite: ElementTree.Element, name: str) -> ElementTree.Element:
    text = clean(name)
    return ElementTree.SubElement(
        suite, "testcase", classname=f"gpumicro.{text.partition('[')[0]}", name=text, time="0"
    )


def _failure(case: ElementTree.Element, text: str, kind: str) -> None:
    """Some services show the attribute, some the content."""
    ElementTree.SubElement(case, "failure", message=text, type=kind).text = text


def _words(record: Doc) -> str:
    base, new = (format_quantity(record[side]["value"], record[side]["unit"]) for side in ("base", "new"))
    span = f" ({' to '.join(map(change, record['ci95']))})" if record["ci95"] else ""
    why = f"; {clean(record['why'])}" if record.get("why") else ""
    return f"{record['verdict']}: {base} -> {new}, time {change(record['ratio'])}{span}{why}"
