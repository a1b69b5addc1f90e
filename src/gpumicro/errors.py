"""What can go wrong, as classes a caller can tell apart. Nothing here prints or exits; the command line does that."""

from __future__ import annotations

from collections.abc import Iterable


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that does not exist: what was wrong, and the nearest names that do."""
    from difflib import get_close_matches

    names = list(dict.fromkeys(known))
    nearest = get_close_matches(name, names, n=3, cutoff=0.4) or names
    lead = "did you mean" if nearest is not names else "known are"
    return f"unknown {kind} {name!r}; {lead} {', '.join(nearest)}{'?' if nearest is not names else ''}"


class GpumicroError(Exception):
    """The root. `exit_code` is what the command line ends with when this reaches it."""

    exit_code = 1


class UsageError(GpumicroError, ValueError):
    """The caller asked for something that does not exist or makes no sense."""

    exit_code = 2


class BackendUnavailable(GpumicroError):
    """A backend, device or kernel that is known but cannot run here; `remedy` says what would help."""

    exit_code = 3

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}. {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


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
