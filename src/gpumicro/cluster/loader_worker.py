"""One worker of the loader-like read, a process of its own: reads whole files in a shuffled order, until time is up.

Run by its path and with the standard library alone, so that it starts at once. It says "ready", waits for a line,
reads, and prints one JSON object. A file is put out of the page cache once it was read, so that it may be read again.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

FILES_A_FOLDER = 256


def file_path(folder: Path, index: int) -> Path:
    """Where file number `index` lies."""
    return folder / f"{index // FILES_A_FOLDER:05d}" / f"{index:08d}"


def order_of(files: int, worker: int, workers: int, seed: int) -> list[int]:
    """This worker's share of a shuffled epoch; the shares of all workers together hold each file once."""
    order = list(range(files))
    random.Random(seed).shuffle(order)
    return order[worker::workers]


def forget(handle: int) -> None:
    """Put an open file's clean pages out of the page cache, where the system can."""
    with suppress(OSError, AttributeError):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


class Reading:
    """Times are CLOCK_MONOTONIC, one for all processes of a machine."""

    def __init__(self, folder: Path, files: int, worker: int, workers: int, seed: int) -> None:
        self.folder, self.files, self.worker, self.workers, self.seed = folder, files, worker, workers, seed
        self.stamps_s: list[float] = []
        self.latencies_s: list[float] = []
        self.began_s = self.ended_s = time.monotonic()
        self.epochs = 0

    def run(self, seconds: float, most_epochs: int) -> None:
        """Epoch after epoch until the time is up."""
        self.began_s = self.ended_s = time.monotonic()
        until = self.began_s + seconds
        while self.epochs < most_epochs and self.ended_s < until:
            for index in order_of(self.files, self.worker, self.workers, self.seed + self.epochs):
                self._one(file_path(self.folder, index))
                if self.ended_s >= until:
                    break
            self.epochs += 1

    def _one(self, path: Path) -> None:
        began = time.monotonic()
        with path.open("rb") as file:  # as a dataset's __getitem__ does
            file.read()
            self.ended_s = time.monotonic()
            forget(file.fileno())
        self.stamps_s.append(self.ended_s)
        self.latencies_s.append(self.ended_s - began)


def main(arguments: list[str]) -> int:
    """FOLDER FILES WORKER WORKERS SEED SECONDS EPOCHS."""
    reading = Reading(Path(arguments[0]), *map(int, arguments[1:5]))
    print("ready", flush=True)  # noqa: T201
    if not sys.stdin.readline():  # whoever started us is gone
        return 1
    reading.run(float(arguments[5]), int(arguments[6]))
    keys = ("began_s", "ended_s", "stamps_s", "latencies_s", "epochs")
    json.dump({key: getattr(reading, key) for key in keys}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
