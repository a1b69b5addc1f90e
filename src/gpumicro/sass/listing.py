"""The text of cuobjdump read into records: instructions, loops (backward branches), registers, memory of a kernel."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

# "/*0930*/  @!P0 HMMA.16816.F32 R20, R4, R56, R20 ;": address, predicate, opcode, operands
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)\s*([^;]*);")
_ARCH = re.compile(r"^\s*code for (\S+)")
_FUNCTION = re.compile(r"^\s*Function\s*:\s*(\S+)")
_TARGET = re.compile(r"\b0x([0-9a-f]+)\s*$")
_REGISTER = re.compile(r"-?\|?R(\d+)(?:\.\w+)*?(\.reuse)?\b")
_USAGE = re.compile(r"\b([A-Z]+)(?:\[\d+\])?:(\d+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction; `opcode` with its modifiers: "LDG.E.128"."""

    address: int
    opcode: str
    operands: str = ""
    predicate: str = ""

    @property
    def base(self) -> str:
        """The opcode without modifiers: "LDG"."""
        return self.opcode.partition(".")[0]

    @property
    def pads(self) -> bool:
        """Whether it does nothing: how the assembler spaces instructions that may not issue back to back."""
        return self.opcode == "NOP" or (self.base == "UIADD3" and set(self.operands.split(", ")) == {"URZ"})

    @property
    def sources(self) -> dict[int, tuple[int, bool]]:
        """Source registers by operand: their number, and whether the operand cache keeps them (".reuse")."""
        found = {}
        for i, operand in enumerate(self.operands.split(",")[1:]):
            if match := _REGISTER.match(operand.strip()):
                found[i] = (int(match[1]), bool(match[2]))
        return found

    @property
    def target(self) -> int | None:
        """Where a branch goes to; None for anything else."""
        if self.base not in ("BRA", "BRX", "JMP"):
            return None
        found = _TARGET.search(self.operands)
        return int(found[1], 16) if found else None


@dataclass(frozen=True)
class Loop:
    """What lies between a backward branch and its target."""

    instructions: tuple[Instruction, ...]

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each opcode stands in it."""
        return Counter(one.opcode for one in self.instructions)

    @property
    def padding(self) -> int:
        """Instructions that do nothing."""
        return sum(one.pads for one in self.instructions)

    def same_bank(self, opcode: str) -> int:
        """Instructions of that kind that read three registers from one of the two banks, which takes a cycle more.

        The bank is the number's last bit from Volta on (Jia et al., arXiv 1804.06826); a register that the
        instruction before left in the operand cache is not read again.
        """
        pattern, kept, found = re.compile(opcode), dict[int, int](), 0
        for one in self.instructions:
            sources = one.sources
            numbers = {number for number, _ in sources.values()}
            if pattern.fullmatch(one.opcode) and len(numbers) == 3 and len({number % 2 for number in numbers}) == 1:
                found += not any(kept.get(i) == number for i, (number, _) in sources.items())
            kept = {i: number for i, (number, keep) in sources.items() if keep}
        return found

    @property
    def working(self) -> int:
        """Instructions that do something."""
        return len(self.instructions) - self.padding

    def matching(self, opcode: str) -> int:
        """Instructions whose whole opcode the regular expression matches."""
        pattern = re.compile(opcode)
        return sum(n for name, n in self.counts.items() if pattern.fullmatch(name))


@dataclass(frozen=True)
class Code:
    """One kernel for one architecture."""

    arch: str  # "sm_90a"
    symbol: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Innermost loops, in order. The branch to itself behind the end of a kernel is none."""
        spans = {(one.target, one.address) for one in self.instructions if one.target is not None}
        backward = sorted(span for span in spans if span[0] < span[1])
        inner = [
            span
            for span in backward
            if not any(other != span and span[0] <= other[0] and other[1] <= span[1] for other in backward)
        ]
        return tuple(Loop(tuple(one for one in self.instructions if a <= one.address <= b)) for a, b in inner)

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each opcode stands in the kernel."""
        return Counter(one.opcode for one in self.instructions)

    @property
    def empty(self) -> bool:
        """Whether this is no kernel but the trap that an architecture without its instructions gets."""
        return any(one.base == "BPT" for one in self.instructions) and not self.loops


@dataclass(frozen=True)
class Usage:
    """What a kernel takes: registers a thread; bytes of stack, of local and of shared memory."""

    symbol: str
    registers: int
    stack_bytes: int
    local_bytes: int
    shared_bytes: int


def parse_code(text: str) -> list[Code]:
    """The kernels in the output of `cuobjdump -sass`."""
    found: list[Code] = []
    arch, symbol, instructions = "", "", list[Instruction]()

    def finish() -> None:
        if symbol:
            found.append(Code(arch, symbol, tuple(instructions)))

    for line in text.splitlines():
        if match := _INSTRUCTION.match(line):
            predicate = (match[2] or "").strip()
            instructions.append(Instruction(int(match[1], 16), match[3], match[4].strip(), predicate))
        elif match := _FUNCTION.match(line):
            finish()
            symbol, instructions = match[1], []
        elif match := _ARCH.match(line):
            finish()
            arch, symbol, instructions = match[1], "", []
    finish()
    return found


def parse_usage(text: str) -> dict[str, Usage]:
    """By symbol, from the output of `cuobjdump -res-usage` for one architecture."""
    found: dict[str, Usage] = {}
    symbol = ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["Function"] and line.rstrip().endswith(":"):
            symbol = words[1].rstrip(":")
        elif symbol and "REG:" in line:
            n = {name: int(value) for name, value in _USAGE.findall(line)}
            found[symbol] = Usage(symbol, n["REG"], n.get("STACK", 0), n.get("LOCAL", 0), n.get("SHARED", 0))
            symbol = ""
    return found


_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_PROPERTIES = re.compile(r"Function properties for (\S+)")


def parse_spills(text: str) -> dict[str, tuple[int, int, int]]:
    """Bytes of stack frame, spill stores and spill loads by symbol, from what `nvcc -Xptxas -v` prints."""
    found: dict[str, tuple[int, int, int]] = {}
    symbol = ""
    for line in text.splitlines():
        if match := _PROPERTIES.search(line):
            symbol = match[1]
        elif (match := _SPILLS.search(line)) and symbol:
            found[symbol] = (int(match[1]), int(match[2]), int(match[3]))
            symbol = ""
    return found


def hottest(loops: Sequence[Loop], opcode: str) -> Loop | None:
    """The loop with the most instructions of that kind; None where no loop has one."""
    best = max(loops, key=lambda loop: loop.matching(opcode), default=None)
    return best if best is not None and best.matching(opcode) else None
