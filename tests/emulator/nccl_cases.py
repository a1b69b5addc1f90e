"""Collectives between the emulated devices of one process, on the doubles of CUDA and NCCL.

These cases run inside a process on the test double: test_nccl_double.py starts it.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from emulator.nccl_sides import COUNT, RANKS, Side, cuda, expected, four, given, library, reducer, shared_four, value

from gpumicro.errors import NcclError

__all__ = ["cuda", "four", "library", "shared_four"]  # fixtures

DIVIDED = ("reduce_scatter", "alltoall", "scatter")  # what is sent is a block for each rank
JOINED = ("all_gather", "gather")
KINDS = ("all_reduce", "broadcast", "reduce", "sendrecv", *DIVIDED, *JOINED)


@pytest.mark.parametrize("kind", KINDS)
def test_each_collective_moves_what_it_should(cuda: Any, four: Any, kind: str) -> None:
    root = 2
    send = given(COUNT * RANKS if kind in DIVIDED else COUNT)
    room = np.zeros(COUNT * RANKS, np.float32)
    out, into = Side.of(cuda, send), Side.of(cuda, [room] * RANKS)
    one = cuda.nccl.Collective(four, kind, "float32", COUNT, out.addresses, into.addresses, root=root)
    assert one.in_place is False
    one.run(2)
    for rank, got in enumerate(into.arrays(room)):
        wanted = expected(kind, send, rank, root)
        if wanted is None:
            assert not got.any()
        else:
            np.testing.assert_array_equal(got[: len(wanted)], wanted)
            assert not got[len(wanted) :].any()
    for array, before in zip(out.arrays(send[0]), send, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("alltoall", "sendrecv")])
def test_in_place(cuda: Any, four: Any, kind: str) -> None:
    root, step = 1, COUNT * 4
    send = given(COUNT * RANKS if kind in DIVIDED else COUNT)
    rooms = [np.zeros(COUNT * RANKS, np.float32) for _ in range(RANKS)]
    for rank, (room, array) in enumerate(zip(rooms, send, strict=True)):
        at = rank * COUNT if kind in JOINED else 0
        room[at : at + len(array)] = array
    whole = Side.of(cuda, rooms)
    shifted = [address + rank * step for rank, address in enumerate(whole.addresses)]
    sends = shifted if kind in JOINED else whole.addresses
    receives = shifted if kind in DIVIDED else whole.addresses
    one = cuda.nccl.Collective(four, kind, "float32", COUNT, sends, receives, root=root)
    assert one.in_place is True
    one.run()
    for rank, got in enumerate(whole.arrays(rooms[0])):
        wanted = expected(kind, send, rank, root)
        at = rank * COUNT if kind in DIVIDED else 0
        if wanted is not None:
            np.testing.assert_array_equal(got[at : at + len(wanted)], wanted)


@pytest.mark.parametrize("kind", ["alltoall", "sendrecv"])
def test_what_nccl_cannot_do_in_place_is_refused(cuda: Any, four: Any, kind: str) -> None:
    side = Side.of(cuda, given(COUNT * RANKS))
    with pytest.raises(ValueError, match="no way to do this in place"):
        cuda.nccl.Collective(four, kind, "float32", COUNT, side.addresses, side.addresses)


NUMPY_TYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "uint32", "int64", "uint64")
REDUCTIONS = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("op", [*REDUCTIONS, "avg"])
def test_every_type_and_operator(cuda: Any, shared_four: Any, dtype: str, op: str) -> None:
    send = [array % 3 + 1 for array in given(33, dtype)]
    out, into = Side.of(cuda, send), Side.of(cuda, [np.zeros_like(send[0])] * RANKS)
    cuda.nccl.Collective(shared_four, "all_reduce", dtype, 33, out.addresses, into.addresses, op).run()
    exact = np.sum(np.array(send, np.float64), axis=0) / RANKS if op == "avg" else REDUCTIONS[op](send, axis=0)
    wanted = exact.astype(dtype)
    for got in into.arrays(send[0]):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", ["all_reduce", "alltoall"])
def test_long_messages_arrive_whole(cuda: Any, shared_four: Any, kind: str) -> None:
    count = 100_003
    send = given(count * RANKS if kind in DIVIDED else count)
    out, into = Side.of(cuda, send), Side.of(cuda, [np.zeros_like(send[0])] * RANKS)
    cuda.nccl.Collective(shared_four, kind, "float32", count, out.addresses, into.addresses).run()
    for rank, got in enumerate(into.arrays(send[0])):
        np.testing.assert_array_equal(got, expected(kind, send, rank, 0))


# One and four, in the bits of types that NumPy has not.
SMALL: dict[str, Any] = {
    "bfloat16": (np.uint16, 0x3F80, 0x4080),
    "float8_e4m3fn": (np.uint8, 0x38, 0x48),
    "float8_e5m2": (np.uint8, 0x3C, 0x44),
}


@pytest.mark.parametrize("dtype", SMALL)
def test_types_that_numpy_has_not(cuda: Any, shared_four: Any, dtype: str) -> None:
    bits, one, four_times = SMALL[dtype]
    out = Side.of(cuda, [np.full(40, one, bits)] * RANKS)
    into = Side.of(cuda, [np.zeros(40, bits)] * RANKS)
    cuda.nccl.Collective(shared_four, "all_reduce", dtype, 40, out.addresses, into.addresses).run()
    assert all((got == four_times).all() for got in into.arrays(np.zeros(40, bits)))


def test_groups_and_several_runs(cuda: Any, four: Any) -> None:
    first, a = reducer(cuda, four)
    second, b = reducer(cuda, four)
    group = cuda.nccl.Group([first, second, first])
    group.run(2)
    assert value(a) == {4.0**4}
    assert value(b) == {4.0**2}
    with pytest.raises(ValueError, match="no collectives"):
        cuda.nccl.Group([])


def test_sends_and_receipts_group_with_reductions(cuda: Any, four: Any) -> None:
    send = given(COUNT)
    out, into = Side.of(cuda, send), Side.of(cuda, [np.zeros(COUNT, np.float32)] * RANKS)
    ring = cuda.nccl.Collective(four, "sendrecv", "float32", COUNT, out.addresses, into.addresses)
    total, side = reducer(cuda, four)
    cuda.nccl.Group([ring, total]).run()
    assert value(side) == {4.0}
    np.testing.assert_array_equal(into.arrays(send[0])[1], send[0])


def test_the_clock_sees_every_rank_and_runs_what_it_is_told(cuda: Any, four: Any) -> None:
    work, side = reducer(cuda, four)
    clock = cuda.nccl.Clock(four, gate_timeout_s=10.0)
    spans = clock.sample(work.work, np.array([1, 0, 3]), True, 2)
    assert spans.shape == clock.waits_s.shape == (3, RANKS)
    assert clock.walls_s.shape == (3,)
    assert np.isfinite(spans).all()
    assert (spans >= 0).all()
    assert (clock.waits_s >= 0).all()
    assert value(side) == {4.0**4}
    assert clock.sample(None, np.zeros(2, np.int64), False).shape == (2, RANKS)


def test_the_event_timer_of_one_device_times_it_too(cuda: Any, library: Any) -> None:
    alone = cuda.nccl.Communicators.local(library, [0])
    work, side = reducer(cuda, alone)
    clock = cuda.timing.EventClock(0, filler_s=0.0, gate_timeout_s=10.0)
    assert np.isfinite(clock.sample(work.work, np.array([1, 2]))).all()
    assert value(side) == {1.0}
    graphs = cuda.timing.Graphs(0, work.work)
    graphs.capture(3)
    assert graphs.nodes(3) == 3
    del graphs
    alone.close()


def test_graphs_of_every_device(cuda: Any, four: Any) -> None:
    work, side = reducer(cuda, four)
    work.run()
    graphs = cuda.nccl.Graphs(four, work.work)
    graphs.capture(2)
    assert graphs.nodes(2) == 2
    assert value(side) == {4.0}  # nothing ran
    clock = cuda.nccl.Clock(four, gate_timeout_s=10.0)
    assert np.isfinite(clock.sample(graphs.work, np.array([2, 2]))).all()
    assert value(side) == {4.0**5}
    clock.sample(graphs.replay(1), np.array([3]))
    assert value(side) == {4.0**8}
    with pytest.raises(ValueError, match="no graph of 7 runs"):
        graphs.nodes(7)
    with pytest.raises(ValueError, match="at least one run"):
        graphs.capture(0)


def test_ranks_of_one_process_may_be_apart(cuda: Any, library: Any) -> None:
    """Two threads, each with a communicator of its own, as two processes would."""
    key = library.unique_id()
    totals: list[set[float]] = []

    def one(rank: int) -> None:
        mine = cuda.nccl.Communicators(library, 2, key, [rank], [rank], timeout_s=20.0)
        assert (mine.size, mine.ranks, mine.devices) == (2, [rank], [rank])
        buffer = cuda.Buffer(rank, 8 * COUNT)
        buffer.upload(np.full(COUNT, 1.0 + rank))
        address = [buffer.address]
        cuda.nccl.Collective(mine, "all_reduce", "float64", COUNT, address, address, keep=buffer).run()
        totals.append(set(buffer.download().view(np.float64).tolist()))
        mine.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [{3.0}, {3.0}]


def test_a_barrier_needs_no_memory(cuda: Any, four: Any) -> None:
    barrier = cuda.nccl.Collective(four, "barrier", "", 0, [], [])
    assert barrier.name == "ncclAllReduce"
    barrier.run(3)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "allreduce"}, "unknown collective 'allreduce': all_reduce, "),
    ({"dtype": "complex64"}, "no type 'complex64': int8, "),
    ({"op": "xor"}, "no operator 'xor': sum, prod, min, max, avg"),
    ({"count": -1}, "a count of -1 cannot be"),
    ({"count": 1 << 60}, "cannot be"),
    ({"root": 4}, "root 4 is no rank of 4"),
    ({"root": -1}, "root -1 is no rank of 4"),
    ({"count": 1001}, "send buffer of rank 0 has 4000 bytes, not the 4004"),
    ({"send": [0] * RANKS}, "send buffer of rank 0 needs an address"),
    ({"receive": [0] * RANKS}, "receive buffer of rank 0 needs an address"),
    ({"send": []}, "for each of 4 local ranks"),
    ({"shift": 400}, "the buffers of rank 0 overlap"),
    ({"turn": 1}, "send buffer of rank 0 is no memory of device 0"),
    ({"send": [0x1000] * RANKS}, "send buffer of rank 0 is no memory of device 0"),
]


@pytest.mark.parametrize(("change", "words"), WRONG)
def test_what_cannot_be_is_refused_before_nccl_is_asked(
    cuda: Any, shared_four: Any, change: dict[str, Any], words: str
) -> None:
    side, other = Side.of(cuda, given(COUNT)), Side.of(cuda, given(COUNT))
    wanted: dict[str, Any] = {
        "kind": "all_reduce", "dtype": "float32", "count": COUNT, "send": side.addresses, "receive": other.addresses,
    }  # fmt: skip
    shift, turn = change.pop("shift", 0), change.pop("turn", 0)
    if shift:
        wanted |= {"count": 500, "receive": [address + shift for address in side.addresses]}
    if turn:
        wanted |= {"send": [*side.addresses[turn:], *side.addresses[:turn]]}
    with pytest.raises(ValueError, match=words):
        cuda.nccl.Collective(shared_four, **wanted | change)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((2, b"short", [0], [0]), "an id has 128 bytes, not 5"), ((2, bytes(128), [2], [0]), "rank 2 is none of 2"),
     ((2, bytes(128), [0], [9]), "no CUDA device 9: there are 4"), ((2, bytes(128), [0, 0], [0, 1]), "each rank and"),
     ((2, bytes(128), [0, 1], [1, 1]), "each device once"), ((2, bytes(128), [0], []), "1 ranks and 0 devices")],
)  # fmt: skip
def test_communicators_that_cannot_be(cuda: Any, library: Any, arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        cuda.nccl.Communicators(library, *arguments)


@pytest.mark.parametrize("blocking", [False, True])
def test_nccls_own_words_come_through(cuda: Any, library: Any, blocking: bool) -> None:
    with pytest.raises(NcclError, match=r"ncclInvalidArgument \(4\): invalid argument: no unique id") as caught:
        cuda.nccl.Communicators(library, 2, bytes(128), [1], [0], blocking=blocking)
    assert (caught.value.code, caught.value.rank, caught.value.timed_out) == (4, 1, False)


def test_closed_ones_say_so(cuda: Any, library: Any) -> None:
    two = cuda.nccl.Communicators.local(library, [0, 1])
    work, _ = reducer(cuda, two)
    two.close()
    two.close()
    assert two.abort() is True
    assert two.aborted is False
    with pytest.raises(NcclError, match="have been closed"):
        work.run()


def test_a_part_of_a_buffer_comes_back(cuda: Any) -> None:
    buffer = cuda.Buffer(0, 100)
    buffer.upload(np.arange(100, dtype=np.uint8))
    np.testing.assert_array_equal(buffer.download(), np.arange(100))
    np.testing.assert_array_equal(buffer.download(90), np.arange(90, 100))
    np.testing.assert_array_equal(buffer.download(10, 5), np.arange(10, 15))
    assert buffer.download(100).size == 0
    for offset, size in ((101, None), (0, 101), (99, 2)):
        with pytest.raises(ValueError, match="are not in a buffer of 100"):
            buffer.download(offset, size)
