"""Copies as works: host to device and back, within a device, to another one, both ways at once."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from . import calls
from .calls import OnDevice, told
from .found import runtime
from .work import NO_TIMING, Work, destroy_with

_KINDS = {"h2d": 1, "d2h": 2, "d2d": 3}  # cudaMemcpyKind
_ENABLED, _NOT_ENABLED = 704, 705  # cudaErrorPeerAccessAlreadyEnabled, cudaErrorPeerAccessNotEnabled


class _Copy(Work):
    call = "cudaMemcpyAsync"

    def __init__(self, device: int, to: int, source: int, size_bytes: int, kind: int, keep: Any) -> None:
        super().__init__(device, keep)
        self._copy = (to, source, size_bytes, kind, self._stream)

    def _run(self, n: int) -> None:
        enqueue, copy = runtime().memcpyAsync, self._copy
        for _ in range(n):
            enqueue(*copy)


def copy(device: int, to: int, source: int, size_bytes: int, direction: str, keep: Any) -> Work:
    """A copy; direction "h2d", "d2h" or "d2d"."""
    return _Copy(device, to, source, size_bytes, _KINDS[direction], keep)


class _CopyBoth(Work):
    """Both ways at once: the one to the host on a second stream, joined before the work counts as done."""

    call = "cudaMemcpyAsync"

    def __init__(
        self, device: int, to_device: tuple[int, int], to_host: tuple[int, int], size_bytes: int, keep: Any
    ) -> None:
        super().__init__(device, keep)
        with OnDevice(device), told("cudaStreamCreateWithFlags"):
            self._beside = runtime().streamCreateWithFlags(1)
            self._fork, self._join = (runtime().eventCreateWithFlags(NO_TIMING) for _ in range(2))
        self._in = (*to_device, size_bytes, _KINDS["h2d"], self._stream)
        self._out = (*to_host, size_bytes, _KINDS["d2h"], self._beside)
        destroy_with(self, device, [self._beside], [self._fork, self._join])

    def _run(self, n: int) -> None:
        cuda = runtime()
        cuda.eventRecord(self._fork, self._stream)
        cuda.streamWaitEvent(self._beside, self._fork, 0)
        for _ in range(n):
            cuda.memcpyAsync(*self._in)
            cuda.memcpyAsync(*self._out)
        cuda.eventRecord(self._join, self._beside)
        cuda.streamWaitEvent(self._stream, self._join, 0)


def copy_both(device: int, to_device: tuple[int, int], to_host: tuple[int, int], size_bytes: int, keep: Any) -> Work:
    """Copies both ways at once; each pair is (to, source)."""
    return _CopyBoth(device, to_device, to_host, size_bytes, keep)


class _CopyPeer(Work):
    call = "cudaMemcpyPeerAsync"

    def __init__(self, device: int, to_device: int, to: int, source: int, size_bytes: int, keep: Any) -> None:
        super().__init__(device, keep)
        self._copy = (to, to_device, source, device, size_bytes, self._stream)

    def _run(self, n: int) -> None:
        enqueue, copy = runtime().memcpyPeerAsync, self._copy
        for _ in range(n):
            enqueue(*copy)


def copy_peer(from_device: int, to_device: int, to: int, source: int, size_bytes: int, keep: Any) -> Work:
    """A copy to another device."""
    return _CopyPeer(from_device, to_device, to, source, size_bytes, keep)


class PeerAccess:
    """Two devices' access to each other's memory, on or off until this object goes."""

    def __init__(self, a: int, b: int, wanted: bool) -> None:
        changed = [(device, peer) for device, peer in ((a, b), (b, a)) if _set_access(device, peer, wanted)]
        weakref.finalize(self, _put_back, changed, not wanted)

    @staticmethod
    def possible(a: int, b: int) -> bool:
        """Whether both can reach the other's memory."""
        with told("cudaDeviceCanAccessPeer"):
            return bool(runtime().deviceCanAccessPeer(a, b) and runtime().deviceCanAccessPeer(b, a))


def _set_access(device: int, peer: int, wanted: bool) -> bool:
    """Whether that changed anything."""
    cuda = runtime()
    change, as_it_was = (
        (cuda.deviceEnablePeerAccess, _ENABLED) if wanted else (cuda.deviceDisablePeerAccess, _NOT_ENABLED)
    )
    try:
        with OnDevice(device):
            change(peer)
    except RuntimeError as error:
        if getattr(error, "status", None) != as_it_was:
            raise calls.translated(error, "cudaDeviceEnablePeerAccess") from error
        return False
    return True


def _put_back(changed: Sequence[tuple[int, int]], wanted: bool) -> None:
    for device, peer in changed:
        try:
            _set_access(device, peer, wanted)
        except Exception:  # the device is lost: nothing is left to put back
            return
