"""How the GPUs are joined, as `nvidia-smi topo -m` shows it, from the key "topology" of a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..gpu_pairs import LEVEL_WORDS, word_of
from .tables import Column, Doc, Table, clean

_SELF = "X"


def topology_table(doc: Doc) -> Table:
    """A matrix of pairs, then the CPUs and the NUMA node near each."""
    found = doc.get("topology") or {"gpus": [], "pairs": []}
    gpus = found["gpus"]
    words = {(pair["a"], pair["b"]): clean(word_of(pair)) for pair in found["pairs"]}
    rows = tuple(
        (f"GPU{i}", *(_SELF if i == j else words.get((min(i, j), max(i, j)), "?") for j in range(len(gpus))),
         _said(gpu.get("cpus")), _said(gpu.get("numa_node")), clean(gpu.get("bus_id") or "?"))
        for i, gpu in enumerate(gpus)
    )  # fmt: skip
    columns = [Column(""), *(Column(f"GPU{i}") for i in range(len(gpus)))]
    columns += [Column("CPUs", under=True), Column("NUMA"), Column("bus", under=True)]
    used = [word for word in LEVEL_WORDS if word in words.values()]
    remarks = [f"{word}: {LEVEL_WORDS[word]}." for word in used]
    if any(word.startswith("NV") for word in words.values()):
        remarks.insert(0, "NVn: n NVLinks, directly or through a switch.")
    reasons = {str(gpu[key]) for gpu in gpus for key in ("nvlinks_why", "cpus_why") if gpu.get(key)}
    remarks += [f"Unknown: {clean(why)}." for why in sorted(reasons)]
    return Table("topology", "How the GPUs are joined", tuple(columns), rows, tuple(remarks))


def pair_rows(doc: Doc) -> Iterator[Mapping[str, Any]]:
    """For CSV: a row a pair, its NVLinks as the value and nvidia-smi's word for it."""
    for pair in (doc.get("topology") or {}).get("pairs", ()):
        yield {"record": "gpu-pair", "name": f"GPU{pair['a']}--GPU{pair['b']}", "unit": "NVLinks",
               "value": pair["nvlinks"], "bound_by": word_of(pair)}  # fmt: skip


def _said(value: object) -> str:
    return "?" if value is None else clean(value)
