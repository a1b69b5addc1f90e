"""The price of a step by the number of GPUs, from a file of `gpumicro scale -o`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpumicro.cli import cli
from gpumicro.cluster.cost import machine_cost
from gpumicro.cluster.cost_scaling import cheapest, read_scaling, scaled_costs
from gpumicro.cluster.prices import offer_of
from gpumicro.errors import SchemaError, UsageError


def row(gpus: int, step_s: float, samples: float, fits: bool | None = True) -> dict[str, Any]:
    return {"gpus": gpus, "step_s": step_s, "step": {"samples": samples}, "fits": fits}


def scaling(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "s.json"
    doc = {"setting": {"model": {"seq": 1000}}, "curves": [{"fabric": {"name": "nvlink4+ib-ndr"}, "rows": rows}]}
    path.write_text(json.dumps(doc), encoding="utf-8")
    return path


def test_a_steps_price_is_whole_instances_times_time(tmp_path: Path) -> None:
    steps = read_scaling(scaling(tmp_path, row(8, 0.36, 8), row(12, 0.36, 12)))
    machine = machine_cost(offer_of("p5.48xlarge"))
    eight, twelve = scaled_costs([machine], steps, tokens=8e9)
    assert eight.usd_per_step == pytest.approx(55.04e-4)
    assert eight.usd_per_million_tokens == pytest.approx(55.04e-4 / 8000 * 1e6)
    assert (eight.usd_run, eight.wall_s) == (pytest.approx(5504.0), pytest.approx(3.6e5))
    assert twelve.instances == 2
    assert cheapest([eight, twelve]) is eight


def test_what_does_not_fit_is_not_the_cheapest(tmp_path: Path) -> None:
    steps = read_scaling(scaling(tmp_path, row(8, 0.1, 8, False), row(16, 0.36, 16)))
    costs = scaled_costs([machine_cost(offer_of("p5.48xlarge"))], steps)
    best = cheapest(costs)
    assert best
    assert best.step.gpus == 16
    assert costs[0].usd_run is None
    assert cheapest(costs[:1]) is None
    with pytest.raises(UsageError, match="needs a machine with a price"):
        scaled_costs([machine_cost(offer_of("a3-highgpu-8g"))], steps)


def test_the_command_and_wrong_files(tmp_path: Path) -> None:
    path, out = scaling(tmp_path, row(8, 0.36, 8), row(1_000_000, 0.5, 1e6)), tmp_path / "c.json"
    words = ["cost", "--instance", "p5.48xlarge", "--scale", str(path), "--tokens", "2e12", "-o", str(out)]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "1,000,000" in done.output
    assert [one["gpus"] for one in json.loads(out.read_text(encoding="utf-8"))["by_gpus"]] == [8, 1_000_000]
    whole = {"setting": {"model": {"seq": 1}}, "curves": [{"fabric": "x", "rows": [row(8, 0, 8)]}]}
    for content, what in (
        ("{", "not JSON"), ('{"curves": []}', "KeyError 'setting'"), ("[]", "not what `gpumicro scale -o` writes"),
        (json.dumps(whole), r"of 0\.0 s"), (json.dumps(whole | {"curves": []}), "holds no step"),
    ):  # fmt: skip
        path.write_text(content, encoding="utf-8")
        with pytest.raises(SchemaError, match=what):
            read_scaling(path)
    with pytest.raises(SchemaError, match="cannot be read"):
        read_scaling(tmp_path / "none.json")
