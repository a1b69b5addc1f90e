"""What holds for all tests."""

from __future__ import annotations

import signal

# A run that was started in the background of a script ignores Ctrl-C, one under nohup the end of its terminal, and so
# does all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
