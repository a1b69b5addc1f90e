"""What can go wrong, as classes a caller can tell apart. Nothing here prints or exits; the command line does that."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], most: int = 3) -> str:
    """`; did you mean a, b?`: names that the word is a part of, else those that look like it, else all."""
    from difflib import get_close_matches

    names = {name.casefold(): name for name in reversed(list(known))}
    part = word.strip().casefold()
    within = [key for key in reversed(names) if part and part in key]
    close = within[:most] or get_close_matches(part, names, n=most, cutoff=0.45)
    if close:
        return f"; did you mean {', '.join(names[key] for key in close)}?"
    return f"; there are {', '.join(reversed(names.values()))}"


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that does not exist: what was wrong, and the nearest names that do."""
    return f"unknown {kind} {name!r}{nearest(name, known)}"


def add_note(error: BaseException, note: str) -> None:
    """A line that is shown below an exception. On Python 3.10, which does not show notes, it is only kept with it."""
    notes: list[str] = getattr(error, "__notes__", [])
    if note not in notes:
        error.__notes__ = [*notes, note]  # type: ignore[attr-defined]


class GpumicroError(Exception):
    """The root. `exit_code` is what the command line ends with when this reaches it."""

    exit_code = 1


class UsageError(GpumicroError, ValueError):
    """The caller asked for something that does not exist or makes no sense."""

    exit_code = 2


class CompileError(UsageError):
    """Source that a compiler refuses; `log` is what it said, with file and line."""

    def __init__(self, what: str, log: str) -> None:
        super().__init__(f"{what}:\n{log}" if log else what)
        self.log = log


class BackendUnavailable(GpumicroError):
    """A backend, device or kernel that is known but cannot run here; `remedy` says what would help."""

    exit_code = 3

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}. {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


class MeetingError(GpumicroError):
    """Ranks that did not find each other, or lost each other; the message names them, their hosts and the place."""


class VerificationError(GpumicroError):
    """A kernel's output is wrong: nothing it was timed at may be believed."""

    def __init__(self, kernel: str, index: int, expected: float, got: float, bound: float) -> None:
        super().__init__(
            f"{kernel}: wrong output at index {index}: expected {expected!r}, got {got!r} (allowed error {bound:.3g})"
        )
        self.kernel, self.index, self.expected, self.got, self.bound = kernel, index, expected, got, bound


class SchemaError(GpumicroError, ValueError):
    """A result or data file that is not what it claims to be; the message names the file and the place in it."""

    exit_code = 2


class OutOfMemory(GpumicroError):
    """The problem does not fit into the memory that this process may use."""


class CudaError(GpumicroError):
    """A CUDA call failed. `lost`: the process can use CUDA no more, whatever it does; only a new one can."""

    def __init__(
        self, call: str, code: int, name: str, text: str, kernel: str = "", launch: str = "", lost: bool = False
    ) -> None:
        where = f" in {kernel} ({launch})" if kernel else ""
        cure = ". This process has lost its CUDA context and can use CUDA no more; start a new process" if lost else ""
        super().__init__(f"{call} failed with {name} ({code}): {text}{where}{cure}")
        self.call, self.code, self.name, self.text = call, code, name, text
        self.kernel, self.launch, self.lost = kernel, launch, lost


class NcclError(GpumicroError):
    """NCCL refused or failed, or what was asked of it did not come within its time (`timed_out`).

    call: NCCL's function. code, name: its ncclResult_t. text: what that means. detail: what NCCL says itself, "" where
    it says no more. rank: the rank of this process that it is about.
    """

    def __init__(
        self,
        call: str,
        code: int,
        name: str,
        text: str,
        detail: str = "",
        rank: int | None = None,
        timed_out: bool = False,
    ) -> None:
        where = "" if rank is None else f" at rank {rank}"
        super().__init__(f"{call} failed{where} with {name} ({code}): {text}{f': {detail}' if detail else ''}")
        self.call, self.code, self.name, self.text, self.detail = call, code, name, text, detail
        self.rank, self.timed_out = rank, timed_out
