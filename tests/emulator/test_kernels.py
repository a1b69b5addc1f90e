"""Every kernel with a form for a GPU computes what its record says: compiled by nvcc, launched by the real host code,
executed by the double, judged by the record's own check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from emulator.cases import Case, cases

from gpumicro import kernels

CASES = list(cases())


def test_cases_cover_the_catalogue() -> None:
    """What is left out has no code that PTX for compute capability 9.0 could hold."""
    left_out = {spec.name for spec in kernels.CATALOGUE if spec.gpu is not None} - {case.kernel for case in CASES}
    assert left_out == {"peak.wgmma", "peak.tcgen05", "gemm.wgmma", "gemm.vendor"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_output_is_right(case_results: Mapping[str, Mapping[str, Any]], case: Case) -> None:
    result = case_results[str(case)]
    assert "error" not in result, f"{result['error']}\n{result.get('log', '')}"
    assert result["passed"]
    assert result["worst"] <= result["bound"]
    assert result["facts"].get("emulated") is True
