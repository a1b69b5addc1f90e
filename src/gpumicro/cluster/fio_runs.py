"""fio, run for the reads and writes that training does: one part after the other, its JSON read as `import` reads it.

Only the flags of fio 3 (Jens Axboe; fio(1)). Everything is written into one file in a folder of our own.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import children
from ..errors import BackendUnavailable, UsageError
from ..imports import fio as parser
from ..imports.source import Source
from ..units import KIB, MIB, format_size
from .scratch import StorageError

INSTALL = "Install fio 3 (apt install fio, dnf install fio), or take --no-fio for the loader-like read alone"
FILE = "data"  # in the folder that fio runs in, so that no path is ever parsed by fio
SECTOR = 4 * KIB  # of today's disks: direct I/O wants its multiples
LARGEST_BLOCK = 4 * MIB
SYNC_EVERY = 16  # blocks, where the page cache takes the writes
GRACE_S = 60.0  # for a slow disk to take what is under way
_ENGINES = ("libaio", "io_uring", "posixaio")  # that keep several I/Os under way in one thread, best first
_CURES = {
    "no space left": "free some space, or take a smaller --size",
    "disk quota": "the quota is used up: take a smaller --size",
    "read-only file system": "the file system went read-only (an error of the disk? see dmesg)",
    "too many open files": "raise ulimit -n",
    "cannot allocate memory": "free some memory",
    "operation not permitted": "a sandbox forbids it? see its seccomp profile",
    "input/output error": "the disk reports errors: see dmesg and smartctl",
}


@dataclass(frozen=True, slots=True)
class Job:
    """One part: what is done, and in which use it occurs."""

    name: str
    mode: str  # fio's rw
    block_bytes: int
    depth: int  # I/Os under way at once
    use: str

    @property
    def direction(self) -> str:
        return "write" if "write" in self.mode else "read"

    @property
    def random(self) -> bool:
        return self.mode.startswith("rand")


@dataclass(frozen=True, slots=True)
class Tool:
    """The fio that is there."""

    path: str
    version: str
    engine: str | None  # None: only threads keep several I/Os under way


def sample_block(sample_bytes: int) -> int:
    """The block that stands for a sample: whole sectors, at most LARGEST_BLOCK (the kernel splits larger ones)."""
    return min(LARGEST_BLOCK, max(SECTOR, -(-sample_bytes // SECTOR) * SECTOR))


def jobs(sample_bytes: int) -> list[Job]:
    """The parts in their order; the first writes the file that the others use."""
    block = sample_block(sample_bytes)
    found = [
        Job("write-1m", "write", MIB, 8, "checkpoints"),
        Job("read-1m", "read", MIB, 16, "packed shards read in order"),
        Job("randread-sample", "randread", block, 32, "samples picked by many workers"),
        Job("randread-one", "randread", block, 1, "samples picked by one worker"),
        Job("randread-4k", "randread", SECTOR, 32, "small records and indices"),
        Job("randwrite-128k", "randwrite", 128 * KIB, 8, "caches and logs"),
    ]
    seen: dict[tuple[str, int, int], Job] = {}
    for job in found:
        seen.setdefault((job.mode, job.block_bytes, job.depth), job)
    return list(seen.values())


def find() -> Tool:
    """fio on PATH. BackendUnavailable where there is none, or one before 3, whose JSON counts in other units."""
    path = shutil.which("fio")
    if path is None:
        raise BackendUnavailable("fio is not on PATH", INSTALL)
    said = children.run([path, "--version"], timeout_s=20, keep_output=True)
    found = re.search(r"fio-(\d+)[\w.-]*", said.output)
    if said.failure or found is None:
        raise BackendUnavailable(f"{path} --version {said.failure or f'said {said.output.strip()[:80]!r}'}", INSTALL)
    if int(found[1]) < 3:
        raise BackendUnavailable(f"{path} is {found[0]}, whose output counts in other units", INSTALL)
    engines = children.run([path, "--enghelp"], timeout_s=20, keep_output=True).output.split()
    return Tool(path, found[0].removeprefix("fio-"), next((name for name in _ENGINES if name in engines), None))


def command(tool: Tool, job: Job, size_bytes: int, runtime_s: float, direct: bool) -> list[str]:
    """fio's command line for a part of a file of that size.

    Direct: what was read may be read again, up to the time. Through the page cache: the file's pages are dropped first
    (invalidate), no block is read twice, and threads with a range each keep the I/Os under way, since buffered
    asynchronous I/O waits in the submission.
    """
    threads = 1 if (direct and tool.engine) or not job.random else job.depth
    part_bytes = size_bytes // threads // SECTOR * SECTOR
    argv = [
        tool.path, "--output-format=json", f"--name={job.name}", f"--filename={FILE}", f"--rw={job.mode}",
        f"--bs={job.block_bytes}", f"--size={part_bytes}", f"--runtime={max(1, round(runtime_s * 1000))}ms", "--thread",
        "--group_reporting", "--fallocate=none", "--invalidate=1", f"--direct={int(direct)}", f"--numjobs={threads}",
    ]  # fmt: skip
    argv += [f"--offset_increment={part_bytes}"] if threads > 1 else []
    if direct and tool.engine:
        argv += [f"--ioengine={tool.engine}", f"--iodepth={job.depth}"]
    else:
        argv += ["--ioengine=psync"]
    if direct and job.name != "write-1m":  # the first part writes each block once, so that the file is whole
        argv += ["--time_based"]
    if job.direction == "write":
        argv += ["--end_fsync=1"] if direct else [f"--fsync={SYNC_EVERY}", "--end_fsync=1"]
    return argv


def run(tool: Tool, job: Job, folder: Path, size_bytes: int, runtime_s: float, direct: bool) -> dict[str, Any]:
    """One part; its record as in a result's `measurements`. Raises StorageError in fio's words."""
    argv = command(tool, job, size_bytes, runtime_s, direct)
    ended = children.run(argv, timeout_s=3 * runtime_s + GRACE_S, keep_output=True, folder=str(folder))
    if ended.failure:
        raise StorageError(f"fio ({job.name}) {ended.failure}{_cure(ended.errors + ended.output)}")
    return _record(job, ended.output)


def _cure(said: str) -> str:
    lower = said.lower()
    return next((f"; {cure}" for words, cure in _CURES.items() if words in lower), "")


def _record(job: Job, output: str) -> dict[str, Any]:
    source = Source(f"fio ({job.name})", output.encode("utf-8", "replace"))
    try:
        records = parser.read(source).records if parser.claims(source) else []
    except UsageError as error:  # the file that the reader blames is fio's output
        raise StorageError(f"{error}") from None
    found = next((one for one in records if one["variant"] == job.direction), None)
    if found is None:
        raise StorageError(f"fio ({job.name}): no figure of a {job.direction} in its output: {output.strip()[:120]!r}")
    if found["status"] != "ok" or found["bandwidth_bytes_per_s"] is None:
        why = found.get("error") or found.get("bandwidth_bytes_per_s_why")
        raise StorageError(f"fio ({job.name}): {why}")
    found["labels"].pop("size", None)  # it is what a disk wrote in its time: two runs must bear one name to be compared
    found["id"] = re.sub(r",size=\d+", "", found["id"])
    return found


def written_bytes(folder: Path) -> int:
    """How long the file is: what the first part wrote in its time, without a hole."""
    try:
        size = (folder / FILE).stat().st_size
    except OSError as error:
        raise StorageError(f"fio wrote no file: {error.strerror or error}") from None
    if size < MIB:
        raise StorageError(f"fio wrote {format_size(size)} in its time; storage so slow needs a longer --runtime")
    return size // MIB * MIB


def row(job: Job, record: dict[str, Any]) -> dict[str, Any]:
    """The part's line in the result's `storage`."""
    latency = record.get("latency_s") or {}
    percentiles: dict[str, float] = latency.get("percentiles") or {}
    return {
        "name": job.name, "mode": job.mode, "use": job.use, "block_bytes": job.block_bytes, "depth": job.depth,
        "bytes_per_s": record["bandwidth_bytes_per_s"]["estimate"],
        **_or("operations_per_s", (record.get("operations_per_s") or {}).get("estimate")),
        **_or("latency_s", latency.get("estimate")), **_or("latency_p99_s", percentiles.get("99")),
        "measurement": record["id"],
    }  # fmt: skip


def _or(key: str, value: float | None) -> dict[str, Any]:
    return {key: value} if value is not None else {key: None, f"{key}_why": "fio does not state it"}
