"""`gpumicro memory RESULT`: what the allocation figures of a result advise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..cluster.memory import MemoryAdvice
    from ..report.tables import Table


@click.command("memory", short_help="What allocations cost, and whether a pool helps.")
@click.argument("result", metavar="RESULT")
@click.option("--pairs", type=int, metavar="N", help="Allocations (with their frees) in a step.")
@click.option("--step", metavar="TIME", help="How long a step takes: 40ms.")
@click.option("-o", "--output", metavar="FILE", help="Write it as JSON; - is stdout.")
def command(result: str, pairs: int | None, step: str | None, output: str | None) -> int:
    """Advise on device memory from a GPU's result: cudaMalloc against a pool that keeps it, by size.

    \b
    gpumicro roofline --device cuda:0 -o r.json
    gpumicro memory r.json --pairs 200 --step 40ms
    """
    from ..cluster.memory import memory_advice
    from ..cluster.uncertain import duration
    from ..result import check_outputs, read, write

    if output is not None:
        check_outputs([output], source=result)
    doc = read(result)
    found = memory_advice(doc, result, pairs_per_step=pairs, step_s=None if step is None else duration(step))
    if output is not None:
        write(output, {"devices": [advice.to_json() for advice in found]})
    if output != "-":
        _show(found)
    return 0


def _show(found: tuple[MemoryAdvice, ...]) -> None:
    from ..cluster.show import show

    show((), _tables(found), [line for advice in found for line in (*advice.advice, *advice.missing)])


def _tables(found: tuple[MemoryAdvice, ...]) -> Iterator[Table]:
    from ..report.tables import Table, clean, columns_of
    from ..units import format_quantity, format_size

    for advice in found:
        rows = []
        for cost in advice.costs:
            times = [
                "-" if figure is None else format_quantity(figure.estimate, "s", figure.ci95)
                for figure in (cost.malloc_s, cost.pool_s)
            ]
            ratio = cost.malloc_over_pool
            times.append("-" if ratio is None else f"{ratio.value:.3g} ({ratio.low:.3g} to {ratio.high:.3g})")
            rows.append((format_size(cost.size_bytes), *times))
        columns = columns_of("size", ">cudaMalloc + cudaFree", ">from a pool", ">times")
        title = f"Allocations on {clean(advice.device)} ({advice.origin})"
        remarks = ("cudaMalloc and cudaFree also make all streams of the device wait, which is not in these times",)
        yield Table(f"memory-{advice.device}", title, columns, tuple(rows), remarks)
