"""Do the formulas of all_reduce hold beyond one machine? SimGrid's SMPI runs real all_reduce algorithms on simulated
hosts with the same latency and time a byte, and the formulas that `gpumicro scale` uses are set beside what it gives.

    apt install simgrid libsimgrid-dev && python bench/simgrid.py      # 64 to 1,024 hosts, ten minutes or more
    python bench/simgrid.py --hosts 64 --sizes 1048576                 # seconds

Flat algorithms first, then the hierarchy that `scale` takes a cluster for: reduce-scatter in nodes of 8, a ring
between nodes, all-gather in the nodes, with a port a GPU and with one port for the whole node.

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

from gpumicro.cluster.fabric import Fabric, Hop, all_reduce_s
from gpumicro.cluster.figures import Figure
from gpumicro.collectives.predictions import algorithm
from gpumicro.units import format_size

ALPHA_S, BYTES_PER_S = 5e-6, 1.25e9  # of a message between any two hosts
ALLOWED = 0.15
PER_NODE, INSIDE_ALPHA_S, INSIDE_BYTES_PER_S = 8, 2e-6, 20e9  # of a node; between nodes as above
HOSTS, SIZES = (64, 128, 256, 512, 1024), (1 << 12, 1 << 16, 1 << 20)  # 1 MiB takes 3 GiB of memory at 1,024 hosts
# formula -> what SMPI calls it
ALGORITHMS = {
    "ring": ("smpi/allreduce:lr",),
    "rabenseifner": ("smpi/allreduce:rab",),
    "recursive-doubling": ("smpi/allreduce:rdb",),
    "tree": ("smpi/allreduce:redbcast", "smpi/reduce:binomial", "smpi/bcast:binomial_tree"),
}
HIERARCHY = ("smpi/reduce_scatter:ompi_ring", "smpi/allreduce:lr", "smpi/allgather:ring")
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

/* argv: the ranks of a node (1: no hierarchy), then sizes in bytes */
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, g = atoi(argv[1]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm near, far;
    MPI_Comm_split(MPI_COMM_WORLD, rank / g, rank, &near);
    MPI_Comm_split(MPI_COMM_WORLD, rank % g, rank, &far);
    MPI_Op op;
    MPI_Op_create(nothing, 1, &op);
    for (int i = 2; i < argc; ++i) {
        long bytes = atol(argv[i]);
        int count = (int)(bytes / 4), part = count / g, parts[64];
        for (int k = 0; k < g; ++k) parts[k] = part;
        void *in = SMPI_SHARED_MALLOC(bytes), *out = SMPI_SHARED_MALLOC(bytes), *mid = SMPI_SHARED_MALLOC(bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        double mine[2] = {MPI_Wtime(), 0}, last[2];  // all hosts have one clock
        if (g > 1) {
            MPI_Reduce_scatter(in, mid, parts, MPI_FLOAT, op, near);
            MPI_Allreduce(mid, in, part, MPI_FLOAT, op, far);
            MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, near);
        } else {
            MPI_Allreduce(in, out, count, MPI_FLOAT, op, MPI_COMM_WORLD);
        }
        mine[1] = MPI_Wtime();
        MPI_Reduce(mine, last, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) printf("RESULT %ld %.12g\n", bytes, last[1] - last[0]);
        SMPI_SHARED_FREE(in);
        SMPI_SHARED_FREE(out);
        SMPI_SHARED_FREE(mid);
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


def nodes_platform(nodes: int, ports: int) -> str:
    """Nodes of PER_NODE hosts, each joined to all others by so many ports of BYTES_PER_S."""
    up_s = (ALPHA_S - INSIDE_ALPHA_S) / 2
    clusters = "".join(
        f'<cluster id="k{k}" prefix="n" suffix="" radical="{k * PER_NODE}-{(k + 1) * PER_NODE - 1}" speed="1Gf" '
        f'bw="{INSIDE_BYTES_PER_S:.0f}Bps" lat="{INSIDE_ALPHA_S / 2}s" sharing_policy="SPLITDUPLEX" router_id="r{k}" '
        f'loopback_bw="1EBps" loopback_lat="0s"/>\n<link id="up{k}" bandwidth="{ports * BYTES_PER_S:.0f}Bps" '
        f'latency="{up_s}s" sharing_policy="SPLITDUPLEX"/>\n'
        for k in range(nodes)
    )
    routes = "".join(
        f'<zoneRoute src="k{a}" dst="k{b}" gw_src="r{a}" gw_dst="r{b}" symmetrical="NO">'
        f'<link_ctn id="up{a}" direction="UP"/><link_ctn id="up{b}" direction="DOWN"/></zoneRoute>\n'
        for a in range(nodes)
        for b in range(nodes)
        if a != b
    )
    return (
        "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
        f'<platform version="4.1"><zone id="world" routing="Full">\n{clusters}{routes}</zone></platform>\n'
    )


def simulate(
    program: Path, hosts: int, options: tuple[str, ...], sizes: list[int], ports: int = 0
) -> dict[int, float]:  # fmt: skip
    """Seconds of each size, as SMPI has it; with `ports` of nodes of PER_NODE hosts, else of a flat network."""
    folder = program.parent
    (folder / "platform.xml").write_text(nodes_platform(hosts // PER_NODE, ports) if ports else platform(hosts))
    (folder / "hosts").write_text("".join(f"n{i}\n" for i in range(hosts)))
    command = [
        "smpirun", "-np", str(hosts), "-platform", str(folder / "platform.xml"), "-hostfile", str(folder / "hosts"),
        "--log=root.thres:warning", *(f"--cfg={option}" for option in (*PLAIN, *options)), str(program),
        str(PER_NODE if ports else 1), *map(str, sizes),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or len(lines) != len(sizes):
        raise SystemExit(f"smpirun failed ({done.returncode}): {done.stdout[-400:]}{done.stderr[-400:]}")
    return {int(size): float(seconds) for _, size, seconds in lines}


def hierarchy(hosts: int, size: int, ports: int) -> float:
    """Seconds by the formula of `gpumicro scale`."""

    def hop(alpha_s: float, bytes_per_s: float, ports: int | None = None) -> Hop:
        return Hop("", Figure(alpha_s, "s", "model", ""), Figure(1 / bytes_per_s, "s/B", "model", ""), ports)

    inside, between = hop(INSIDE_ALPHA_S, INSIDE_BYTES_PER_S), hop(ALPHA_S, BYTES_PER_S, ports)
    return all_reduce_s(Fabric("", inside, between, PER_NODE), hosts, size, names=("ring",))[0]


def formula(name: str, hosts: int, size: int) -> float:
    """Seconds by the formula of gpumicro.collectives.predictions."""
    terms = algorithm("all_reduce", name).terms(hosts)
    return terms.latency * ALPHA_S + terms.bandwidth * size / BYTES_PER_S


def show(name: str, hosts: int, size: int, seconds: float, expected: float) -> float:
    """Print a row; how far the formula is off, relative."""
    off = expected / seconds - 1
    shown = f"{seconds * 1e6:>10.1f} us{expected * 1e6:>10.1f} us{off:>+8.1%}"
    print(f"{name:<20}{hosts:>6}{format_size(size):>9}{shown}", flush=True)
    return abs(off)


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
                    worst = max(worst, show(name, hosts, size, seconds, formula(name, hosts, size)))
        for ports in (PER_NODE, 1):
            for hosts in wished.hosts:
                for size, seconds in simulate(program, hosts, HIERARCHY, list(wished.sizes), ports).items():
                    name = f"nodes, {ports} port{'s' * (ports > 1)}"
                    worst = max(worst, show(name, hosts, size, seconds, hierarchy(hosts, size, ports)))
    print(f"worst: {worst:.1%} (allowed {ALLOWED:.0%})")
    return 0 if worst <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
