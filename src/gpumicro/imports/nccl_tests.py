"""nccl-tests (NVIDIA): the text of `all_reduce_perf` and its kin, and the JSON of `-J`.

Times are microseconds, GB/s is 1e9 B/s; what `size`, `algbw` and `busbw` mean: nccl-tests' doc/PERFORMANCE.md. A row
holds an out-of-place and an in-place run. The JSON also holds the whole environment and host names: they are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ..result import or_why
from .record import Parsed, Record, dtype_name, made, stated
from .source import Source

_HEADING = re.compile(r"^#\s+size\s+count\s+type\b.*\btime\b|^#\s+size\s+count\s+type\b.*\bcputime\b", re.MULTILINE)
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s.*?\bdevice\s+(\d+)\s+\[[^\]]*\]\s+(.*)$")
_TIMESTAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_ROW = re.compile(r"^\s*\d+\s+\d+\s+\S+\s")
_TEST = re.compile(r"\b([a-z_]+)_perf\b")
LEAST_PRINTED = "printed as 0.00: below the two decimals of the tool"


def claims(source: Source) -> bool:
    """The heading of its table, or JSON with NCCL's version and results."""
    return bool(_HEADING.search(source.text)) or any("nccl_version" in doc for doc in source.documents if doc)


@dataclass
class _Run:
    """What the lines above a table said."""

    collective: str | None = None
    names: dict[int, str] = field(default_factory=dict)  # rank -> its GPU
    cut: bool = False  # the list of ranks was cut off by the tool
    heading: Sequence[str] = ()
    first: int = 0  # index of the run's first record
    validation: bool = True

    @property
    def ranks(self) -> int | None:
        """How many there are, where the log lists each of them."""
        whole = self.names and not self.cut and max(self.names) + 1 == len(self.names)
        return len(self.names) if whole else None


def read(source: Source) -> Parsed:
    """Both kinds."""
    found = Parsed("nccl-tests", None)
    if _HEADING.search(source.text):
        _read_text(source, found)
    else:
        for doc in source.documents:
            _read_json(source, found, doc)
    return found


# -- text ------------------------------------------------------------------------------------------------------------


def _read_text(source: Source, found: Parsed) -> None:
    run = _Run()
    for number, line in enumerate(source.lines, 1):
        if match := re.match(r"#\s*nccl-tests version (\S+)", line):
            found.version, run = match[1], _Run(first=len(found.records))
        elif match := re.match(r"#\s*nThread", line):
            run = _Run(collective=run.collective, first=len(found.records))
        elif match := _RANK.match(line):
            run.names[int(match[1][:9])] = match[3].strip()
        elif line.startswith("...") or (line.startswith("#  Rank") and "..." in line):
            run.cut = True
        elif _HEADING.match(line):
            run.heading = line.lstrip("# ").split()
        elif match := re.match(r"#\s*Out of bounds values\s*:\s*(\d+)", line):
            _close(found, run, int(match[1][:18]))
        elif not line.startswith("#") and run.heading and _ROW.match(line):
            _row(source, found, run, line, number)
        elif match := _TEST.search(line):
            run.collective = match[1]


def _close(found: Parsed, run: _Run, wrong: int) -> None:
    """The line at the end of a run: older versions, without the column #wrong, check the run as a whole."""
    wrong = 0 if "#wrong" in run.heading else wrong
    for record in found.records[run.first :]:
        if wrong and record["status"] == "ok" and record["check"] is None:
            record |= {"status": "failed", "error": f"nccl-tests: {wrong} values of the run were out of bounds"}
    run.first = len(found.records)


def _row(source: Source, found: Parsed, run: _Run, line: str, number: int) -> None:
    """One line: size, count, type, redop, in newer versions root, then the columns of two runs."""
    names = [name for name in run.heading if name != "timestamp"]
    first = next(i for i, name in enumerate(names) if name in ("time", "cputime"))
    width = (len(names) - first) // 2
    fields = _TIMESTAMP.sub("", line).split()
    values = fields[-2 * width :]
    head = fields[: -2 * width]
    # where a collective reduces nothing, older versions leave the column redop blank
    blank = "redop" in names and len(head) == first - 1 and all(re.fullmatch(r"-?\d+", text) for text in head[3:])
    if len(head) != first and not blank:
        raise source.ragged(len(fields), len(names), number)
    size, count, word = source.count(head[0], "size", number), source.count(head[1], "count", number), head[2]
    op = head[3] if "redop" in names and not blank else None
    for in_place, part in ((False, values[:width]), (True, values[width:])):
        columns = dict(zip(names[first : first + width], part, strict=True))
        if "N/A" in (columns.get("time"), columns.get("cputime")):  # a collective without this form
            continue
        _add(
            source, found, run, size=size, count=count, word=word, op=op, in_place=in_place, line=number,
            us=columns.get("time", columns.get("cputime")), algbw=columns.get("algbw"), busbw=columns.get("busbw"),
            wrong=columns.get("#wrong"), decimals=2,
        )  # fmt: skip


# -- JSON ------------------------------------------------------------------------------------------------------------


def _read_json(source: Source, found: Parsed, doc: Record) -> None:
    config = doc.get("config") if isinstance(doc.get("config"), dict) else {}
    args = doc.get("args")
    program = PurePosixPath(str(args[0])).name if isinstance(args, list) and args else ""
    match = _TEST.search(program)
    run = _Run(collective=match[1] if match else None)
    code = doc.get("nccl_version")
    if isinstance(code, int):
        found.environment["nccl"] = f"NCCL version code {code}"
    found.when = doc.get("start_time") if isinstance(doc.get("start_time"), str) else None
    run.names = _json_ranks(source, config or {})
    for row in source.objects(doc, "results", "the file"):
        size = source.count(source.entry(row, "size", int, "a row"), "size")
        label = f"the row of {size} bytes"
        count = None if row.get("count") is None else source.count(row["count"], "count")
        word = source.entry(row, "type", str, label)
        for key, in_place in (("out_of_place", False), ("in_place", True)):
            body = row.get(key)
            if body is None:
                continue
            _add(
                source, found, run, size=size, count=count, word=word, op=row.get("redop"), in_place=in_place,
                line=None, us=body.get("time", body.get("cpu_time")) if isinstance(body, dict) else None,
                algbw=source.entry(body, "alg_bw", (int, float, str), label),
                busbw=source.entry(body, "bus_bw", (int, float, str), label),
                wrong="N/A" if body.get("nwrong") is None else body["nwrong"], decimals=6,
            )  # fmt: skip


def _json_ranks(source: Source, config: Record) -> dict[int, str]:
    """The JSON lists the first GPU of each process: ranks = processes x threads x GPUs of a thread."""
    devices = config.get("devices")
    if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        return {}
    threads, gpus = (source.count(config.get(key, 1), key, least=1) for key in ("nthreads", "ngpus"))
    total = len(devices) * threads * gpus
    if total > 2**16:
        raise source.wrong(f"{total} ranks: the file is damaged")
    return {rank: str(devices[rank // (threads * gpus)].get("device_info", "")) for rank in range(total)}


# -- both ------------------------------------------------------------------------------------------------------------


def _add(
    source: Source, found: Parsed, run: _Run, *, size: int, count: int | None, word: str, op: object, in_place: bool,
    line: int | None, us: Any, algbw: Any, busbw: Any, wrong: Any, decimals: int,
) -> None:  # fmt: skip
    seconds = source.positive(us, "time", line) * 1e-6
    dtype = dtype_name(word)
    op = op if isinstance(op, str) and op not in ("", "none") else None
    check, wrong_count = _check(source, wrong, line)
    failed = f"nccl-tests found {wrong_count} wrong elements" if wrong_count else None
    ranks = run.ranks
    time_s = stated(seconds, "nccl-tests states the mean over its iterations and ranks", location="mean")
    found.add(
        made(
            source, found, kernel=f"nccl.{run.collective or 'unnamed'}", family="collective", device=_group(found, run),
            problem={"size_bytes": size}, labels={"op": op} if op else None,
            variant="in-place" if in_place else "out-of-place", dtype=dtype, time_s=time_s, check=check,
            failed=failed, line=line,
            why={
                "check": "validation was off (-c 0), or this version checks the run as a whole",
                "level": "links between GPUs or a network: nccl-tests does not say",
                "threads": "one or more processes drive the ranks",
                "bandwidth_bytes_per_s": "see algbw_bytes_per_s and busbw_bytes_per_s",
            },
            **or_why("collective", run.collective, "the log does not name the test"),
            **or_why("ranks", ranks, "the log does not list every rank"),
            **or_why("op", op, "the collective reduces nothing"), in_place=in_place, size_bytes=size,
            **or_why("count", count, "not in the file"),
            **_bandwidth(source, "algbw_bytes_per_s", algbw, line, decimals),
            **_bandwidth(source, "busbw_bytes_per_s", busbw, line, decimals, alone=ranks == 1),
            **or_why("wrong", wrong_count, "not checked row by row"),
            **or_why("time_mean_rank_s", None, "which of mean, least and most over ranks (-a) is not stated"),
            **or_why("time_max_rank_s", None, "which of mean, least and most over ranks (-a) is not stated"),
        )
    )  # fmt: skip


def _check(source: Source, wrong: Any, line: int | None) -> tuple[Record | None, int | None]:
    if wrong is None or wrong == "N/A":
        return None, None
    count = source.count(wrong, "#wrong", line)
    return {"passed": not count, "worst": float(count), "bound": 0.0, "reference": "nccl-tests: wrong elements"}, count


def _bandwidth(
    source: Source, key: str, text: Any, line: int | None, decimals: int, alone: bool = False
) -> Record:  # fmt: skip
    if alone:
        return or_why(key, None, "one rank: there is no bus")
    value = source.number(text, key.partition("_")[0], line) * 1e9
    return or_why(key, stated(value) if value else None, LEAST_PRINTED.replace("two", str(decimals)))


def _group(found: Parsed, run: _Run) -> str:
    """The device: all ranks together, by the names of their GPUs."""
    if run.ranks is None:
        return found.device("ranks", "group", None, "NCCL ranks")
    names = [run.names.get(rank, "") for rank in range(run.ranks)]
    kinds = " and ".join(f"{names.count(name)} x {name or 'unnamed'}" for name in dict.fromkeys(names))
    return found.device(f"ranks:{run.ranks}", "group", f"{run.ranks} rank{'s' if run.ranks > 1 else ''}: {kinds}")
