"""Two commands in turns: order, statistics and rules on made-up runs; processes, failures and Ctrl-C for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpumicro import __main__, children, result
from gpumicro.children import Ended
from gpumicro.command_pairs import CommandPairs, Rules
from gpumicro.errors import GpumicroError, UsageError
from gpumicro.report.ab import ab_text, sentence

PYTHON = sys.executable


class Machine:
    """Runs `a` and `b` in known times with noise, on a machine that slows as it goes; prints what it took."""

    def __init__(self, seconds: dict[str, float], seed: int = 0, noise: float = 0.02, drift: float = 0.0) -> None:
        self.seconds, self.noise, self.drift = seconds, noise, drift
        self.rng = np.random.default_rng(seed)
        self.calls: list[str] = []

    def __call__(self, argv: Sequence[str], *, keep_output: bool, **_: Any) -> Ended:
        name = argv[0]
        self.calls.append(name)
        slowed = 1 + self.drift * len(self.calls)
        took = self.seconds[name] * slowed * float(np.exp(self.noise * self.rng.normal()))
        code = 7 if name == "fails" or (name == "breaks" and len(self.calls) > 40) else 0
        return Ended(code, took, took / 2, 0.0, False, f"x\nit took {took} s\n" if keep_output else "", "oh dear")


def compared(seconds: dict[str, float], seed: int = 0, **options: Any) -> dict[str, Any]:
    machine = Machine(seconds, seed, options.pop("noise", 0.02), options.pop("drift", 0.0))
    pairs = CommandPairs(*seconds, Rules(**({"runs": 40, "seed": seed} | options)), machine)
    pairs.run()
    doc = pairs.document()
    json.dumps(doc, allow_nan=False)
    assert result.missing_reasons(doc) == []
    return doc


# --- statistics and order --------------------------------------------------------------------------------------------


def test_a_block_is_abba_or_baab() -> None:
    machine = Machine({"a": 1.0, "b": 1.0})
    CommandPairs("a", "b", Rules(runs=80, warmup=2), machine).run()
    assert machine.calls[:4] == ["a", "b", "a", "b"]
    blocks = Counter("".join(machine.calls[i : i + 4]) for i in range(4, len(machine.calls), 4))
    assert set(blocks) == {"abba", "baab"}
    assert sum(blocks.values()) == 40


def test_equal_commands_are_seldom_called_different_on_a_machine_that_slows() -> None:
    found = Counter(compared({"a": 1.0, "b": 1.0}, seed, drift=0.002)["verdict"] for seed in range(200))
    assert found["slower"] + found["faster"] <= 16


def test_a_planted_difference_is_found_both_ways() -> None:
    assert Counter(compared({"a": 1.0, "b": 1.04}, seed)["verdict"] for seed in range(40))["slower"] >= 36
    assert Counter(compared({"a": 1.04, "b": 1.0}, seed)["verdict"] for seed in range(40))["faster"] >= 36


def test_the_rule_stops_when_the_margin_is_resolved() -> None:
    doc = compared({"a": 1.0, "b": 1.0}, runs=None, margin=0.01, noise=0.004)
    assert (doc["stop_reason"], doc["verdict"]) == ("resolved", "equivalent")
    assert doc["blocks"] >= 10
    assert "equivalent: B against A" in sentence(doc)


def test_time_that_is_up_ends_it_and_too_few_blocks_give_no_verdict() -> None:
    said: list[str] = []
    pairs = CommandPairs("a", "b", Rules(max_time_s=1e-9), Machine({"a": 1.0, "b": 3.0}))
    pairs.run(lambda _blocks, _spent, known: said.append(known))
    doc = pairs.document()
    assert (doc["stop_reason"], doc["blocks"], doc["verdict"]) == ("max-time", 1, "inconclusive")
    assert "--max-time more" in said[-1]
    assert "fewer than 6 blocks" in ab_text(doc)


def test_the_same_seed_gives_the_same() -> None:
    one, two = (compared({"a": 1.0, "b": 1.1}, 3) | {"created": ""} for _ in range(2))
    assert one == two


def test_a_metric_is_compared_instead_of_the_time_and_may_be_better_when_higher() -> None:
    took = {"a": 1.0, "b": 1.2}
    lower = compared(took, metric=r"took ([\d.e-]+) s")
    assert lower["verdict"] == "slower"
    assert lower["a"]["values"] == pytest.approx(lower["a"]["wall_s"])
    higher = compared(took, metric=r"took ([\d.e-]+) s", higher=True)
    assert (higher["verdict"], higher["ratio"]) == ("faster", lower["ratio"])
    assert "B is better than A" in sentence(higher)


def test_without_a_block_there_is_a_reason_instead_of_a_figure() -> None:
    doc = compared({"fails": 1.0, "b": 1.0})
    assert (doc["blocks"], doc["ratio_why"]) == (0, "fewer than 2 blocks")
    assert "command A (fails) ended with exit code 7" in ab_text(doc)


@pytest.mark.parametrize(("metric", "says"), [("rate", "nothing that matches"), ("x", "no number above 0")])
def test_a_metric_that_is_not_there_ends_it_with_a_sentence(metric: str, says: str) -> None:
    assert says in compared({"a": 1.0, "b": 1.0}, metric=metric)["error"]


def test_a_failing_command_keeps_what_was_measured_until_then() -> None:
    doc = compared({"a": 1.0, "breaks": 1.5}, runs=200)
    assert doc["error"] == "command B (breaks) ended with exit code 7; it said: oh dear"
    assert doc["blocks"] >= 6
    assert doc["verdict"] == "slower"
    assert len(doc["a"]["values"]) == len(doc["b"]["values"]) == 2 * doc["blocks"]
    text = ab_text(doc)
    assert "FAILED: command B" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    "wrong",
    [
        {"runs": 3}, {"runs": 0}, {"margin": 0.0}, {"margin": 1.0}, {"max_time_s": 0.0}, {"timeout_s": -1.0},
        {"warmup": -1}, {"higher": True}, {"metric": "("},
    ],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Rules(**wrong)


# --- processes -------------------------------------------------------------------------------------------------------


def test_a_process_is_timed_and_accounted_for() -> None:
    ended = children.run(
        [PYTHON, "-c", "import time; time.sleep(0.05); sum(range(10**6)); print('said')"], keep_output=True
    )
    assert (ended.code, ended.failure, ended.output) == (0, "", "said\n")
    assert ended.wall_s > 0.05
    assert ended.wall_s > ended.user_s > 0


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise SystemExit(3)", "exit code 3"), ("1/0", "ZeroDivisionError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
    ],
)  # fmt: skip
def test_how_a_process_failed_is_told(code: str, says: str) -> None:
    assert says in children.run([PYTHON, "-c", code]).failure


@pytest.mark.parametrize("handles", [True, False], ids=["pidfd", "without pidfd"])
def test_one_that_takes_too_long_is_stopped_with_its_children(
    handles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not handles:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert children.run(["true"], timeout_s=60).failure == ""
    mark = tmp_path / "pid"
    ended = children.run(["sh", "-c", f"sleep 60 & echo $! > {mark}; wait"], timeout_s=0.5)
    assert "did not end within" in ended.failure
    assert gone(int(mark.read_text()))


def gone(pid: int) -> bool:
    """Within some seconds; an orphan that nobody has reaped yet counts as gone."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("argv", "says"), [(["/no/such"], "no such file"), (["/"], "permission denied"), (["a\0b"], "null byte")]
)
def test_what_cannot_be_started_is_wrong_use(argv: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        children.run(argv)


# --- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: str) -> int:
    return __main__.main(["ab", *arguments])


def test_commands_are_compared_without_a_shell_and_their_output_is_not_shown(capfd: Any, tmp_path: Path) -> None:
    out = tmp_path / "ab.json"
    assert run("echo '$HOME; 1'", f"{PYTHON} -c 'print(2)'", "--runs", "12", "--metric", "[0-9]+", "-o", str(out)) == 0
    shown = capfd.readouterr()
    assert "B is worse than A: [0-9]+ +100% (+100% to +100%)" in shown.out
    assert "$HOME; 1\n" not in shown.out + shown.err
    doc = json.loads(out.read_text())
    assert doc["a"]["argv"] == ["echo", "$HOME; 1"]
    assert len(doc["b"]["wall_s"]) == 12
    assert doc["blocks"] == 6


def test_show_sends_output_to_standard_error_and_json_stays_clean(capfd: Any) -> None:
    assert run("echo one", "echo two", "--runs", "2", "--show", "--json", "-") == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out)["blocks"] == 1
    assert "one\n" in shown.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["true"], 2, "CMD B"), (["true", ""], 2, "command B is empty"), (["true", "'x"], 2, "cannot be split"),
        (["true", "no-such-program"], 2, "cannot run 'no-such-program'"), (["true", "false"], 1, "exit code 1"),
        (["true", "sleep 9", "--timeout", "0.2"], 1, "did not end within"),
        (["true", "true", "--runs", "3"], 2, "even"),
        (["true", "true", "--max-time", "5x"], 2, "1.5s, 5m or 2h, not '5x'"),
        (["true", "true", "-o", "/nowhere/x"], 2, "/nowhere"),
        (["true", "true", "--metric", "(", "--runs", "2"], 2, "no pattern"),
        (["true", "true", "--metric", "x", "--runs", "2"], 1, "printed nothing that matches"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_a_sentence_and_an_exit_code(arguments: list[str], code: int, says: str, capfd: Any) -> None:
    assert run(*arguments) == code
    shown = capfd.readouterr()
    assert says in shown.err
    assert "Traceback" not in shown.err


def test_fail_on_and_times_with_units(capfd: Any) -> None:
    number = ["--runs", "12", "--metric", r"\d", "--fail-on", "slower"]
    assert run("echo 1", "echo 2", *number, "--max-time", "1.5m") == 1
    assert run("echo 2", "echo 1", *number, "--max-time", "90 s") == 0
    assert run("echo 1", "echo 2", *number, "--higher") == 0
    assert "B is better" in capfd.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_shows_what_there_is_and_ends_the_command_at_work(tmp_path: Path, number: int) -> None:
    mark = tmp_path / "pids"
    command = f"sh -c 'echo $$ >> {mark}; sleep 0.1; test $(wc -l < {mark}) -lt 30 || sleep 60'"
    parent = subprocess.Popen(
        [PYTHON, "-m", "gpumicro", "ab", command, command, "--max-time", "100", "-o", str(tmp_path / "ab.json")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (mark.exists() and len(mark.read_text().split()) >= 30) and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.send_signal(number)
    out, err = parent.communicate(timeout=60)
    assert parent.returncode == 130, err
    assert "6 blocks" in out
    assert "Interrupted" in err
    assert gone(int(mark.read_text().split()[-1]))
    assert json.loads((tmp_path / "ab.json").read_text())["stop_reason"] == "interrupted"


def test_a_program_that_vanishes_halfway_keeps_what_was_measured() -> None:
    machine = Machine({"a": 1.0, "b": 1.0})

    def run_then_vanish(argv: Sequence[str], **options: Any) -> Ended:
        if len(machine.calls) > 30:
            raise UsageError("cannot run 'b': no such file or directory")
        return machine(argv, **options)

    pairs = CommandPairs("a", "b", Rules(runs=100), run_then_vanish)
    pairs.run()
    assert isinstance(pairs.error, GpumicroError)
    assert pairs.document()["blocks"] == 7
