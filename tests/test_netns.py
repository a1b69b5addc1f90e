"""Several hosts on one machine: network namespaces with a link of known delay and rate, MPI over TCP between them.

With netem (100 us, 1 Gbit/s) where the kernel has it; else with a relay of frames, whose delay is milliseconds.
Run by root where namespaces are allowed, MPICH and mpi4py are there; skipped with the reason elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpumicro import result
from gpumicro.collectives import launch
from gpumicro.collectives.fit import fit
from gpumicro.collectives.predictions import algorithm
from gpumicro.collectives.sweeps import sweeps_of
from gpumicro.errors import BackendUnavailable
from gpumicro.report.console import render_text

FOLDER = Path(__file__).parent / "netns"
LIMIT_S = 90
MOST = 4  # hosts
TRIES = 5
NEAR = 0.10  # of what was set
# no shared memory, eager messages only, one algorithm: the formula is then known
MPICH = {
    "UCX_TLS": "tcp,self", "UCX_RNDV_THRESH": "inf", "MPIR_CVAR_CH4_NETMOD": "ucx", "MPIR_CVAR_NOLOCAL": "1",
    "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "recursive_doubling",
}  # fmt: skip


@dataclass(frozen=True)
class Link:
    """What was set, and the namespaces that it joins."""

    prefix: str
    delay_s: float
    bytes_per_s: float
    begin: str  # sizes that tell latency from bandwidth on such a link
    end: str


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20, check=False)


def _why_not() -> str:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "no ip (iproute2)"
    pytest.importorskip("mpi4py", reason="needs mpi4py and MPICH: pip install mpi4py mpich")
    try:
        mpirun = launch.find_mpirun()
    except BackendUnavailable as missing:
        return str(missing)
    if launch.is_open_mpi(mpirun):
        return "the launcher is Open MPI's; ranks find their namespace by MPICH's PMI_RANK"
    name = f"gmprobe{os.getpid()}"
    tried = _ip("netns", "add", name)
    _ip("netns", "del", name)
    return f"namespaces are not allowed: {tried.stderr.strip()}" if tried.returncode else ""


def _netem(names: list[str], prefix: str) -> Link | None:
    """A bridge with a veth to each namespace and netem on each host's egress; None where the kernel has no netem."""
    bridge = f"{prefix}br"
    if _ip("link", "add", bridge, "type", "bridge").returncode:
        return None
    for i, name in enumerate(names, 1):
        _ip("link", "add", f"{prefix}v{i}", "type", "veth", "peer", "name", "link0", "netns", name)
        _ip("link", "set", f"{prefix}v{i}", "master", bridge, "up")
        for words in (f"addr add 10.77.0.{i}/24 dev link0", "link set link0 up", "link set lo up"):
            _ip("-n", name, *words.split())
        shaped = subprocess.run(
            ["tc", "-n", name, "qdisc", "add", "dev", "link0", "root", "netem", "delay", "100us", "rate", "1gbit",
             "limit", "100000"],
            capture_output=True, timeout=20, check=False,
        )  # fmt: skip
        if shaped.returncode:
            _ip("link", "del", bridge)
            return None
    _ip("link", "set", bridge, "up")
    return Link(prefix, 100e-6, 125e6, "1K", "1M")


@pytest.fixture(scope="module")
def link() -> Iterator[Link]:
    if why := _why_not():
        pytest.skip(why)
    prefix = f"gm{os.getpid() % 100000}"
    names = [f"{prefix}{i}" for i in range(MOST)]
    relay: subprocess.Popen[bytes] | None = None
    try:
        for name in names:
            assert _ip("netns", "add", name).returncode == 0
        made = _netem(names, prefix) if shutil.which("tc") else None
        if made is None:
            made = Link(prefix, 20e-3, 10e6, "32K", "512K")
            if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
                pytest.skip("neither netem nor /dev/net/tun")
            for name in names:  # a veth that netem refused
                _ip("-n", name, "link", "del", "link0")
            relay = _relay(names, made)
        yield made
    finally:
        if relay is not None:
            relay.kill()
            relay.communicate()
        for name in names:
            _ip("netns", "del", name)
        _ip("link", "del", f"{prefix}br")


def _relay(names: list[str], made: Link) -> subprocess.Popen[bytes]:
    relay = subprocess.Popen(
        [sys.executable, str(FOLDER / "link.py"), *names, str(made.delay_s), str(made.bytes_per_s)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert relay.stdout is not None
    if relay.stdout.readline() != b"ready\n":
        _, said = relay.communicate(timeout=20)
        pytest.skip(f"no TAP device in a namespace: {said.decode()[-200:]}")
    return relay


def collectives(link: Link, hosts: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`gpumicro collectives`, a rank in each of so many namespaces."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "OMPI_", "RANK"))}
    mpirun = [launch.find_mpirun(), "-n", str(hosts), str(FOLDER / "rank.sh"), sys.executable, "-m", "gpumicro"]
    return subprocess.run(
        [*mpirun, "collectives", *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env={**clean, **MPICH, "NETNS_PREFIX": link.prefix},
    )  # fmt: skip


@pytest.mark.parametrize(("hosts", "name", "formula"), [
    (2, "sendrecv", "ring"), (2, "all_reduce", "recursive-doubling"), (4, "all_reduce", "recursive-doubling"),
])  # fmt: skip
def test_alpha_and_beta_come_back_as_they_were_set(
    link: Link, tmp_path: Path, hosts: int, name: str, formula: str
) -> None:
    """Up to five tries: other work on the machine only ever adds to a time."""
    for _ in range(TRIES):
        found = measured(link, tmp_path / "r.json", hosts, name, formula)
        if found == pytest.approx((link.delay_s, link.bytes_per_s), rel=NEAR):
            break
    assert found == pytest.approx((link.delay_s, link.bytes_per_s), rel=NEAR)


def measured(link: Link, file: Path, hosts: int, name: str, formula: str) -> tuple[float, float]:
    """(delay in seconds, rate in B/s) of the link, out of the fit and the algorithm's formula."""
    done = collectives(
        link, hosts, name, "--place", "out", "-b", link.begin, "-e", link.end, "--iters", "3", "--max-time", "0.15",
        "--expect-ranks", str(hosts), "-o", str(file),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    doc = result.read(file)
    (sweep,) = sweeps_of(doc)
    in_a_row = sweep.in_a_row()
    assert in_a_row is not None, "ranks leave a barrier a delay apart: after one, alpha is too long"
    (regime,) = fit(in_a_row).regimes
    terms = algorithm(name, formula).terms(hosts)
    assert "runs in a row" in render_text(doc).replace("\n", " ").lower()
    return regime.alpha_s.value / terms.latency, terms.bandwidth / regime.beta_s_per_byte.value


def test_pairs_meet_over_the_network(link: Link, tmp_path: Path) -> None:
    file = tmp_path / "pairs.json"
    done = collectives(link, 4, "--pairs", "-e", link.begin, "--iters", "2", "--max-time", "0.1", "-o", str(file))
    assert done.returncode in (0, 1), done.stderr
    assert "Stragglers" in render_text(result.read(file))
