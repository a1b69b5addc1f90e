"""`python -m gpumicro` and the console script: errors become sentences and exit codes, never a traceback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from .interrupts import ASKING, heeded


def _terminated(signum: int, frame: FrameType | None) -> None:
    """A batch system's SIGTERM or a terminal that goes ends a run as Ctrl-C does: what was measured is written."""
    del frame
    raise KeyboardInterrupt(signum)


def _listen() -> None:
    for number in heeded(*ASKING):
        signal.signal(number, _terminated)


def _say(text: str) -> None:
    print(f"gpumicro: {text}", file=sys.stderr)  # noqa: T201


def _drop_output() -> None:
    """What still waits to be written goes nowhere, lest the interpreter complain about it at its end."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str] | None) -> int:
    import click

    from .cli import cli
    from .errors import GpumicroError

    try:
        code = cli.main(args=arguments, prog_name="gpumicro", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # a full disk or a reader that left is met here, not at the interpreter's end
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.Abort:  # what click makes of Ctrl-C
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except GpumicroError as error:
        _say(str(error))
        return error.exit_code
    except BrokenPipeError:  # the reader of our output left: nothing to say, and nobody to say it to
        _drop_output()
        return 0
    except SystemExit:  # rich's word for the same; nothing else here raises it
        return 0
    except MemoryError:
        _say("out of memory; smaller arrays (--quick) or more memory would help")
        return 1
    except Exception as error:
        if os.environ.get("GPUMICRO_TRACEBACK"):
            raise
        if not isinstance(error, OSError):
            _say(f"this is a bug: {type(error).__name__}: {error}; GPUMICRO_TRACEBACK=1 shows where")
            return 1
        _drop_output()
        reason = error.strerror or str(error)
        _say(f"{reason}: {error.filename}" if error.filename else reason)
        return 1
    return code if isinstance(code, int) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a locale without the character must not end a run
    _listen()
    try:
        return _run(arguments)
    except (KeyboardInterrupt, EOFError):
        _say("interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
