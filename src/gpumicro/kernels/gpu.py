"""What the launch functions of GPU kernels ask about a device."""

from __future__ import annotations

from ..device import Device


def capability(device: Device) -> tuple[int, int]:
    """Compute capability, (0, 0) where the device says none: (9, 0)."""
    major, _, minor = str(device.facts.get("compute_capability", "0.0")).partition(".")
    return int(major), int(minor or 0)


def needs(device: Device, major: int, minor: int, exact: bool = False) -> str:
    """ "" where the device has that compute capability (or a later one, unless `exact`), else the reason in words.

    `exact` is for instructions of one architecture alone: wgmma (sm_90a), tcgen05 (sm_100a).
    """
    have = capability(device)
    if have == (major, minor) or (not exact and have > (major, minor)):
        return ""
    return f"needs compute capability {major}.{minor}{' exactly' if exact else ''}, this is {have[0]}.{have[1]}"


def ceil_div(numerator: int, denominator: int) -> int:
    """The quotient of two positive whole numbers, rounded up."""
    return -(-numerator // denominator)
