"""The same sweep under several transports, one process tree after the other, and their results as one.

NCCL reads its variables once in a process: each transport has processes of its own. Those that a launcher started stay
and each start one of the next kind; the children meet by torchrun's variables, through a socket.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import children
from ..errors import GpumicroError
from ..result import read, write
from .nccl_transports import MEANINGS, had, why_not
from .ranks import Control

Document = dict[str, Any]
Carry = Callable[[Control, Callable[[], bytes]], bytes]
_RECORD_BYTES = 4096
_HOPELESS = (2, 3)  # exit codes: wrong use, nothing to run on
# what launchers set; a child must not be taken for one of theirs
_LAUNCHERS = (
    "PMI_", "PMIX_", "OMPI_", "PRTE_", "MPI_LOCAL", "MV2_COMM", "PALS_", "SLURM_", "TORCHELASTIC_", "HYDRA_", "HYDI_",
    "FLUX_", "GROUP_", "ROLE_", "LOCAL_", "RANK", "WORLD_SIZE", "MASTER_",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands among those that a launcher started."""

    ranks: int
    hosts: int
    host: str
    meet_at: str  # a name or address of rank 0's host


@dataclass(slots=True)
class Swept:
    """What came of the transports: a result of each that could be had, the reason of each that could not."""

    documents: dict[str, Document]
    reasons: dict[str, str]
    code: int = 0


def command(transport: str, output: str, more: Sequence[str] = ()) -> list[str]:
    """This very command for one transport: of an option that is given twice the last holds."""
    return [*sys.orig_argv, "--transport", transport, "-o", output, *more]


def variables(control: Control, meet_at: str, carry: Carry) -> dict[str, str]:
    """What a child finds the others by: rank 0 picks a free port and a secret. Called by all processes."""

    def pick() -> bytes:
        with socket.socket() as free:
            free.bind(("", 0))
            return f"{free.getsockname()[1]} {secrets.token_hex(32)}".encode()

    port, token = carry(control, pick).decode().split()
    return {
        "RANK": str(control.rank), "WORLD_SIZE": str(control.size), "MASTER_ADDR": meet_at, "MASTER_PORT": port,
        "GPUMICRO_TOKEN": token,
    }  # fmt: skip


def environment(given: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """A child's: without what launchers set."""
    return {name: value for name, value in given.items() if not name.startswith(_LAUNCHERS)} | dict(more)


@dataclass(frozen=True, slots=True)
class Sweeps:
    """What the processes of all transports have in common. `carry` brings rank 0's bytes to the others; on rank 0
    `on_text` gets what each transport wrote, `on_progress` a line before it; `more` are arguments for each child."""

    control: Control
    place: Place
    carry: Carry
    on_text: Callable[[str], None]
    on_progress: Callable[[str], None]
    more: Sequence[str] = ()

    def run(self, transports: Sequence[str], keep: Callable[[Swept, bool], None]) -> Swept:
        """All in turn; `keep` gets what there is after each, and whether more follow. Called by all processes.

        One that cannot be had says why, and the next goes on; but none is tried after one that no cure of this list
        would help: no GPU, wrong use. Exit code: 1 where an element was wrong or rows broke off, else 0; where nothing
        came of any, the first one's.
        """
        swept, rank_0 = Swept({}, {}), self.control.rank == 0
        for number, name in enumerate(transports):
            _, reason = self._agreed(0, why_not(name, self.place.ranks, self.place.hosts))
            if rank_0:
                self.on_progress(f"transport {name}: {f'left out: {reason}' if reason else MEANINGS[name]}")
            code = 0
            if not reason:
                code, reason = self._one(name, swept)
            if reason:
                swept.reasons[name] = reason
            hopeless = code in _HOPELESS
            if rank_0:
                swept.code = swept.code or code * (hopeless or name in swept.documents)
                keep(swept, number + 1 < len(transports) and not hopeless)
            if hopeless:
                break
        if rank_0 and not swept.documents:
            swept.code = swept.code or 1
        return swept

    def _one(self, name: str, swept: Swept) -> tuple[int, str]:
        """(exit code, why it could not be had)."""
        control = self.control
        found = variables(control, self.place.meet_at, self.carry) if control.size > 1 else {}
        with tempfile.TemporaryDirectory(prefix="gpumicro-transport-") as folder:
            output = str(Path(folder) / "r.json")
            ended = children.run(
                command(name, output, self.more), keep_output=True, environment=environment(os.environ, found)
            )  # fmt: skip
            document = read_if_there(output) if control.rank == 0 else None
        failure = "" if ended.code in (0, 1) else _last(ended.errors) or ended.failure
        if control.rank == 0:
            self.on_text(f"\n# transport {name}: {MEANINGS[name]}\n{ended.output}")
            whole = document is not None and not document["interrupted"]
            failure = _other(name, document) if document and whole else _last(ended.errors) or ended.failure
            if document and document["measurements"] and not (whole and failure):
                swept.documents[name] = document  # also the rows of one that broke off
        return self._agreed(ended.code if ended.code >= 0 else 1, failure)

    def _agreed(self, code: int, reason: str) -> tuple[int, str]:
        """The first code that is not 0 and the first reason, with its rank and host. Called by all processes."""
        where = f"rank {self.control.rank} on {self.place.host}: " if self.control.size > 1 else ""
        mine = json.dumps([code, f"{where}{reason[:600]}" if reason else ""]).encode()
        found = [json.loads(one.rstrip()) for one in self.control.exchange(mine.ljust(_RECORD_BYTES))]
        return next((one for one, _ in found if one), 0), next((text for _, text in found if text), "")


def read_if_there(path: str) -> Document | None:
    """A result, None where there is none."""
    with suppress(OSError, GpumicroError):
        return read(path)
    return None


def _other(name: str, document: Document) -> str:
    rows = document["measurements"]
    seen = (rows[-1]["facts"].get("nccl_transports") or []) if rows else []
    return "" if had(name, seen) else f"NCCL took {', '.join(seen)} instead"


def _last(errors: str) -> str:
    said = [line for line in errors.splitlines() if line.strip()]
    return said[-1].removeprefix("gpumicro: ") if said else ""


def merged(swept: Swept, transports: Sequence[str], *, interrupted: bool) -> Document | None:
    """One result of all; None where there is none. What could not be had stands in its notes."""
    documents = list(swept.documents.items())
    if not documents:
        return None
    whole: Document = dict(documents[0][1])
    whole["argv"] = sys.argv[1:]
    whole["interrupted"] = interrupted or any(document["interrupted"] for _, document in documents)
    whole["measurements"] = [item for _, document in documents for item in document["measurements"]]
    notes = [f"{name}: {note}" for name, document in documents for note in document["notes"]]
    whole["notes"] = notes + [f"transport {name} could not be had: {why}" for name, why in swept.reasons.items()]
    whole["settings"] = whole["settings"] | {"transports": list(transports)}
    return whole


def keep(swept: Swept, transports: Sequence[str], file: str | None, *, interrupted: bool) -> None:
    """The file as far as it goes; standard output gets the whole at the end."""
    document = merged(swept, transports, interrupted=interrupted)
    if file is not None and document is not None and not (interrupted and file == "-"):
        write(file, document)
