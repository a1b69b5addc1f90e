"""Each kernel held to its claim, and the table of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .claims import Claim, claim_for
from .listing import Code, Usage
from .names import kernel_name
from .tools import Disassembler

LOCAL = ("LDL", "STL")


@dataclass(frozen=True)
class Proof:
    """What was found of one kernel on one architecture. `faults` is empty where everything claimed is so."""

    kernel: str
    arch: str
    absent: bool  # the architecture has not its instructions: a trap stands there
    registers: int
    shared_bytes: int
    opcode: str  # found, most frequent first; "" where nothing is claimed
    count: int  # of it in the hot loop
    whole: int  # what it is a share of: the loop's instructions but NOPs, or its accesses to global memory
    padding: int  # NOPs of the loop
    share: float | None
    faults: tuple[str, ...]


def prove(code: Code, usage: Usage | None) -> Proof:
    """One kernel against its claim and against what holds for all."""
    kernel = kernel_name(code.symbol)
    claim = claim_for(kernel)
    faults = list(_memory_faults(code, usage))
    there = claim is None or claim.on(code.arch)
    if there and code.empty:
        faults.append("is a trap, though this architecture has its instructions")
    if not there and not code.empty:
        faults.append("has code where its claim says that the architecture lacks its instructions")
    opcode, count, whole, padding, share = "", 0, 0, 0, None
    if claim and there and not code.empty:
        loop = claim.loop(code)
        if loop is None:
            faults.append(f"no loop has {claim.opcode}")
        else:
            found = {name: n for name, n in loop.counts.items() if re.fullmatch(claim.opcode, name)}
            opcode, count = max(found, key=lambda name: found[name]), sum(found.values())
            whole, padding = claim.whole(loop), loop.padding
            share = count / whole
            faults += _loop_faults(claim, opcode, count, share)
            if loop.same_bank(claim.opcode) > claim.same_bank * count:
                faults.append(f"{loop.same_bank(claim.opcode)} {opcode} read three registers of one bank")
    takes = (usage.registers, usage.shared_bytes) if usage else (0, 0)
    return Proof(kernel, code.arch, code.empty, *takes, opcode, count, whole, padding, share, tuple(faults))


def _loop_faults(claim: Claim, opcode: str, count: int, share: float) -> Iterable[str]:
    if share < claim.share:
        yield f"{opcode} is {share:.1%} of the hot loop, claimed is {claim.share:.0%}"
    if count < claim.least:
        yield f"the hot loop has {count} {opcode}, claimed are {claim.least}"


def _memory_faults(code: Code, usage: Usage | None) -> Iterable[str]:
    local = sum(n for name, n in code.counts.items() if name.partition(".")[0] in LOCAL)
    if local:
        yield f"{local} accesses to local memory"
    if usage is None:
        yield "its use of registers and memory is not known"
    elif usage.stack_bytes or usage.local_bytes:
        yield f"{usage.stack_bytes} bytes of stack and {usage.local_bytes} of local memory"


def prove_file(tool: Disassembler, file: Path, arch: str) -> list[Proof]:
    """Every kernel of a cubin or of the module, for one architecture, by name."""
    usage = tool.usage(file, arch)
    return sorted((prove(code, usage.get(code.symbol)) for code in tool.code(file, arch)), key=lambda p: p.kernel)


def failed(proofs: Iterable[Proof]) -> list[Proof]:
    """Those that do not hold."""
    return [proof for proof in proofs if proof.faults]


def as_json(proofs: Iterable[Proof]) -> list[dict[str, Any]]:
    """One object a proof."""
    return [asdict(proof) for proof in proofs]


def cell(proof: Proof) -> str:
    """`HMMA.16816.F32 128/131 97.7%`: the claimed opcode, of how many working instructions, its share."""
    if proof.share is None:
        return ""
    padding = f" +{proof.padding} NOP" if proof.padding else ""
    return f"{proof.opcode} {proof.count}/{proof.whole}{padding} {proof.share:.1%}"


def as_markdown(proofs: Sequence[Proof]) -> str:
    """A table with a row for each kernel that claims something and a column for each architecture."""
    archs = list(dict.fromkeys(proof.arch for proof in proofs))
    by: Mapping[tuple[str, str], Proof] = {(p.kernel, p.arch): p for p in proofs if claim_for(p.kernel)}
    lines = ["| kernel | " + " | ".join(archs) + " |", "| --- |" + " --- |" * len(archs)]
    for kernel in dict.fromkeys(kernel for kernel, _ in by):
        cells = []
        for arch in archs:
            found = by.get((kernel, arch))
            text = "" if found is None else "–" if found.absent else cell(found)
            cells.append(f"{text} **{'; '.join(found.faults)}**" if found and found.faults else text)
        lines.append(f"| `{kernel.removeprefix('gm::')}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
