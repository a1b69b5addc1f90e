"""`gpumicro specs [NAME]`: the spec peaks we know, and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..peaks import GpuSpec, UserCpu

_KEY_DTYPES = (("float64", None), ("float32", "vector"), ("float16", "tensor"), ("float8_e4m3fn", "tensor"))


@click.command("specs")
@click.argument("name", required=False)
@click.option(
    "--spec", "user_file", type=click.Path(path_type=Path), metavar="FILE", help="Merge in your own TOML file."
)
def command(name: str | None, user_file: Path | None) -> None:
    """List the spec peaks of known GPUs, or show one with its sources.

    Dense figures only. * derived from clock and rate, ? sources disagree, ! seen in no source text.
    """
    from ..peaks import find_gpu, gpu_specs, load_user

    user = load_user(user_file) if user_file else None
    if name is not None:
        _show(find_gpu(name, user))
        return
    for cpu in user.cpus if user else ():
        _show_cpu(cpu)
    _list(gpu_specs(user))


def _list(specs: tuple[GpuSpec, ...]) -> None:
    from ..units import format_quantity

    heads = ("id", "memory", "float64", "float32", "float16 tensor", "float8 tensor")
    rows = []
    for spec in specs:
        bandwidth = format_quantity(spec.memory_bandwidth_bytes_per_s, "B/s")
        peaks = [spec.peak(dtype, unit) for dtype, unit in _KEY_DTYPES]
        texts = [format_quantity(p.flop_per_s, "FLOP/s") + _signs(p.marks) if p else "-" for p in peaks]
        rows.append((spec.id, bandwidth + _signs(spec.marked.get("memory_bandwidth_gbs", ())), *texts))
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    for row in (heads, *rows):
        click.echo(
            "  ".join(text.ljust(widths[0]) if i == 0 else text.rjust(widths[i]) for i, text in enumerate(row)).rstrip()
        )
    click.echo("\n* derived from clock and rate   ? sources disagree   ! seen in no source text   - none, or unknown")


def _signs(marks: tuple[str, ...]) -> str:
    return "".join({"derived": "*", "contested": "?", "unverified": "!"}[mark] for mark in marks)


def _show(spec: GpuSpec) -> None:
    from ..units import format_quantity, format_size, shown_unit

    click.echo(f"{spec.name} ({spec.id})")
    click.echo(f"  {spec.vendor} {spec.architecture}, {spec.form_factor}, compute capability {spec.compute_capability}")
    bandwidth = format_quantity(spec.memory_bandwidth_bytes_per_s, "B/s", digits=4)
    words = _words(spec.marked.get("memory_bandwidth_gbs", ()))
    click.echo(f"  memory: {format_size(spec.memory_bytes)} {spec.memory_type}, {bandwidth}{words}")
    facts = {
        "SMs": None if spec.sm_count is None else str(spec.sm_count),
        "boost clock": None if spec.boost_clock_hz is None else format_quantity(spec.boost_clock_hz, "Hz", digits=4),
        "L2": None if spec.l2_bytes is None else format_size(spec.l2_bytes),
        "power": None if spec.tdp_w is None else f"{spec.tdp_w:g} W",
    }
    click.echo("  " + ", ".join(f"{key}: {value or 'unknown'}" for key, value in facts.items()))
    click.echo("  peaks (dense):")
    for peak in spec.peaks:
        unit = shown_unit("FLOP/s", peak.dtype)
        accumulate = f", {peak.accumulator} accumulator" if peak.accumulator else ""
        rate = format_quantity(peak.flop_per_s, unit, digits=4)
        click.echo(f"    {peak.dtype:<14} {peak.unit:<6} {rate:>14}{accumulate}{_words(peak.marks)}")
    if spec.unknown:
        click.echo(f"  unknown: {', '.join(spec.unknown)}")
    if spec.not_applicable:
        click.echo(f"  no hardware for: {', '.join(spec.not_applicable)}")
    if spec.note:
        click.echo(f"  note: {spec.note}")
    click.echo(f"  evidence: {spec.evidence}")
    for source in spec.source:
        click.echo(f"  source: {source}")


def _words(marks: tuple[str, ...]) -> str:
    return f" ({', '.join(marks)})" if marks else ""


def _show_cpu(cpu: UserCpu) -> None:
    from ..units import format_quantity

    rates = ", ".join(f"{dtype} {rate:g} FLOP/cycle" for dtype, rate in cpu.flop_per_cycle.items())
    facts = [
        "" if cpu.cores is None else f"{cpu.cores} cores",
        "" if cpu.clock_hz is None else format_quantity(cpu.clock_hz, "Hz"),
        rates,
        "" if cpu.memory_bandwidth_bytes_per_s is None else format_quantity(cpu.memory_bandwidth_bytes_per_s, "B/s"),
    ]
    click.echo(f"CPU {cpu.name or '(any)'}: {', '.join(filter(None, facts))} (source: {'; '.join(cpu.source)})\n")
