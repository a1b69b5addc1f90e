"""Comparisons whose unit is the process: the statistics on made-up runs, the processes for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpumicro import ProcessComparison, compare, reach
from gpumicro.errors import GpumicroError, UsageError
from gpumicro.replicates import judge_runs

WORKS = """
from gpumicro import FakeWork
light, heavy = FakeWork(2e-4, spread=0.01), FakeWork(2.1e-4, spread=0.01)
number = 3
def broken(): raise RuntimeError("no luck")
def exits(): raise SystemExit(3)
class Holder:
    @staticmethod
    def method(): pass
"""
FAKE = {"timer": "fake", "blocks": 30}
QUICK = {"blocks": 6, "warmup": 1}


@pytest.fixture
def works(tmp_path: Path) -> str:
    (tmp_path / "works.py").write_text(WORKS)
    return str(tmp_path / "works.py")


def made_up(ratio: float, seed: int, processes: int = 10, process_sd: float = 0.005) -> ProcessComparison:
    rng = np.random.default_rng(seed)
    runs = []
    for _ in range(processes):
        centre = ratio * float(np.exp(process_sd * rng.normal()))
        runs.append({"ratio": centre, "ci95": [centre * 0.999, centre * 1.001], "confidence": 0.95, "flags": []})
    return judge_runs(("a", "b"), runs, 0.005, 0.95)


# --- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [3, 5, 6, 10])
def test_equal_works_are_seldom_called_different_however_sure_each_process_is(processes: int) -> None:
    found = Counter(made_up(1.0, seed, processes).verdict for seed in range(400))
    assert found["slower"] + found["faster"] <= 32


def test_one_percent_is_found_by_ten_processes() -> None:
    found = Counter(made_up(1.01, seed).verdict for seed in range(200))
    assert found["slower"] >= 180
    assert found["faster"] == 0


def test_the_least_visible_effect_is_about_what_is_found_in_80_of_100() -> None:
    mde = float(np.median([made_up(1.0, seed).mde for seed in range(100)]))
    found = sum(made_up(1 + mde, 1000 + seed).ci95[0] > 1 for seed in range(200))
    assert 140 <= found <= 190


def test_processes_that_spread_beyond_their_own_intervals_are_flagged() -> None:
    assert "processes-differ" in made_up(1.0, 1).flags
    quiet = [made_up(1.0, seed, process_sd=0.0004).flags for seed in range(50)]
    assert sum("processes-differ" in flags for flags in quiet) <= 2


def test_flags_of_most_processes_are_told_and_an_unresolved_one_makes_it_inconclusive() -> None:
    runs = [{"ratio": 1.5, "ci95": [1.4, 1.6], "confidence": 0.95, "flags": ["correlated"]} for _ in range(4)]
    assert judge_runs(("a", "b"), runs, 0.005, 0.95).flags == ("correlated",)
    runs[0]["flags"] = ["below-resolution"]
    assert judge_runs(("a", "b"), runs, 0.005, 0.95).verdict == "inconclusive"


# --- processes -------------------------------------------------------------------------------------------------------


def test_fresh_processes_compare_two_functions_of_a_file(works: str) -> None:
    found = compare(f"{works}:light", f"{works}:heavy", processes=3, **FAKE)
    assert found.processes == len(found.runs) == 3
    assert found.verdict == "slower"
    assert found.ratio == pytest.approx(1.05, rel=0.01)
    assert len({run["seed"] for run in found.runs}) == 3
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["verdict"] == found.verdict
    assert "3 processes" in str(found)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("works.py:broken", GpumicroError, "process 1 of 3: RuntimeError: no luck"),
        ("works.py:exits", GpumicroError, "process 1 of 3 ended with exit code 3"),
        ("works.py:brokn", UsageError, "did you mean broken"),
        ("works.py:number", UsageError, "int is no work"),
        ("missing.py:f", UsageError, "no such file"),
        ("no.such.module:f", UsageError, "there is no module 'no.such.module'"),
    ],
)
def test_what_goes_wrong_there_is_told_here(
    name: str, kind: type[Exception], says: str, works: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(works).parent)
    with pytest.raises(kind, match="process 1 of 3") as caught:
        compare(name, name, processes=3, **QUICK)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"processes": 2}, "at least 3"), ({"processes": 3, "margin": 0.0}, "margin"),
        ({"processes": 3, "target": -1.0}, "target"), ({"processes": 3, "timer": object()}, "plain numbers"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_start_nothing(options: dict[str, Any], says: str, works: str) -> None:
    with pytest.raises(UsageError, match=says):
        compare(f"{works}:light", f"{works}:light", **options)


def test_an_unguarded_script_starts_no_avalanche(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    text = (
        "import gpumicro as gm\ndef f(): sum(range(99))\n{}print(gm.compare(f, f, processes=3, blocks=6, warmup=1))\n"
    )
    script.write_text(text.format(""))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert 'if __name__ == "__main__"' in done.stderr
    script.write_text(text.format('if __name__ == "__main__":\n    '))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert "3 processes" in done.stdout, done.stderr


def test_ctrl_c_ends_the_process_at_work_too(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    told = f"pathlib.Path({str(mark)!r}).write_text(str(os.getpid()))"
    (tmp_path / "slow.py").write_text(f"import os, pathlib, time\ndef f():\n    {told}\n    time.sleep(60)\n")
    code = "import gpumicro as gm; gm.compare('slow.py:f', 'slow.py:f', processes=3)"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in parent.communicate(timeout=60)[1]
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_are_those_that_another_process_can_load(works: str) -> None:
    assert reach.name_of(json.dumps) == "json:dumps"
    assert reach.load("json:dumps") is json.dumps
    assert reach.name_of("a/b.py:f") == "a/b.py:f"
    assert callable(reach.load(f"{works}:Holder.method"))


def test_what_no_other_process_can_reach_is_refused_with_the_cure() -> None:
    def inner() -> None: ...

    for unreachable in (lambda: None, inner, 3, "nothing", ":f", "m:", "m:f()"):
        with pytest.raises(UsageError, match=r"file\.py:function"):
            reach.name_of(unreachable)


def test_what_was_typed_into_a_session_is_refused_before_anything_starts() -> None:
    code = "import gpumicro as gm\ndef f(): pass\ngm.compare(f, f, processes=3)"
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, timeout=120, check=False)
    assert "put it into a file" in done.stderr
