"""`precision`: speed-up over float32 at one problem, error against float64, and what follows from them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import result_files
from click.testing import CliRunner

from gpumicro import result
from gpumicro.__main__ import main
from gpumicro.cli import cli
from gpumicro.cluster.precision import precision, typical_element
from gpumicro.errors import UsageError

CPU = str(Path(__file__).parent / "data" / "roofline-cpu.json")


def gemm(dtype: str, true_s: float, n: int = 512, worst: float = 1e-3, **more: Any) -> dict[str, Any]:
    made = result_files.entry(n, true_s, name="gemm.vendor", dtype=dtype, device=result_files.gpu())
    check = {"passed": True, "worst": worst, "bound": 10 * worst, "reference": "float64", "elements": n * n}
    return made | {"check": check} | more


def document(*records: dict[str, Any]) -> dict[str, Any]:
    return result_files.file(*records, device=result_files.gpu())


def by_type(*records: dict[str, Any]) -> dict[str, Any]:
    (found,) = precision([document(*records)])
    return {row.dtype: row for row in found.rows}


def test_the_speed_up_is_that_of_the_rates_over_float32() -> None:
    rows = by_type(gemm("float32", 8e-3), gemm("float64", 16e-3), gemm("bfloat16", 1e-3))
    assert rows["bfloat16"].speedup == pytest.approx(8, rel=0.02)
    assert rows["float64"].speedup == pytest.approx(0.5, rel=0.02)
    assert rows["float32"].speedup == 1
    assert list(rows) == ["float64", "float32", "bfloat16"]


def test_types_are_compared_at_the_largest_problem_that_all_have() -> None:
    rows = by_type(
        gemm("float32", 1e-3, 512), gemm("float32", 6e-3, 1024), gemm("float16", 1e-4, 512),
        gemm("float16", 1e-3, 1024), gemm("float32", 4e-2, 2048),
    )  # fmt: skip
    assert dict(rows["float16"].problem)["n"] == 1024
    assert rows["float16"].speedup == pytest.approx(6, rel=0.02)
    assert all(row.same_problem for row in rows.values())


def test_a_type_measured_at_another_problem_only_is_marked() -> None:
    rows = by_type(gemm("float32", 1e-3), gemm("float16", 1e-4), gemm("float64", 1e-3, 256))
    assert not rows["float64"].same_problem
    assert rows["float16"].same_problem


def test_the_fastest_kernel_at_that_problem_counts() -> None:
    slow = gemm("float16", 1e-3) | {"variant": "slow"}
    rows = by_type(gemm("float32", 4e-3), slow, gemm("float16", 5e-4))
    assert rows["float16"].speedup == pytest.approx(8, rel=0.02)


def test_the_error_is_relative_to_a_typical_element() -> None:
    rows = by_type(gemm("float32", 1e-3, worst=1e-5))
    assert rows["float32"].error == pytest.approx(1e-5 / (math.sqrt(512) / 3))
    assert rows["float32"].error_bound == pytest.approx(10 * rows["float32"].error)
    assert rows["float32"].roundoff == 2.0**-24


@pytest.mark.parametrize(
    ("operands", "dtype", "size"),
    [
        ("uniform", "float32", 1 / 3),
        ("normal", "float16", 1.0),
        ("uniform", "int8", 127**2 / 3),
        ("zeros", "int8", None),
    ],
)
def test_a_typical_element_follows_from_the_operands(operands: str, dtype: str, size: float | None) -> None:
    record = {"problem": {"k": 100}, "dtype": dtype, "operands": operands}
    assert typical_element(record) == (None if size is None else pytest.approx(10 * size))


def test_a_typical_element_is_what_numpy_finds() -> None:
    import numpy as np

    random = np.random.default_rng(3)
    a, b = random.uniform(-1, 1, (200, 300)), random.uniform(-1, 1, (300, 200))
    record = {"problem": {"k": 300}, "dtype": "float64", "operands": "uniform"}
    assert typical_element(record) == pytest.approx(float(np.sqrt(np.mean((a @ b) ** 2))), rel=0.02)


def test_an_unchecked_product_has_no_error() -> None:
    rows = by_type(gemm("float32", 1e-3, check=None, check_why="not checked"))
    assert rows["float32"].error is None


def test_a_training_step_gains_less_than_its_products() -> None:
    doc = document(gemm("float32", 8e-3), gemm("bfloat16", 1e-3))
    doc["ceilings"] = [{
        "id": "x", "kind": "memory", "device": "cuda:0", "level": "dram", "dtype": None, "unit": "B/s",
        "achieved": 1e10, "ci95": [9e9, 1.1e10], "scope": "roof", "flags": [], "measurement": "m",
    }]  # fmt: skip
    (found,) = precision([doc])
    row = next(one for one in found.rows if one.dtype == "bfloat16")
    assert row.step is not None
    assert row.speedup is not None
    assert 1 < row.step < row.speedup
    assert any("a whole training step" in text for text in found.advice)


def test_no_speed_is_said_where_there_is_none() -> None:
    (found,) = precision([document(gemm("float32", 1e-3), gemm("float16", 1e-3))])
    assert any("no speed here" in text for text in found.advice)


def test_without_float32_there_is_nothing_to_compare_with() -> None:
    (found,) = precision([document(gemm("float16", 1e-3))])
    assert found.rows[0].speedup is None
    assert "nothing to compare" in found.advice[0]


def test_a_result_without_gemm_is_refused_with_the_cure() -> None:
    with pytest.raises(UsageError, match="no GEMM in it; measure with"):
        precision([result_files.file(result_files.entry())])


def test_a_failed_product_counts_for_nothing() -> None:
    with pytest.raises(UsageError, match="no GEMM"):
        precision([document(gemm("float32", 1e-3, status="failed", error="wrong"))])


def test_the_command_shows_a_real_cpus_types_and_writes_json(tmp_path: Path) -> None:
    target = tmp_path / "p.json"
    done = CliRunner().invoke(cli, ["precision", CPU, "-o", str(target)], catch_exceptions=False)
    assert done.exit_code == 0
    told = " ".join(done.output.split())
    assert "GEMM by type, 2048 (measured)" in told
    assert "No 16-bit GEMM was measured here" in told
    rows = json.loads(target.read_text())["devices"][0]["rows"]
    assert [row["dtype"] for row in rows] == ["float64", "float32"]


def test_a_synthetic_file_says_so(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    result.write(file, document(gemm("float32", 1e-3)) | {"synthetic": True})
    done = CliRunner().invoke(cli, ["precision", str(file)], catch_exceptions=False)
    assert "(synthetic)" in done.output


def test_wrong_use_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truncated = tmp_path / "t.json"
    truncated.write_text('{"schema": "gpumicro/1", ')
    assert main(["precision", str(truncated)]) == 2
    assert main(["precision"]) == 2
    assert "truncated" in capsys.readouterr().err
