"""`gpumicro memory`: advice from allocation figures of known truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from result_files import cpu, entry, file, gpu, kernel

from gpumicro import result
from gpumicro.cli import cli
from gpumicro.cluster.memory import memory_advice
from gpumicro.errors import UsageError
from gpumicro.spec import Execution, Problem

SMALL, LARGE = 1 << 16, 1 << 26


def pair(name: str, n: int, true_s: float) -> dict[str, Any]:
    return entry(n, true_s, device=gpu(), name=name, dtype="int8", seed=n % 97)


def made(malloc: tuple[float, float], pool: tuple[float, float], *more: dict[str, Any]) -> dict[str, Any]:
    rows = [pair("alloc.malloc", n, t) for n, t in zip((SMALL, LARGE), malloc, strict=True)]
    rows += [pair("alloc.pool", n, t) for n, t in zip((SMALL, LARGE), pool, strict=True)]
    return file(*rows, *more, device=gpu())


def test_a_pool_that_is_cheaper_is_advised_with_its_figures() -> None:
    (advice,) = memory_advice(made((1e-4, 4e-4), (2e-6, 2e-6)), "r.json")
    assert [cost.size_bytes for cost in advice.costs] == [SMALL, LARGE]
    ratio = advice.costs[1].malloc_over_pool
    assert ratio
    assert ratio.value == pytest.approx(200, rel=0.02)
    assert ratio.low < ratio.value < ratio.high
    text = "\n".join(advice.advice)
    assert "take memory from a pool that keeps it: at 64 MiB" in text
    assert "cudaMalloc takes longer for more" in text
    assert "the pool takes longer" not in text


def test_a_pool_that_keeps_nothing_is_seen() -> None:
    (advice,) = memory_advice(made((1e-4, 4e-4), (1e-4, 8e-4)), "r.json")
    text = "\n".join(advice.advice)
    assert "the pool takes longer for more" in text
    assert "raise its release threshold" in text


def test_no_resolved_difference_gives_no_advice_and_a_dearer_pool_is_said() -> None:
    (same,) = memory_advice(made((1e-4, 1e-4), (1e-4, 1e-4)), "r.json")
    assert "no resolved difference" in same.advice[0]
    (dearer,) = memory_advice(made((1e-5, 1e-5), (9e-5, 9e-5)), "r.json")
    assert "the pool costs more here" in dearer.advice[0]


def test_the_share_of_a_step_is_pairs_times_time() -> None:
    doc = made((1e-4, 1e-4), (1e-6, 1e-6))
    (advice,) = memory_advice(doc, "r.json", pairs_per_step=100, step_s=0.1)
    share = next(line for line in advice.advice if "by cudaMalloc: " in line)
    assert "of 0.1 s (model)" in share
    assert share.startswith("100 pairs a step by cudaMalloc: 10.0 ms, 10.0%") or "9.9" in share
    with pytest.raises(UsageError, match="needs both"):
        memory_advice(doc, "r.json", pairs_per_step=3)
    with pytest.raises(UsageError, match="pairs cannot be negative"):
        memory_advice(doc, "r.json", pairs_per_step=-3, step_s=1)


def test_what_a_pair_is_worth_in_launches() -> None:
    launch = pair("launch.stream", 1, 2e-6) | {"problem": {}}
    (advice,) = memory_advice(made((1e-4, 4e-4), (2e-6, 2e-6), launch), "r.json")
    line = next(line for line in advice.advice if "kernel launches" in line)
    assert "a pair of 64 MiB by cudaMalloc takes as long as 2" in line


def test_a_result_without_such_figures_says_how_to_get_them() -> None:
    with pytest.raises(
        UsageError, match=r"r\.json holds no figures of alloc\.malloc and alloc\.pool: `gpumicro roofline"
    ):
        memory_advice(file(entry(device=cpu())), "r.json")
    spec = kernel("alloc.pool")
    skipped = result.measurement_record(
        spec, Problem((("n", SMALL),), "int8"), Execution(), gpu(), "cuda", None, None, "skipped",
        reason="this device or driver has no memory pools",
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"\(alloc\.pool: this device or driver has no memory pools\)"):
        memory_advice(file(skipped, device=gpu()), "r.json")


def test_the_command(tmp_path: Path) -> None:
    path, out = tmp_path / "r.json", tmp_path / "m.json"
    result.write(path, made((1e-4, 4e-4), (2e-6, 2e-6)) | {"emulated": True})
    done = CliRunner().invoke(cli, ["memory", str(path), "--pairs", "20", "--step", "40ms", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "Allocations on cuda:0 (emulated)" in done.output
    assert json.loads(out.read_text(encoding="utf-8"))["devices"][0]["allocations"][0]["size_bytes"] == SMALL
