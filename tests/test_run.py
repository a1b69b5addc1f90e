"""`gpumicro run FILE.py:FUNC` as a user meets it: exit codes, sentences, files. Ceilings come from a hand-made file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_placing import document

from gpumicro import own_file, result
from gpumicro.__main__ import main
from gpumicro.counts import Declared
from gpumicro.errors import UsageError
from gpumicro.interrupts import ASKING
from gpumicro.reach import OwnCodeError

FILE = """
import sys
import gpumicro as gm

print("importing")
N = 1000
seen = []

@gm.measured(flops=lambda n=N: n, bytes=lambda n=N: 24 * n)
def told(n=N):
    return sum(range(n))

def copy(n, label):
    seen.append((n, label))
    return sum(range(n))

def loud(n, label):
    print("hello")
    return sum(range(1000))

def fails(n, label):
    return n / 0

def leaves(n, label):
    sys.exit(3)

def uncounted():
    pass

table = [1, 2]
ARGS = {name: (N, "x") for name in ("copy", "loud", "fails", "leaves")}
COUNTS = {name: lambda n, label: gm.counts.elementwise(n, flops_per_element=0) for name in ARGS}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the file and a roofline, to be in; what a run changes in the process is put back."""
    (tmp_path / "k.py").write_text(FILE, encoding="utf-8")
    (tmp_path / "r.json").write_text(json.dumps(document()), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = {number: signal.getsignal(number) for number in ASKING}
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)


def run(capsys: pytest.CaptureFixture[str], target: str, *options: str) -> tuple[int, str, str]:
    code = main(["run", target, "--roofline", "r.json", "--max-time", "0.05", *options])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_function_that_names_its_counts_is_shown_under_the_roof(folder: Path, capsys: Any) -> None:
    code, out, err = run(capsys, "k.py:told", "-o", "out.json", "--html", "out.html", "--plot", "out.png")
    assert code == 0, err
    for part in ("told", "of the roof", "held by DRAM bandwidth", "time at the roof", "1.00 kFLOP"):
        assert part in " ".join(out.split())
    assert "importing" not in out  # standard output is for the result
    assert "importing" in err
    saved = result.read(folder / "out.json")
    assert saved["points"][-1]["name"] == "told"
    assert (folder / "out.html").stat().st_size > 1000


def test_the_only_measured_function_need_not_be_named(folder: Path, capsys: Any) -> None:
    del folder
    code, out, _ = run(capsys, "k.py")
    assert code == 0
    assert out.startswith("told")


def test_counts_and_arguments_may_stand_in_the_file(folder: Path, capsys: Any) -> None:
    del folder
    code, out, err = run(capsys, "k.py:copy")
    assert code == 0, err
    assert "0 FLOP and 15.62 KiB a call" in " ".join(out.split())


def test_arguments_of_the_command_line_come_first(folder: Path) -> None:
    del folder
    work = own_file.load("k.py:copy", ["2^5", "label"])
    assert work.args == (32, "label")
    assert work.counts.bytes == 16 * 32
    assert own_file.load("k.py:told", ["1.5e3"]).args == (1500.0,)


def test_counts_may_be_given_as_numbers(folder: Path, capsys: Any) -> None:
    del folder
    code, out, err = run(capsys, "k.py:uncounted", "--flops", "0", "--bytes", "1B")
    assert code == 0, err
    assert "0 FLOP and 1 B a call" in " ".join(out.split())


def test_what_the_work_prints_is_kept_off_the_result_and_told(folder: Path, capsys: Any) -> None:
    code, out, err = run(capsys, "k.py:loud", "-o", "-")
    assert code == 0
    assert json.loads(out)["points"][-1]["name"] == "loud"
    assert "loud printed while it was timed" in err
    assert "hello" in " ".join(json.loads(out)["notes"])
    del folder


def test_an_impossible_point_is_a_failed_check(folder: Path, capsys: Any) -> None:
    del folder
    code, out, _ = run(capsys, "k.py:told", "--flops", "1e15", "--bytes", "0")
    assert code == 1
    assert "likely cause" in out


@pytest.mark.parametrize(
    ("target", "options", "code", "says"),
    [
        ("k.py:copi", (), 2, "no function 'copi'; did you mean copy?"),
        ("k.py:table", (), 2, "no function but list"),
        ("k.py:uncounted", (), 2, "does not say how much uncounted does"),
        ("k.py:uncounted", ("--flops", "5"), 2, "bytes of one call is missing"),
        ("k.py:uncounted", ("--flops", "two", "--bytes", "1"), 2, "two"),
        ("k.py:uncounted", ("--flops", "-1", "--bytes", "1"), 2, "flops of one call must be a number from 0 up"),
        ("k.py:copy", ("--arg", "1"), 2, "copy(n, label) with 1 arguments: missing a required argument: 'label'"),
        ("k.py:fails", (), 1, "k.py:fails raised ZeroDivisionError"),
        ("k.py:fails", (), 1, "return n / 0"),
        ("k.py:leaves", (), 1, "k.py:leaves raised SystemExit"),
        ("none.py:f", (), 2, "no such file: none.py"),
        (".", (), 2, "is a directory"),
        ("k.py:told", ("--level", "l9"), 2, "measured: l2, dram"),
        ("k.py:told", ("--dtype", "float32"), 2, "no arithmetic ceiling for 'float32'"),
        ("k.py:told", ("--device", "cuda:0"), 2, "no device 'cuda:0'"),
        ("k.py:told", ("--device", "all"), 2, "against one device"),
        ("k.py:told", ("--target", "-1"), 2, "target must be positive"),
        ("k.py:told", ("--html", "x.pdf"), 2, ".html"),
        ("k.py:told", ("-o", "r.json"), 2, "which is read"),
    ],
)
def test_what_is_wrong_is_a_sentence_and_writes_nothing(
    folder: Path, capsys: Any, target: str, options: tuple[str, ...], code: int, says: str
) -> None:
    found, out, err = run(capsys, target, *options)
    assert found == code, err
    assert says in " ".join(err.split())
    assert "cli/run.py" not in err  # a traceback begins in the user's file
    assert out == ""
    assert sorted(p.name for p in folder.iterdir()) == ["k.py", "r.json"]


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("def f(: pass", UsageError, r"f\.py:1: SyntaxError"),
        ("import nothing_of_the_sort", OwnCodeError, "while it was imported, raised ModuleNotFoundError"),
        ("raise SystemExit(4)", UsageError, r"ends the process while it is imported \(exit 4\)"),
        ("\0", UsageError, r"f\.py:\d+: SyntaxError: .*null byte"),
        ("x = 1", UsageError, "defines no function"),
        ("def a(): ...\ndef b(): ...", UsageError, "which function.*one of a, b"),
        ("def a(x): ...\ndef b(): ...\ndef ARGS(): ...", UsageError, "one of a, b$"),
    ],
)
def test_a_file_that_is_no_good_says_why(folder: Path, text: str, error: Any, says: str) -> None:
    (folder / "f.py").write_text(text, encoding="utf-8")
    with pytest.raises(error, match=says):
        own_file.load("f.py")


@pytest.mark.parametrize(
    ("args", "error", "says"),
    [("3", UsageError, "must be a list or tuple"), ("lambda: 1 / 0", OwnCodeError, "ARGS of f.py raised ZeroDiv")],
)
def test_arguments_that_cannot_be_made_say_why(folder: Path, args: str, error: Any, says: str) -> None:
    (folder / "f.py").write_text(f"def a(x): ...\nARGS = {args}", encoding="utf-8")
    with pytest.raises(error, match=says):
        own_file.load("f.py:a")


def test_the_only_function_is_meant_and_a_method_has_its_class_before_it(folder: Path) -> None:
    (folder / "a:b").mkdir()
    (folder / "a:b" / "f.py").write_text(
        "import gpumicro as gm\nCOUNTS = gm.counts.elementwise(8)\nARGS = lambda: [1]\n"
        "def a(x): ...\n", encoding="utf-8",
    )  # fmt: skip
    assert own_file.load("a:b/f.py").name == "a"
    (folder / "c.py").write_text("class C:\n    @staticmethod\n    def m(): ...\n", encoding="utf-8")
    assert own_file.load("c.py:C.m", declared=Declared(1, 1)).name == "C.m"
    with pytest.raises(UsageError, match="names no file"):
        own_file.load(":f")


@pytest.mark.parametrize("name", ["add", "scale"])
def test_the_example_runs(folder: Path, capsys: Any, name: str) -> None:
    del folder
    example = Path(__file__).parents[1] / "examples" / "kernels_to_run.py"
    code, out, err = run(capsys, f"{example}:{name}", "--level", "dram")
    assert "of the roof" in out, err
    assert code in (0, 1)  # the ceilings are not this machine's


def test_ctrl_c_while_the_ceilings_are_measured_keeps_those_there_are(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(survey: Any, console: object) -> None:
        del console
        titles: list[str] = []

        def progress(done: float, total: float, title: str) -> None:
            del done, total
            titles.append(title)
            if len(titles) > 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            survey.run(progress)
        survey.interrupted = True

    monkeypatch.setattr("gpumicro.cli.run._measure", stopped)
    code = main(["run", "k.py:told", "--device", "cpu", "-o", "out.json"])
    out, err = capsys.readouterr()
    assert (code, out) == (130, "")
    assert "out.json has the ceilings" in err
    saved = result.read(folder / "out.json")
    assert saved["interrupted"] is True
    assert saved["ceilings"]


@pytest.mark.parametrize(
    ("target", "options", "says"),
    [
        ("f.py:waits", (), "calling a coroutine function runs nothing"),
        ("f.py:items", (), "calling the generator items runs nothing"),
        ("f.py:plain", ("--target", "0"), "target must be positive"),
    ],
)
def test_what_cannot_be_timed_is_found_before_a_ceiling_is_measured(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, target: str, options: tuple[str, ...], says: str
) -> None:
    (folder / "f.py").write_text("async def waits(): ...\ndef items(): yield 1\ndef plain(): ...\n", encoding="utf-8")
    monkeypatch.setattr("gpumicro.cli.run._measure", None)
    assert main(["run", target, "--flops", "1.5 kFLOP", "--bytes", "0.5", *options]) == 2
    assert says in capsys.readouterr().err


def test_ctrl_c_in_a_call_that_takes_an_hour_ends_with_130(folder: Path) -> None:
    (folder / "f.py").write_text(
        "import time\nfrom pathlib import Path\n"
        "def f():\n    Path('begun').touch()\n    time.sleep(3600)\n", encoding="utf-8"
    )  # fmt: skip
    command = [sys.executable, "-m", "gpumicro", "run", "f.py:f", "--roofline", "r.json"]
    command += ["--flops", "1", "--bytes", "1", "-o", "out.json"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        for _ in range(600):
            if (folder / "begun").exists():
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "too little was timed" in err
    assert result.read(folder / "out.json")["interrupted"] is True
