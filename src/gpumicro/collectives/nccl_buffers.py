"""The data of one rank in its GPU's memory: filled and checked by the host, slice by slice, every element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .._core.timing import WallClock
from ..kernels import formats
from .buffers import Layout
from .patterns import PERIOD, poison

SLICE_BYTES = 16 << 20
LEAST_BYTES = 512  # of a buffer: a barrier's case has no data


class DeviceBuffers:
    """Two buffers of the largest case, used from their start by every case. `cuda` is the module."""

    def __init__(self, cuda: Any, device: int, size_bytes: int) -> None:
        size_bytes = max(size_bytes, LEAST_BYTES)
        self._cuda, self._device = cuda, device
        self.send, self.receive = cuda.Buffer(device, size_bytes), cuda.Buffer(device, size_bytes)
        self._slice = cuda.Buffer(device, min(size_bytes, SLICE_BYTES), "pinned")

    def addresses(self, layout: Layout) -> tuple[int, int]:
        """(what is sent, where the result goes), as NCCL wants them; 0 where it wants none."""
        case, at_root = layout.case, layout.rank == layout.case.root
        receive = self.receive.address + layout.result_start * case.itemsize
        send = self.receive if case.in_place else self.send
        sends = at_root or case.kind.name != "scatter"
        receives = at_root or case.kind.name != "gather"
        return (send.address + layout.own_start * case.itemsize if sends else 0, receive if receives else 0)

    def fill(self, layout: Layout, moved: Callable[[], None]) -> None:
        """The data to send, and poison wherever a result must come. `moved` is called after each slice."""
        case = layout.case
        self.receive.fill(poison(case.dtype))
        repeats = max(1, min(SLICE_BYTES // layout.values.nbytes, -(-layout.own_count // PERIOD)))
        block, target = np.tile(layout.values, repeats), self.receive if case.in_place else self.send
        for start in range(0, layout.own_count, len(block)):
            target.upload(block[: layout.own_count - start], (layout.own_start + start) * case.itemsize)
            moved()

    def wrong(self, layout: Layout, moved: Callable[[], None]) -> int:
        """Elements of the result that are not what they must be."""
        itemsize, stored = layout.case.itemsize, formats.stored(layout.case.dtype)
        begin, found = layout.result_start, 0
        step = SLICE_BYTES // itemsize
        for piece in layout.pieces:
            for start in range(0, piece.count, step):
                count = min(step, piece.count - start)
                data = self._download((begin + start) * itemsize, count * itemsize)
                found += piece.wrong(data.view(stored), start)
                moved()
            begin += piece.count
        return found

    def _download(self, start: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        """A slice of the result, through page-locked memory."""
        source = self.receive.address + start
        copy = self._cuda.timing.copy(self._device, self._slice.address, source, size_bytes, "d2h", self)
        WallClock().sample(copy, np.ones(1, dtype=np.int64))
        self._cuda.synchronize(self._device)
        found: npt.NDArray[np.uint8] = self._slice.download()[:size_bytes]
        return found

    def close(self) -> None:
        """Give the memory back."""
        for buffer in (self.send, self.receive, self._slice):
            buffer.close()
