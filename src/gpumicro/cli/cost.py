"""`gpumicro cost [RESULT...]`: what results cost, on which machine, rented or bought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import SchemaError, UsageError

if TYPE_CHECKING:
    from ..cluster.figures import DocumentFigures
    from ..cluster.prices import Offer


@click.command("cost", short_help="What work costs: per PFLOP, TB, step, model; spot; rent or buy.")
@click.argument("results", nargs=-1, metavar="[RESULT]...")
@click.option("--instance", "instances", multiple=True, metavar="NAME", help="A cloud instance; may be repeated.")
@click.option("--prices", metavar="FILE", help="Your prices (TOML): they win over list prices.")
@click.option("--price", metavar="USD", help="Of an hour of the machine that RESULT is of.")
@click.option("--gpus", type=int, default=1, show_default=True, metavar="N", help="GPUs in that machine.")
@click.option("--kind", default="on-demand", show_default=True, metavar="KIND", help="on-demand, spot or reserved.")
@click.option("--region", metavar="NAME", help="Where prices of several regions are known.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAME", help="Only these; may be repeated. [default: all]")
@click.option("--nodes", type=int, default=1, show_default=True, metavar="N", help="Machines that work together.")
@click.option("--power", metavar="W", help="Of one GPU under load, where RESULT has none.")
@click.option("--pue", metavar="X", help="What the site draws over what its machines draw. [default: 1]")
@click.option("--step", metavar="TIME", help="Of one training step: 350ms.")
@click.option("--steps", type=int, default=1, show_default=True, metavar="N", help="Steps of the run.")
@click.option("--params", metavar="N", help="Of a dense transformer: 7e9. With --tokens: 6 N D FLOP.")
@click.option("--tokens", metavar="N", help="It is trained on: 2e12.")
@click.option("--flop", metavar="N", help="Of the whole run, instead of these two.")
@click.option("--efficiency", metavar="SHARE", help="Of the GEMM rate that a training step reaches: 35%..45%.")
@click.option("--train-dtype", default="bfloat16", show_default=True, metavar="NAME", help="Whose GEMM rate counts.")
@click.option("--scale", metavar="FILE", help="Of `gpumicro scale -o`: the price of a token by the number of GPUs.")
@click.option("--mtbi", metavar="TIME", help="Mean time between interruptions of one node: 20h.")
@click.option("--checkpoint", metavar="TIME", help="To write one: 90s.")
@click.option("--restart", metavar="TIME", help="From an interruption to work again: 5min.")
@click.option("--capex", metavar="USD", help="To buy the machine.")
@click.option("--opex", metavar="USD", help="A year, without electricity: staff, space, service.")
@click.option("--lifetime", metavar="YEARS", help="4")
@click.option("--machine-power", metavar="W", help="Of the whole machine under load.")
@click.option("--idle-power", metavar="W", help="Of the whole machine at rest. [default: 0]")
@click.option("--kwh", metavar="USD", help="Of electricity.")
@click.option("--utilisation", metavar="SHARE", help="Of all hours in which it works: 60%.")
@click.option("--gpu-hours", type=float, metavar="H", help="With --latency: cost_efficiency_score.")
@click.option("--latency", type=float, metavar="SECONDS", help="With --gpu-hours.")
@click.option("--list", "show_list", is_flag=True, help="Show all instances that are known.")
@click.option("-o", "--output", metavar="FILE", help="Write the answers as JSON; - is stdout.")
def command(results: tuple[str, ...], show_list: bool, output: str | None, **given: Any) -> int:
    """Price what was measured: results x price. Every number may be a range, LOW..HIGH.

    \b
    gpumicro cost --list
    gpumicro cost r.json --price 0.35       this machine, 0.35 dollars an hour
    gpumicro cost h100.json --instance p5.48xlarge --prices mine.toml
    gpumicro cost --instance p5.48xlarge --nodes 16 \\
        --params 7e9 --tokens 2e12 --efficiency 35%..45%
    gpumicro cost --instance p5.48xlarge --prices mine.toml \\
        --mtbi 20h..60h --checkpoint 90s --restart 5min
    gpumicro cost --instance p5.48xlarge --capex 300e3 --opex 30e3 --lifetime 4 \\
        --machine-power 10200 --pue 1.3 --kwh 0.12 --utilisation 40%..80%

    No price is made up: list prices carry their day and region, and most instances have none.
    """
    from ..result import check_outputs, write

    if output is not None:
        for source in (*results, *filter(None, [given["prices"], given["scale"]])) or (None,):
            check_outputs([output], source=source)
    if show_list:
        _list(given["prices"])
        return 0
    score = _score(given["gpu_hours"], given["latency"])
    if score is not None and not (results or given["instances"]):
        click.echo(score)
        return 0
    _needs(given)
    report = _report(results, given)
    if output is not None:
        write(output, report.to_json())
    if output != "-":
        _show(report, score)
    return 0


# an option that alone says nothing -> those of which one must be there
_NEEDS = {
    "gpus": ("price",), "steps": ("step",), "efficiency": ("params", "flop"), "restart": ("mtbi", "checkpoint"),
    "tokens": ("params", "scale"), "train_dtype": ("params", "flop"), "opex": ("capex",), "lifetime": ("capex",),
    "machine_power": ("capex",), "idle_power": ("capex",), "kwh": ("capex",), "utilisation": ("capex",),
}  # fmt: skip


def _needs(given: dict[str, Any]) -> None:
    """UsageError for an option that would change nothing: its user takes it for heeded."""
    unset = {"gpus": 1, "steps": 1, "train_dtype": "bfloat16"}
    for key, others in _NEEDS.items():
        if given[key] != unset.get(key) and all(given[other] is None for other in others):
            words = " or ".join(f"--{other}" for other in others)
            raise UsageError(f"--{key.replace('_', '-')} changes nothing without {words}: give that too, or leave it")


def _score(gpu_hours: float | None, latency: float | None) -> str | None:
    from ..cluster.cost import cost_efficiency_score

    if gpu_hours is None and latency is None:
        return None
    if gpu_hours is None or latency is None:
        raise UsageError("a score needs both --gpu-hours and --latency")
    score = cost_efficiency_score(gpu_hours, latency)
    return f"cost_efficiency_score: {score:.4g} per GPU hour and second (higher is better; compare the same work only)"


def _figures(path: str) -> DocumentFigures:
    """Of a result; an instance's name in a file's place is told from a file that is not there."""
    import os

    from ..cluster.figures import read_figures
    from ..peaks.instances import find_instance

    try:
        return read_figures(path)
    except SchemaError:
        if path == "-" or os.path.lexists(path):
            raise
        try:
            name = find_instance(path).name
        except UsageError:
            name = None
        if name is None:
            raise
    raise UsageError(f"{path} is no file but the name of an instance: --instance {name}")


def _report(results: tuple[str, ...], given: dict[str, Any]) -> Any:
    from datetime import datetime, timezone

    from ..cluster.cost_report import cost_report
    from ..cluster.cost_scaling import read_scaling
    from ..cluster.prices import load_prices, offer_of

    today = datetime.now(timezone.utc).date()
    own = load_prices(given["prices"]) if given["prices"] else ()
    documents = [_figures(path) for path in results]
    offers = [offer_of(name, given["kind"], own, given["region"]) for name in given["instances"]]
    offers += _this_machine(given, documents, today)
    interruptions = _interruptions(given)
    spot = [offer_of(name, "spot", own, given["region"]) for name in given["instances"]] if interruptions else []
    if not offers and interruptions is None:
        raise UsageError(
            "say what machine it is: --instance NAME (see --list), or a RESULT and --price USD; for checkpoints alone "
            "--mtbi and --checkpoint"
        )
    return cost_report(
        offers, documents, today=today, nodes=given["nodes"], power_w=_range(given, "power"), pue=_range(given, "pue"),
        dtypes=[_dtype(name) for name in given["dtypes"]], run=_run(given), interruptions=interruptions,
        spot_offers=[offer for offer in spot if offer.price], own=_owning(given),
        scaling=read_scaling(given["scale"]) if given["scale"] else (), tokens=_run_tokens(given),
    )  # fmt: skip


def _dtype(name: str) -> str:
    from ..spec import DTYPE_ALIASES

    return DTYPE_ALIASES.get(name, name)


def _range(given: dict[str, Any], key: str, read: Any = None) -> Any:
    """The option's range, None where it was not given."""
    from ..cluster.uncertain import number, parse_range

    text = given[key]
    return None if text is None else parse_range(text, read or number, f"--{key.replace('_', '-')}")


def _this_machine(given: dict[str, Any], documents: list[DocumentFigures], today: Any) -> list[Offer]:
    from ..cluster.prices import own_machine
    from ..cluster.uncertain import number, parse_range
    from ..peaks.instances import Price

    if given["price"] is None:
        return []
    if not documents:
        raise UsageError("--price is of the machine that a RESULT was measured on: give that too")
    usd = parse_range(given["price"], number, "--price")
    if not usd.known:
        raise UsageError("--price takes one price; give several instances in --prices to compare")
    return [own_machine(usd.value, given["gpus"], Price(usd.value, today, "the command line"))]


def _run(given: dict[str, Any]) -> Any:
    from ..cluster.cost import training_flop
    from ..cluster.cost_report import Run
    from ..cluster.uncertain import Uncertain, duration, share

    step, efficiency = _range(given, "step", duration), _range(given, "efficiency", share)
    params, tokens, flop = (_range(given, key) for key in ("params", "tokens", "flop"))
    if step is not None:
        if flop or params or tokens:
            raise UsageError("give the run by its steps or by its FLOP, not both")
        return Run(step_s=step, steps=given["steps"])
    if given["scale"] and params is None and flop is None:
        return None  # its tokens are those of the run that `scale` describes
    if (params is None) != (tokens is None):
        raise UsageError("--params and --tokens belong together: 6 x parameters x tokens is the FLOP of the run")
    if params is not None and flop is not None:
        raise UsageError("give --flop, or --params and --tokens, not both")
    if params is not None:
        ends = [training_flop(getattr(params, end), getattr(tokens, end)) for end in ("value", "low", "high")]
        flop = Uncertain(*ends)
    if flop is None:
        return None
    return Run(flop, efficiency, _dtype(given["train_dtype"]))


def _run_tokens(given: dict[str, Any]) -> float | None:
    """For --scale: of the whole run."""
    from ..cluster.uncertain import positive

    tokens = _range(given, "tokens")
    return None if tokens is None else float(positive(tokens, "--tokens").value)


def _interruptions(given: dict[str, Any]) -> Any:
    from ..cluster.cost_report import Interruptions
    from ..cluster.uncertain import duration, exactly

    mtbi, checkpoint, restart = (_range(given, key, duration) for key in ("mtbi", "checkpoint", "restart"))
    if mtbi is None and checkpoint is None:
        return None
    if mtbi is None or checkpoint is None:
        raise UsageError("a checkpoint interval needs both --mtbi and --checkpoint")
    return Interruptions(mtbi, checkpoint, restart or exactly(0.0))


def _owning(given: dict[str, Any]) -> Any:
    from ..cluster.ownership import Ownership
    from ..cluster.uncertain import exactly, share

    needed = ("capex", "opex", "lifetime", "machine_power", "pue", "kwh", "utilisation")
    if given["capex"] is None:
        return None
    missing = [f"--{key.replace('_', '-')}" for key in needed if given[key] is None]
    if missing:
        raise UsageError(f"owning needs {', '.join(missing)} too: nothing is assumed")
    capex, opex, lifetime, power, pue, kwh = (_range(given, key) for key in needed[:-1])
    return Ownership(
        capex, opex, lifetime, power, _range(given, "idle_power") or exactly(0.0), pue, kwh,
        _range(given, "utilisation", share),
    )  # fmt: skip


def _list(prices: str | None) -> None:
    from rich.console import Console

    from ..cluster.cost_tables import instances_table
    from ..cluster.prices import load_prices
    from ..report.console import print_parts, rich_table

    print_parts(rich_table(instances_table(load_prices(prices) if prices else ())), Console())


def _show(report: Any, score: str | None) -> None:
    from ..cluster.cost_tables import cost_tables
    from ..cluster.show import show

    show((), cost_tables(report), [*([score] if score else []), *report.notes])
