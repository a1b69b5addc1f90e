"""Graphs: a work captured several times over, so that n runs cost the host one call."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from .calls import OnDevice, told
from .found import runtime
from .memory import current
from .work import Work, destroy_quietly, run_work

_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal


class Graphs:
    """A work captured several times over: graphs of n runs, so that n runs cost the host one call.

    The work must enqueue on the measuring stream and wait for nothing. keep: whether it stays alive by this.
    `work`: n runs are one replay of the graph of n.
    """

    def __init__(self, device: int, work: Any, keep: bool = True, stream: int | None = None) -> None:
        self._captured = _reference(work)
        self._kept = work if keep else None
        self._graphs: dict[int, int] = {}
        self.work = _GraphOf(device, self._graphs, stream)
        weakref.finalize(self.work, _destroy_graphs, runtime(), device, self._graphs)

    def capture(self, runs: int) -> None:
        """Capture so many runs, unless that was done. CudaError or ValueError where the work cannot be captured."""
        if runs in self._graphs:
            return
        cuda, device, stream = runtime(), self.work.device, self.work._stream
        with OnDevice(device):
            with told("cudaStreamBeginCapture"):
                cuda.streamBeginCapture(stream, _THREAD_LOCAL)
            try:
                with current(stream):
                    run_work(self._captured(), runs)
            except NotImplementedError as error:  # CuPy's own, of what it does not capture: cuBLAS
                raise ValueError(str(error)) from error
            finally:  # whatever happens, the capture ends
                with told("cudaStreamEndCapture"):
                    graph = cuda.streamEndCapture(stream)
            with told("cudaGraphInstantiate"):
                self._graphs[runs] = cuda.graphInstantiate(graph)
                cuda.graphDestroy(graph)

    def nodes(self, runs: int) -> int:
        """Nodes of the graph of so many runs; CuPy cannot count them: one for each run is believed."""
        return runs

    def replay(self, runs: int) -> Work:
        """n runs are n replays of the graph of so many runs."""
        self.capture(runs)
        return _Replay(self, runs)


class _GraphOf(Work):
    call = "cudaGraphLaunch"

    def __init__(self, device: int, graphs: dict[int, int], stream: int | None) -> None:
        super().__init__(device, stream=stream)
        self._graphs = graphs

    def _run(self, n: int) -> None:
        if n not in self._graphs:
            raise ValueError(f"no graph of {n} runs was captured")
        runtime().graphLaunch(self._graphs[n], self._stream)


def _reference(work: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(work)
    except TypeError:  # there is no weak reference to it
        return lambda: work


class _Replay(Work):
    call = "cudaGraphLaunch"

    def __init__(self, graphs: Graphs, runs: int) -> None:
        super().__init__(graphs.work.device, graphs, graphs.work._stream)
        self._graph = graphs._graphs[runs]

    def _run(self, n: int) -> None:
        launch = runtime().graphLaunch
        for _ in range(n):
            launch(self._graph, self._stream)


def _destroy_graphs(cuda: Any, device: int, graphs: dict[int, int]) -> None:
    destroy_quietly(device, [(cuda.graphExecDestroy, graph) for graph in graphs.values()])
