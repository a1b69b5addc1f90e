from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .._core.timing import Work

class Nccl:
    """NCCL, opened at `path`. Raises RuntimeError where it cannot be opened, lacks a function or is too old (2.10)."""

    def __init__(self, path: str) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def version(self) -> int:
        """23203 for 2.32.3."""

    @property
    def version_text(self) -> str:
        """ "2.32.3"."""

    def unique_id(self) -> bytes:
        """128 bytes that name a new clique; one rank makes them and hands them to the others. Needs no GPU.

        Raises NcclError (no network interface that it may listen on).
        """

    def why_not(self, dtype: str) -> str:
        """Why this version has not got a type, "" where it has. Raises ValueError for a type that NCCL never had."""

class Communicators:
    """The communicators of this process: one for each of its ranks, each on a device of its own.

    size: ranks of the whole clique, all processes together. id: `Nccl.unique_id()` of one of them. ranks, devices: of
    this process, in the same order. timeout_s bounds every step that waits for other ranks: making, enqueueing,
    waiting, closing. blocking: NCCL's blocking mode, in which a launch costs the host less; its time-out is kept by a
    thread that aborts. NCCL before 2.14 has that mode only. It starts when all ranks of the clique call it.

    Raises NcclError where NCCL refuses or the other ranks do not come within timeout_s (`timed_out`); ValueError for
    ranks, devices or an id that cannot be. After any NcclError of theirs all communicators of the object are aborted:
    kernels that waited for other ranks end, and every later use raises NcclError ("ncclCommAbort").
    """

    def __init__(
        self,
        nccl: Nccl,
        size: int,
        id: bytes,
        ranks: Sequence[int],
        devices: Sequence[int],
        *,
        timeout_s: float = 60.0,
        blocking: bool = False,
    ) -> None: ...
    @staticmethod
    def local(nccl: Nccl, devices: Sequence[int], *, timeout_s: float = 60.0, blocking: bool = False) -> Communicators:
        """All ranks in this process, rank i on devices[i]; blocking: by ncclCommInitAll. Raises as the class does."""

    timeout_s: float
    @property
    def size(self) -> int: ...
    @property
    def ranks(self) -> list[int]: ...
    @property
    def devices(self) -> list[int]: ...
    @property
    def blocking(self) -> bool: ...
    @property
    def aborted(self) -> bool: ...
    def poll(self) -> None:
        """Raises NcclError, having aborted, where a communicator has met an asynchronous error."""

    def wait(self) -> None:
        """Until the measuring streams of all its devices are done, polling for errors.

        Raises NcclError where that takes longer than timeout_s or a communicator meets an error; CudaError where a
        stream's own work failed.
        """

    def abort(self) -> bool:
        """End them at once, from any thread; kernels that wait for other ranks end. Twice is no error.

        False where NCCL did not come back within a few seconds: it is left to itself, and the process should end.
        """

    def close(self) -> None:
        """Finish what was enqueued and give all back (all ranks call it); after abort() it does nothing.

        Raises NcclError (`timed_out`) where it takes longer than timeout_s: then they are aborted. An object that goes
        without close() is aborted.
        """

class Collective:
    """One operation of all local ranks, as it would be called n times. Nothing is enqueued until it runs.

    kind: all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall, sendrecv (to the next rank, from the one
    before), scatter, gather, barrier (a small all_reduce on memory of its own).
    dtype: float32, float64, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8, uint8, int32, uint32, int64, uint64.
    count: elements as NCCL counts them: all that one rank holds (all_reduce, broadcast, reduce, sendrecv), else one
    rank's share (all_gather: sent; reduce_scatter: received; alltoall, scatter, gather: a pair's).
    send, receive: addresses on the devices, one of each for every local rank, in the order of `ranks`; where a rank has
    none (receive of reduce, gather and send of scatter, broadcast elsewhere than at the root) 0 will do.
    op: sum, prod, min, max, avg. root: a rank of the clique. keep: objects that hold the memory.

    In place is what NCCL says it is: send == receive (all_reduce, broadcast, reduce), send == receive + rank * count
    elements (all_gather; gather at the root), receive == send + rank * count elements (reduce_scatter; scatter at the
    root). alltoall and sendrecv have none.

    Raises ValueError where an argument cannot be: an unknown name, a type that this version has not got, a negative
    count, a root that is no rank, an address that is no memory of the rank's device or with less behind it than is
    moved (where the driver tells), buffers that overlap but for NCCL's ways in place.
    """

    def __init__(
        self,
        communicators: Communicators,
        kind: str,
        dtype: str,
        count: int,
        send: Sequence[int],
        receive: Sequence[int],
        op: str = "sum",
        root: int = 0,
        keep: object = None,
    ) -> None: ...
    @property
    def in_place(self) -> bool: ...
    @property
    def name(self) -> str:
        """NCCL's function: "ncclAllReduce", or "ncclSend/ncclRecv"."""

    @property
    def work(self) -> Work:
        """n runs are n calls on the measuring streams of all local devices, in order; it returns when they stand there.

        It raises NcclError where one does not get there within timeout_s or NCCL refuses it.
        """

    def run(self, n: int = 1) -> None:
        """Enqueue n times and wait, as Communicators.wait does."""

class Group:
    """Several collectives of the same communicators as one group: one run is one ncclGroupEnd. ValueError for none."""

    def __init__(self, collectives: Sequence[Collective]) -> None: ...
    @property
    def work(self) -> Work:
        """As a collective's."""

    def run(self, n: int = 1) -> None: ...

class Graphs:
    """A work of these communicators, captured: one CUDA graph on each local device for each number of runs.

    Run the work once before: what NCCL loads or connects at the first call must not stand in a graph.
    """

    def __init__(self, communicators: Communicators, work: Work) -> None: ...
    def capture(self, runs: int) -> None:
        """Unless it was done before. Raises CudaError or NcclError where it cannot be captured, ValueError for < 1."""

    def nodes(self, runs: int) -> int:
        """Of one device's graph. Raises ValueError where there is none."""

    @property
    def work(self) -> Work:
        """n runs are one launch, on each device, of the graph of n runs, which must have been captured."""

    def replay(self, runs: int) -> Work:
        """n runs are n launches of the graph of `runs` runs, captured if need be."""

class Clock:
    """The device's clock at every local rank: events around work behind a gate and a barrier of all ranks.

    On each device: gate, event, barrier (one element, all ranks of the clique), start event, the work, stop event. The
    host opens the gates when all of that stands in the streams, so no host's launch lies in a span, and no rank's span
    starts before the last rank has come. All ranks of the clique make their clocks at the same time (that is a first
    barrier) and take the same samples in the same order. Run each work once before its first sample: what NCCL connects
    or loads at a first call may wait for the device, and so for the gate.

    Raises NcclError where the others do not come.
    """

    def __init__(
        self,
        communicators: Communicators,
        *,
        gate_timeout_s: float = 1.0,
        phase_s: float = 1.1e-6,
        seed: int = 1,
    ) -> None: ...
    gate_timeout_s: float
    phase_s: float  # length of the random delay behind the gate
    @property
    def waits_s(self) -> npt.NDArray[np.float64]:
        """Of the last sample, as its result: seconds that each rank waited in the barrier. The last one to come waits
        least: the greatest wait less the least, over all ranks, is the skew of arrival."""

    @property
    def walls_s(self) -> npt.NDArray[np.float64]:
        """Of each span of the last sample: host's seconds from the gates' opening to the end of the last device."""

    def now(self) -> float: ...
    def sample(
        self, work: Work | None, counts: npt.NDArray[np.int64], gated: bool = True, queue_limit: int = 500
    ) -> npt.NDArray[np.float64]:
        """Seconds of each span at each local rank, shape (spans, local ranks); span i is counts[i] runs of the work.

        NaN where that rank's gate let go by itself: the others do not know, so tell them before any retakes it. None is
        an empty span: the events' own cost. gated = False: no gates, the barrier only. The gates open early after
        `queue_limit` runs. Raises NcclError, having aborted, where a span takes longer than the communicators'
        timeout_s or one meets an error.
        """
