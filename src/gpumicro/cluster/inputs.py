"""Which measured or spec figures a model of scaling rests on, out of the results that the user gave."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ..errors import SchemaError, UsageError
from ..peaks import find_gpu, load_user
from .fabric import GPUS_PER_NODE, Fabric
from .figures import DeviceFigures, DocumentFigures, Figure, read_figures, spec_figures
from .step import Rates
from .training import KEPT


def pick_rates(
    documents: Sequence[DocumentFigures], dtype: str | None, spec: str | None, device: str | None = None
) -> tuple[Rates, list[str]]:  # fmt: skip
    """The GEMM, DRAM and memory of one device: from the first document that has them, else from the data sheet.

    dtype None: the one with the fastest GEMM of those that models are trained in. Raises UsageError.
    """
    user = load_user(spec) if spec and spec.endswith(".toml") else None
    if user and not user.gpus:
        raise UsageError(f"--spec {spec}: it has no [[gpu]] table")
    name = user.gpus[0].id if user else spec
    sheet = None if name is None else spec_figures(name, user)
    measured = [one for doc in documents for one in doc.devices if device in (None, one.device, one.name)]
    if device is not None and not measured:
        known = sorted({one.device for doc in documents for one in doc.devices})
        raise UsageError(f"--device {device}: not in these results (there are: {', '.join(known) or 'none'})")
    with_gemm = next((one for one in measured if (one.gemm if dtype is None else dtype in one.gemm)), None)
    source = with_gemm or sheet
    if source is None:
        there = sorted({key for one in measured for key in one.gemm})
        if not documents:
            raise UsageError("give the result of `gpumicro roofline -o r.json`, or a data sheet: --spec h100-sxm5-80")
        what = "no GEMM" if dtype is None else f"no {dtype} GEMM"
        raise UsageError(
            f"{what} in these results (there are: {', '.join(there) or 'none'}): measure it with `gpumicro roofline -o "
            "r.json`, or name a data sheet, such as --spec h100-sxm5-80"
        )
    key = dtype or _fastest(source)
    if key not in source.gemm:
        raise UsageError(f"{source.name} has no {key} GEMM (it has: {', '.join(source.gemm)}); choose one with dtype=")
    dram = source.dram or (sheet.dram if sheet else None)
    if dram is None:
        raise UsageError(
            f"{source.file or source.name}: no DRAM bandwidth; run `gpumicro roofline`, or add --spec NAME"
        )
    notes = [] if source is not sheet or not measured else [f"No {key} GEMM was measured: the data sheet's is used."]
    memory = source.memory_bytes or (sheet.memory_bytes if sheet else None)
    return Rates(source.name, source.kind, key, source.gemm[key], dram, memory), notes


def read_results(path: str) -> DocumentFigures:
    """The figures of a result file. A data sheet's name in a file's place is told from a file that is not there."""
    try:
        return read_figures(path)
    except SchemaError:
        if path == "-" or os.path.lexists(path):
            raise
        sheet = _sheet_id(path)
        if sheet is None:
            raise
    raise UsageError(f"{path} is no file but the name of a data sheet: --spec {sheet}")


def doubts(documents: Sequence[DocumentFigures]) -> list[str]:
    """A sentence for each document that itself says that its figures may be wrong."""
    return [
        f"{one.file} says itself that it failed: {'; '.join(one.failed_verdicts)}"
        for one in documents if one.failed_verdicts
    ]  # fmt: skip


def _sheet_id(name: str) -> str | None:
    try:
        return find_gpu(name).id
    except UsageError:
        return None


def _fastest(source: DeviceFigures) -> str:
    usable = {key: figure for key, figure in source.gemm.items() if key in KEPT and not key.startswith("float8")}
    if not usable:
        raise UsageError(f"{source.file or source.name}: no GEMM of a type that models are trained in")
    return max(usable, key=lambda key: (usable[key].estimate, key == "bfloat16"))


def node_of(rates: Rates) -> int:
    return 1 if rates.kind == "cpu" else GPUS_PER_NODE


def per_rank(rates: Rates, fabric: Fabric) -> tuple[Rates, list[str]]:
    """A CPU's figures are those of all its cores; ranks on one host divide them."""
    ranks = fabric.gpus_per_node
    if ranks < 2:
        return rates, []

    def part(figure: Figure) -> Figure:
        ends = figure.ci95 and (figure.ci95[0] / ranks, figure.ci95[1] / ranks)
        return replace(
            figure, estimate=figure.estimate / ranks, ci95=ends, source=f"{figure.source}, over {ranks} ranks a host"
        )

    memory = rates.memory_bytes and part(rates.memory_bytes)
    shared = replace(
        rates, flop_per_s=part(rates.flop_per_s), dram_bytes_per_s=part(rates.dram_bytes_per_s), memory_bytes=memory
    )
    return shared, [f"A GPU here is one of {ranks} ranks on a host, with 1/{ranks} of what the CPU was measured at."]


def reach(fabric: Fabric | None, counts: Sequence[int]) -> list[str]:
    if fabric is None or fabric.measured_ranks is None or counts[-1] <= fabric.measured_ranks:
        return []
    cure = "" if fabric.between else ": their link is taken for all; --links measured+ib-ndr adds one between hosts"
    return [f"all_reduce is known at {fabric.measured_ranks} ranks; beyond is the formula's word{cure}."]
