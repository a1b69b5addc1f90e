"""google-benchmark: the JSON of `--benchmark_format=json` or `--benchmark_out`.

`real_time` is the mean of so many `iterations` in `time_unit`; each repetition gives one, and they are the samples.
Without repetitions in the file (aggregates only) the median or the mean of them is taken. Counters are the user's own:
`bytes_per_second` is read, others are left. It is a rate by CPU time, unless the name says `real_time` or `manual_time`
(benchmark_runner.cc); what is given as bandwidth is by `real_time` in any case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .record import Parsed, Record, made, samples_timing, stated
from .source import Source

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_BY_WALL = re.compile(r"/(real|manual)_time\b")  # of a name: the clock of its rates


def claims(source: Source) -> bool:
    """A context beside benchmarks, which have a time in a unit, or the library's name for them."""
    return any(
        isinstance(doc.get("context"), dict) and isinstance(doc.get("benchmarks"), list) for doc in source.documents
    )


def read(source: Source) -> Parsed:
    """Every benchmark: its repetitions together."""
    found = Parsed("google-benchmark", None)
    for doc in source.documents:
        context = doc.get("context")
        if not isinstance(context, dict):
            continue
        version = context.get("library_version")
        found.version = version if isinstance(version, str) else found.version
        found.when = str(context["date"]) if "date" in context else None
        found.device("cpu", "cpu", None, "CPU", logical=context.get("num_cpus"))
        if context.get("library_build_type") == "debug":
            found.notes.append("google-benchmark: its library was a debug build; its times may be too long.")
        groups: dict[tuple[str, int | None], list[Record]] = {}
        for run in source.objects(doc, "benchmarks", "the file"):
            name = run.get("run_name")
            name = name if isinstance(name, str) else source.entry(run, "name", str, "a benchmark")
            threads = source.count(run["threads"], f"{name}: threads", least=1) if "threads" in run else None
            groups.setdefault((name, threads), []).append(run)
        for (name, threads), runs in groups.items():
            _benchmark(source, found, name, threads, runs)
    return found


def _benchmark(source: Source, found: Parsed, name: str, threads: int | None, runs: Sequence[Record]) -> None:
    common: dict[str, Any] = {
        "kernel": name, "family": "function", "device": "cpu", "threads": threads,
        "why": {
            "bytes_moved": "google-benchmark states a rate at most",
            "bandwidth_bytes_per_s": "no bytes_per_second, or one by the CPU time of several threads",
        },
    }  # fmt: skip
    for run in runs:
        if run.get("error_occurred"):
            failed = f"google-benchmark: {run.get('error_message') or 'an error without a message'}"
            found.add(made(source, found, failed=failed, **common))
            return
        if run.get("skipped"):
            skipped = f"google-benchmark: {run.get('skip_message') or 'skipped without a message'}"
            found.add(made(source, found, skipped=skipped, **common))
            return
    own = [run for run in runs if run.get("run_type", "iteration") == "iteration" and "real_time" in run]
    if own:
        _repetitions(source, found, name, own, common)
    else:
        _aggregates(source, found, name, runs, common)


def _repetitions(source: Source, found: Parsed, name: str, runs: Sequence[Record], common: dict[str, Any]) -> None:
    counts = [source.count(run.get("iterations", 1), f"{name}: iterations", least=1) for run in runs]
    times = [_seconds(source, name, run) for run in runs]
    spans = [time * runs_in for time, runs_in in zip(times, counts, strict=True)]
    timing, time_s = samples_timing(spans, counts, "google-benchmark: real time", "host", "native", "hot")
    rates = [rate for run in runs if (rate := _bandwidth(source, name, run)) is not None]
    cpu = [source.number(r["cpu_time"], f"{name}: cpu_time") * _unit(source, name, r) for r in runs if "cpu_time" in r]
    middle = sorted(rates)[len(rates) // 2] if rates else None
    reason = "the middle one of the repetitions' rates"
    found.add(
        made(
            source, found, timing=timing, time_s=time_s, bandwidth=stated(middle or None, reason), runs=sum(counts),
            facts={"cpu_time_s": cpu}, **common,
        )
    )  # fmt: skip


def _aggregates(source: Source, found: Parsed, name: str, runs: Sequence[Record], common: dict[str, Any]) -> None:
    by_name = {str(run.get("aggregate_name")): run for run in runs if "real_time" in run}
    location = next((word for word in ("median", "mean") if word in by_name), None)
    if location is None:
        return  # the fit of a complexity (BigO, RMS) is no time
    run = by_name[location]
    reason = "only aggregates are in the file (--benchmark_report_aggregates_only)"
    bandwidth = _bandwidth(source, name, run)
    found.add(
        made(
            source, found, time_s=stated(_seconds(source, name, run), reason, location=location),
            bandwidth=stated(bandwidth or None, reason), **common,
        )
    )  # fmt: skip


def _bandwidth(source: Source, name: str, run: Record) -> float | None:
    """Bytes/s of real time; None where there is no rate, or one by the CPU time of several threads, which versions of
    the library count differently."""
    if "bytes_per_second" not in run:
        return None
    rate = source.number(run["bytes_per_second"], f"{name}: bytes_per_second")
    if _BY_WALL.search(name):
        return rate
    if run.get("threads", 1) != 1 or "cpu_time" not in run:
        return None
    cpu_s = source.number(run["cpu_time"], f"{name}: cpu_time") * _unit(source, name, run)
    return rate * cpu_s / _seconds(source, name, run)


def _unit(source: Source, name: str, run: Record) -> float:
    unit = str(run.get("time_unit", "ns"))
    if unit not in UNITS:
        raise source.wrong(f"{name}: time_unit is {unit!r}; known: {', '.join(UNITS)}")
    return UNITS[unit]


def _seconds(source: Source, name: str, run: Record) -> float:
    return source.positive(run["real_time"], f"{name}: real_time") * _unit(source, name, run)
