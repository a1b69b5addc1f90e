"""OSU micro-benchmarks (Ohio State University): the text of osu_latency, osu_bw, osu_allreduce and their kin.

Latency is microseconds, the mean over iterations (of collectives: and over ranks), bandwidth MB/s of 1e6 B/s. The
number of ranks is not in the output. One log may hold many tests; what launchers print between them is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..result import or_why
from .record import Parsed, Record, made, stated
from .source import Source

_TITLE = re.compile(r"^#?\s*OSU (\S+) (.+?) Test(?: v?(\d\S*))?\s*$")
_HEADING = re.compile(r"^#?\s*(Size\s.*\S|Avg Latency ?\(us\).*)$")
_ROW = re.compile(r"^\s*[-+.\d]\S*(\s+\S+)*\s*$")
COLLECTIVES: Mapping[str, str] = {
    "allgather": "all_gather", "allgatherv": "all_gather", "allreduce": "all_reduce", "broadcast": "broadcast",
    "reduce": "reduce", "reduce_scatter": "reduce_scatter", "gather": "gather", "scatter": "scatter",
    "all-to-all personalized exchange": "all_to_all", "barrier": "barrier",
}  # fmt: skip


def claims(source: Source) -> bool:
    """A title and a heading of its columns."""
    return any(map(_TITLE.match, source.lines)) and any(map(_HEADING.match, source.lines))


def read(source: Source) -> Parsed:
    """Every row of every test."""
    found = Parsed("osu-micro-benchmarks", None)
    device = found.device("ranks", "group", None, "MPI ranks")
    title, heading = "", None
    for number, line in enumerate(source.lines, 1):
        if match := _TITLE.match(line):
            title, heading = f"{match[1]} {match[2]}", None
            found.version = match[3] or found.version
        elif title and (match := _HEADING.match(line)):
            heading = [name.strip() for name in re.split(r"\s{2,}|\t", match[1])]
        elif heading and _is_row(line, heading):
            _row(source, found, device, title, heading, line.split(), number)
        elif heading and line.strip() and not line.lstrip().startswith("#"):
            _passed(source, heading, line, number)
    return found


def _is_row(line: str, heading: Sequence[str]) -> bool:
    fields = line.split()
    return bool(fields) and fields[0].replace(".", "", 1).isdigit() and len(fields) == len(heading)


def _passed(source: Source, heading: Sequence[str], line: str, number: int) -> None:
    """Lines of a launcher between the rows pass; a row that is cut off or has decimal commas does not."""
    fields = line.split()
    if all(re.fullmatch(r"[-+]?[\d.,]+|nan|inf|-nan|-inf", field, re.IGNORECASE) for field in fields):
        raise source.ragged(len(fields), len(heading), number)


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")


def _row(
    source: Source, found: Parsed, device: str, title: str, heading: Sequence[str], fields: Sequence[str], line: int
) -> None:
    row = dict(zip(heading, fields, strict=True))
    kind, _, test = title.partition(" ")
    pattern = re.sub(r" ?(Non-blocking|Persistent|Latency|Bandwidth)\b", "", test).strip()
    collective = COLLECTIVES.get(pattern.lower())
    microseconds, mega, messages = (_column(source, row, words, line) for words in (LATENCY, BANDWIDTH, MESSAGES))
    passed = row.get("Validation")
    problem = {"size_bytes": source.count(row["Size"], "Size", line)} if "Size" in row else {}
    iterations = source.count(row["Iterations"], "Iterations", line, least=1) if "Iterations" in row else None
    reason = "OSU states the mean over its iterations"
    seconds = stated(microseconds and microseconds * 1e-6, reason, location="mean")
    more: dict[str, Any] = dict(problem)
    if collective:
        more |= _ranks(source, row, collective, line, microseconds)
    if messages is not None:
        more["operations_per_s"] = stated(messages, reason)
    check: Record | None = None
    if passed is not None:
        nulls = or_why("worst", None, "OSU says passed or failed only") | or_why("bound", None, "not stated")
        check = {"passed": passed.lower() == "pass", "reference": "OSU: validation", **nulls}
    found.add(
        made(
            source, found, kernel=f"osu.{_slug(test)}", family="collective" if collective else "network", device=device,
            problem=problem, labels=None if kind == "MPI" else {"memory": kind}, level="network", runs=iterations,
            time_s=seconds, bandwidth=stated(mega and mega * 1e6, reason), check=check, line=line,
            failed="OSU's validation of the message failed" if check and not check["passed"] else None,
            why={"time_s": "OSU states a bandwidth" if microseconds is None else "printed as 0.00"}, **more,
        )
    )  # fmt: skip


LATENCY = ("Avg Latency(us)", "Latency (us)", "Avg Latency (us)", "Latency(us)", "Avg Lat(us)")
BANDWIDTH = ("Bandwidth (MB/s)", "MB/s", "Bandwidth(MB/s)")
MESSAGES = ("Messages/s",)


def _column(source: Source, row: Mapping[str, str], words: Sequence[str], line: int) -> float | None:
    """The figure of the first of these columns; None where there is none of them, or where it is printed as 0.00."""
    name = next((word for word in words if word in row), None)
    return source.number(row[name], name, line) or None if name else None


def _ranks(source: Source, row: Mapping[str, str], collective: str, line: int, mean_us: float | None) -> Record:
    most = _column(source, row, ("Max Latency(us)", "Max Latency (us)"), line)
    return {
        "collective": collective,
        **or_why("ranks", None, "OSU does not print it"),
        **or_why("time_mean_rank_s", mean_us and mean_us * 1e-6, "printed as 0.00"),
        **or_why("time_max_rank_s", most and most * 1e-6, "only --full prints it"),
        **or_why("algbw_bytes_per_s", None, "OSU states the time only"),
        **or_why("busbw_bytes_per_s", None, "OSU states the time only"),
    }
