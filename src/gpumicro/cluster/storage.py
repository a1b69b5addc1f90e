"""Can this storage feed the GPUs? fio's reads and writes and a loader-like read on a directory, and the answer."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..environment import hypervisor
from ..errors import UsageError
from ..limits import memory_limit
from ..result import Document, document, or_why
from ..units import GIB, KIB, MIB, format_size
from . import fio_runs, loader
from .feeding import Need, Supply, Verdict, judge, supplies
from .fio_runs import Job, Tool
from .loader import LoaderRead
from .scratch import StorageError, left_behind, require_room, scratch, spendable, takes_direct
from .storage_json import loader_json, place_json
from .storage_place import Place, look

SAMPLE_BYTES = 128 * KIB
SIZE_BYTES = 4 * GIB
LEAST_BYTES = 64 * MIB  # of the file and of the small files together; less says little of any storage
LOADER_SHARE = 0.25  # of the size, at most, for the small files
MOST_FILES = 200_000
MOST_WORKERS = 256
RUNTIME_S = 3.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """What is to be measured; sizes in bytes. `size_bytes` None: SIZE_BYTES, or less where there is no room."""

    directory: str
    size_bytes: int | None = None
    sample_bytes: float = SAMPLE_BYTES
    runtime_s: float = RUNTIME_S  # of each part
    workers: int | None = None  # None: one for each CPU, at most 8
    files: int | None = None
    use_fio: bool = True
    need: Need | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.1 <= self.runtime_s <= 3600:
            raise UsageError(f"--runtime must be 0.1 to 3600 seconds of each part, not {self.runtime_s:g}")
        if not 1 <= self.sample_bytes <= GIB:
            raise UsageError(f"--sample-bytes must be 1 B to 1 GiB, not {self.sample_bytes:g}")
        for name, value, most in (("--workers", self.workers, MOST_WORKERS), ("--files", self.files, MOST_FILES)):
            if value is not None and not 1 <= value <= most:
                raise UsageError(f"{name} must be 1 to {most:,}, not {value:,}")
        if self.size_bytes is not None and self.size_bytes < LEAST_BYTES:
            raise UsageError(f"--size must be at least {format_size(LEAST_BYTES)}, not {format_size(self.size_bytes)}")

    @property
    def whole_sample_bytes(self) -> int:
        """Of a file."""
        return math.ceil(self.sample_bytes)

    @property
    def workers_used(self) -> int:
        return self.workers or min(8, len(os.sched_getaffinity(0)))


@dataclass(frozen=True, slots=True)
class StorageResult:
    """What was found; `document` is the result file."""

    place: Place
    rows: tuple[dict[str, Any], ...]  # fio's parts
    loader: LoaderRead | None
    supplies: tuple[Supply, ...]
    verdicts: tuple[Verdict, ...]
    document: Document

    @property
    def passed(self) -> bool:
        """Whether nothing that was asked for failed."""
        return all(verdict.passed for verdict in self.verdicts)


def measure_storage(
    directory: str | os.PathLike[str], *, gpus: int | None = None, samples_per_s: float | None = None,
    sample_bytes: float | None = None, scale: str | None = None, say: Say = lambda _: None, **settings: Any,
) -> StorageResult:  # fmt: skip
    """Measure the storage under `directory` with fio and a loader-like read; judge it where a need is given.

    gpus, samples_per_s (of one GPU) and sample_bytes are the need; `scale`, a file of `gpumicro scale -o`, may stand
    for the first two. `settings` are those of StorageSettings. Writes only into a new folder there, and removes it.
    UsageError: no such directory, no room; BackendUnavailable: no fio 3; StorageError: the storage or fio failed, and
    nothing was measured.
    """
    from .feeding import need_of

    need = need_of(gpus, samples_per_s, sample_bytes, scale, SAMPLE_BYTES)
    given = SAMPLE_BYTES if sample_bytes is None else sample_bytes
    size = need.sample_bytes if need else given
    run = StorageRun(StorageSettings(os.fspath(directory), sample_bytes=size, need=need, **settings), say)
    run.run()
    return run.result()


class StorageRun:
    """One run; what was measured stays in it, also where it was interrupted or a part failed."""

    def __init__(self, settings: StorageSettings, say: Say = lambda _: None, root: Path = Path("/")) -> None:
        self.settings, self.say, self._root = settings, say, root
        self.place = look(settings.directory, root)
        self.tool: Tool | None = fio_runs.find() if settings.use_fio else None
        self.size_bytes, self.files = self._sizes()
        self.rows: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []
        self.loader: LoaderRead | None = None
        self.notes: list[str] = []
        self.failures: list[str] = []
        self.interrupted = False
        self.direct = False
        self.direct_why = "fio did not run"

    def _sizes(self) -> tuple[int, int]:
        """Bytes of fio's file and the number of small files; less than by default where there is no room."""
        settings, room = self.settings, spendable(self.place)
        size = settings.size_bytes or max(LEAST_BYTES, min(SIZE_BYTES, room * 2 // 3))
        sample = settings.whole_sample_bytes
        on_disk = max(sample, 4 * KIB)
        most = size // on_disk
        if (settings.files or 1) > most:
            raise UsageError(
                f"{settings.files or 1:,} files of {format_size(sample)} are more than --size ({format_size(size)}); "
                "take a larger --size, smaller --sample-bytes or fewer --files"
            )
        fitting = min(most, max(2 * settings.workers_used, int(LOADER_SHARE * size) // on_disk))
        files = settings.files or min(fitting, MOST_FILES)
        wanted = max(size if self.tool else 0, files * on_disk)  # fio's file is removed before these are written
        require_room(self.place, wanted, files)
        return size, files

    def run(self) -> None:
        """Measure. An interruption is noted and raised again; a part that fails is noted, and the next goes on."""
        self._foretell()
        try:
            with scratch(self.settings.directory) as folder:
                if self.tool is not None:
                    self._fio(self.tool, folder)
                self._loader(folder)
        except KeyboardInterrupt:
            self.interrupted = True
            raise
        if not self.rows and self.loader is None:
            raise StorageError("; ".join(self.failures))

    def _foretell(self) -> None:
        for name in left_behind(self.settings.directory):
            self.notes.append(f"{name} is there, of another run or of one that was killed; it was left alone.")
        if self.place.in_memory:
            self.notes.append(f"{self.place.file_system} keeps its files in memory: this is no storage.")
        if self.place.remote:
            self.notes.append(
                f"{self.place.file_system} is served by another machine: its caches, and whoever shares it, are in the "
                "figures; ask from all nodes at once to see what they get together."
            )
        virtual = hypervisor(self._root)
        if virtual:
            kind = "" if virtual == "unknown" else f" ({virtual})"
            self.notes.append(
                f"This is a virtual machine{kind}: its host may cache the disk, and a cloud may let a disk burst; "
                "a longer --runtime and a larger --size show what lasts."
            )

    def _fio(self, tool: Tool, folder: Path) -> None:
        settings = self.settings
        self.direct_why = takes_direct(folder)
        self.direct = not self.direct_why
        size = self.size_bytes
        for job in fio_runs.jobs(settings.whole_sample_bytes):
            self.say(f"fio {job.name}: {job.use} ({settings.runtime_s:g} s)")
            if not self._part(tool, job, folder, size) and job.name == "write-1m":
                self.failures.append("fio's other parts were left out: there is no file to read")
                break
            if job.name == "write-1m":
                size = fio_runs.written_bytes(folder)
                self._say_cache(size)
        (folder / fio_runs.FILE).unlink(missing_ok=True)

    def _part(self, tool: Tool, job: Job, folder: Path, size: int) -> bool:
        try:
            record = fio_runs.run(tool, job, folder, size, self.settings.runtime_s, self.direct)
        except StorageError as error:
            self.failures.append(str(error))
            return False
        self.records.append(record)
        self.rows.append(fio_runs.row(job, record))
        return True

    def _say_cache(self, size: int) -> None:
        """How the page cache was kept out."""
        if self.place.in_memory:
            how = "no cache can be kept out, since all of it is memory"
        elif self.direct:
            how = "direct I/O passes the page cache by"
        else:
            memory = memory_limit(self._root)
            large = f"; memory is {format_size(memory)}" if memory else ""
            how = (
                f"no direct I/O: {self.direct_why}. The file's pages are dropped before each part and no block is read "
                f"twice, so that the page cache has nothing to give{large}"
            )
        self.notes.append(f"fio's file is {format_size(size)}, what was written in {self.settings.runtime_s:g} s or "
                          f"--size; {how}.")  # fmt: skip

    def _loader(self, folder: Path) -> None:
        settings = self.settings
        self.say(f"loader: writing up to {self.files:,} files of {format_size(settings.whole_sample_bytes)}")
        try:
            files = loader.write_files(folder / "files", self.files, settings.whole_sample_bytes, settings.runtime_s)
            self.say(f"loader: {settings.workers_used} workers read {files.count:,} files ({settings.runtime_s:g} s)")
            self.loader = loader.read_files(
                folder / "files", files, settings.workers_used, settings.runtime_s, settings.seed
            )
        except StorageError as error:
            self.failures.append(str(error))
            return
        self._say_loader(self.loader)

    def _say_loader(self, read: LoaderRead) -> None:
        if read.cached is None:
            self.notes.append("Whether the loader's files were out of the page cache is not known here: nothing tells.")
        elif read.cached >= loader.WARM_FROM:
            self.notes.append(
                f"{read.cached:.0%} of the loader's files were still in the page cache: its figure is too good."
            )
        if read.exhausted:
            self.notes.append(
                f"The loader had read all {read.files:,} files after {read.duration_s:.2g} s; more --files, a larger "
                "--size or a longer --runtime, in which more are written, make its figure surer."
            )

    def result(self) -> StorageResult:
        """What there is now, judged."""
        need = self.settings.need
        found = supplies(self.rows, self.loader, self.settings.sample_bytes)
        verdicts = judge(need, found) if need is not None else []
        if need is not None and self.failures and not self.interrupted:
            verdicts.append(Verdict("measured", False, "; ".join(self.failures)))
        return StorageResult(
            self.place, tuple(self.rows), self.loader, tuple(found), tuple(verdicts), self._document(found, verdicts)
        )

    def _document(self, found: Sequence[Supply], verdicts: Sequence[Verdict]) -> Document:
        settings, need = self.settings, self.settings.need
        disk = ", ".join(d.model or d.name for d in self.place.disks) or self.place.source or "storage"
        doc = document(
            argv=sys.argv[1:],
            devices=[{"id": "storage", "kind": "storage", "name": f"{disk} ({self.place.file_system or 'unknown'})"}],
            measurements=self.records,
            verdicts=[asdict(verdict) for verdict in verdicts],
            notes=[*self.notes, *(f"Not measured: {failure}" for failure in self.failures)],
            settings={"size_bytes": self.size_bytes, "runtime_s": settings.runtime_s, "files": self.files,
                      "workers": settings.workers_used, "seed": settings.seed},
            interrupted=self.interrupted,
            emulated=False,
        )  # fmt: skip
        doc["storage"] = {
            "place": place_json(self.place),
            **or_why("direct", self.direct if self.tool else None, "fio did not run"),
            **({"direct_refused": self.direct_why} if self.tool and not self.direct else {}),
            **or_why("fio", self.tool and self.tool.version, "left out by --no-fio"),
            "parts": self.rows,
            **or_why("loader", self.loader and loader_json(self.loader), "not measured"),
            "sample_bytes": settings.sample_bytes,
            "supplies": [asdict(one) for one in found],
            **or_why("need", need and asdict(need) | {"bytes_per_s": need.bytes_per_s}, "none was given"),
        }
        return doc
