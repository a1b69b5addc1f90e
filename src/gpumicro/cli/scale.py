"""`gpumicro scale`: what more GPUs make of a training step, from measured or spec figures."""

from __future__ import annotations

from typing import Any

import click

from ..errors import UsageError


@click.command("scale", short_help="How far does training scale, and does the model fit?")
@click.argument("results", nargs=-1, metavar="[RESULT.json]...")
@click.option(
    "--model",
    metavar="KEY=VALUE,...",
    help="params, layers, hidden, seq, heads, vocab, dtype, batch (samples "
    "of all GPUs), micro, accumulate, recompute (none, selective, full), flop (of a sample). [default: a 7e9 one]",
)
@click.option("--gpus", default="1..4096", show_default=True, metavar="COUNTS", help="1..4096 (doubling) or 8,24,1e6.")
@click.option(
    "--links",
    metavar="A+B,...",
    help="Spec links, inside a node + between nodes, side by side: "
    "nvlink4+ib-ndr,nvlink4+1xeth100@30us (1x: ports of a node, @: latency of a hop).",
)
@click.option("--spec", metavar="NAME", help="A data sheet for what no result has: h100-sxm5-80, or your .toml.")
@click.option("--device", metavar="ID", help="Of the results' devices, this one.")
@click.option("--gpus-per-node", type=int, metavar="N", help="[default: 8, or what was measured]")
@click.option("--tensor", type=int, default=1, show_default=True, metavar="N", help="Ways of tensor parallelism.")
@click.option("--pipeline", type=int, default=1, show_default=True, metavar="N", help="Stages of a pipeline.")
@click.option("--interleave", type=int, default=1, show_default=True, metavar="N", help="Model chunks of a stage.")
@click.option("--zero", type=int, default=0, show_default=True, metavar="N", help="ZeRO stage, 0 to 3.")
@click.option(
    "--overlap",
    type=float,
    default=1.0,
    show_default=True,
    metavar="PART",
    help="Of a backward pass, what may hide the gradients' all_reduce.",
)
@click.option(
    "--utilization",
    type=float,
    default=1.0,
    show_default=True,
    metavar="PART",
    help="Of the GEMM rate, what the model's own products reach.",
)
@click.option(
    "--worth",
    type=float,
    default=0.5,
    show_default=True,
    metavar="PART",
    help="More GPUs pay while they bring this part of what they could.",
)
@click.option("--measured", metavar="CSV", help="Real runs, gpus,throughput or gpus,time_s: laws are fitted to them.")
@click.option("-o", "--output", metavar="FILE", help="Write the answer as JSON; - is stdout.")
def command(results: tuple[str, ...], output: str | None, **wished: Any) -> None:
    """Model a step of training on more and more GPUs, from the GEMM, memory and all_reduce of RESULT.json.

    \b
    gpumicro roofline -o r.json; gpumicro collectives --ranks 2 -o c.json
    gpumicro scale r.json c.json
    gpumicro scale --spec h100-sxm5-80 --links nvlink4+ib-ndr,nvlink4+1xeth100
    gpumicro scale --measured counts.csv
    """
    from ..cluster.footprint import Split
    from ..cluster.laws import fit_laws, read_counts
    from ..cluster.scale import scale
    from ..cluster.scale_report import headline, laws_json, laws_table, tables, to_json
    from ..cluster.show import show
    from ..result import check_outputs, write

    if output is not None:
        check_outputs([output])
        if output != "-" and output in results:
            raise UsageError(f"cannot write {output}: it is a file that is read")
    split = Split(wished.pop("tensor"), wished.pop("pipeline"), wished.pop("zero"), wished.pop("interleave"))
    head: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if wished["measured"] and not results and not (wished["spec"] or wished["links"]):
        laws = fit_laws(read_counts(wished["measured"]))
        doc, shown = laws_json(laws, wished["measured"]), [laws_table(laws, wished["measured"])]
    else:
        found = scale(results, split=split, **wished)
        doc, shown, head, notes = to_json(found), list(tables(found)), headline(found), found.notes
    if output is not None:
        write(output, doc)
    if output != "-":
        show(head, shown, notes)
