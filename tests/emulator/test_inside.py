"""Tests that use the CUDA backend in their own process: run by a pytest that is started on the double."""

from __future__ import annotations

import pytest
from emulator.conftest import HERE, INSIDE, Emulated


@pytest.mark.parametrize("name", INSIDE)
def test_file(emulated: Emulated, name: str) -> None:
    done = emulated.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / name))
    assert done.returncode == 0, done.stdout[-6000:]
