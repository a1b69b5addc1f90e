"""What each kernel's hot loop is claimed to consist of: the one place to add a line when a kernel is added.

A kernel without a line here is only held to what all are: no local memory, no spills. The share of an opcode leaves
NOPs out: the assembler spaces matrix products with them where nothing else is there to issue, and they do no work. They
are counted beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .listing import Code, Loop, hottest

ACCESS = r"(LDG|STG|LD|ST)(\..*)?"  # of global memory
PEAK_SHARE = 0.95
SAME_BANK = 0.05  # where the opcode can be issued every cycle


def number(arch: str) -> int:
    """90 for "sm_90a"."""
    return int(re.sub(r"\D", "", arch))


@dataclass(frozen=True)
class Claim:
    """`opcode` makes up at least `share` of the working instructions of the loop that has most of it.

    `among`: of those that match it alone (wide ones among all accesses). `kernel` and the opcodes are regular
    expressions for whole names. `on` says which architectures have the kernel; elsewhere it must be the trap alone.
    """

    kernel: str
    opcode: str
    share: float = PEAK_SHARE
    among: str = ""
    least: int = 1  # how many there must be in the loop
    on: Callable[[str], bool] = lambda _: True
    same_bank: float = 1.0  # share of the opcode, at most, that reads three registers of one bank

    def loop(self, code: Code) -> Loop | None:
        """The hot loop, None where no loop has the opcode."""
        return hottest(code.loops, self.opcode)

    def whole(self, loop: Loop) -> int:
        """What the share is a share of: instructions of the loop."""
        return loop.matching(self.among) if self.among else loop.working


def _from(first: int) -> Callable[[str], bool]:
    return lambda arch: number(arch) >= first


def _only(*archs: str) -> Callable[[str], bool]:
    return lambda arch: arch in archs


_STREAM = r"gm::(read|write|copy|scale|add|triad|dot)<"
_TILE_FLOATS = (("half", "F32"), ("bfloat16", "F32.BF16"), ("tf32", "F32.TF32"))

CLAIMS: tuple[Claim, ...] = (
    Claim(r"gm::fma_peak<float>", r"FFMA", same_bank=SAME_BANK),
    Claim(r"gm::fma_peak<double>", r"DFMA"),
    Claim(r"gm::fma_peak<gm::pair<gm::half>>", r"HFMA2(\.MMA)?", same_bank=SAME_BANK),
    Claim(r"gm::fma_peak<gm::pair<gm::bfloat16>>", r"HFMA2(\.MMA)?\.BF16(_V2)?", on=_from(80), same_bank=SAME_BANK),
    Claim(r"gm::fma_peak<int>", r"IMAD", same_bank=SAME_BANK),
    Claim(r"gm::dot_peak<signed char>", r"IDP\.4A\.S8\.S8", same_bank=SAME_BANK),
    Claim(r"gm::mma_peak<gm::half, float>", r"HMMA\.16816\.F32", on=_from(80)),
    Claim(r"gm::mma_peak<gm::half, gm::half>", r"HMMA\.16816\.F16", on=_from(80)),
    Claim(r"gm::mma_peak<gm::bfloat16, float>", r"HMMA\.16816\.F32\.BF16", on=_from(80)),
    Claim(r"gm::mma_peak<gm::tf32, float>", r"HMMA\.1688\.F32\.TF32", on=_from(80)),
    Claim(r"gm::mma_peak<signed char, int>", r"IMMA\.16832\.S8\.S8", on=_from(80)),
    Claim(r"gm::mma_peak<gm::e4m3, float>", r"QMMA\.16832\.F32\.E4M3\.E4M3", on=_only("sm_89", "sm_120")),
    Claim(r"gm::mma_peak<double, double>", r"DMMA\..*", on=_only("sm_80", "sm_90a", "sm_100a")),
    *(
        Claim(rf"gm::wgmma_peak<gm::{name}, float>", rf"HGMMA\.64x256x\d+\.{kind.replace('.', chr(92) + '.')}",
              on=_only("sm_90a"))
        for name, kind in _TILE_FLOATS
    ),
    Claim(r"gm::wgmma_peak<gm::e4m3, float>", r"QGMMA\.64x256x32\.F32\.E4M3\.E4M3", on=_only("sm_90a")),
    Claim(r"gm::wgmma_peak<signed char, int>", r"IGMMA\.64x256x32\.S8\.S8", on=_only("sm_90a")),
    *(Claim(rf"gm::tcgen05_peak<gm::{name}, float>", r"UTCHMMA", on=_only("sm_100a")) for name, _ in _TILE_FLOATS),
    Claim(r"gm::tcgen05_peak<gm::e4m3, float>", r"UTCQMMA", on=_only("sm_100a")),
    Claim(r"gm::tcgen05_peak<signed char, int>", r"UTCIMMA", on=_only("sm_100a")),
    # Streams: in the loop over whole batches every access is wide, and a batch has at least two.
    Claim(_STREAM + r"(float, 8|double, 4), .*>", r"(LDG|STG)\..*256(\..*)?", 1.0, ACCESS, 2, on=_from(100)),
    Claim(_STREAM + r".*>", r"(LDG|STG)\..*128(\..*)?", 1.0, ACCESS, 2),
    # GEMM: what computes is in the main loop, and in large tiles little else is.
    Claim(r"gm::gemm_tiled<float, 128, 128, .*>", r"FFMA", 0.8),
    Claim(r"gm::gemm_tiled<float, .*>", r"FFMA", 0.5),
    Claim(r"gm::gemm_tiled<double, .*>", r"DFMA", 0.4),
    Claim(r"gm::gemm_mma<gm::half, .*>", r"HMMA\.16816\.F32", 0.0, least=16, on=_from(80)),
    Claim(r"gm::gemm_mma<gm::bfloat16, .*>", r"HMMA\.16816\.F32\.BF16", 0.0, least=16, on=_from(80)),
    Claim(r"gm::gemm_mma<gm::tf32, .*>", r"HMMA\.1688\.F32\.TF32", 0.0, least=16, on=_from(80)),
    Claim(r"gm::gemm_wgmma<gm::half, .*>", r"HGMMA\..*F32", 0.0, least=4, on=_only("sm_90a")),
    Claim(r"gm::gemm_wgmma<gm::bfloat16, .*>", r"HGMMA\..*F32\.BF16", 0.0, least=4, on=_only("sm_90a")),
)  # fmt: skip


def claim_for(kernel: str) -> Claim | None:
    """The claim of a kernel, None where it makes none."""
    return next((claim for claim in CLAIMS if re.fullmatch(claim.kernel, kernel)), None)
