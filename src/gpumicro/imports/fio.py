"""fio 3 (Jens Axboe): the JSON of `--output-format=json` and `json+`. One measurement for each job and direction.

`bw_bytes` is bytes/s, `*_ns` nanoseconds. fio 2 counts in other units and is refused. Latency is that of completion
(clat): the median where percentiles are there, else the mean; percentiles are estimates from fio's bins. With
`--status-interval` a file holds ever longer snapshots of one run: the last counts.
"""

from __future__ import annotations

from typing import Any

from ..result import or_why
from .record import Parsed, Record, made, stated
from .source import Source

DIRECTIONS = ("read", "write", "trim", "mixed")
OPTIONS = ("rw", "readwrite", "bs", "iodepth", "numjobs", "ioengine", "direct", "size")  # what tells jobs apart


def claims(source: Source) -> bool:
    """JSON that names fio's version."""
    return any("fio version" in doc for doc in source.documents)


def read(source: Source) -> Parsed:
    """Every job and direction that did I/O."""
    runs: dict[Any, Record] = {}
    for doc in (doc for doc in source.documents if "fio version" in doc):
        runs[_identity(source, doc)] = doc  # a later snapshot of the same run takes its place
    found = Parsed("fio", None)
    if len(runs) < len(source.documents):
        found.notes.append("fio: the file holds several snapshots of one run; the last is imported.")
    for doc in runs.values():
        version = str(doc["fio version"])
        found.version, found.when = version.removeprefix("fio-"), str(doc["time"]) if "time" in doc else None
        device = _device(found, doc)
        common = doc["global options"] if isinstance(doc.get("global options"), dict) else {}
        for job in source.objects(doc, "jobs", "the file"):
            _job(source, found, job, device, common)
    return found


def _identity(source: Source, doc: Record) -> tuple[Any, ...]:
    jobs = source.objects(doc, "jobs", "the file")
    return tuple((str(job.get("jobname")), str(job.get("job_start"))) for job in jobs)


def _device(found: Parsed, doc: Record) -> str:
    disks = doc.get("disk_util")
    names = [str(disk.get("name")) for disk in disks if isinstance(disk, dict)] if isinstance(disks, list) else []
    return found.device("storage", "storage", ", ".join(names) or None, "storage")


def _job(source: Source, found: Parsed, job: Record, device: str, common: Record) -> None:
    name = source.entry(job, "jobname", str, "a job")
    own = job["job options"] if isinstance(job.get("job options"), dict) else {}
    options = {key: str({**common, **own}[key]) for key in OPTIONS if key in {**common, **own}}
    error = source.count(job.get("error", 0), f"job {name!r}: its error", least=-(2**31))
    did = False
    for direction in DIRECTIONS:
        part = job.get(direction)
        if isinstance(part, dict) and source.count(part.get("total_ios", part.get("io_bytes", 0)), f"{name}: I/Os"):
            did = True
            _direction(source, found, name, direction, part, options, error, device)
    if error and not did:
        found.add(
            made(
                source, found, kernel=f"fio.{name}", family="storage", device=device, labels=options, level="storage",
                failed=f"fio: the job ended with error {error}",
            )
        )  # fmt: skip


def _direction(
    source: Source, found: Parsed, name: str, direction: str, part: Record, options: dict[str, str], error: int,
    device: str,
) -> None:  # fmt: skip
    label = f"job {name!r}, {direction}"
    if "bw_bytes" not in part or ("clat_ns" not in part and "lat_ns" not in part):
        raise source.wrong(f"{label}: no bw_bytes and clat_ns; fio 2 counts in other units: use fio 3")
    bandwidth = source.number(part["bw_bytes"], f"{label}: bw_bytes")
    iops = source.number(part.get("iops"), f"{label}: iops")
    total = source.count(part.get("total_ios", 0), f"{label}: total_ios") or None
    reason = "fio states one figure of the whole run"
    short = "the job ran for less than a millisecond"
    operations = stated(iops or None, reason)
    found.add(
        made(
            source, found, kernel=f"fio.{name}", family="storage", device=device, variant=direction, labels=options,
            level="storage", bandwidth=stated(bandwidth or None, reason), runs=total,
            failed=f"fio: the job ended with error {error}" if error else None,
            why={"time_s": "fio times each I/O: see latency_s", "bandwidth_bytes_per_s": short},
            **or_why("operations_per_s", operations, short), **_latency(source, part, label),
        )
    )  # fmt: skip


def _latency(source: Source, part: Record, label: str) -> Record:
    """`latency_s`: median or mean of completion, with percentiles in seconds by their percentage."""
    for key in ("clat_ns", "lat_ns"):
        body = part.get(key)
        if isinstance(body, dict) and body.get("N", 1) and body.get("mean"):
            break
    else:
        return or_why("latency_s", None, "fio kept no latencies (a gtod_reduce run)")
    mean = source.number(body["mean"], f"{label}: {key} mean") * 1e-9
    given = body["percentile"] if isinstance(body.get("percentile"), dict) else {}
    percentiles = {
        f"{source.number(percent, f'{label}: a percentile'):g}": source.number(value, f"{label}: percentile") * 1e-9
        for percent, value in given.items()
    }
    middle = percentiles.get("50")
    more = {"mean": mean, "of": key.removesuffix("_ns"), "percentiles": percentiles}
    for bound in ("min", "max"):
        if bound in body:
            more[bound] = source.number(body[bound], f"{label}: {key} {bound}") * 1e-9
    location = "mean" if middle is None else "median"
    reason = "fio states bins of latencies, not their order"
    latency = stated(mean if middle is None else middle, reason, location=location)
    return {"latency_s": (latency or {}) | more}
