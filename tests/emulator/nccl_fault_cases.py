"""What goes wrong between ranks: each ends within its time, with a reason, and leaves the devices free.

These cases run inside a process on the test double: test_nccl_double.py starts it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulator.nccl_sides import cuda, library

from gpumicro import libraries
from gpumicro.errors import CudaError, NcclError

__all__ = ["cuda", "library"]  # fixtures

SOON_S = 0.3  # time-outs here
END_S = 6.0  # by then, whatever happens, on a crowded machine
COUNT = 100
BLOCKING = pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])


@pytest.fixture(autouse=True)
def _in_time(cuda: Any) -> Any:
    """Each case ends in time and the devices answer afterwards, unless it marks one as hung."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < END_S
    for device in range(2):
        if not cuda.timing.is_hung(device):
            cuda.synchronize(device, limit_s=2.0)


def pair(cuda: Any, library: Any, blocking: bool = False, timeout_s: float = SOON_S) -> Any:
    return cuda.nccl.Communicators.local(library, [0, 1], timeout_s=timeout_s, blocking=blocking)


def reducer(cuda: Any, communicators: Any, count: int = COUNT) -> tuple[Any, list[Any]]:
    buffers = [cuda.Buffer(device, 4 * count) for device in communicators.devices]
    for buffer in buffers:
        buffer.upload(np.ones(count, np.float32))
    at = [buffer.address for buffer in buffers]
    return cuda.nccl.Collective(communicators, "all_reduce", "float32", count, at, at, keep=buffers), buffers


def test_a_planted_error_is_where_it_was_planted(cuda: Any, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    two = pair(cuda, library)
    work, buffers = reducer(cuda, two)
    monkeypatch.setenv("NCCLEMU_WRONG", "1:5")
    work.run()
    got = [buffer.download().view(np.float32) for buffer in buffers]
    assert (got[0] == 2).all()
    assert np.flatnonzero(got[1] != 2).tolist() == [5]
    two.close()


@BLOCKING
def test_a_rank_that_never_comes(cuda: Any, library: Any, monkeypatch: pytest.MonkeyPatch, blocking: bool) -> None:
    monkeypatch.setenv("NCCLEMU_ABSENT", "1")
    with pytest.raises(NcclError, match=r"not done within 0\.3 s with 2 ranks: another rank has not come") as caught:
        pair(cuda, library, blocking)
    assert caught.value.timed_out is True
    assert caught.value.call == ("ncclCommInitAll" if blocking else "ncclCommInitRankConfig")


@BLOCKING
def test_a_clique_of_another_size(cuda: Any, library: Any, blocking: bool) -> None:
    key, caught = library.unique_id(), []

    def come(rank: int, size: int) -> None:
        try:
            cuda.nccl.Communicators(library, size, key, [rank], [rank], timeout_s=SOON_S, blocking=blocking)
        except NcclError as error:
            caught.append(error.timed_out)

    threads = [threading.Thread(target=come, args=(rank, size)) for rank, size in ((0, 2), (1, 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caught == [True, True]


@BLOCKING
def test_one_that_stalls_is_aborted_and_new_ones_work(
    cuda: Any, library: Any, monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    two = pair(cuda, library, blocking)
    work, _ = reducer(cuda, two)
    work.run()
    monkeypatch.setenv("NCCLEMU_STALL", "1:2")
    with pytest.raises(NcclError, match="has died or does something else; aborted") as caught:
        work.run()
    assert caught.value.timed_out
    assert two.aborted
    monkeypatch.delenv("NCCLEMU_STALL")
    for use in (work.run, two.wait, lambda: cuda.nccl.Clock(two).sample(None, np.zeros(1, np.int64))):
        with pytest.raises(NcclError, match="have been aborted: make new ones"):
            use()
    two.close()
    assert two.abort() is True
    again = pair(cuda, library, blocking)
    work, buffers = reducer(cuda, again)
    work.run()
    assert (buffers[0].download().view(np.float32) == 2).all()
    again.close()


@BLOCKING
def test_asynchronous_errors_come_before_the_time_out(
    cuda: Any, library: Any, monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    two = pair(cuda, library, blocking, timeout_s=60.0)
    work, _ = reducer(cuda, two)
    monkeypatch.setenv("NCCLEMU_ASYNC", "1:1:6")
    with pytest.raises(NcclError, match=r"ncclRemoteError \(6\)") as caught:
        work.run()
    assert (caught.value.rank, caught.value.timed_out) == (1, False)
    assert caught.value.detail == "asynchronous error on demand"
    assert two.aborted


def by_clock(cuda: Any, communicators: Any, work: Any) -> Callable[[], object]:
    clock = cuda.nccl.Clock(communicators)
    return lambda: clock.sample(work.work, np.ones(3, np.int64))


def by_events(cuda: Any, _: Any, work: Any) -> Callable[[], object]:
    clock = cuda.timing.EventClock(0, filler_s=0.0)
    return lambda: clock.sample(work.work, np.ones(3, np.int64))


def by_graphs(cuda: Any, communicators: Any, work: Any) -> Callable[[], object]:
    graphs = cuda.nccl.Graphs(communicators, work.work)
    graphs.capture(1)
    clock = cuda.nccl.Clock(communicators)
    return lambda: clock.sample(graphs.work, np.ones(3, np.int64))


@pytest.mark.parametrize("how", [by_clock, by_events, by_graphs])
def test_errors_reach_whoever_samples(
    cuda: Any, library: Any, monkeypatch: pytest.MonkeyPatch, how: Callable[[Any, Any, Any], Callable[[], object]]
) -> None:
    two = pair(cuda, library, timeout_s=60.0)
    work, _ = reducer(cuda, two)
    sample = how(cuda, two, work)
    monkeypatch.setenv("NCCLEMU_ASYNC", "1:2:6")
    with pytest.raises(NcclError, match="ncclRemoteError"):
        sample()
    assert two.aborted


def test_a_stalled_sample_times_out(cuda: Any, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    two = pair(cuda, library)
    work, _ = reducer(cuda, two)
    sample = by_clock(cuda, two, work)
    monkeypatch.setenv("NCCLEMU_STALL", "0:4")
    with pytest.raises(NcclError) as caught:
        sample()
    assert caught.value.timed_out


def apart(cuda: Any, library: Any, tasks: list[Callable[[Any], object]], timeout_s: float = SOON_S) -> list[Any]:
    """Each task with the communicator of a rank of its own, in a thread; what it raised or returned."""
    key, ends = library.unique_id(), [None] * len(tasks)

    def one(rank: int) -> None:
        mine = cuda.nccl.Communicators(library, len(tasks), key, [rank], [rank], timeout_s=timeout_s)
        try:
            ends[rank] = tasks[rank](mine)  # type: ignore[call-overload]
        except NcclError as error:
            ends[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def test_another_size_at_one_rank_is_a_hang_that_ends(cuda: Any, library: Any) -> None:
    def of(count: int) -> Callable[[Any], object]:
        return lambda mine: reducer(cuda, mine, count)[0].run()

    ends = apart(cuda, library, [of(100), of(200)])
    assert all(isinstance(end, NcclError) for end in ends)
    assert any(end.timed_out for end in ends)


def test_an_abort_from_another_thread_ends_a_wait(cuda: Any, library: Any) -> None:
    def wait(mine: Any) -> None:
        threading.Timer(0.1, mine.abort).start()
        reducer(cuda, mine)[0].run()

    ends = apart(cuda, library, [wait, lambda mine: mine.abort()], timeout_s=60.0)
    assert isinstance(ends[0], NcclError)
    assert (ends[0].timed_out, ends[1]) == (False, True)


def test_the_others_hear_of_an_abort(cuda: Any, library: Any) -> None:
    ends = apart(cuda, library, [lambda mine: reducer(cuda, mine)[0].run(), lambda mine: mine.abort()], timeout_s=60.0)
    assert isinstance(ends[0], NcclError)
    assert ends[0].name == "ncclRemoteError"
    assert "rank 1" in ends[0].detail


def test_closing_ends_when_another_does_not_come(cuda: Any, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    two = pair(cuda, library)
    work, _ = reducer(cuda, two)
    monkeypatch.setenv("NCCLEMU_STALL", "1:1")
    clock = cuda.timing.EventClock(0, filler_s=0.0, watchdog_s=0.1)
    with pytest.raises(CudaError, match="hang"):
        clock.sample(work.work, np.ones(1, np.int64))
    assert cuda.timing.is_hung(0)
    with pytest.raises(NcclError) as caught:
        two.close()
    assert caught.value.timed_out
    assert not cuda.timing.is_hung(0)  # the abort freed it


def test_one_that_goes_unclosed_is_aborted(cuda: Any, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    two = pair(cuda, library, timeout_s=60.0)
    work, buffers = reducer(cuda, two)
    monkeypatch.setenv("NCCLEMU_STALL", "1:1")
    native = work.work
    with pytest.raises(CudaError, match="hang"):
        cuda.timing.EventClock(0, filler_s=0.0, watchdog_s=0.1).sample(native, np.ones(1, np.int64))
    del two, work, native
    assert not cuda.timing.is_hung(0)
    assert buffers[0].download().nbytes == 4 * COUNT


def test_an_abort_that_never_comes_back_is_left_to_itself(
    cuda: Any, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = pair(cuda, library)
    work, _ = reducer(cuda, two)
    monkeypatch.setenv("NCCLEMU_STALL", "1:1")
    monkeypatch.setenv("NCCLEMU_DEAF", "1")
    with pytest.raises(NcclError):
        work.run()
    assert two.abort() is False
    assert cuda.timing.is_hung(0)  # so that nothing waits for it
    monkeypatch.delenv("NCCLEMU_DEAF")  # the thread that was left goes on
    for _ in range(500):
        if all(idle(cuda, device) for device in range(2)):
            break
        time.sleep(0.01)
    for device in range(2):
        cuda.timing.set_hung(device, False)


def idle(cuda: Any, device: int) -> bool:
    try:
        cuda.synchronize(device, limit_s=0.0)
    except CudaError:
        return False
    return True


def test_control_c_ends_a_wait(cuda: Any, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    two = pair(cuda, library, timeout_s=60.0)
    work, _ = reducer(cuda, two)
    monkeypatch.setenv("NCCLEMU_STALL", "1:1")
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        work.run()
    assert two.aborted


def test_eight_bit_floats_need_a_newer_one(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCLEMU_VERSION", "22304")
    older = cuda.nccl.Nccl(libraries.find("nccl").path)
    assert (older.version, older.version_text) == (22304, "2.23.4")
    assert older.why_not("float8_e5m2") == "float8_e5m2 needs NCCL 2.24.0; this is 2.23.4"
    assert older.why_not("bfloat16") == ""
    two = pair(cuda, older)
    buffers = [cuda.Buffer(device, 16) for device in range(2)]
    at = [buffer.address for buffer in buffers]
    with pytest.raises(ValueError, match=r"float8_e4m3fn needs NCCL 2\.24\.0; this is 2\.23\.4"):
        cuda.nccl.Collective(two, "all_reduce", "float8_e4m3fn", 16, at, at)
    two.close()


def test_a_library_that_is_too_old_says_so(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCLEMU_VERSION", "2804")
    with pytest.raises(RuntimeError, match=r"is NCCL 2\.8\.4; 2\.10\.0 or newer is needed"):
        cuda.nccl.Nccl(libraries.find("nccl").path)
