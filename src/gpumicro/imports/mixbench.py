"""mixbench (Elias Konstantinidis): the CSV part of its output (CUDA, HIP, OpenCL, SYCL and CPU).

A row is a number of compute iterations; for each type four columns: Flops/byte, time in ms, GFLOPS (1e9), GB/sec (1e9).
A multiply-add is two operations there too. Which types there are stands in the heading.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .record import Parsed, made, stated
from .source import Source, columns

_TYPES = re.compile(r"^Experiment ID\s*,", re.MULTILINE)
_HEADING = re.compile(r"^Compute iters\s*,", re.MULTILINE)
TYPES = {  # first words of a type's heading -> dtype, variant
    "single": ("float32", ""), "packed single": ("float32", "packed"), "double": ("float64", ""),
    "half": ("float16", ""), "integer": ("int32", ""),
}  # fmt: skip
COLUMNS = 4
RATES = ("time_s", "bandwidth_bytes_per_s", "flop_per_s", "intensity_flop_per_byte")


def claims(source: Source) -> bool:
    """Both of its headings."""
    return bool(_TYPES.search(source.text) and _HEADING.search(source.text))


@dataclass
class _Run:
    """What the lines above the CSV said."""

    device: str = ""
    threads: int | None = None
    types: Sequence[tuple[str, str]] = ()  # dtype, variant
    missing: tuple[str, ...] = ()  # types that the device has not
    ready: bool = False


def read(source: Source) -> Parsed:
    """Every row and type; a type that the device has not is skipped with mixbench's own warning."""
    found = Parsed("mixbench", None)
    run = _Run()
    for number, line in enumerate(source.lines, 1):
        if match := re.match(r"mixbench\S* \((.*?)\)", line):
            found.version, run = match[1], _Run()
        elif match := re.match(r"Device:\s+(.+)", line):
            run.device = found.gpu(match[1].strip())
        elif match := re.match(r"Total threads:\s*(\d+)", line):
            run.threads = source.count(match[1], "the number of threads", number, least=1)
            run.device = found.device("cpu", "cpu", None, "CPU")
        elif match := re.match(r"Warning:\s+(Half|Double) precision computations are not supported", line):
            run.missing += (TYPES[match[1].lower()][0],)
        elif _TYPES.match(line):
            run.types = [_type(source, field, number) for field in columns(line, ",")[1:] if field]
        elif _HEADING.match(line):
            run.ready = len(columns(line, ",")) == 1 + COLUMNS * len(run.types)
            if not run.ready or not run.types:
                raise source.ragged(len(columns(line, ",")), 1 + COLUMNS * len(run.types), number)
        elif run.ready and re.match(r"\s*\d+\s*,", line):
            _row(source, found, run, line, number)
        elif run.ready and line.startswith("---"):
            run.ready = False
    return found


def _type(source: Source, heading: str, line: int) -> tuple[str, str]:
    words = heading.lower()
    found = next((known for start, known in TYPES.items() if words.startswith(start)), None)
    if found is None:
        raise source.wrong(f"operations {heading[:40]!r}, a type that mixbench is not known to have", line)
    return found


def _row(source: Source, found: Parsed, run: _Run, line: str, number: int) -> None:
    fields = columns(line, ",")
    if len(fields) != 1 + COLUMNS * len(run.types):
        raise source.ragged(len(fields), 1 + COLUMNS * len(run.types), number)
    iterations = source.count(fields[0], "Compute iters", number)
    device = run.device or found.device("imported", "unknown", None)
    why = {"threads": "a GPU is run whole" if device.startswith("gpu") else "mixbench does not print it"}
    for index, (dtype, variant) in enumerate(run.types):
        cells = fields[1 + COLUMNS * index :][:COLUMNS]
        common: dict[str, Any] = {
            "kernel": "mixbench.fma", "family": "mixed", "device": device, "dtype": dtype, "line": number,
            "problem": {"iterations": iterations}, "threads": run.threads, "level": "dram", "why": why,
            "variant": variant,
        }  # fmt: skip
        if dtype in run.missing:
            found.add(made(source, found, skipped=f"mixbench: the device does not support {dtype}", **common))
            continue
        names = ("Flops/byte", "ex.time", "GFLOPS", "GB/sec")
        figures = [source.number(text, f"{dtype}: {name}", number) for name, text in zip(names, cells, strict=True)]
        intensity, ms, gflops, gbytes = (figure or None for figure in figures)  # 0.00: below the printed decimals
        reason = "mixbench states one time for each row"
        lost = dict.fromkeys(RATES, "printed as 0.00: below mixbench's two decimals")
        found.add(
            made(
                source, found, intensity=intensity, time_s=stated(ms and ms * 1e-3, reason),
                bandwidth=stated(gbytes and gbytes * 1e9, reason), flop_rate=stated(gflops and gflops * 1e9, reason),
                **(common | {"why": lost | why}),
            )
        )  # fmt: skip
