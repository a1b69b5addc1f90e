"""A link of known delay and rate between network namespaces, for a kernel without netem: TAP devices and a relay.

`python link.py NAMESPACE... DELAY_S BYTES_PER_S` makes a TAP device in each namespace (10.77.0.1, .2, ...), joins them
like a switch, prints "ready" and runs until it is killed; the devices go with it. A frame that a host sends takes its
length over the rate, after the frame before it, and then the delay: what netem does with `delay` and `rate` on the
egress of each host. Needs root.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time
from contextlib import suppress

MTU = 64000  # large: the relay is Python, and pays by the frame
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_CLONE_NEWNET = 0x40000000
_PR_SET_TIMERSLACK = 29
BROADCAST = b"\xff" * 6


def mac(index: int) -> bytes:
    """The address of a host's device."""
    return bytes((2, 0, 0, 0, 0, index))


def open_tap(namespace: str, index: int) -> int:
    """A TAP device in a namespace, up and with its address; the descriptor through which its frames come and go."""
    libc = ctypes.CDLL(None, use_errno=True)
    home, there = os.open("/proc/self/ns/net", os.O_RDONLY), os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(there, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH", b"link0", _IFF_TAP | _IFF_NO_PI))
        address = mac(index).hex(":")
        for words in (
            f"link set link0 address {address} mtu {MTU} txqueuelen 10000", f"addr add 10.77.0.{index}/24 dev link0",
            "link set link0 up", "link set lo up",
            f"route change 10.77.0.0/24 dev link0 src 10.77.0.{index} initcwnd 1000",  # TCP's slow start is no link's
        ):  # fmt: skip
            subprocess.run(["ip", *words.split()], check=True, timeout=10)
    finally:
        if libc.setns(home, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns back")
        os.close(home)
        os.close(there)
    return tap


class Relay:
    """The switch: frames wait in a heap until they are due."""

    def __init__(self, taps: list[int], delay_s: float, bytes_per_s: float) -> None:
        self._taps, self._delay_s, self._rate = taps, delay_s, bytes_per_s
        self._free = [0.0] * len(taps)  # when each host's line is free again
        self._due: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._ports = {mac(i + 1): i for i in range(len(taps))}

    def run(self) -> None:
        while True:
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, _, port, frame = heapq.heappop(self._due)
                with suppress(BlockingIOError):
                    os.write(self._taps[port], frame)
                now = time.monotonic()
            wait = None if not self._due else max(0.0, self._due[0][0] - now)
            ready, _, _ = select.select(self._taps, [], [], wait)
            for tap in ready:
                with suppress(BlockingIOError):
                    self._take(self._taps.index(tap), os.read(tap, MTU + 100))

    def _take(self, sender: int, frame: bytes) -> None:
        begin = max(time.monotonic(), self._free[sender])
        self._free[sender] = begin + len(frame) / self._rate
        to = frame[:6]
        ports = [self._ports[to]] if to in self._ports else [i for i in range(len(self._taps)) if i != sender]
        for port in ports:
            self._count += 1
            heapq.heappush(self._due, (self._free[sender] + self._delay_s, self._count, port, frame))


def punctual() -> None:
    """Before everybody else, and woken at the microsecond."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def main() -> None:
    *namespaces, delay_s, bytes_per_s = sys.argv[1:]
    taps = [open_tap(name, index) for index, name in enumerate(namespaces, 1)]
    punctual()
    os.write(1, b"ready\n")
    Relay(taps, float(delay_s), float(bytes_per_s)).run()


if __name__ == "__main__":
    main()
