"""What the compiler made of the kernels: the instructions of hot loops, registers, and what each kernel claims.

Needs no GPU and no driver, only cuobjdump and nvdisasm; nothing here runs a kernel.
"""

from __future__ import annotations

from .claims import CLAIMS, Claim, claim_for
from .listing import Code, Instruction, Loop, Usage, parse_code, parse_spills, parse_usage
from .names import demangle, kernel_name
from .proof import Proof, as_json, as_markdown, cell, failed, prove, prove_file
from .tools import Disassembler, architectures_in, installed_module

__all__ = [
    "CLAIMS", "Claim", "Code", "Disassembler", "Instruction", "Loop", "Proof", "Usage", "architectures_in",
    "as_json", "as_markdown", "cell", "claim_for", "demangle", "failed", "installed_module", "kernel_name",
    "parse_code", "parse_spills", "parse_usage", "prove", "prove_file",
]  # fmt: skip
