"""What holds for all tests."""

from __future__ import annotations

import signal

# A run that was started in the background of a script ignores Ctrl-C, and so does all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
