"""The pytest plugin as its user meets it, in runs of pytest of its own. Times are a fake clock's."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_placing import document

from gpumicro import chart, pytest_plugin, survey  # before pytester, which forgets what was imported within a run

pytest_plugins = ["pytester"]
assert survey
# By its entry point where gpumicro is installed; loading it a second time is an error.
INSTALLED = any(point.name == "gpumicro" for point in entry_points(group="pytest11"))
LOAD = () if INSTALLED else ("-p", "gpumicro.pytest_plugin")

SUITE = """
import gpumicro as gm

def place(roof, seconds, **more):
    given = {"flops": 20e6, "bytes": 20e6} | more
    return roof.place(gm.FakeWork(seconds), timer=gm.FakeTimer(), **given)

def test_good(gpumicro_roofline):
    place(gpumicro_roofline, 1.1e-3, name="good").assert_at_least(0.8, of="roof")
"""
SLOW = """
def test_slow(gpumicro_roofline):
    place(gpumicro_roofline, 2e-3, name="slow").assert_at_least(0.8)
"""
IMPOSSIBLE = """
def test_impossible(gpumicro_roofline):
    place(gpumicro_roofline, 1e-4, name="fast", bytes=1 << 20).assert_at_least(0.1)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs pytest on a suite with the plugin, under a hand-made roof."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        monkeypatch.delenv(name, raising=False)
    (pytester.path / "r.json").write_text(json.dumps(document()), encoding="utf-8")

    def run(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess(*LOAD, *options)

    return run


def test_points_are_asserted_and_listed(suite: Any) -> None:
    done = suite(SUITE, "--gpumicro-roofline", "r.json")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(
        ["*gpumicro: points under the roof*", "good: 90.*% (95%: *) of attainable, held by DRAM*"]
    )


def test_a_slow_kernel_fails_with_figures_and_without_our_own_lines(suite: Any) -> None:
    done = suite(SUITE + SLOW, "--gpumicro-roofline", "r.json")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        ["*AssertionError: slow reaches * of the roof, less than the 80.0% asked for", "*held by DRAM bandwidth*"]
    )
    assert "def assert_at_least" not in done.stdout.str()


def test_an_impossible_kernel_fails_with_its_causes(suite: Any) -> None:
    done = suite(SUITE + IMPOSSIBLE, "--gpumicro-roofline", "r.json")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*fast is faster than its roof can be*", "*likely cause: *"])


def test_a_session_that_does_not_use_it_loads_nothing_and_says_nothing(suite: Any) -> None:
    done = suite("def test_other(): pass", "--gpumicro-roofline", "r.json")
    done.assert_outcomes(passed=1)
    said = [line for line in done.stdout.str().splitlines() if not line.startswith("plugins:")]
    assert "gpumicro" not in "\n".join(said).replace("gpumicro.pytest_plugin", "")


def test_a_missing_file_is_found_before_the_tests(suite: Any) -> None:
    done = suite(SUITE, "--gpumicro-roofline", "missing.json")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*no such file: missing.json*"])


def test_a_file_that_is_no_result_is_one_sentence(suite: Any, pytester: pytest.Pytester) -> None:
    (pytester.path / "bad.json").write_text("{}", encoding="utf-8")
    done = suite(SUITE, "--gpumicro-roofline", "bad.json")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*gpumicro_roofline: bad.json: not a gpumicro result*"])


def test_a_device_that_is_not_there_is_one_sentence(suite: Any) -> None:
    done = suite(SUITE, "--gpumicro-device", "cuda:97")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*gpumicro_roofline: *cuda:97*"])


def test_without_a_file_the_device_is_measured_once_a_session(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def quick(device: str, **more: Any) -> chart.Roofline:
        asked.append((device, more))
        return chart.Roofline(document())

    monkeypatch.setattr(chart, "roofline", quick)
    done = suite(SUITE + SUITE.replace("test_good", "test_again"), "--gpumicro-device", "cpu")
    done.assert_outcomes(passed=2)
    assert asked == [("cpu", {"mode": "quick"})]


def test_workers_of_xdist_measure_once_and_hand_their_points_over(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pytest-xdist calls it: it has no part in this test."""
    calls: list[str] = []

    def quick(device: str, **_: Any) -> chart.Roofline:
        calls.append(device)
        return chart.Roofline(document())

    monkeypatch.setattr(chart, "roofline", quick)
    common = tmp_path_factory.mktemp("session")
    options = {"--gpumicro-roofline": None, "--gpumicro-device": "cpu"}
    for name in ("gw0", "gw1"):
        config = SimpleNamespace(getoption=options.get, workerinput={"workerid": name})
        folders = SimpleNamespace(getbasetemp=lambda name=name: Path(common) / f"popen-{name}")
        roof = pytest_plugin._ceilings(config, folders)  # type: ignore[arg-type]
        assert len(roof.ceilings) > 2
    assert calls == ["cpu"]

    worker = SimpleNamespace(workeroutput={}, stash={pytest_plugin._LINES: ["mine: 80%"]})
    pytest_plugin.pytest_sessionfinish(SimpleNamespace(config=worker))  # type: ignore[arg-type]
    ours = SimpleNamespace(stash={pytest_plugin._LINES: []})
    node = SimpleNamespace(workerinput={"workerid": "gw0"}, workeroutput=worker.workeroutput, config=ours)
    pytest_plugin.pytest_testnodedown(node)
    assert ours.stash[pytest_plugin._LINES] == ["[gw0] mine: 80%"]


def test_the_example_runs(suite: Any) -> None:
    example = Path(__file__).parents[1] / "examples" / "test_with_pytest.py"
    done = suite(example.read_text(encoding="utf-8"), "--gpumicro-roofline", "r.json")
    done.stdout.fnmatch_lines(["add: *of attainable, held by DRAM bandwidth*"])  # whether it passes is the machine's
