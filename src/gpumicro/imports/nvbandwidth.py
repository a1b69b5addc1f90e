"""nvbandwidth (NVIDIA): its text, and the JSON of `-j`. One measurement for each cell of a test's matrix.

Bandwidth is in GB/s of 1e9 B/s, latency in ns, each as the line above the matrix says; a cell is the median of
`--testSamples` (3), or their mean with `--useMean`, which the output does not tell. N/A and 0 on the diagonal of a
peer test are pairs that were not run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .record import Parsed, Record, made, stated
from .source import Source

_RUNNING = re.compile(r"^Running (\S+?)\.?\s*$")
_STATUS = re.compile(r"^\s*(Waived|WAIVED|Error|ERROR|Not Found)\b:?\s*(.*)$")
_DEVICE = re.compile(r"^\s*(?:Device )?(\d+): (.*?) \([0-9a-fA-F:.]+\)(?::.*)?$")
PARTS = ("first", "second", "total")
_PART = re.compile(r"\b(?:(?:Read|Write)([12])|(Total)) bandwidth", re.IGNORECASE)
_ROW = re.compile(r"\s*\S+\s+([-+.\d]|N/A|nan|inf)", re.IGNORECASE)
_UNIT = re.compile(r"\((GB/s|ns)\)\s*$")
_CELL = re.compile(r"^(N/A|[-+]?(\d[\d.,eE+-]*|nan|inf))$", re.IGNORECASE)


def claims(source: Source) -> bool:
    """The version line of its text, a test's heading with a matrix, or JSON under its name."""
    if any(isinstance(doc.get("nvbandwidth"), dict) for doc in source.documents):
        return True
    return bool(
        re.search(r"^nvbandwidth Version: ", source.text, re.MULTILINE)
        or re.search(r"^Running \w+\.\s*\n.*\((GB/s|ns)\)\s*$", source.text, re.MULTILINE)
    )


@dataclass
class _Test:
    """One test while its lines come in."""

    name: str
    line: int | None
    what: str = ""
    heading: Sequence[str] = ()
    cells: int = 0
    part: str = ""  # of a test in both directions


def read(source: Source) -> Parsed:
    """Both kinds."""
    found = Parsed("nvbandwidth", None)
    for doc in source.documents:
        if isinstance(doc.get("nvbandwidth"), dict):
            _read_json(source, found, doc["nvbandwidth"])
    if not source.documents:
        _read_text(source, found)
    return found


def _device(found: Parsed, text: str) -> None:
    match = _DEVICE.match(text)
    if match:
        found.device(f"cuda:{int(match[1][:6])}", "cuda", match[2].strip())


# -- text ------------------------------------------------------------------------------------------------------------


def _read_text(source: Source, found: Parsed) -> None:
    test: _Test | None = None
    for number, line in enumerate(source.lines, 1):
        if match := re.match(r"nvbandwidth Version: (\S+)", line):
            found.version = match[1]
        elif match := re.match(r"Driver Version: (\S+)", line):
            found.environment["driver"] = match[1]
        elif match := _RUNNING.match(line):
            _end(source, found, test)
            test = _Test(match[1], number)
        elif match := _STATUS.match(line):
            test = _status(source, found, test, match[1].lower(), match[2].strip(), number)
        elif line.startswith("Device "):
            _device(found, line)
        elif test:
            _line(source, found, test, line, number)
    _end(source, found, test)


def _line(source: Source, found: Parsed, test: _Test, line: str, number: int) -> None:
    """A line below "Running ...": what is measured, the matrix' heading, a row, or its sum."""
    if _UNIT.search(line):
        test.what, test.heading = line.strip(), ()
        part = _PART.search(line)
        test.part = PARTS[int(part[1] or 3) - 1] if part else ""
    elif line.startswith(("SUM ", "&&&& PERF ")):
        test.what = ""
    elif test.cells and not _ROW.match(line):
        test.what = ""  # ends a matrix; another one of the same test may follow
    elif test.what and line.strip():
        fields = line.split()
        if not test.heading:
            test.heading = fields
        elif not all(map(_CELL.match, fields[1:])):
            raise source.wrong(f"{line.strip()[:40]!r} is no row of {test.name}'s matrix", number)
        elif len(fields) != len(test.heading) + 1:
            raise source.ragged(len(fields) - 1, len(test.heading), number)
        else:
            for column, text in zip(test.heading, fields[1:], strict=True):
                _cell(source, found, test, fields[0], column, text, number)


def _status(source: Source, found: Parsed, test: _Test | None, word: str, rest: str, line: int) -> _Test | None:
    """WAIVED and errors. The text names the test on the line before, where it names it at all."""
    running = test if test and not test.cells else None
    if running is None:
        _end(source, found, test)
    name = running.name if running else rest.split()[0] if word == "waived" and rest else "unnamed"
    _without_figures(source, found, name, word, rest, line)
    return None


def _without_figures(source: Source, found: Parsed, name: str, word: str, text: str, line: int | None) -> None:
    waived = f"nvbandwidth waived it: {text or 'it does not apply to this machine'}"
    failed = f"nvbandwidth: {text}" if text else f"nvbandwidth reports: {word}"
    why: dict[str, Any] = {"skipped": waived} if word == "waived" else {"failed": failed}
    kernel = f"nvbandwidth.{name}"
    found.add(made(source, found, kernel=kernel, family="copy", device=_node(found), line=line, **why))


def _node(found: Parsed) -> str:
    return found.device("node", "group", "the node as a whole")


def _end(source: Source, found: Parsed, test: _Test | None) -> None:
    if test and not test.cells:
        _without_figures(source, found, test.name, "error", "the log ends before its figures", test.line)


# -- JSON ------------------------------------------------------------------------------------------------------------


def _read_json(source: Source, found: Parsed, root: Record) -> None:
    version = root.get("version")
    found.version = version if isinstance(version, str) else None
    if isinstance(root.get("Driver Version"), str):
        found.environment["driver"] = root["Driver Version"]
    devices = root.get("GPU Device list", root.get("GPU Device info"))
    for text in devices if isinstance(devices, list) else []:
        _device(found, str(text))
    if "error" in root:
        found.notes.append(f"nvbandwidth reports: {root['error']}")
    tests = root.get("testcases")
    if not isinstance(tests, list):
        raise source.wrong(f"no test in it; nvbandwidth reports: {root.get('error', 'nothing')}")
    statuses = [(case.get("name"), case.get("status")) for case in tests if isinstance(case, dict)]
    for case in tests:
        name = source.entry(case, "name", str, "a test")
        status = source.entry(case, "status", str, f"test {name}")
        matrix = case.get("bandwidth_matrix")
        if isinstance(matrix, list) and matrix:
            _matrix(source, found, name, case, matrix)
        elif status.lower() == "running" and (name, "Error") in statuses:
            continue  # the error stands in an entry of its own
        else:
            text = str(case.get("error", "")) or ("it was not finished" if status.lower() == "running" else "")
            _without_figures(source, found, name, status.lower(), text, None)


def _matrix(source: Source, found: Parsed, name: str, case: Record, matrix: list[Any]) -> None:
    test = _Test(name, None, source.entry(case, "bandwidth_description", str, f"test {name}"))
    rows = [source.entry({"row": values}, "row", list, f"{name}'s matrix") for values in matrix]
    # a test in both directions puts its three matrices on top of each other, and the last one's description over all
    stacked = "bidirectional" in name and len(rows) == 3 * len(rows[0])
    height = len(rows) // 3 if stacked else len(rows)
    for row, values in enumerate(rows):
        for column, text in enumerate(values):
            test.part = PARTS[row // height] if stacked else ""
            _cell(source, found, test, str(row % height), str(column), text, None)
    if not test.cells:
        _without_figures(source, found, name, "waived", "no pair of devices could run it", None)


# -- both ------------------------------------------------------------------------------------------------------------


def _cell(source: Source, found: Parsed, test: _Test, row: str, column: str, text: Any, line: int | None) -> None:
    """One figure; the column is the GPU, the row a GPU or the CPU."""
    if text == "N/A":
        test.cells += 1  # a test all of whose pairs are N/A did end
        return
    value = source.number(text, f"{test.name}, row {row}, column {column}", line)
    test.cells += 1
    if not value:  # older versions write 0.00 for a GPU and itself
        return
    whole = column.isdigit() and len(column) < 7
    ident = f"cuda:{int(column)}" if whole else "imported"
    device = ident if ident in found.devices else found.device(ident, "cuda" if whole else "unknown", None)
    indices = {"row": row, "column": column}
    problem = {name: int(index) for name, index in indices.items() if index.isdigit() and len(index) < 7}
    labels = {name: index for name, index in indices.items() if name not in problem}
    nanoseconds = test.what.endswith("(ns)") or ("(ns)" not in test.what and "latency" in test.name)
    figure = stated(value * (1e-9 if nanoseconds else 1e9), "nvbandwidth states one figure of its samples")
    more: dict[str, Any] = {"latency_s": figure} if nanoseconds else {"bandwidth": figure}
    why = {
        "time_s": "nvbandwidth states a latency" if nanoseconds else "nvbandwidth states bandwidth only",
        "threads": "a GPU or its copy engine",
    }
    found.add(
        made(
            source, found, kernel=f"nvbandwidth.{test.name}", family="latency" if nanoseconds else "copy",
            device=device, problem=problem, labels=labels or None, level=_level(test.name), line=line,
            variant=test.part, facts={"what": test.what}, why=why, **more,
        )
    )  # fmt: skip


def _level(name: str) -> str | None:
    """By the test's name: between two GPUs, within one, or from and to the host."""
    if name.startswith("device_local"):
        return "dram"
    if "host" in name:
        return "host"
    return "peer" if name.startswith(("device_to_device", "one_to_all", "all_to_one")) else None
