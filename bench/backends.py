"""Does the Numba backend find the bandwidth that the native kernels find, and if not, why not?

    python bench/backends.py [--threads 1] [--dtype float64] [--seconds 4] [--only triad]

STREAM's kernels at DRAM and in L2, native and Numba's in turns within one process, on the same memory. The fair pair
has the same stores: Numba has no non-temporal ones, against which it is set too where the native kernels have them.
Each line: what both reached (GB/s), Numba's bandwidth over the native one's with its 95% interval, the same of the
fastest spans (what others on the machine disturbed least), and the machine's load. Where the whole interval lies beyond
3%, the loops are described from the machine code; exit code 1 where that is a fair pair's.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator

import gpumicro as gm
from gpumicro import topology
from gpumicro.backends.numba_cpu import NumbaCpuPrepared
from gpumicro.kernels import find

KERNELS = ("read", "write", "copy", "scale", "add", "triad", "dot")
GAP = 0.03
DRAM_BYTES = 128 << 20  # an array, at least


def sizes(dtype_bytes: int, threads: int) -> dict[str, int]:
    """Elements of an array: four times the last cache for DRAM; three arrays in half of the threads' L2."""
    device = topology.discover()
    last = device.caches[-1] if device.caches else None
    dram = max(DRAM_BYTES, 4 * last.size_bytes * last.count if last else 0)
    found = {"dram": dram // dtype_bytes}
    l2 = device.cache("l2")
    if l2 is not None:
        found["l2"] = threads * l2.size_bytes // 2 // 3 // dtype_bytes // 64 * 64
    return found


def fullest_loop(assembly: str) -> list[str]:
    """The loop with the most vector instructions: lines from a label to the branch back to it."""
    lines = assembly.splitlines()
    labels = {line[:-1]: i for i, line in enumerate(lines) if re.match(r"\.L\w+:", line)}
    best: list[str] = []
    for i, line in enumerate(lines):
        branch = re.match(r"\s+j\w+\s+(\.L\w+)", line)
        start = labels.get(branch[1], i) if branch else i
        body = lines[start + 1 : i + 1]
        inner = any(re.match(r"\.L\w+:", one) for one in body)
        if start < i and not inner and vectors(body) > vectors(best):
            best = body
    return best


def vectors(lines: list[str]) -> int:
    return sum(bool(re.search(r"%[yz]mm\d|(pd|ps)\s", line)) for line in lines)


def described(kernel: NumbaCpuPrepared) -> str:
    """Numba's loop in words: stores, vector width, unrolling."""
    loop = fullest_loop(kernel._compiled.assembly())
    text = "\n".join(loop)
    bits = 512 if "%zmm" in text else 256 if "%ymm" in text else 128
    stores = re.findall(r"v?mov\w+\s+%[xyz]mm\d+, ", text)
    sums = re.findall(r"\b(v?add[ps][ds]|vfmadd\w+)\b", text)
    streaming = "non-temporal" if "movnt" in text else "temporal"
    work = f"{len(stores)} {streaming} stores" if stores else f"{len(sums)} sums side by side"
    return f"{bits} bit, {work} a trip of {len(loop)} instructions"


def run(level: str, name: str, variant: str, n: int, options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """One pair: the line, and whether it is as near as it should be."""
    spec = find(f"stream.{name}")
    how = {"n": n, "dtype": options.dtype, "threads": options.threads, "device": "cpu"}
    own = "temporal" if variant else ""
    with (
        gm.prepare(spec.name, backend="cpu", variant=variant, **how) as native,
        gm.prepare(spec.name, backend="numba", variant=own, **how) as numba,
    ):
        native.verify()
        numba.verify()
        found = gm.compare(native, numba, margin=0.01, max_time_s=options.seconds, max_warmup_s=options.seconds / 4)
        low, high = 1 / found.ci95[1], 1 / found.ci95[0]
        moved = spec.bytes_moved(native.problem) / 1e9
        rates = f"{moved / found.a.estimate_s:7.1f} {moved / found.b.estimate_s:7.1f}"
        title = f"{level:5s} {name:6s} {variant or '-':12s}"
        flags = f"  {', '.join(found.flags)}" if found.flags else ""
        near = low <= 1 + GAP and high >= 1 - GAP
        told = f"{1 / found.ratio:.3f} [{low:.3f}, {high:.3f}]  fastest {found.a.min_s / found.b.min_s:.3f}"
        line = f"{title} {rates}   {told}  load {os.getloadavg()[0]:4.1f}{flags}"
        yield line, near
        if not near:
            assert isinstance(numba, NumbaCpuPrepared)
            native_loop = f"{native.facts['isa']}, {native.facts['recipe']}, pinned"
            yield f"      Numba: {described(numba)}, not pinned; native: {native_loop}", True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = len(topology.current_affinity())
    parser.add_argument("--threads", type=int, default=every)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each pair")
    parser.add_argument("--only", choices=KERNELS)
    options = parser.parse_args()
    print(f"{options.threads} threads, {options.dtype}; GB/s native and Numba, Numba over native")
    far = []
    for level, n in sizes(8 if options.dtype == "float64" else 4, options.threads).items():
        for name in (options.only,) if options.only else KERNELS:
            variants = find(f"stream.{name}").variants
            for variant in variants if level == "dram" else variants[:1]:
                for line, near in run(level, name, variant, n, options):
                    print(line, flush=True)
                    if not near and variant != "nontemporal":
                        far.append(f"{level} {name}")
    print(f"\nfair pairs that differ by more than {GAP:.0%}: {', '.join(far) or 'none'}")
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
