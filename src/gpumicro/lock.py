"""One run at a time on a device: a second gpumicro waits, for a while, for the first to end.

The lock is an flock on a file named by the device's UUID, so that it holds whatever number CUDA gives the device and
goes with the process that holds it, however that ends. CPUs are not locked: who shares them shows in the CPU watch.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

WAIT_S = 120.0  # a default run takes a minute; whoever holds a GPU for longer shares it
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Held:
    """Whether the device is ours alone; if not, `why` says so in a sentence."""

    alone: bool
    why: str = ""


def lock_folder(environ: dict[str, str] | None = None) -> Path:
    """$XDG_RUNTIME_DIR, else /tmp/gpumicro-UID made for us alone. Raises OSError where that is someone else's."""
    runtime = (os.environ if environ is None else environ).get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        return Path(runtime)
    folder = Path("/tmp") / f"gpumicro-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "not a directory of ours", str(folder))
    return folder


@contextmanager
def device_lock(
    uuid: str, *, folder: Path | None = None, wait_s: float = WAIT_S, say: Callable[[str], None] = lambda _: None
) -> Iterator[Held]:
    """Hold the device's lock while inside. After `wait_s` seconds of waiting the run goes on without it: see `Held`.

    `say` is told once for whom we wait. Ctrl-C ends the waiting. A place where no lock can be made does not end a run.
    """
    try:
        path = (folder or lock_folder()) / f"gpumicro-{re.sub(r'[^A-Za-z0-9-]', '_', uuid)}.lock"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        yield Held(True, f"no lock could be made: {error.strerror or error} ({error.filename})")
        return
    try:
        got = _take(file, wait_s, say)
        if got:
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        # The file stays: whoever removed it would take it from one who has opened it and waits.
        yield Held(True) if got else Held(False, f"{_holder(file)} still uses this device after {wait_s:.0f} s")
        if got:
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def _take(file: int, wait_s: float, say: Callable[[str], None]) -> bool:
    """True once the lock is ours."""
    until = time.monotonic() + wait_s
    told = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        except OSError:
            return True  # a file system that knows no locks: nothing to wait for
        left_s = until - time.monotonic()
        if left_s <= 0:
            return False
        if not told:
            say(f"waiting for {_holder(file)}, which uses this device")
            told = True
        time.sleep(min(POLL_S, left_s))


def _holder(file: int) -> str:
    text = os.pread(file, 32, 0).decode("ascii", "replace").strip()
    return f"process {text}" if text.isdigit() else "another process"
