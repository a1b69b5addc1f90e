"""Copies between host and devices; n bytes each. Bytes are the payload, as nvbandwidth counts it.

Host to device, device to host and device to device: each byte once, although the memory of a device that copies within
itself reads and writes it, twice the traffic. Both directions at once: the sum of the two (nvbandwidth prints one
direction while the other runs). Managed memory: there and back, twice n.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from ..device import Device
from ..spec import Problem
from .host_action import host_action

PAGE_BYTES = 4096  # of the host; managed memory is touched once in each
HOST_MEMORY = ("pinned", "pageable")
PEER = ("access", "staged")  # directly over the link, or through the host's memory
MANAGED = ("prefetch", "touch")


def _once(problem: Problem) -> int:
    return problem["n"]


def _twice(problem: Problem) -> int:
    return 2 * problem["n"]


def _managed(_dtype: str, device: Device) -> str:
    return "" if device.facts.get("managed", False) else "this device or driver has no managed memory"


SPECS = (
    host_action("copy.h2d", "n bytes from host to device", sizes=("n",), variants=HOST_MEMORY, payload=_once),
    host_action("copy.d2h", "n bytes from device to host", sizes=("n",), variants=HOST_MEMORY, payload=_once),
    host_action("copy.d2d", "n bytes within the device, read and written", sizes=("n",), payload=_once),
    host_action("copy.bidirectional", "n bytes each way at once", sizes=("n",), variants=("pinned",), payload=_twice),
    host_action("copy.peer", "n bytes to device number `to`", sizes=("n", "to"), variants=PEER, payload=_once),
    host_action(
        "copy.managed", "n bytes of managed memory to the device and back", sizes=("n",), variants=MANAGED,
        payload=_twice, why_not=_managed,
    ),
)  # fmt: skip


def peer_matrix(devices: Sequence[Device], n: int) -> list[tuple[Device, Problem]]:
    """copy.peer from each CUDA device to each other one: (device that sends, problem of n bytes)."""
    gpus = [device for device in devices if device.kind == "cuda"]
    return [(source, Problem.of("int8", n=n, to=to.index)) for source, to in permutations(gpus, 2)]
