"""gpumicro's CPU kernels beside the peers, interleaved in one run: `python bench/cpu_peers.py [--rounds 9] [--quick]`.

Peers: a STREAM-like and a BabelStream-like OpenMP triad (own source, built as they build: gcc -O3 -march=native
-fopenmp), likwid-bench (Debian: likwid), an FMA loop written with intrinsics, NumPy's OpenBLAS and Debian's
(libopenblas-dev). A peer that is missing is skipped with a sentence. Each line is a ratio, ours over theirs, of rates:
the median over rounds of the ratio within a round, its range, and whether the target of the project is met.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # they would cripple the peer
    if os.environ.pop(variable, None):
        os.execv(sys.executable, [sys.executable, *sys.argv])

import numpy as np  # noqa: E402  after the environment is clean: OpenBLAS reads it when it is loaded

from gpumicro import backends, topology  # noqa: E402

TRIAD = r"""
#include <stdlib.h>
#include <stdio.h>
#include <time.h>
#ifdef STATIC_ARRAYS  /* as STREAM: arrays of fixed size in the data segment */
static double a[N], b[N], c[N];
#else                 /* as BabelStream's OpenMP model: aligned heap arrays */
static double *a, *b, *c;
#endif
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
static void triad(double s) {
#pragma omp parallel for
    for (long i = 0; i < N; i++) a[i] = b[i] + s * c[i];
}
int main(int argc, char** argv) {
    int repeats = atoi(argv[1]);
#ifndef STATIC_ARRAYS
    a = aligned_alloc(2 << 20, N * sizeof(double));
    b = aligned_alloc(2 << 20, N * sizeof(double));
    c = aligned_alloc(2 << 20, N * sizeof(double));
#endif
#pragma omp parallel for
    for (long i = 0; i < N; i++) { a[i] = 0.1; b[i] = 0.2 + 1e-9 * i; c[i] = 0.3 - 1e-9 * i; }
    double best = 1e9;
    for (int r = 0; r < repeats; r++) {
        double start = now();
        triad(0.4);
        double took = now() - start;
        if (took < best) best = took;
    }
    double sum = 0;
    for (long i = 0; i < N; i += 4096) sum += a[i];
    printf("%.9g %g\n", 3.0 * N * sizeof(double) / best, sum);
    return argc < 1;
}
"""

FMA = r"""
#include <immintrin.h>
#include <stdint.h>
#define CHAINS 12
#define FOR(i) _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++)
double fma64(int64_t steps) {
    __m256d x[CHAINS], a = _mm256_set_pd(-0.9998, -0.9997, -0.9996, -0.9995), b = _mm256_set_pd(0.9, 0.8, 0.7, 0.6);
    FOR(i) x[i] = _mm256_set1_pd(0.05 * i);
    for (int64_t s = 0; s < steps; s++) { FOR(i) x[i] = _mm256_fmadd_pd(a, x[i], b); }
    FOR(i) x[0] = _mm256_add_pd(x[0], x[i]);
    return x[0][0] + x[0][1] + x[0][2] + x[0][3];
}
double fma32(int64_t steps) {
    __m256 x[CHAINS], a = _mm256_set1_ps(-0.9998f), b = _mm256_set1_ps(0.9f);
    FOR(i) x[i] = _mm256_set1_ps(0.05f * i);
    for (int64_t s = 0; s < steps; s++) { FOR(i) x[i] = _mm256_fmadd_ps(a, x[i], b); }
    FOR(i) x[0] = _mm256_add_ps(x[0], x[i]);
    return x[0][0] + x[0][1];
}
"""

Rate = Callable[[], float]  # one sample, in B/s or FLOP/s


@dataclass(frozen=True)
class Pair:
    """Ours against the best of some peers; `target` is the least ratio that the project asks for."""

    title: str
    ours: Rate
    peers: dict[str, Rate]
    target: float


def skip(sentence: str) -> None:
    print(f"skipped: {sentence}")


def build(folder: Path, name: str, source: str, *flags: str) -> Path | None:
    """Compile C as the peers are compiled; None (and a sentence) where that cannot be done."""
    compiler = shutil.which("gcc")
    if compiler is None:
        skip(f"{name} needs gcc")
        return None
    (folder / f"{name}.c").write_text(source)
    command = [
        compiler,
        "-O3",
        "-march=native",
        "-fopenmp",
        *flags,
        str(folder / f"{name}.c"),
        "-o",
        str(folder / name),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        skip(f"{name} does not compile here: {done.stderr.splitlines()[:1]}")
        return None
    return folder / name


def own(name: str, repeats: int, best_of: int, **arguments: object) -> Rate:
    """Rate of one of our kernels: the best of `best_of` spans of `repeats` runs, as the peers take their best."""
    prepared = backends.prepare(name, **arguments)  # type: ignore[arg-type]
    prepared.verify()
    amount = prepared.spec.bytes_moved(prepared.problem)
    if prepared.spec.unit == "FLOP/s":
        amount = prepared.spec.flops(prepared.problem)
    run = prepared.work.owner.run if not callable(prepared.work) else None

    def sample() -> float:
        best = float("inf")
        for _ in range(best_of):
            start = time.perf_counter()
            if run:
                run(repeats)
            else:
                prepared.work()
            best = min(best, time.perf_counter() - start)
        return amount * (repeats if run else 1) / best

    return sample


def program(path: Path, repeats: int, threads: int) -> Rate:
    """Rate that one of the programs above prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true"}

    def sample() -> float:
        done = subprocess.run([path, str(repeats)], env=environment, capture_output=True, text=True, check=True)
        return float(done.stdout.split()[0])

    return sample


def likwid(kernel: str, size: str, threads: int) -> Rate | None:
    """B/s of a likwid-bench kernel; its `stream` is STREAM's triad."""
    tool = shutil.which("likwid-bench")
    if tool is None:
        skip("likwid-bench is not installed (Debian: likwid)")
        return None

    def sample() -> float:
        command = [tool, "-t", kernel, "-w", f"S0:{size}:{threads}", "-s", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"MByte/s:\s*([\d.]+)", done.stdout)
        return float(found[1]) * 1e6 if found else float("nan")

    if np.isnan(sample()):
        skip(f"likwid-bench {kernel} does not run here")
        return None
    return sample


def triads(folder: Path, threads: int) -> Pair:
    """DRAM: the same array size for all, four times the last-level cache each."""
    device = topology.discover()
    size_bytes = topology.level_bytes(device, "dram", threads)
    n = size_bytes // 8
    peers: dict[str, Rate] = {}
    for name, flags in (("STREAM-like", ("-DSTATIC_ARRAYS", "-mcmodel=medium")), ("BabelStream-like", ())):
        built = build(folder, name, TRIAD, f"-DN={n}L", *flags)
        if built:
            peers[name] = program(built, 8, threads)
    wide = "avx512_fma" if "avx512f" in device.isa else "avx_fma"
    kernel = "stream_mem_avx512" if "avx512f" in device.isa else "stream_mem_avx_fma"
    for one in (kernel, f"stream_{wide}"):
        rate = likwid(one, f"{3 * size_bytes // 1000}kB", threads)
        if rate:
            peers[f"likwid {one}"] = rate
    ours = own("stream.triad", 1, 8, n=n, variant="nontemporal", threads=threads)
    return Pair(f"DRAM triad, {threads} threads, {size_bytes >> 20} MiB arrays", ours, peers, 1.0)


def l1_triad() -> Pair:
    device = topology.discover()
    size_bytes = topology.level_bytes(device, "l1", 1)
    kernel = "stream_avx512_fma" if "avx512f" in device.isa else "stream_avx_fma"
    rate = likwid(kernel, f"{size_bytes // 1000}kB", 1)
    ours = own("stream.triad", 50_000, 8, n=size_bytes // 24 // 64 * 64, variant="temporal", threads=1)
    return Pair(f"L1 triad, {size_bytes >> 10} KiB in all", ours, {f"likwid {kernel}": rate} if rate else {}, 1.0)


def fma(folder: Path, dtype: str) -> Pair:
    bits = dtype.removeprefix("float")
    peers: dict[str, Rate] = {}
    built = build(folder, f"libfma{bits}.so", FMA, "-shared", "-fPIC")
    if built:
        function = getattr(ctypes.CDLL(str(built)), f"fma{bits}")
        function.argtypes, function.restype = [ctypes.c_int64], ctypes.c_double
        steps, lanes = 1_000_000, 256 // int(bits)

        def sample() -> float:
            best = float("inf")
            for _ in range(8):
                start = time.perf_counter()
                function(steps)
                best = min(best, time.perf_counter() - start)
            return 2 * 12 * lanes * steps / best

        peers["intrinsics"] = sample
    ours = own("peak.fma", 2 if bits == "64" else 4, 8, dtype=dtype, threads=1)
    return Pair(f"FMA peak {dtype}, 1 thread, 256 bit", ours, peers, 0.98)


def debian_openblas(n: int, dtype: str, threads: int) -> Rate | None:
    try:
        library = ctypes.CDLL("libopenblas.so.0")
    except OSError:
        skip("Debian's OpenBLAS is not installed (libopenblas-dev)")
        return None
    library.openblas_set_num_threads(threads)
    scalar = ctypes.c_double if dtype == "float64" else ctypes.c_float
    call = library.cblas_dgemm if dtype == "float64" else library.cblas_sgemm
    rng = np.random.default_rng(1)
    a, b, c = (rng.random((n, n)).astype(dtype) for _ in range(3))
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]

    def sample() -> float:
        keep = (a, b, c)
        start = time.perf_counter()
        library.openblas_set_num_threads(threads)
        call(101, 111, 111, n, n, n, scalar(1), pointers[0], n, pointers[1], n, scalar(0), pointers[2], n)
        return 2 * len(keep[0]) ** 3 / (time.perf_counter() - start)

    return sample


def gemm(dtype: str, threads: int, n: int) -> Pair:
    peers = {"NumPy's OpenBLAS": own("gemm.vendor", 1, 1, dtype=dtype, m=n, n=n, k=n, threads=threads)}
    other = debian_openblas(n, dtype, threads)
    if other:
        peers["Debian's OpenBLAS"] = other
    ours = own("gemm.tiled", 1, 1, dtype=dtype, m=n, n=n, k=n, threads=threads)
    return Pair(f"GEMM {dtype} {n}, {threads} threads", ours, peers, 0.9)


def run(pair: Pair, rounds: int) -> bool:
    """Rounds of ours and each peer in turn; prints the ratios, returns whether the best peer's meets the target."""
    seen: dict[str, list[float]] = {name: [] for name in ("ours", *pair.peers)}
    for index in range(rounds):
        order = [("ours", pair.ours), *pair.peers.items()]
        for name, sample in order if index % 2 == 0 else reversed(order):
            seen[name].append(sample())
    print(f"\n{pair.title}: ours {statistics.median(seen['ours']) / 1e9:.1f} G/s (median of {rounds} rounds)")
    met = True
    for name in pair.peers:
        ratios = sorted(o / p for o, p in zip(seen["ours"], seen[name], strict=True))
        middle, best = statistics.median(ratios), max(seen["ours"]) / max(seen[name])
        good = middle >= pair.target
        met = met and good
        print(
            f"  ours / {name:28s} median {middle:.3f}  [{ratios[0]:.3f}, {ratios[-1]:.3f}]  best/best {best:.3f}  "
            f"target {pair.target:.2f}: {'met' if good else 'MISSED'}"
        )
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="one thread only, GEMM at 1,024")
    parser.add_argument("--only", choices=("triad", "l1", "fma", "gemm"), help="one family")
    parser.add_argument("--threads", type=int, help="of the DRAM triad and the GEMM; both one and all without it")
    options = parser.parse_args()
    every = len(topology.current_affinity())
    threads = (options.threads,) if options.threads else (1,) if options.quick or every == 1 else (1, every)
    met = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        makers: list[tuple[str, Callable[[], Pair]]] = [("l1", l1_triad)]
        for dtype in ("float64", "float32"):
            makers.append(("fma", lambda dtype=dtype: fma(folder, dtype)))
        for count in threads:
            makers.append(("triad", lambda count=count: triads(folder, count)))
            for dtype in ("float64", "float32"):
                size = 1024 if options.quick else 2048
                makers.append(("gemm", lambda dtype=dtype, count=count, size=size: gemm(dtype, count, size)))
        for family, maker in makers:
            if options.only in (None, family):
                met &= run(maker(), options.rounds)
    print(f"\n{'all targets met' if met else 'some target MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
