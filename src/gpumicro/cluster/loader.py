"""A read as data loaders do it: many files of one size, shuffled, by several Python processes, cold.

What it gives is what such a loader can give at most: nothing is decoded.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import stats
from ..units import MIB
from . import loader_worker
from .loader_worker import file_path
from .scratch import StorageError, refused

CHUNK_BYTES = 4 * MIB  # of random bytes, in memory at once for each writer
WRITERS = 16  # threads that write the files: their syncs share the journal's commits
SLICES = 20  # of the time, each with its rate: the samples of the interval
LEAST_IN_SLICE = 3  # files in a slice on average; below, its rate is mostly counting error
CHECKED = 32  # files of which it is asked whether the page cache still has them; they are not read afterwards
WARM_FROM = 0.05  # a share of files still in the page cache from which on the figure is too good
MOST_EPOCHS = 1_000_000
WAIT_S = 60.0  # for a worker to start, and to end after its time
_WORKER = str(Path(loader_worker.__file__))


@dataclass(frozen=True, slots=True)
class Files:
    """What was written: the first `count` files are there to be read; `cached` of the checked ones were in memory."""

    count: int
    size_bytes: int
    cached: float | None  # share; None where the file system does not tell


@dataclass(frozen=True, slots=True)
class LoaderRead:
    """Samples (reads of a file) a second, with the interval of the median over slices of the time; `latency_*` are
    seconds of one file."""

    workers: int
    files: int
    reads: int
    size_bytes: int
    duration_s: float
    samples_per_s: float
    ci95: tuple[float, float] | None
    why: str  # why there is no interval
    latency_p50_s: float
    latency_p99_s: float
    cached: float | None
    exhausted: bool  # all files were read before the time was up, and they could not be read again

    @property
    def bytes_per_s(self) -> float:
        return self.samples_per_s * self.size_bytes

    @property
    def low(self) -> float:
        """Samples a second at the interval's lower end, the estimate where there is none."""
        return self.ci95[0] if self.ci95 else self.samples_per_s


def write_files(
    folder: Path, count: int, size_bytes: int, limit_s: float, now: Callable[[], float] = time.monotonic
) -> Files:
    """Up to `count` files of random bytes, as many as fit the time; each synced and put out of the page cache."""
    until = now() + limit_s
    done = 0
    with _writers() as pool:
        while done < count and (now() < until or done == 0):
            batch = range(done, min(done + loader_worker.FILES_A_FOLDER, count))
            file_path(folder, batch[0]).parent.mkdir(parents=True, exist_ok=True)
            written = [False] * len(batch)

            def write(index: int, written: list[bool] = written, first: int = done) -> None:
                if index == first or now() < until:
                    _write(file_path(folder, index), size_bytes)
                    written[index - first] = True

            list(pool.map(write, batch))  # an error of any of them is raised here
            whole = written.index(False) if False in written else len(batch)
            done += whole
            if whole < len(batch):
                break
    return _leave_out(folder, done, size_bytes)


@contextmanager
def _writers() -> Iterator[ThreadPoolExecutor]:
    """Threads that an interruption does not let go on with what is queued."""
    pool = ThreadPoolExecutor(WRITERS)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _write(path: Path, size_bytes: int) -> None:
    try:
        with path.open("xb", buffering=0) as file:
            left = size_bytes
            while left:
                left -= file.write(os.urandom(min(left, CHUNK_BYTES)))  # neither compressed nor found twice
            os.fsync(file.fileno())
            loader_worker.forget(file.fileno())
    except OSError as error:
        raise refused(error, str(path.parent), "writing a file") from None


def _leave_out(folder: Path, count: int, size_bytes: int) -> Files:
    """Ask the last files whether they are still in memory: asking may read them in, so they are not read later."""
    checked = min(CHECKED, max(1, count // 10)) if count > 1 else 0
    answers = [_in_cache(file_path(folder, index)) for index in range(count - checked, count)]
    known = [answer for answer in answers if answer is not None]
    return Files(count - checked, size_bytes, sum(known) / len(known) if known else None)


def _in_cache(path: Path) -> bool | None:
    """Whether the file's first byte comes without waiting (preadv2(2), RWF_NOWAIT); None where that is not told."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        os.preadv(handle, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except (OSError, AttributeError):
        return None
    finally:
        os.close(handle)
    return True


def read_files(folder: Path, files: Files, workers: int, runtime_s: float, seed: int = 0) -> LoaderRead:
    """All workers start together; epochs follow each other where files leave the page cache.

    Raises StorageError with what a worker said. An interruption ends them all.
    """
    started: list[subprocess.Popen[str]] = []
    workers = min(workers, files.count)
    epochs = MOST_EPOCHS if files.cached is not None and files.cached < WARM_FROM else 1
    try:
        for number in range(workers):
            share = [str(files.count), str(number), str(workers), str(seed), str(runtime_s), str(epochs)]
            argv = [sys.executable, "-I", "-S", _WORKER, str(folder), *share]
            started.append(_start(argv))
        for process in started:
            _ready(process)
        for process in started:
            _go(process)
        seen = [_result(process, runtime_s) for process in started]
    finally:
        for process in started:
            _end(process)
    return summarize(seen, files, runtime_s)


def _start(argv: Sequence[str]) -> subprocess.Popen[str]:
    """A worker in a session of its own, so that Ctrl-C comes to us alone."""
    try:
        return subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise StorageError(
            f"a loader worker cannot be started: {error.strerror or error}; take fewer --workers"
        ) from None


def _ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.stdout.readline()  # nothing from one that failed: its result says why


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write("go\n")
        process.stdin.flush()


def _result(process: subprocess.Popen[str], runtime_s: float) -> dict[str, Any]:
    try:
        output, errors = process.communicate(timeout=runtime_s + WAIT_S)
    except subprocess.TimeoutExpired:
        raise StorageError(
            f"a loader worker did not end {WAIT_S:g} s after its time: a read hangs; see dmesg"
        ) from None
    if process.returncode != 0:
        last = (errors.strip().splitlines() or ["it said nothing"])[-1]
        raise StorageError(f"a loader worker ended with code {process.returncode}: {last}")
    found: dict[str, Any] = json.loads(output)
    return found


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def summarize(seen: Sequence[dict[str, Any]], files: Files, runtime_s: float) -> LoaderRead:
    """The rate while all workers were reading: from the last one's begin to the first one's end."""
    begin, end = max(one["began_s"] for one in seen), min(one["ended_s"] for one in seen)
    stamps = np.sort(np.concatenate([np.asarray(one["stamps_s"], dtype=np.float64) for one in seen]))
    latencies = np.concatenate([np.asarray(one["latencies_s"], dtype=np.float64) for one in seen])
    if not end > begin:  # so few files that one worker was through before another began
        begin, end = min(one["began_s"] for one in seen), max(one["ended_s"] for one in seen)
    edges = np.linspace(begin, end, SLICES + 1)
    counts = np.diff(np.searchsorted(stamps, edges, side="right"))
    rates = counts / (edges[1] - edges[0])
    ci95, estimate, why = None, float(counts.sum() / (end - begin)), ""
    if counts.sum() >= LEAST_IN_SLICE * SLICES:
        location = stats.median_location(rates)
        estimate, ci95 = location.estimate, (location.low, location.high)
    else:
        why = f"{int(counts.sum())} files: too few for an interval"
    return LoaderRead(
        len(seen), files.count, len(stamps), files.size_bytes, end - begin, estimate, ci95, why,
        stats.median(latencies), stats.quantile(latencies, 0.99)[0], files.cached, end - begin < 0.9 * runtime_s,
    )  # fmt: skip
