"""A folder of our own under the user's directory: made if there is room, removed however the run ends."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import GpumicroError, UsageError
from ..interrupts import waiting
from ..units import GIB, format_size
from .storage_place import Place

PREFIX = "gpumicro-io-"
LEAST_LEFT_BYTES = 1 * GIB  # what a run leaves free on the file system, whatever is asked
LEFT_SHARE = 0.1  # and at least this share of what was free: others write meanwhile
_FULL = {errno.ENOSPC: "the file system is full", errno.EDQUOT: "the quota is used up"}


class StorageError(GpumicroError):
    """The storage refused while it was measured."""


def spendable(place: Place) -> int:
    """Bytes that a run may write there; 0 or less where it may write nothing."""
    return place.free_bytes - max(LEAST_LEFT_BYTES, int(LEFT_SHARE * place.free_bytes))


def require_room(place: Place, wanted_bytes: int, files: int) -> None:
    """Raises UsageError unless so much may be written there."""
    room = spendable(place)
    if wanted_bytes > room:
        raise UsageError(
            f"{place.directory}: {format_size(place.free_bytes)} are free there, and {format_size(wanted_bytes)} would "
            f"be written; {format_size(place.free_bytes - room)} must stay free. Take a smaller --size or another "
            "directory"
        )
    if place.free_files is not None and files > place.free_files // 2:
        raise UsageError(
            f"{place.directory}: the file system can take {place.free_files:,} more files, and {files:,} would be "
            "made; half of them must stay free. Take fewer --files or another directory"
        )


def refused(error: OSError, where: str, doing: str) -> StorageError:
    """What the storage said, in words: what, where, why, cure."""
    why = _FULL.get(error.errno or 0, error.strerror or str(error))
    cure = "; take a smaller --size" if error.errno in _FULL else ""
    return StorageError(f"{where}: {doing} failed: {why}{cure}")


def left_behind(directory: str) -> list[str]:
    """Folders of earlier runs that were killed; they are somebody's to look at, and are never touched."""
    try:
        return sorted(path.name for path in Path(directory).glob(f"{PREFIX}*"))
    except OSError:
        return []


@contextmanager
def scratch(directory: str) -> Iterator[Path]:
    """A new empty folder that only this user may enter; it goes with all it holds, also on Ctrl-C.

    Raises UsageError where none can be made.
    """
    folder, made = Path(directory).resolve() / f"{PREFIX}{secrets.token_hex(6)}", False
    try:
        with waiting():
            _make(folder, directory)
            made = True
        yield folder
    finally:
        if made:
            with waiting():
                _remove(folder)


def _make(folder: Path, directory: str) -> None:
    try:
        folder.mkdir(mode=0o700)  # an existing one, whoever's, is an error
    except OSError as error:
        why = _FULL.get(error.errno or 0, error.strerror or str(error))
        raise UsageError(
            f"{directory}: no folder can be made there: {why}; name a directory that you may write"
        ) from None


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{folder} could not be removed: {error.strerror or error}; remove it yourself") from error


def takes_direct(folder: Path) -> str:
    """ "" where files there can be opened and written with O_DIRECT, else why not."""
    if not hasattr(os, "O_DIRECT"):
        return "this system has no O_DIRECT"
    path = folder / "direct"
    try:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT | os.O_EXCL, 0o600)
    except OSError as error:
        return f"the file system refuses O_DIRECT ({error.strerror or error})"
    finally:
        path.unlink(missing_ok=True)
    os.close(handle)
    return ""
