"""The command line as a user meets it: exit codes, sentences, files, interruption. No timings are asserted."""

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

from gpumicro.cli import COMMANDS
from gpumicro.interrupts import ASKING

GOLDEN = Path(__file__).parent / "data" / "roofline-cpu.json"
GPUMICRO = [sys.executable, "-m", "gpumicro"]


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    """`main` in this process takes signals over."""
    before = {number: signal.getsignal(number) for number in ASKING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def run(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GPUMICRO, *arguments], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=300,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One real quick run that several tests look at."""
    folder = tmp_path_factory.mktemp("quick")
    done = run("roofline", "--quick", "-o", "r.json", "--html", "r.html", "--plot", "r.png", cwd=folder)
    return done, folder


def test_a_quick_run_measures_and_writes_everything(measured: Any) -> None:
    done, folder = measured
    assert done.returncode == 0, done.stderr
    assert "about" in done.stderr  # the time that it will take
    for name in ("r.json", "r.html", "r.png"):
        assert f"wrote {name}" in done.stderr
        assert (folder / name).stat().st_size > 1000
    assert sorted(p.name for p in folder.iterdir()) == ["r.html", "r.json", "r.png"]  # no temporary file is left
    assert "95%" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_result_holds_checked_raw_measurements(measured: Any) -> None:
    from gpumicro.result import read

    document = read(measured[1] / "r.json")
    good = [m for m in document["measurements"] if m["status"] == "ok"]
    assert len(good) > 20
    for measurement in good:
        assert measurement["check"]["passed"]
        assert len(measurement["timing"]["raw_s"]) == measurement["timing"]["n"]
        low, high = measurement["time_s"]["ci95"]
        assert low < high
    levels = {c["level"] for c in document["ceilings"] if c["kind"] == "memory"}
    assert "dram" in levels
    assert {c["dtype"] for c in document["ceilings"] if c["kind"] == "arithmetic"} >= {"float64", "float32"}
    assert document["interrupted"] is False
    assert {"gemm", "stream", "mixed"} <= {p["kind"] for p in document["points"]}


def test_report_makes_every_format_from_the_file_alone(measured: Any, tmp_path: Path) -> None:
    source = str(measured[1] / "r.json")
    for ending in ("md", "csv", "png", "svg", "html"):
        done = run("report", source, "-o", f"out.{ending}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"out.{ending}").stat().st_size > 200
    assert run("report", source).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["rooflin"], 2, "roofline"),
        (["roofline", "--dtype", "float23"], 2, "float32"),
        (["roofline", "--backend", "cpux"], 2, "cpu"),
        (["roofline", "--device", "gpu7"], 2, "cpu"),
        (["roofline", "--device", "cuda:0"], 3, "cuda"),
        (["roofline", "--backend", "cuda"], 3, "cuda"),
        (["roofline", "--spec", "h1000"], 2, "h100"),
        (["roofline", "--spec", "missing.toml"], 2, "missing.toml"),
        (["roofline", "--sustained", "-1"], 2, "sustained"),
        (["roofline", "-o", "/nowhere/r.json"], 2, "/nowhere"),
        (["roofline", "-o", "."], 2, "directory"),
        (["roofline", "--html", "r.pdf"], 2, ".html"),
        (["roofline", "--plot", "r.txt"], 2, ".png"),
        (["roofline", "-o", ""], 2, "without a name"),
        (["roofline", "-o", "r.html"], 2, "--html"),
        (["roofline", "--html", "-"], 2, ".html"),
        (["roofline", "--sustained", "nan"], 2, "sustained"),
        (["roofline", "--sustained", "inf"], 2, "sustained"),
        (["roofline", "--device", "cuda:0"], 3, "device 'cuda:0' cannot run here"),
        (["report", str(GOLDEN), "--csv", "-"], 2, "-f csv"),
        (["report", str(GOLDEN), "-o", "r.md", "--md", "./r.md"], 2, "same file"),
        (["report", str(GOLDEN), "--csv", str(GOLDEN)], 2, "which is read"),
        (["specs", "H1000"], 2, "h100"),
        (["report", "missing.json"], 2, "missing.json"),
    ],
)
def test_wrong_use_ends_at_once_with_a_sentence(arguments: list[str], code: int, says: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert says.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOLDEN.read_text(encoding="utf-8")[:5000], "line"),
        ("not json", "line 1"),
        ("{}", "schema"),
        ('{"schema": "gpumicro/2"}', "gpumicro/2"),
        ('{"schema": "gpumicro/1", "x": NaN}', "NaN"),
        ("", "empty"),
    ],
)
def test_a_broken_result_file_names_the_place_and_overwrites_nothing(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    (tmp_path / "keep.md").write_text("mine", encoding="utf-8")
    done = run("report", "bad.json", "-o", "keep.md", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "bad.json" in done.stderr
    assert says.lower() in done.stderr.lower()
    assert (tmp_path / "keep.md").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_writes_what_it_has(tmp_path: Path, number: int) -> None:
    command = [*GPUMICRO, "roofline", "--thorough", "-o", "r.json"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    groups = 0
    for line in process.stderr:  # wait until the second group has begun: then the first has been recorded
        groups += " s] " in line
        if groups == 2:
            break
    time.sleep(0.5)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    document = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert document["interrupted"] is True
    assert any(m["status"] == "ok" for m in document["measurements"])


def test_json_on_standard_output_is_clean(measured: Any) -> None:
    done = run("report", str(measured[1] / "r.json"), "-f", "csv")
    assert done.returncode == 0
    done = run("roofline", "--quick", "--dtype", "float32", "-o", "-")
    assert json.loads(done.stdout)["schema"] == "gpumicro/1"


@pytest.mark.parametrize("command", ["info", "list", "specs"])
def test_plain_surroundings_are_enough(command: str, tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "HOME"}
    tmp_path.chmod(0o500)
    done = subprocess.run(
        [*GPUMICRO, command], cwd=tmp_path, env={**env, "LC_ALL": "C", "TERM": "dumb", "PYTHONIOENCODING": "ascii"},
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_info_says_why_cuda_cannot_run() -> None:
    out = run("info").stdout
    assert "cuda" in out
    assert "cpu can run" in out
    assert out.count("Device cpu") == 1  # also where more than one backend can run it


@pytest.mark.parametrize("command", [[], *([command] for command in COMMANDS)])
def test_help_reads_at_eighty_columns(command: list[str]) -> None:
    done = run(*command, "--help", COLUMNS="80")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: gpumicro")
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_a_reader_that_leaves_does_not_make_a_traceback() -> None:
    command = " ".join([*GPUMICRO, "specs"]) + " | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr


HELP_IN_PROCESS = """
import runpy, sys
sys.argv = ["gpumicro", "--help"]
try:
    runpy.run_module("gpumicro", run_name="__main__")
except SystemExit:
    print([m for m in ("numpy", "matplotlib", "rich", "fastjsonschema") if m in sys.modules])
"""


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP_IN_PROCESS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_leaves_or_a_full_disk_costs_no_result(tmp_path: Path) -> None:
    command = " ".join([*GPUMICRO, "roofline", "--quick", "--dtype", "float64", "-o", "r.json"])
    done = subprocess.run(
        ["bash", "-c", f"{command} > /dev/full"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Errno" not in done.stderr
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["interrupted"] is False


@pytest.mark.parametrize("command", ["report", "specs"])
def test_a_full_disk_ends_with_a_sentence(command: str) -> None:
    source = [str(GOLDEN), "-f", "csv"] if command == "report" else []
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [*GPUMICRO, command, *source], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (1, "gpumicro: No space left on device\n")


def test_ctrl_c_before_anything_is_measured_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpumicro import __main__, survey

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(survey.Survey, "run", interrupt)
    (tmp_path / "r.json").write_text("old", encoding="utf-8")
    assert __main__.main(["roofline", "-o", str(tmp_path / "r.json")]) == 130
    seen = capsys.readouterr()
    assert "before anything was measured" in seen.err
    assert seen.out == ""
    assert (tmp_path / "r.json").read_text(encoding="utf-8") == "old"


def test_ctrl_c_while_commands_start_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpumicro import __main__, survey

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(survey, "Survey", interrupt)
    assert __main__.main(["roofline"]) == 130
    assert capsys.readouterr().err.strip() == "gpumicro: interrupted"


def test_a_ctrl_c_while_the_result_is_written_waits(tmp_path: Path) -> None:
    from gpumicro.cli import roofline

    class Slow:
        interrupted = False

        def document(self) -> dict[str, Any]:
            os.kill(os.getpid(), signal.SIGINT)
            return dict(json.loads(GOLDEN.read_text(encoding="utf-8")))

    with pytest.raises(KeyboardInterrupt):
        roofline._keep(Slow(), str(tmp_path / "r.json"))  # type: ignore[arg-type]
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["schema"] == "gpumicro/1"
