"""Does gpumicro time a C function as google/benchmark and nanobench do, and what does an empty region cost?

    python bench/timers.py [--rounds 7]

One shared library with two dependent integer chains (about 0.6 us and 0.6 ms) is built with g++; gpumicro,
google/benchmark and nanobench time the very same functions in turns, pinned to one CPU, and the ratios are printed pair
by pair. A peer that is not installed is skipped with a sentence: Debian has libbenchmark-dev; nanobench is one header
(nanobench.h), looked for in the compiler's path and in $NANOBENCH_INCLUDE.

Two comparisons: each tool as it comes, and all with spans of the same length. They differ where something interrupts
the CPU at a fixed rate: a span of 1 ms holds the timer interrupt of every millisecond, a span of 10 us mostly does not.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpumicro import stats, time_kernel
from gpumicro.timers import default_timer

CHAINS = r"""
#include <cstdint>
static volatile std::uint64_t sink = 1;
static void chain(std::int64_t n) {
    std::uint64_t x = sink;
#pragma GCC unroll 20
    for (std::int64_t i = 0; i < n; ++i) {
        x = x * 0x9E3779B97F4A7C15u + 1;
        asm volatile("" : "+r"(x));  // keeps each step; unrolled, so that the loop's end is always predicted
    }
    sink = x;
}
extern "C" void short_chain() { chain(500); }
extern "C" void long_chain() { chain(500000); }
"""

GOOGLE = r"""
#include <benchmark/benchmark.h>
extern "C" void short_chain();
extern "C" void long_chain();
static void short_chain_bench(benchmark::State& state) { for (auto _ : state) short_chain(); }
static void long_chain_bench(benchmark::State& state) { for (auto _ : state) long_chain(); }
BENCHMARK(short_chain_bench)->Name("short_chain as it comes")->MinTime(0.004)->Repetitions(25);
BENCHMARK(long_chain_bench)->Name("long_chain as it comes")->MinTime(0.004)->Repetitions(25);
BENCHMARK(short_chain_bench)->Name("short_chain equal spans")->Iterations(SHORT)->Repetitions(200);
BENCHMARK(long_chain_bench)->Name("long_chain equal spans")->Iterations(LONG)->Repetitions(200);
BENCHMARK_MAIN();
"""

NANOBENCH = r"""
#define ANKERL_NANOBENCH_IMPLEMENT
#include <nanobench.h>
#include <cstdio>
extern "C" void short_chain();
extern "C" void long_chain();
int main() {
    using namespace ankerl::nanobench;
    Bench comes, equal_short, equal_long;
    comes.output(nullptr).run("short_chain as it comes", short_chain).run("long_chain as it comes", long_chain);
    equal_short.output(nullptr).epochs(200).epochIterations(SHORT).run("short_chain equal spans", short_chain);
    equal_long.output(nullptr).epochs(200).epochIterations(LONG).run("long_chain equal spans", long_chain);
    for (const Bench* bench : {&comes, &equal_short, &equal_long})
        for (const auto& r : bench->results())
            std::printf("%s|%.17g\n", r.config().mBenchmarkName.c_str(), r.median(Result::Measure::elapsed));
}
"""

BATCH = {"short_chain": 128, "long_chain": 1}  # runs in a span where all have equal ones: about 0.1 and 0.6 ms
Peer = Callable[[], dict[str, float]]  # chain and way -> seconds of one run


def build(folder: Path) -> tuple[Path, dict[str, Peer]]:
    """The library, and the peers that could be built on it."""
    compiler = ["g++", "-O2", "-std=c++17", f"-DSHORT={BATCH['short_chain']}", f"-DLONG={BATCH['long_chain']}"]
    library = folder / "libchains.so"
    source = folder / "chains.cpp"
    source.write_text(CHAINS)
    subprocess.run([*compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    include = os.environ.get("NANOBENCH_INCLUDE")
    found: dict[str, Peer] = {}
    for name, code, options, run in (
        ("google/benchmark", GOOGLE, ["-lbenchmark", "-lpthread"], run_google),
        ("nanobench", NANOBENCH, ["-I", include] if include else [], run_nanobench),
    ):
        program = folder / name.partition("/")[0]
        source = program.with_suffix(".cpp")
        source.write_text(code)
        link = [str(source), str(library), f"-Wl,-rpath,{folder}", *options, "-o", str(program)]
        made = subprocess.run([*compiler, *link], capture_output=True, text=True, check=False)
        if made.returncode:
            print(f"{name} is not installed and is skipped ({made.stderr.strip().splitlines()[0][:100]})")
        else:
            found[name] = lambda run=run, program=program: run(program)  # type: ignore[misc]
    return library, found


def run_google(program: Path) -> dict[str, float]:
    """Medians of its real time over the repetitions."""
    text = subprocess.run([str(program), "--benchmark_format=json"], capture_output=True, text=True, check=True).stdout
    rows = [row for row in json.loads(text)["benchmarks"] if row.get("aggregate_name") == "median"]
    # Its names carry their options: "short_chain equal spans/iterations:128/repeats:200".
    return {row["run_name"].partition("/")[0]: 1e-9 * row["real_time"] for row in rows}


def run_nanobench(program: Path) -> dict[str, float]:
    """Its medians over the epochs."""
    text = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return {name: float(seconds) for name, seconds in (line.split("|") for line in text.splitlines())}


def empty_region() -> None:
    """What start, an empty call and stop take, gross and net of the baseline that every measurement subtracts."""
    timer = default_timer()
    baseline = stats.clipped_mean_location(timer.overhead(2000), timer.tick().seconds).estimate
    gross = np.quantile(timer.overhead(100_000), [0.5, 0.99])
    net = gross - baseline
    tick = timer.tick()
    print(f"empty region, ns ({timer.name}, tick {1e9 * tick.seconds:.1f}, lsb {1e9 * tick.lsb_s:.2f}):", end=" ")
    print("gross p50 {:.1f}, p99 {:.1f};".format(*1e9 * gross), "net p50 {:.1f}, p99 {:.1f}".format(*1e9 * net))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    load = os.getloadavg()[0]
    print(f"pinned to CPU {cpu}, load average {load:.1f}, {rounds} rounds, Python {sys.version.split()[0]}")
    empty_region()
    with tempfile.TemporaryDirectory() as folder:
        library, peers = build(Path(folder))
        compare_with(peers, ctypes.CDLL(str(library)), rounds)


def compare_with(peers: dict[str, Peer], chains: ctypes.CDLL, rounds: int) -> None:
    """All in turns; then the ratios of each round and their median."""
    ways = [(chain, way) for chain in BATCH for way in ("as it comes", "equal spans")]
    ours: dict[str, list[float]] = {f"{chain} {way}": [] for chain, way in ways}
    theirs: dict[tuple[str, str], list[float]] = {(peer, name): [] for peer in peers for name in ours}
    for _ in range(rounds):
        for chain, way in ways:
            batch = BATCH[chain] if way == "equal spans" else None
            m = time_kernel(getattr(chains, chain), target=0.005, max_time_s=0.3, batch=batch)
            ours[f"{chain} {way}"].append(m.estimate_s)
        for peer, run in peers.items():
            for name, seconds in run().items():
                theirs[peer, name].append(seconds)
    for name, seconds in ours.items():
        spread = (max(seconds) - min(seconds)) / statistics.median(seconds)
        print(f"{name}: gpumicro {1e9 * statistics.median(seconds):.2f} ns, spread over the rounds {spread:.2%}")
        for peer in peers:
            pairs = [mine / other for mine, other in zip(seconds, theirs[peer, name], strict=True)]
            shown = " ".join(f"{pair:.4f}" for pair in pairs)
            print(f"  gpumicro / {peer}: median {statistics.median(pairs):.4f}, pair by pair {shown}")


if __name__ == "__main__":
    main()
