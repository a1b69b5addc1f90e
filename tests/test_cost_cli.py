"""`gpumicro cost` as a user types it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpumicro.__main__ import main
from gpumicro.cli import cli

RESULT = str(Path(__file__).parent / "data" / "roofline-cpu.json")
SPOT = (
    '[[price]]\ninstance = "p5.48xlarge"\nusd_per_hour = 21.3\ndate = 2026-11-20\nsource = "console"\nkind = "spot"\n'
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["cost", *arguments], catch_exceptions=True)


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_this_machine_at_a_price(tmp_path: Path) -> None:
    out = tmp_path / "cost.json"
    done = run(RESULT, "--price", "0.36", "--power", "100", "--pue", "1.5", "-o", str(out))
    assert done.exit_code == 0, done.output
    assert "this machine: GEMM float64" in done.output
    doc = json.loads(out.read_text(encoding="utf-8"))
    machine = doc["machines"][0]
    assert doc["kind"] == "cost"
    assert machine["price"]["usd_per_hour"] == 0.36
    unit = next(unit for unit in machine["units"] if unit["what"] == "GEMM float64")
    rate = unit["rate"]["estimate"]
    assert unit["usd"]["value"] == pytest.approx(1e-4 / rate * 1e15)
    assert unit["work_per_joule"]["value"] == pytest.approx(rate / 150)


def test_two_clouds_side_by_side() -> None:
    done = run("--instance", "p5.48xlarge", "--instance", "a3-highgpu-8g", "--dtype", "bf16", "--nodes", "16",
               "--params", "7e9", "--tokens", "2e12", "--efficiency", "35%..45%")  # fmt: skip
    assert done.exit_code == 0, done.output
    text = flat(done.output)
    assert "a3-highgpu-8g: no price with its day and region is known" in text
    assert "not measured" in text
    assert "days old (2026-07-20); check it again" in text


def test_spot_and_owning(tmp_path: Path) -> None:
    prices, out = tmp_path / "mine.toml", tmp_path / "c.json"
    prices.write_text(SPOT, encoding="utf-8")
    done = run("--instance", "p5.48xlarge", "--prices", str(prices), "--mtbi", "20h..60h", "--checkpoint", "90s",
               "--restart", "5min", "--capex", "300e3", "--opex", "30e3", "--lifetime", "4", "--machine-power", "10200",
               "--pue", "1.3", "--kwh", "0.12", "--utilisation", "40%..80%", "-o", str(out))  # fmt: skip
    assert done.exit_code == 0, done.output
    doc = json.loads(out.read_text(encoding="utf-8"))
    assert doc["spot"][0]["verdict"] == "spot"
    assert doc["checkpoints"]["mtbi_s"] == 40 * 3600
    over = doc["checkpoints"]["best_s_over_ranges"]
    assert over["low"] < doc["checkpoints"]["best_s"] < over["high"]
    assert over["high"] / over["low"] == pytest.approx(3**0.5, rel=0.02)  # Young: the root of the range of 3
    assert "for the middle of each range" in flat(done.output)
    assert doc["break_even"][0]["verdict"] == "own"
    assert "owning is cheaper" in flat(done.output)


def test_checkpoints_alone_and_a_million_nodes(tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    done = run("--mtbi", "20h", "--checkpoint", "90s", "--nodes", "1000000", "-o", str(out))
    assert done.exit_code == 0, done.output
    assert "never ends" in done.output
    plan = json.loads(out.read_text(encoding="utf-8"))["checkpoints"]
    assert plan["overhead_best"] is None
    assert plan["overhead_best_why"] == "the work would never end"


def test_the_list_and_the_score() -> None:
    listed = run("--list")
    assert listed.exit_code == 0
    assert len(re.findall(r"^(?:AWS|Google Cloud|Azure|Oracle OCI|CoreWeave|Lambda)[: ]", listed.output, re.M)) == 55
    assert "cost_efficiency_score: 0.05" in run("--gpu-hours", "10", "--latency", "2").output


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "say what machine it is: --instance NAME"),
        ([RESULT, "--price", "0"], "--price must be above zero, not 0"),
        ([RESULT, "--price", "-2"], "--price must be above zero, not -2"),
        ([RESULT, "--price", "cheap"], "--price: 'cheap' is not a number"),
        ([RESULT, "--price", "1", "--gpus", "-4"], "--gpus must be at least 1, not -4"),
        (["--price", "1"], "--price is of the machine that a RESULT was measured on"),
        (["--instance", "p9.huge"], "unknown instance 'p9.huge'"),
        (["--instance", "p5.48xlarge", "--nodes", "0"], "nodes must be at least 1, not 0"),
        (["--instance", "p5.48xlarge", "--kind", "free"], "on-demand, spot, reserved, not 'free'"),
        (["--instance", "p5.48xlarge", "--params", "7e9"], "--params and --tokens belong together"),
        (["--instance", "p5.48xlarge", "--flop", "1e22"], "needs its FLOP and its efficiency"),
        (["--instance", "p5.48xlarge", "--flop", "-1", "--efficiency", "0.4"], "FLOP of the run must be above zero"),
        (["--instance", "p5.48xlarge", "--step", "350"], "--step: '350' is no time; give its unit"),
        ([RESULT, "--price", "1", "-o", RESULT], "which is read"),
        (["--mtbi", "20h"], "needs both --mtbi and --checkpoint"),
        (["--instance", "p5.48xlarge", "--capex", "1e5"], "owning needs --opex, --lifetime, --machine-power, --pue"),
        (["--gpu-hours", "3"], "needs both --gpu-hours and --latency"),
        (["--gpu-hours", "0", "--latency", "1"], "gpu_hours must be above zero"),
        (["--instance", "p5.48xlarge", "--prices", "/nowhere.toml"], "/nowhere.toml: no such file"),
        (["/nowhere.json", "--price", "1"], "/nowhere.json: no such file"),
        (["p5.48xlarge"], "no file but the name of an instance: --instance p5.48xlarge"),
        (["--instance", "p5.48xlarge", "--steps", "5"], "--steps changes nothing without --step"),
        (["--instance", "p5.48xlarge", "--efficiency", "0.4"], "--efficiency changes nothing without --params"),
        (["--instance", "p5.48xlarge", "--restart", "1min"], "--restart changes nothing without --mtbi"),
        (["--instance", "p5.48xlarge", "--gpus", "8"], "--gpus changes nothing without --price"),
        (["--instance", "p5.48xlarge", "--kwh", "1"], "--kwh changes nothing without --capex"),
        (["--instance", "a3-highgpu-8g", "--capex", "1", "--opex", "1", "--lifetime", "1", "--machine-power", "1",
          "--pue", "1", "--kwh", "1", "--utilisation", "1"], "a break-even needs the cloud's price"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", *arguments]) == 2
    assert what in flat(capsys.readouterr().err)
