"""The bytes and operations that the catalogue claims are those that the double counted; a wrong claim is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from emulator import claims
from emulator.cases import Case, cases

HOST_ACTIONS = ("copy", "launch", "alloc")  # no kernel of ours, nothing that the double could count
COUNTED = [case for case in cases() if case.spec.family not in HOST_ACTIONS]
PLANTED = {case.kernel: case for case in COUNTED}  # one of each kernel


@pytest.mark.parametrize("case", COUNTED, ids=str)
def test_claims_are_what_was_counted(case_results: Mapping[str, Mapping[str, Any]], case: Case) -> None:
    result = case_results[str(case)]
    assert "error" not in result, result["error"]
    claims.check(case, result)


@pytest.mark.parametrize("kernel", PLANTED)
def test_a_wrong_claim_is_found(case_results: Mapping[str, Mapping[str, Any]], kernel: str) -> None:
    """One element too many in the bytes, one operation too many in the FLOP."""
    case = PLANTED[kernel]
    result = case_results[str(case)]
    claims.check(case, result)
    claimed = [key for key in ("bytes", "flops") if result[key]] or ["flops"]
    for key in claimed:
        with pytest.raises(AssertionError):
            claims.check(case, {**result, key: result[key] + 4})


def test_a_kernel_that_does_less_is_found(case_results: Mapping[str, Mapping[str, Any]]) -> None:
    """Counts of 31 elements under a claim of 33."""
    case = next(one for one in COUNTED if one.kernel == "stream.triad" and one.sizes == {"n": 33})
    fewer = replace(case, sizes={"n": 31})
    result = case_results[str(case)] | {"counts": case_results[str(fewer)]["counts"]}
    with pytest.raises(AssertionError):
        claims.check(case, result)
