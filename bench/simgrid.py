"""Do the formulas of all_reduce hold beyond one machine? SimGrid's SMPI runs real all_reduce algorithms on simulated
hosts with the same latency and time a byte, and the formulas that `gpumicro scale` uses are set beside what it gives.

    apt install simgrid libsimgrid-dev && python bench/simgrid.py                 # 64 to 1,024 hosts
    python bench/simgrid.py --hosts 64 --sizes 1048576                            # a minute less

The platform is Hockney's model and nothing else: one full-duplex link a host, no cost of the switch, SMPI's own
corrections of bandwidth and latency off, acknowledgements free, no cost of summing (the operator does nothing), nor of
a rank's message to itself, and a send ends when its message has arrived. By default SMPI detaches sends below 64 KiB:
the root of a tree then sends to all its children at once, they share its link, and 4 KiB take up to twice as long as
in a model in which one message follows another.

Timed from the last rank's start to the last rank's end: SMPI's barrier lets ranks go up to a latency apart, which made
the shortest all_reduce look 14% longer. A size has an element for each host or more: below that SMPI leaves the ring.
Simulated: no figure of a real network.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpumicro.collectives.predictions import algorithm
from gpumicro.units import format_size

ALPHA_S, BYTES_PER_S = 5e-6, 1.25e9  # of a message between any two hosts
ALLOWED = 0.15
HOSTS, SIZES = (64, 128, 256, 512, 1024), (1 << 12, 1 << 16, 1 << 20)  # 1 MiB takes 3 GiB of memory at 1,024 hosts
# formula -> what SMPI calls it
ALGORITHMS = {
    "ring": ("smpi/allreduce:lr",),
    "rabenseifner": ("smpi/allreduce:rab",),
    "recursive-doubling": ("smpi/allreduce:rdb",),
    "tree": ("smpi/allreduce:redbcast", "smpi/reduce:binomial", "smpi/bcast:binomial_tree"),
}
PLAIN = (
    "network/crosstraffic:0", "network/TCP-gamma:0", "smpi/bw-factor:0:1", "smpi/lat-factor:0:1",
    "smpi/simulate-computation:no", "smpi/host-speed:1Gf", "smpi/send-is-detached-thresh:0",
)  # fmt: skip

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void nothing(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)in, (void)inout, (void)count, (void)type;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Op op;
    MPI_Op_create(nothing, 1, &op);
    for (int i = 1; i < argc; ++i) {
        long bytes = atol(argv[i]);
        void *in = SMPI_SHARED_MALLOC(bytes), *out = SMPI_SHARED_MALLOC(bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        double mine[2] = {MPI_Wtime(), 0}, last[2];  // all hosts have one clock
        MPI_Allreduce(in, out, (int)(bytes / 4), MPI_FLOAT, op, MPI_COMM_WORLD);
        mine[1] = MPI_Wtime();
        MPI_Reduce(mine, last, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) printf("RESULT %ld %.12g\n", bytes, last[1] - last[0]);
        SMPI_SHARED_FREE(in);
        SMPI_SHARED_FREE(out);
    }
    MPI_Op_free(&op);
    MPI_Finalize();
    return 0;
}
"""


def platform(hosts: int) -> str:
    """A cluster whose every route is two links of half the latency each."""
    return (
        "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
        f'<platform version="4.1"><cluster id="c" prefix="n" suffix="" radical="0-{hosts - 1}" speed="1Gf" '
        f'bw="{BYTES_PER_S:.0f}Bps" lat="{ALPHA_S / 2}s" sharing_policy="SPLITDUPLEX" loopback_bw="1EBps" '
        'loopback_lat="0s"/></platform>\n'
    )


def simulate(program: Path, hosts: int, options: tuple[str, ...], sizes: list[int]) -> dict[int, float]:
    """Seconds of each size, as SMPI has it."""
    folder = program.parent
    (folder / "platform.xml").write_text(platform(hosts))
    (folder / "hosts").write_text("".join(f"n{i}\n" for i in range(hosts)))
    command = [
        "smpirun", "-np", str(hosts), "-platform", str(folder / "platform.xml"), "-hostfile", str(folder / "hosts"),
        "--log=root.thres:warning", *(f"--cfg={option}" for option in (*PLAIN, *options)), str(program),
        *map(str, sizes),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or len(lines) != len(sizes):
        raise SystemExit(f"smpirun failed ({done.returncode}): {done.stdout[-400:]}{done.stderr[-400:]}")
    return {int(size): float(seconds) for _, size, seconds in lines}


def formula(name: str, hosts: int, size: int) -> float:
    """Seconds by the formula of gpumicro.collectives.predictions."""
    terms = algorithm("all_reduce", name).terms(hosts)
    return terms.latency * ALPHA_S + terms.bandwidth * size / BYTES_PER_S


def main() -> int:
    """Print a row for each algorithm, count and size; 1 where a formula is off by more than 15%."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    wished = parser.parse_args()
    if not shutil.which("smpicc"):
        print("SimGrid is not here: apt install simgrid libsimgrid-dev")
        return 3
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "all_reduce")
        Path(folder, "all_reduce.c").write_text(PROGRAM)
        subprocess.run(["smpicc", "-O2", f"{program}.c", "-o", str(program)], check=True, cwd=folder)
        print(f"alpha {ALPHA_S * 1e6:g} us, 1/beta {BYTES_PER_S / 1e9:g} GB/s, simulated by SMPI")
        print(f"{'formula':<20}{'hosts':>6}{'size':>9}{'SMPI':>13}{'formula':>13}{'off':>8}")
        for name in wished.algorithms:
            for hosts in wished.hosts:
                for size, seconds in simulate(program, hosts, ALGORITHMS[name], list(wished.sizes)).items():
                    expected = formula(name, hosts, size)
                    off = expected / seconds - 1
                    worst = max(worst, abs(off))
                    shown = f"{seconds * 1e6:>10.1f} us{expected * 1e6:>10.1f} us{off:>+8.1%}"
                    print(f"{name:<20}{hosts:>6}{format_size(size):>9}{shown}", flush=True)
    print(f"worst: {worst:.1%} (allowed {ALLOWED:.0%})")
    return 0 if worst <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
