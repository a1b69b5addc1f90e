"""`gpumicro report` and `gpumicro specs` as commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gpumicro.cli.report import command as report_command
from gpumicro.cli.specs import command as specs_command
from gpumicro.errors import SchemaError, UsageError

GOLDEN = str(Path(__file__).parent / "data" / "roofline-cpu.json")


def _run(command: object, *arguments: str) -> str:
    ran = CliRunner().invoke(command, list(arguments), catch_exceptions=False, terminal_width=80)  # type: ignore[arg-type]
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_report_shows_the_table_by_default() -> None:
    out = _run(report_command, GOLDEN)
    assert "Ceilings" in out
    assert "From spec to kernel" in out


def test_report_writes_every_format(tmp_path: Path) -> None:
    targets = {"--html": "r.html", "--plot": "r.svg", "--md": "r.md", "--csv": "r.csv", "-o": "r.png"}
    arguments = [part for option, name in targets.items() for part in (option, str(tmp_path / name))]
    assert _run(report_command, GOLDEN, *arguments) == "", "what goes to files leaves stdout clean"
    assert {path.name for path in tmp_path.iterdir()} == set(targets.values())
    assert (tmp_path / "r.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_report_format_to_stdout_and_by_name(tmp_path: Path) -> None:
    assert _run(report_command, GOLDEN, "-f", "csv").startswith("record,name")
    assert _run(report_command, GOLDEN, "-f", "md", "-o", "-").startswith("# Roofline")
    _run(report_command, GOLDEN, "-f", "md", "-o", str(tmp_path / "report.text"))
    assert (tmp_path / "report.text").read_text("utf-8").startswith("# Roofline")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ([GOLDEN, "-f", "pdf"], UsageError, "unknown report format 'pdf'"),
        ([GOLDEN, "-o", "x.pdf"], UsageError, "extension"),
        ([GOLDEN, "--plot", "x.html"], UsageError, "--plot takes"),
        ([GOLDEN, "--html", "/nowhere/x.html"], UsageError, "no directory"),
        ([GOLDEN, "-f", "md", "-f", "csv", "-o", "x.md"], UsageError, "-o takes one format"),
        (["/nowhere.json"], SchemaError, "no such file"),
    ],
)
def test_report_refuses_with_a_sentence(arguments: list[str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        CliRunner().invoke(report_command, arguments, catch_exceptions=False)


def test_a_bad_file_overwrites_nothing(tmp_path: Path) -> None:
    bad, target = tmp_path / "bad.json", tmp_path / "r.html"
    bad.write_text("{")
    target.write_text("old")
    with pytest.raises(SchemaError):
        CliRunner().invoke(report_command, [str(bad), "--html", str(target)], catch_exceptions=False)
    assert target.read_text() == "old"


def test_specs_lists_all_and_shows_one() -> None:
    out = _run(specs_command)
    assert len([line for line in out.splitlines() if "B/s" in line and not line.startswith("id")]) >= 65
    assert out.isascii()
    shown = _run(specs_command, "nvidia h100 pcie")
    for words in ("2.000 TB/s", "unknown: fp8_tensor_fp16acc", "source: ", "evidence: vendor", "dense"):
        assert words in shown, words


def test_specs_merges_a_users_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        "[[gpu]]\nname = 'Mine'\nmemory_bandwidth_gbs = 5\n"
        "[[cpu]]\ncores = 4\nclock_ghz = 3.5\nflop_per_cycle = {f64 = 16}\n"
    )
    out = _run(specs_command, "--spec", str(mine))
    assert "Mine" in out
    assert "CPU (any): 4 cores, 3.50 GHz, float64 16 FLOP/cycle" in out
    assert "5.000 GB/s" in _run(specs_command, "mine", "--spec", str(mine))
    with pytest.raises(UsageError, match=r"did you mean .*h200-sxm-141"):
        CliRunner().invoke(specs_command, ["h200x"], catch_exceptions=False)
