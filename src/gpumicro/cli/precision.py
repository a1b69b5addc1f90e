"""`gpumicro precision`: what a narrower type buys, from the GEMMs of result files."""

from __future__ import annotations

import click

from ..errors import UsageError


@click.command("precision", short_help="What do tf32, fp16, bf16, fp8 and int8 buy here?")
@click.argument("results", nargs=-1, required=True, metavar="RESULT.json...")
@click.option("--model", metavar="KEY=VALUE,...", help="Whose training step is compared; see gpumicro scale.")
@click.option("-o", "--output", metavar="FILE", help="Write the answer as JSON; - is stdout.")
def command(results: tuple[str, ...], model: str | None, output: str | None) -> None:
    """Compare the GEMMs of RESULT.json by type: speed-up over float32, error against float64, bytes.

    \b
    gpumicro roofline -o r.json && gpumicro precision r.json
    """
    from ..cluster.precision import precision
    from ..cluster.precision_report import table, to_json
    from ..cluster.show import show
    from ..result import check_outputs, write

    if output is not None:
        check_outputs([output])
        if output != "-" and output in results:
            raise UsageError(f"cannot write {output}: it is a file that is read")
    found = precision(results, model=model)
    if output is not None:
        write(output, to_json(found))
    if output != "-":
        show((), map(table, found))
