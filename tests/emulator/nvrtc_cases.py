"""The catalogue as NVRTC compiles the installed files: executed from its PTX, judged by each record's own check.

These run inside a process on the test double: test_source_kernel.py starts it.
"""

from __future__ import annotations

from typing import Any

import pytest
from emulator.cases import Case

from gpumicro import cuda_native, nvrtc
from gpumicro.backends import get
from gpumicro.spec import Execution

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=nvrtc.missing() or "NVRTC is here")

CASES = [
    Case("stream.triad", "float64", "wide", {"n": 10_007}),
    Case("stream.dot", "float32", "persistent", {"n": 10_007}),
    Case("gemm.tiled", "float32", "64x64", {"m": 65, "n": 66, "k": 35}),
    Case("gemm.mma", "bfloat16", "64x64", {"m": 65, "n": 66, "k": 35}),
    Case("latency.gpu_chase", "int64", "", {"n": 1000, "hops": 1001}),
    Case("peak.fma", "float32", "", {"blocks": 3, "steps": 5}),
    Case("cache.shared", "float32", "", {"blocks": 3, "n": 333, "reps": 3}),
    Case("atomics.one", "float32", "", {"blocks": 2, "reps": 2}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_installed_source_computes_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's launch is of NVRTC's code instead of nvcc's; all else is the backend's own."""
    cuda, device = cuda_native.load(), get("cuda").devices()[0]
    native, launched = cuda.Launch, []
    form = case.spec.gpu
    assert form is not None
    symbol = form.launch(case.problem, Execution(variant=case.variant), device).symbol

    def launch(wanted: str, *rest: Any) -> Any:
        if wanted != symbol:  # what fills the operands
            return native(wanted, *rest)
        source = nvrtc.kernel_file(form.source).read_text(encoding="utf-8")
        made = nvrtc.compile(source, [symbol], "compute_90", [f"--include-path={nvrtc.kernel_folder()}"])
        launched.append(symbol)
        return native(cuda.Module(made.image, 0).kernel(made.lowered[symbol], symbol), *rest)

    monkeypatch.setattr(cuda, "Launch", launch)
    with get("cuda").prepare(case.spec, case.problem, Execution(variant=case.variant), device) as prepared:
        check = prepared.verify()
    assert launched == [symbol]
    assert check.passed
    assert check.elements > 0
