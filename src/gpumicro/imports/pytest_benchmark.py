"""pytest-benchmark: the JSON of `--benchmark-json` or `--benchmark-autosave`. Seconds of one call.

`stats.data`, where it was kept (`--benchmark-save-data`, or `--benchmark-json`), holds the mean of each round of
`iterations` calls: they are the samples. Without it the median is taken.
"""

from __future__ import annotations

from .record import Parsed, Record, made, samples_timing, stated
from .source import Source

MOST_SAMPLES = 2**22


def claims(source: Source) -> bool:
    """Machine and benchmarks with stats."""
    return any(
        isinstance(doc.get("machine_info"), dict) and isinstance(doc.get("benchmarks"), list)
        for doc in source.documents
    )


def read(source: Source) -> Parsed:
    """Every benchmark."""
    found = Parsed("pytest-benchmark", None)
    for doc in (doc for doc in source.documents if isinstance(doc.get("machine_info"), dict)):
        machine = doc["machine_info"]
        found.version = doc["version"] if isinstance(doc.get("version"), str) else found.version
        found.when = str(doc["datetime"]) if "datetime" in doc else None
        cpu = machine["cpu"] if isinstance(machine.get("cpu"), dict) else {}
        name = cpu.get("brand_raw", cpu.get("brand"))
        found.device("cpu", "cpu", name if isinstance(name, str) else None, logical=cpu.get("count"))
        if isinstance(machine.get("python_version"), str):
            found.environment["python"] = machine["python_version"]
        for bench in source.objects(doc, "benchmarks", "the file"):
            _benchmark(source, found, bench)
    return found


def _benchmark(source: Source, found: Parsed, bench: Record) -> None:
    name = source.entry(bench, "fullname" if "fullname" in bench else "name", str, "a benchmark")
    body = source.entry(bench, "stats", dict, name)
    rounds = source.count(body.get("rounds", 1), f"{name}: rounds", least=1)
    iterations = source.count(body.get("iterations", 1), f"{name}: iterations", least=1)
    data = body.get("data")
    timing: Record | None = None
    if isinstance(data, list) and data:
        if len(data) > MOST_SAMPLES:
            raise source.wrong(f"{name}: {len(data)} samples; at most {MOST_SAMPLES} are read")
        spans = [source.positive(value, f"{name}: a sample") * iterations for value in data]
        options = bench["options"] if isinstance(bench.get("options"), dict) else {}
        timer = f"pytest-benchmark: {options.get('timer', 'its timer')}"
        timing, time_s = samples_timing(spans, [iterations] * len(spans), timer, "host", "python", "hot")
    else:
        middle = source.positive(body.get("median"), f"{name}: median")
        found_s = stated(middle, "the samples were not saved; --benchmark-save-data keeps them", location="median")
        time_s = found_s or {}
        time_s |= {key: source.number(body[key], f"{name}: {key}") for key in ("min", "max", "mean") if key in body}
    found.add(
        made(source, found, kernel=name, family="function", device="cpu", timing=timing, time_s=time_s,
             runs=rounds * iterations)
    )  # fmt: skip
