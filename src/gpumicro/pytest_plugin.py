"""The pytest plugin: `gpumicro_roofline`, a fixture to assert a kernel's place under this machine's roof with.

    def test_add_is_bandwidth_bound(gpumicro_roofline):
        point = gpumicro_roofline.place(add, a, b, flops=n, bytes=24 * n)
        point.assert_at_least(0.8, of="roof")

Loaded by every pytest run where gpumicro is installed, so it imports nothing but pytest until the fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .chart import Roofline

_LINES = pytest.StashKey[list[str]]()  # what the summary says, a line a point
_XDIST_KEY = "gpumicro_points"  # under which a worker of pytest-xdist hands its lines over


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that say where the ceilings come from."""
    group = parser.getgroup("gpumicro", "kernels under a roofline")
    group.addoption(
        "--gpumicro-roofline",
        metavar="FILE",
        help="The result file of `gpumicro roofline` that gpumicro_roofline places kernels under.",
    )
    group.addoption(
        "--gpumicro-device",
        metavar="DEVICE",
        default="auto",
        help="Without such a file: the device to measure quickly when the fixture is first used. [default: auto]",
    )


def pytest_configure(config: pytest.Config) -> None:
    """A file that is not there is found at once, not after the tests before."""
    config.stash[_LINES] = []
    path = config.getoption("--gpumicro-roofline")
    if path is not None and not Path(path).is_file():
        raise pytest.UsageError(f"--gpumicro-roofline: no such file: {path}")


@pytest.fixture(scope="session")
def gpumicro_roofline(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Roofline:
    """This machine's `gpumicro.Roofline`, from --gpumicro-roofline or measured quickly once a session (about 20 s).

    Points that are placed on it are listed at the end of the run.
    """
    from .errors import GpumicroError

    try:
        return _listed(_ceilings(pytestconfig, tmp_path_factory), pytestconfig.stash[_LINES])
    except GpumicroError as error:
        pytest.fail(f"gpumicro_roofline: {error}", pytrace=False)


def _ceilings(config: pytest.Config, folders: pytest.TempPathFactory) -> Roofline:
    from .chart import Roofline, roofline

    path, device = config.getoption("--gpumicro-roofline"), config.getoption("--gpumicro-device")
    if path is not None:
        return Roofline.load(path)
    if not hasattr(config, "workerinput"):
        return roofline(device, mode="quick")
    kept = folders.getbasetemp().parent / "gpumicro-roofline.json"  # the workers' common folder
    with _one_at_a_time(kept):  # who measures beside others measures them too
        if not kept.exists():
            roofline(device, mode="quick").save(kept)
    return Roofline.load(kept)


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    import fcntl

    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _listed(roof: Roofline, lines: list[str]) -> Roofline:
    """The same roofline, which adds what is placed on it to `lines`."""
    from .chart import Roofline
    from .placed import Placed

    class Listed(Roofline):
        def place(self, *args: Any, **kwargs: Any) -> Placed:
            placed = super().place(*args, **kwargs)
            lines.append(str(placed))
            return placed

    return Listed(roof.document)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its lines to the process that prints."""
    output, lines = getattr(session.config, "workeroutput", None), session.config.stash[_LINES]
    if output is not None:
        output[_XDIST_KEY] = list(lines)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker handed over; one that crashed has nothing."""
    worker = getattr(node, "workerinput", {}).get("workerid", "")
    found = getattr(node, "workeroutput", {}).get(_XDIST_KEY, [])
    node.config.stash[_LINES] += [f"[{worker}] {line}" for line in found]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line for each point that was placed."""
    lines = config.stash[_LINES]
    if not lines:
        return
    terminalreporter.section("gpumicro: points under the roof")
    for line in lines:
        terminalreporter.write_line(line)
    if any(line.startswith("[gw") for line in lines):
        terminalreporter.write_line("Several workers ran at once and took the machine from each other: -n 0 is surer.")
