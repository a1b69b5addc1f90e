"""BabelStream (University of Bristol): its table, and the CSV of `--csv`.

Bandwidth stands in the unit of its heading (MB = 1e6 B by default, MiB and others by a flag), times in seconds: least,
most and mean over all runs but the first. The bandwidth is that of the best run. Bytes of a run: so many arrays of
`n_elements` x `sizeof`, as STREAM counts them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .record import Parsed, made, stated
from .source import Source, columns

_CSV = re.compile(r"^function([,;\t ])\s*num_times\1", re.MULTILINE)
_TABLE = re.compile(r"^Function\s+([KMGT]i?B(?:ytes)?)/s(?:ec)?\s+Min \(sec\)\s+Max\s+Average\s*$", re.MULTILINE)
_UNITS = {"MB": 1e6, "MIB": 2.0**20, "GB": 1e9, "GIB": 2.0**30, "TB": 1e12, "TIB": 2.0**40}
# label -> our name, arrays read or written once (docs of BabelStream: the weight of each kernel)
KERNELS: Mapping[str, tuple[str, int]] = {
    "copy": ("stream.copy", 2), "mul": ("stream.scale", 2), "add": ("stream.add", 3), "triad": ("stream.triad", 3),
    "dot": ("stream.dot", 2), "nstream": ("stream.nstream", 4),
}  # fmt: skip
SMALL_BYTES = 2**28  # three arrays below this may stay in the last cache of a large CPU or GPU
AGREE = 0.02  # bandwidth is printed with three decimals at least, times with five


def claims(source: Source) -> bool:
    """The heading of its CSV or of its table."""
    return bool(_CSV.search(source.text) or _TABLE.search(source.text))


@dataclass
class _Run:
    """What the lines above a table said."""

    elements: int | None = None
    dtype: str | None = None
    times: int | None = None
    device: str = ""
    heading: Sequence[str] = field(default=())
    separator: str | None = None
    unit: float = 1e6


def read(source: Source) -> Parsed:
    """Both kinds; several runs may stand in one log."""
    found = Parsed("BabelStream", None)
    run = _Run()
    for number, line in enumerate(source.lines, 1):
        if match := re.match(r"Version:\s*(\S+)", line):
            found.version = match[1]
            run = _Run()
        elif match := re.match(r"(?:Using \S+ device:? |CUDA Device \d+: )\"?([^\"]+)", line):
            run.device = found.gpu(match[1].strip())
        elif match := re.match(r"Implementation:\s*(.+)", line):
            found.environment["implementation"] = match[1].strip()
        elif match := re.match(r"Running\b.*?(\d+) times", line):
            run.times = source.count(match[1], "the number of times", number, least=1)
        elif match := re.match(r"Number of elements:\s*(\S+)", line):
            run.elements = source.count(match[1], "the number of elements", number, least=1)
        elif match := re.match(r"Precision:\s*(\w+)", line):
            run.dtype = {"float": "float32", "double": "float64"}.get(match[1])
        elif match := _CSV.match(line):
            run.separator = match[1]
            run.heading = columns(line, run.separator)
            run.unit = _unit_of_csv(source, run.heading, number)
        elif match := _TABLE.match(line):
            run.heading, run.separator = ("function", "bandwidth", "min_runtime", "max_runtime", "avg_runtime"), None
            run.unit = _unit(source, match[1], number)
        elif run.heading:
            _row(source, found, run, line, number)
    return found


def _unit_of_csv(source: Source, heading: Sequence[str], line: int) -> float:
    for name in heading:
        if match := re.fullmatch(r"max_(\w+)_per_sec", name):
            return _unit(source, match[1], line)
    raise source.wrong("no column max_..._per_sec in the heading of the CSV; BabelStream 3 and later write one", line)


def _unit(source: Source, name: str, line: int) -> float:
    try:
        return _UNITS[name.upper().removesuffix("YTES")]  # "MiB", of version 4 "mibytes"
    except KeyError:
        raise source.wrong(f"bandwidth in {name!r}, a unit that BabelStream is not known to use", line) from None


def _row(source: Source, found: Parsed, run: _Run, line: str, number: int) -> None:
    fields = columns(line, run.separator)
    label = fields[0].lower() if fields else ""
    if label not in KERNELS:
        return  # what other programs print between and after the rows
    if len(fields) != len(run.heading):
        raise source.ragged(len(fields), len(run.heading), number)
    row = dict(zip(run.heading, fields, strict=True))
    rate = next(text for name, text in row.items() if name == "bandwidth" or name.endswith("_per_sec"))
    bandwidth = source.positive(rate, "bandwidth", number) * run.unit
    best, worst, mean = (
        source.positive(row.get(name), name, number) for name in ("min_runtime", "max_runtime", "avg_runtime")
    )
    elements = source.count(row["n_elements"], "n_elements", number, least=1) if "n_elements" in row else run.elements
    times = source.count(row["num_times"], "num_times", number, least=1) if "num_times" in row else run.times
    size = source.count(row["sizeof"], "sizeof", number, least=1) if "sizeof" in row else None
    dtype = {4: "float32", 8: "float64"}.get(size) if size else run.dtype
    size = size or {"float32": 4, "float64": 8}.get(dtype or "")
    kernel, arrays = KERNELS[label]
    moved = arrays * elements * size if elements and size else None
    why = {"flops": "BabelStream counts no operations", "threads": "BabelStream does not print it"}
    if moved and abs(bandwidth * best / moved - 1) > AGREE:
        why["bytes_moved"] = f"bandwidth x time is {bandwidth * best:.4g} B, and {arrays} arrays are {moved} B"
        moved = None
    if elements and size and 3 * elements * size < SMALL_BYTES:
        note = f"BabelStream: three arrays of {elements * size} B may stay in a cache; its default is 2^25 elements."
        found.notes += [note] if note not in found.notes else []
    reason = "BabelStream states the best run, the worst and the mean, not the samples"
    found.add(
        made(
            source, found, kernel=kernel, family="stream",
            device=run.device or found.device("imported", "unknown", None),
            problem={"n": elements} if elements else {}, dtype=dtype, level="dram", bytes_moved=moved,
            time_s=stated(best, reason, location="min", min=best, max=worst, mean=mean),
            bandwidth=stated(bandwidth, reason), runs=times - 1 if times and times > 1 else None, line=number,
            flags=["best-run"], why=why,
        )
    )  # fmt: skip
