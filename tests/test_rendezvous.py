"""How ranks without MPI find each other: who started them, the meeting on a socket, the channel after it. Threads."""

from __future__ import annotations

import ctypes
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpumicro import libraries
from gpumicro.collectives import endings, greeting, meeting, placement, rendezvous, wire
from gpumicro.collectives.alone import Alone
from gpumicro.collectives.greeting import Peer
from gpumicro.collectives.socket_ranks import SocketRanks
from gpumicro.collectives.started import TOKEN, Started, first_node, launched, started
from gpumicro.errors import BackendUnavailable, MeetingError, UsageError

PATIENCE_S = 20.0  # so that a failing test ends
BY_HAND = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}


# -- who started me --------------------------------------------------------------------------------------------------


def test_nobody() -> None:
    assert started({"RANK": "0", "SLURM_PROCID": "0", "MASTER_ADDR": "a"}).kind == "alone"
    assert started({"RANK": "0", "WORLD_SIZE": "1", "SLURM_NTASKS": "8"}).kind == "alone"  # a batch script, not a step


def test_torchrun_and_its_variables_by_hand() -> None:
    found = started(BY_HAND)
    assert (found.kind, found.rank, found.size, found.address, found.port) == ("torchrun", 1, 4, "node1", 29500)
    assert not found.agent_store
    assert started({**BY_HAND, "TORCHELASTIC_USE_AGENT_STORE": "True"}).agent_store


@pytest.mark.parametrize("name", ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MPI_LOCALRANKID"])
def test_mpi_goes_first(name: str) -> None:
    assert launched({name: "1"})
    assert started({**BY_HAND, name: "1"}).kind == "mpi"


def test_mpirun_says_rank_and_size() -> None:
    found = started({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "9"})
    assert (found.rank, found.size, found.address, found.port) == (2, 3, "a", 9)
    assert started({"MPI_LOCALRANKID": "1"}).size == 0  # MPI knows


def test_srun_without_mpi() -> None:
    step = {
        "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NODELIST": "gpu[03-04]", "SLURM_JOB_ID": "71",
        "SLURM_STEP_ID": "2",
    }  # fmt: skip
    found = started(step)
    assert (found.kind, found.rank, found.size, found.address) == ("srun", 5, 8, "gpu03")
    assert 20000 <= found.port < 30000
    assert started({**step, "SLURM_STEP_ID": "3"}).port != found.port
    assert started({**step, "MASTER_PORT": "1234"}).port == 1234
    assert started({**step, "SLURM_STEP_NUM_TASKS": "1"}).kind == "alone"


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("n1", "n1"), ("n1,n2", "n1"), ("gpu[03-05,9],x1", "gpu03"), ("r[1-2]n[4,6]", "r1n4"), ("a-b[7]", "a-b7")],
)
def test_the_first_node_of_slurms_list(nodes: str, first: str) -> None:
    assert first_node(nodes) == first


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"RANK": ""}, "RANK is not set"),
        ({"MASTER_ADDR": "", "MASTER_PORT": ""}, "MASTER_ADDR and MASTER_PORT are not set"),
        ({"RANK": "4"}, "RANK is '4': it must be a whole number from 0 to 3"),
        ({"RANK": "-1"}, "RANK is '-1'"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT is '70000'"),
    ],
)
def test_variables_that_make_no_sense_are_named(change: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        started({**BY_HAND, **change})


def test_a_job_has_a_token_of_its_own() -> None:
    base = started(BY_HAND).token
    assert len(base) == 32
    assert started({**BY_HAND, "RANK": "2"}).token == base
    for change in ({"MASTER_PORT": "29501"}, {"SLURM_JOB_ID": "7"}, {"TORCHELASTIC_RUN_ID": "x"}, {TOKEN: "secret"}):
        assert started({**BY_HAND, **change}).token != base
    assert started({**BY_HAND, TOKEN: "s"}).token == started({**BY_HAND, TOKEN: "s", "SLURM_JOB_ID": "7"}).token


# -- the meeting -----------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


def where(rank: int, size: int, port: int, token: bytes = b"t" * 32) -> Started:
    return Started("torchrun", rank, size, "127.0.0.1", port, token=token)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What each gives, or raises, in threads at the same time."""
    found: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            found[index] = calls[index]()
        except BaseException as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a rank hangs"
    return found


def meet(*places: Started, timeout_s: float = 10.0) -> list[Any]:
    return together(*[lambda place=place: meeting.meet(place, timeout_s) for place in places])  # type: ignore[misc]


def close(found: list[Any]) -> None:
    for one in found:
        for peer in one.values() if isinstance(one, dict) else ():
            peer.line.close()


def test_all_ranks_meet() -> None:
    port = free_port()
    found = meet(*[where(rank, 4, port) for rank in (2, 0, 3, 1)])
    assert sorted(found[1]) == [1, 2, 3]
    assert all(list(found[i]) == [0] for i in (0, 2, 3))
    close(found)


def test_a_rank_that_never_comes_is_named_on_every_rank() -> None:
    port = free_port()
    root, one = meet(where(0, 4, port), where(1, 4, port), timeout_s=0.6)
    host = socket.gethostname()
    for error in (root, one):
        assert isinstance(error, MeetingError)
        assert f"rank 0 of 4 on {host} waited in vain at 127.0.0.1:{port} for ranks 2, 3" in str(error)
        assert f"there came: 1 on {host}" in str(error)
        assert "loopback" in str(error)
    assert f"rank 1 of 4 on {host}" in str(one)


def test_rank_0_that_never_comes() -> None:
    (error,) = meet(where(1, 2, free_port()), timeout_s=0.2)
    assert isinstance(error, MeetingError)
    assert "rank 1 of 2" in str(error)
    assert "was not to be reached" in str(error)


def test_another_token_is_sent_away_and_ends_nobody_else() -> None:
    port = free_port()
    stray, root, one = together(
        lambda: meeting.meet(where(1, 2, port, b"x" * 32), 10),
        lambda: meeting.meet(where(0, 2, port), 10),
        lambda: time.sleep(0.2) or meeting.meet(where(1, 2, port), 10),
    )
    assert isinstance(stray, MeetingError)
    assert "has another token" in str(stray)
    assert list(root) == [1]
    close([root, one])


def test_a_token_differing_on_our_own_rank_is_said_by_rank_0() -> None:
    port = free_port()
    root, one = meet(where(0, 2, port), where(1, 2, port, b"x" * 32), timeout_s=0.6)
    assert "There also came rank 1 of 2 on" in str(root)
    assert "another token" in str(root)
    assert "GPUMICRO_TOKEN differs" in str(one)


def test_another_world_size_ends_all() -> None:
    port = free_port()
    for error in meet(where(0, 3, port), where(2, 4, port)):
        assert isinstance(error, MeetingError)
        assert "rank 2 of 4 on" in str(error)
        assert "two jobs on one port" in str(error)


def test_one_rank_twice() -> None:
    port = free_port()
    found = meet(where(0, 3, port), where(1, 3, port), where(1, 3, port))
    assert all(isinstance(error, MeetingError) for error in found)
    assert all("two processes say that they are rank 1" in str(error) for error in found)


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} of 127.0.0.1 is in use"):
            meeting.meet(where(0, 2, port), 5)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("192.0.2.1", "no address of this host"),
        ("0.0.0.0", "must be one address"),
        ("no.such.host.invalid", "no address is known"),
    ],
)
def test_an_address_that_is_not_ours(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        meeting.listen(replace(where(0, 2, free_port()), address=address))


def test_it_listens_at_the_address_alone() -> None:
    with meeting.listen(where(0, 2, 0)) as line:
        assert line.getsockname()[0] == "127.0.0.1"


def serve(answer: bytes) -> tuple[int, threading.Thread]:
    """A server that says this to the first who comes, and keeps the line."""
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with server, server.accept()[0] as line:
            line.sendall(answer)
            line.settimeout(PATIENCE_S)
            with suppress(ConnectionError):
                while line.recv(1024):
                    pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return server.getsockname()[1], thread


def test_another_program_at_the_port() -> None:
    port, _ = serve(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(MeetingError, match="is another program"):
        meeting.meet(where(1, 2, port), 5)


def test_a_program_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "GREETING_S", 0.2)
    port, _ = serve(b"")
    with pytest.raises(MeetingError, match="says nothing"):
        meeting.meet(where(1, 2, port), 5)


def test_a_rank_0_without_the_token_is_not_believed() -> None:
    welcome = struct.pack("!8sB16s", b"gpumicro", 1, bytes(16)) + struct.pack("!BH32s", 0, 0, bytes(32))
    port, _ = serve(welcome)
    with pytest.raises(MeetingError, match="does not have our token"):
        meeting.meet(where(1, 2, port), 5)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 4, b"\xff" * 500])
def test_strangers_keep_nobody_waiting(sent: bytes) -> None:
    port = free_port()

    def stranger() -> None:
        for _ in range(200):
            try:
                with socket.create_connection(("127.0.0.1", port)) as line:
                    line.sendall(sent)
                    line.recv(100)
                return
            except OSError:
                time.sleep(0.01)

    root, one, _ = together(
        lambda: meeting.meet(where(0, 2, port), 10),
        lambda: time.sleep(0.1) or meeting.meet(where(1, 2, port), 10),
        stranger,
    )
    assert list(root) == [1], root
    close([root, one])


# -- frames ----------------------------------------------------------------------------------------------------------


def test_a_frame_comes_as_it_went_however_it_is_cut() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, wire.Kind.TELL, 7, b"x" * 100_000)
        assert wire.receive(theirs) == wire.Frame(wire.Kind.TELL, 7, b"x" * 100_000)
        ours.close()
        with pytest.raises(wire.Gone):
            wire.receive(theirs)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (struct.pack("!4sBIQ", b"gmc1", 1, 0, 1 << 62), "claims"),
        (struct.pack("!4sBIQ", b"gmc1", 99, 0, 0), "no message"),
        (struct.pack("!4sBIQ", b"HTTP", 1, 0, 0), "no message"),
    ],
)
def test_a_frame_that_cannot_be_is_refused_before_it_is_read(header: bytes, words: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(header)
        with pytest.raises(MeetingError, match=words):
            wire.receive(theirs)


# -- the channel -----------------------------------------------------------------------------------------------------


class Job:
    """Ranks over socket pairs, in threads; `left` gets the exit codes with which processes would have ended."""

    def __init__(self, size: int, timeout_s: float = 10.0) -> None:
        self.left: queue.Queue[tuple[int, int]] = queue.Queue()
        pairs = [socket.socketpair() for _ in range(size - 1)]
        lines = {rank: Peer(pair[0], rank, f"host{rank}") for rank, pair in enumerate(pairs, 1)}
        self.pairs = pairs
        self.ranks = [self._rank(0, size, lines, timeout_s)]
        self.ranks += [self._rank(i, size, {0: Peer(pairs[i - 1][1], 0, "host0")}, timeout_s) for i in range(1, size)]

    def _rank(self, rank: int, size: int, peers: dict[int, Peer], timeout_s: float) -> SocketRanks:
        return SocketRanks(rank, size, peers, timeout_s, leave=lambda code: self.left.put((rank, code)))

    def each(self, work: Callable[[SocketRanks], Any]) -> list[Any]:
        return together(*[lambda one=one: work(one) for one in self.ranks])  # type: ignore[misc]

    def codes(self, count: int) -> dict[int, int]:
        return dict(self.left.get(timeout=PATIENCE_S) for _ in range(count))

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.ranks:
            one.close()
        for pair in self.pairs:
            for line in pair:
                line.close()


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize("size", [2, 5])
def test_what_the_channel_does(size: int) -> None:
    def work(ranks: SocketRanks) -> Any:
        ranks.barrier()
        words = ints(3, -4) if ranks.rank == 0 else ints(0, 0)
        ranks.tell(words)
        most, total = ranks.greatest(ints(ranks.rank, -ranks.rank)), ranks.total(ints(1, ranks.rank))
        return words.tolist(), most.tolist(), total.tolist(), ranks.exchange(b"r%d" % ranks.rank)

    with Job(size) as job:
        found = job.each(work)
    assert found[0][1:3] == ([size - 1, 0], [size, size * (size - 1) // 2])
    assert all((one[0], one[3]) == ([3, -4], [b"r%d" % i for i in range(size)]) for one in found)
    assert job.left.empty()


def test_two_ranks_swap_numbers() -> None:
    with Job(3) as job:
        assert job.each(lambda one: one.swap(2 - one.rank, one.rank - 5) if one.rank != 1 else None) == [-3, None, -5]


def test_a_rank_that_dies_ends_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    with Job(3) as job:
        freed: queue.Queue[int] = queue.Queue()
        job.ranks[2].before_exit = lambda: freed.put(2)
        job.pairs[0][1].shutdown(socket.SHUT_RDWR)  # what a system does for a process that is killed
        codes = job.codes(3)
        assert codes[0] == codes[2] == 1
        assert freed.get(timeout=PATIENCE_S) == 2
    said = capfd.readouterr().err
    assert "rank 0 of 3" in said
    assert "rank 1 of 3 on host1 is gone: its process died" in said
    assert said.count("rank 2 of 3") == 1


def test_abort_gives_all_one_code(capfd: pytest.CaptureFixture[str]) -> None:
    with Job(3) as job:
        job.ranks[1].abort(130)
        assert job.codes(3) == {0: 130, 1: 130, 2: 130}
    assert capfd.readouterr().err.count("rank 1 of 3 on") == 2


def test_before_exit_that_hangs_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "LAST_CHANCE_S", 0.05)
    with Job(2) as job:
        job.ranks[1].before_exit = lambda: time.sleep(PATIENCE_S)
        job.ranks[0].abort(1)
        assert job.codes(2) == {0: 1, 1: 1}


def test_a_rank_that_does_not_come_to_a_step_is_named() -> None:
    with Job(3, timeout_s=0.3) as job:
        found = job.each(lambda one: one.barrier() if one.rank != 2 else None)
        assert "no word of rank 2 on host2 within 0.3 s" in str(found[0])


def test_ranks_that_run_apart_are_found_out() -> None:
    with Job(2, timeout_s=0.3) as job:
        found = job.each(lambda one: one.barrier() if one.rank == 0 else one.exchange(b"x"))
        assert "is at step 1 (BARRIER), rank 1 on host1 at 1 (EXCHANGE)" in str(found[0])


def test_goodbye_is_no_death(capfd: pytest.CaptureFixture[str]) -> None:
    with Job(3) as job:
        job.each(lambda one: one.close())
        assert job.left.empty()
        job2_words = str(together(job.ranks[0].barrier)[0])
    assert "has ended" in job2_words or "is gone" in job2_words
    assert capfd.readouterr().err == ""


# -- on top ----------------------------------------------------------------------------------------------------------


def test_an_id_is_carried() -> None:
    secret = bytes(range(128))
    with Job(3) as job:
        assert job.each(lambda one: rendezvous.carry(one, lambda: secret)) == [secret] * 3
        assert job.each(lambda one: rendezvous.carry(one, lambda: b"")) == [b""] * 3
    assert rendezvous.carry(Alone(), lambda: b"abc") == b"abc"


def test_an_id_that_cannot_be_made_is_said_on_every_rank() -> None:
    def make() -> bytes:
        raise BackendUnavailable("NCCL is not here")

    with Job(2) as job:
        root, one = job.each(lambda one: rendezvous.carry(one, make))
    assert isinstance(root, BackendUnavailable)
    assert isinstance(one, MeetingError)
    assert "NCCL is not here" in str(one)


def test_ncclss_own_id_is_carried() -> None:
    found = libraries.find("nccl")
    if not found:
        pytest.skip(found.reason)

    def make() -> bytes:
        unique = ctypes.create_string_buffer(128)
        assert ctypes.CDLL(found.path).ncclGetUniqueId(unique) == 0
        return unique.raw

    with Job(2) as job:
        root, one = job.each(lambda one: rendezvous.carry(one, make))
    assert root == one
    assert len(root) == 128
    assert any(root)


def test_which_rank_of_its_host() -> None:
    hosts = ["a\nboot1", "a\nboot2", "b\nboot3", "a\nboot1"]
    with Job(4) as job:
        found = job.each(lambda one: placement.place_of(one, hosts[one.rank]))
    assert [(p.local_rank, p.local_size, p.host) for p in found] == [(0, 2, 0), (0, 1, 1), (0, 1, 2), (1, 2, 0)]
    assert found[0].hosts == ("a", "a", "b")
    assert rendezvous.place(Alone()).local_size == 1


# -- which way -------------------------------------------------------------------------------------------------------


def test_gloo_without_torch_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "find_spec", lambda _: None)
    with pytest.raises(BackendUnavailable, match=r"RANK 1 of WORLD_SIZE 4.*torch is not here.*mpirun -n 4"):
        rendezvous.connect(5, BY_HAND)


def test_gpus_under_mpirun_without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise BackendUnavailable("mpi4py is not here")

    monkeypatch.setattr(rendezvous.mpi, "connect", missing)
    ours = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    with pytest.raises(BackendUnavailable, match="set MASTER_ADDR and MASTER_PORT"):
        rendezvous.control(5, ours)
    port = str(free_port())
    line = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMPI_COMM_WORLD_SIZE": "2"}
    both = together(*[
        lambda rank=rank: rendezvous.control(10, {**line, "OMPI_COMM_WORLD_RANK": str(rank)}) for rank in (0, 1)
    ])  # fmt: skip
    assert together(*[lambda one=one: one.exchange(b"%d" % one.rank) for one in both]) == [[b"0", b"1"]] * 2
    for one in both:
        one.close()
    assert rendezvous.control(5, {**ours, "OMPI_COMM_WORLD_SIZE": "1"}).size == 1


def test_nobody_started_it() -> None:
    assert rendezvous.control(5, {}).size == 1
