"""The file that NCCL writes its log into while a job runs, and what was read of it."""

from __future__ import annotations

import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from . import nccl_log


class LogFile:
    """What NCCL writes of itself into a file of ours; nothing where the user has one."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._environment = environment
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lines: dict[str, None] = {}  # each once: a call of each row writes the same again
        self._read_bytes = 0

    def begin(self, tuning: bool) -> None:
        """Before NCCL's first use."""
        if any(name in self._environment for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")):
            return
        self._folder = tempfile.TemporaryDirectory(prefix="gpumicro-nccl-", ignore_cleanup_errors=True)
        self._environment.update(nccl_log.environment(str(self._file), tuning=tuning))

    @property
    def _file(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "log"

    def read(self) -> nccl_log.NcclLog:
        """All of it so far."""
        if self._folder is not None and self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read_bytes)
                whole = file.read().rpartition(b"\n")[0]
            self._read_bytes += len(whole)
            self._lines |= dict.fromkeys(whole.decode("utf-8", "replace").splitlines())
        return nccl_log.parse("\n".join(self._lines))

    def end(self) -> None:
        """Keep what was read, remove the file and our variables."""
        if self._folder is None:
            return
        self.read()
        self._folder.cleanup()
        self._folder = None
