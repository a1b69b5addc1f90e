"""All result files of a fleet, read by several processes: `python -m gpumicro.cluster.fleet_reading` is one of them.

A file that cannot be read is named and the rest goes on. What comes back is a few kilobytes a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from ..errors import GpumicroError, SchemaError, UsageError
from .fleet_files import DeviceReadings, read_devices

ALONE_UP_TO = 200  # files that one process reads sooner than others are started
MOST_PROCESSES = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that was left out, and why."""

    file: str
    why: str


@dataclass(frozen=True, slots=True)
class FilesRead:
    """What a folder held. `files` counts those that were read."""

    devices: tuple[DeviceReadings, ...]
    faults: tuple[Fault, ...]
    files: int


def find_files(folder: Path) -> list[str]:
    """Every *.json below the folder, hidden ones and links to folders apart, relative to it and sorted by name."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'} of result files")
    found: list[str] = []
    for place, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith(".")]
        base = os.path.relpath(place, folder)
        found += [
            name if base == "." else f"{base}{os.sep}{name}"
            for name in names
            if name.endswith(".json") and not name.startswith(".")
        ]
    if not found:
        raise UsageError(f"{folder}: no .json file in this folder or below it")
    return sorted(found)


def read_fleet(
    folder: Path, files: Sequence[str], processes: int | None = None, progress: Callable[[int], None] | None = None
) -> FilesRead:
    """Read the files; `progress` is told how many more are done. An exception here (Ctrl-C) stops the processes."""
    count = processes or (min(MOST_PROCESSES, len(os.sched_getaffinity(0))) if len(files) > ALONE_UP_TO else 1)
    told = progress or (lambda _: None)
    answers = _here(folder, files, told) if count == 1 else _apart(folder, files, count, told)
    devices: list[DeviceReadings] = []
    faults = []
    for _, fault, found in sorted(answers, key=lambda answer: answer[0]):
        faults += [fault] if fault else []
        devices += found
    return FilesRead(tuple(devices), tuple(faults), len(files) - len(faults))


Answer = tuple[str, Fault | None, tuple[DeviceReadings, ...]]


def _read(folder: Path, file: str) -> Answer:
    try:
        return file, None, read_devices(folder / file, file)
    except SchemaError as error:
        return file, Fault(file, str(error).removeprefix(f"{file}: ")), ()
    except Exception as error:  # a file that no rule foresaw must not cost the others
        return file, Fault(file, f"not a result file ({type(error).__name__}: {error})"), ()


def _here(folder: Path, files: Sequence[str], told: Callable[[int], None]) -> Iterator[Answer]:
    for file in files:
        yield _read(folder, file)
        told(1)


def _apart(folder: Path, files: Sequence[str], count: int, told: Callable[[int], None]) -> list[Answer]:
    """Each process takes every count-th file; a thread of ours listens to each."""
    lock, started = Lock(), []
    for _ in range(count):
        started.append(subprocess.Popen(
            [sys.executable, "-m", __name__, os.fspath(folder.resolve())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        ))  # fmt: skip

    def listen(turn: int) -> list[Answer]:
        process = started[turn]
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as asked:
            asked.write(b"".join(json.dumps(file).encode() + b"\n" for file in files[turn::count]))
        answers = []
        with process.stdout as said:
            for line in said:
                file, why, found = json.loads(line)
                devices = tuple(map(DeviceReadings.of_json, found))
                answers.append((file, None if why is None else Fault(file, why), devices))
                with lock:
                    told(1)
        if process.wait() or len(answers) < len(files[turn::count]):
            raise GpumicroError(f"a process that reads the files ended with code {process.returncode}")
        return answers

    with ThreadPoolExecutor(count) as threads:
        try:
            return [answer for part in threads.map(listen, range(count)) for answer in part]
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                process.wait()


def _serve(folder: Path) -> None:
    """Names in, a line of JSON each out. All names first: nobody writes while both sides wait."""
    for name in [json.loads(line) for line in sys.stdin.buffer]:
        file, fault, found = _read(folder, name)
        answer = [file, fault and fault.why, [device.to_json() for device in found]]
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
