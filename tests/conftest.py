"""What holds for all tests."""

from __future__ import annotations

import signal

import pytest

# A run that was started in the background of a script ignores Ctrl-C, and so does all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For pytest-xdist with --dist loadgroup: a file's tests share what they set up, and so do all emulated ones."""
    for item in items:
        folder, file = item.path.parent.name, item.path.stem
        item.add_marker(pytest.mark.xdist_group(folder if folder == "emulator" else file))
