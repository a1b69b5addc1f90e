"""What `fleet` found, as tables: on a terminal, and for the page. Takes its JSON-shaped record alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ..units import format_fraction, format_quantity
from .console import bullets, print_parts, rich_table
from .diff import change
from .tables import Doc, Table, clean, columns_of

MOST_ROWS = 20  # of a table on a terminal; the file and the page have all of them
GROUPS_SHOWN = 12
OTHERS_AT = 7  # place of the further ceilings in a row of slow devices


def print_fleet(found: Doc, console: Console) -> None:
    """Print the judgement, the worst first; long tables end with how many more there are."""
    print_parts(Group(*_parts(found)), console)


def headline(found: Doc) -> str:
    """ "597 nodes: 3 slow, 1 fast, 1 group slow as a whole; 3 files cannot be read"."""
    slow, fast = (len({o["node"] for o in found[key]}) for key in ("slow", "fast"))
    groups = len({(g["factor"], g["group"], g["model"]) for g in found["groups"] if g["ratio"] < 1})
    judged = f"{slow} slow, {fast} fast" if found["tests"] else "nobody can be judged against others"
    whole = f", {_many(groups, 'group')} slow as a whole" if groups else ""
    left = f"; {_many(len(found['faults']), 'file')} cannot be read" if found["faults"] else ""
    return f"{_many(found['nodes'], 'node')}: {judged}{whole}{left}"


def verdict_lines(found: Doc) -> list[str]:
    """Accepted or not, and why not in one line."""
    acceptance = found["acceptance"]
    if not acceptance:
        return []
    name = clean(acceptance["file"])
    if acceptance["passed"]:
        return [f"ACCEPTED by {name}: {_many(acceptance['checked'], 'check')}"]
    nodes = len({r["node"] for r in acceptance["refusals"] if r["node"]})
    whole = sum(not r["node"] for r in acceptance["refusals"])
    parts = [f"{_many(nodes, 'node')} below a threshold"] if nodes else []
    parts += [f"{_many(whole, 'rule')} for the fleet not met"] if whole else []
    return [f"FAILED: not accepted by {name}: {', '.join(parts) or 'nothing to check'}"]


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _parts(found: Doc) -> Iterator[RenderableType]:
    yield Text(headline(found), style="bold")
    yield Text(f"in {clean(found['folder'])}", overflow="fold")
    for line in verdict_lines(found):
        yield Text(line, style="bold red" if line.startswith("FAILED") else "bold green")
    for table in fleet_tables(found):
        rows = table.rows[:MOST_ROWS]
        if table.key in ("slow", "fast"):  # the further ceilings take more lines than a terminal has
            rows = tuple((*row[:OTHERS_AT], "", *row[OTHERS_AT + 1 :]) for row in rows)
        yield Text("")
        yield Text(table.title, style="bold")
        yield rich_table(Table(table.key, table.title, table.columns, rows).without_empty())
        more = len(table.rows) - len(rows)
        yield from bullets(
            [*([f"and {more:,} more: -o FILE and --html FILE have all"] if more else []), *table.remarks]
        )
    yield Text("")
    yield from bullets([*legend(found), *map(clean, found["notes"])])


def legend(found: Doc) -> list[str]:
    """How it was judged."""
    rules = found["rules"]
    if not found["tests"]:
        return []
    return [
        f"slow, fast: more than {format_fraction(rules['margin'])} from the median of all devices of the model, and "
        f"out of line by robust z (median, 1.4826 MAD) after Benjamini and Hochberg over {found['tests']:,} tests "
        f"(each device by each ceiling), and over the devices: at most {format_fraction(rules['fdr'])} of those named "
        "are so by chance, on average, where healthy devices spread alike to both sides. Intervals are of 95%."
    ]


def fleet_tables(found: Doc) -> list[Table]:
    """Slow and fast devices, groups, refusals, ceilings, what cannot be read; those with rows."""
    made = (
        _outliers("slow", "Slow devices", found["slow"]),
        _groups(found),
        _refusals(found),
        _outliers("fast", "Fast devices", found["fast"]),
        _ceilings(found),
        _members(found),
        _faults(found),
    )
    return [table.without_empty() for table in made if table.rows]


def _outliers(key: str, title: str, outliers: Sequence[Mapping[str, Any]]) -> Table:
    models = len({o["model"] for o in outliers}) > 1
    rows = []
    for o in sorted(outliers, key=lambda o: bool(o["shared"])):  # who is slow alone comes first
        d = o["shown_by"]
        others = ", ".join(f"{clean(x['ceiling'])} {change(x['ratio'])}" for x in o["others"])
        low, high = (change(end) for end in d["ci95"])
        rows.append((
            clean(o["node"]), clean(o["device"]), clean(d["ceiling"]), change(d["ratio"]), f"{d['z']:.1f}",
            f"{low} to {high}; {format_quantity(d['value'], d['unit'])}; adjusted p {_p(d['p_adjusted'])}",
            "; ".join(map(clean, o["hints"])), f"also {others}" if others else "",
            clean(o["model"]) if models else "",
        ))  # fmt: skip
    columns = columns_of("node", "device", "given away by", ">from median", ">z", "/interval", "/hints", "/others",
                         "/model")  # fmt: skip
    return Table(key, title, columns, tuple(rows))


def _p(value: float) -> str:
    return f"{value:.1g}" if value >= 1e-300 else "below 1e-300"


def _groups(found: Doc) -> Table:
    """A row a group: its furthest ceiling, and how many more."""
    held: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for group in found["groups"]:
        held.setdefault((group["factor"], group["group"], group["model"]), []).append(group)
    rows = []
    for (factor, name, model), every in held.items():
        worst = max(every, key=lambda g: abs(g["ratio"] - 1))
        low, high = (change(end) for end in worst["ci95"])
        unit = "devices" if factor in ("host", "clock") else "nodes"
        more = f"; {_many(len(every) - 1, 'further ceiling')}" if len(every) > 1 else ""
        rows.append((
            f"{factor} {clean(name)}", clean(worst["ceiling"]), change(worst["ratio"]),
            f"{low} to {high}; {worst['n']:,} {unit} against {worst['rest']:,}; adjusted p {_p(worst['p_adjusted'])}"
            f"{more}", clean(model),
        ))  # fmt: skip
    title = "Groups out of line as a whole"
    return Table("groups", title, columns_of("group", "by", ">from the rest", "/interval", "/model"), tuple(rows))


def _refusals(found: Doc) -> Table:
    refusals = (found["acceptance"] or {}).get("refusals", ())
    rows = [(clean(r["node"]) or "the fleet", clean(r["device"]), clean(r["rule"]), clean(r["text"])) for r in refusals]
    return Table("refusals", "Thresholds not met", columns_of("node", "device", "/rule", "/found"), tuple(rows))


def _ceilings(found: Doc) -> Table:
    rows = []
    models = len({c["model"] for c in found["ceilings"]}) > 1
    for c in found["ceilings"]:
        unit, spec = c["unit"], c["spec"]
        lowest, highest = (change(c[key] / c["median"]) for key in ("low", "high"))
        rows.append((
            clean(c["name"]), format_quantity(c["median"], unit, c["ci95"] if c["n"] > 1 else None),
            f"{'<' if c['floored'] else ''}{format_fraction(c['spread'])}" if not c["why"] else "-", str(c["n"]),
            str(c["slow"]) if not c["why"] else "-",
            format_fraction(c["median"] / spec) if spec else "-",
            clean(c["why"]) or f"lowest {lowest}, highest {highest}",
            clean(c["model"]) if models else "",
        ))  # fmt: skip
    columns = columns_of("ceiling", ">median", ">spread", ">n", ">slow", ">of spec", "/range", "/model")
    models_named = ", ".join(dict.fromkeys(clean(c["model"]) for c in found["ceilings"])) if not models else ""
    return Table("ceilings", f"Ceilings{f' of {models_named}' if models_named else ''}", columns, tuple(rows))


def _members(found: Doc) -> Table:
    rows = []
    for factor, groups in found["members"].items():
        shown = [f"{clean(name)}: {count:,}" for name, count in list(groups.items())[:GROUPS_SHOWN]]
        more = len(groups) - len(shown)
        rows.append((factor, str(len(groups)), ", ".join(shown) + (f" and {more:,} more" if more else "")))
    remark = f"{found['group_tests']:,} groups by ceiling were tested against the rest." if found["group_tests"] else ""
    return Table("members", "What devices share", columns_of("what", ">groups", "/sizes"), tuple(rows),
                 (remark,) if remark else ())  # fmt: skip


def _faults(found: Doc) -> Table:
    rows = tuple((clean(fault["file"]), clean(fault["why"])) for fault in found["faults"])
    return Table("faults", "Files left out", columns_of("file", "/why"), rows)
