"""What device memory costs to get and to give back, n bytes at a time, by the host's clock."""

from __future__ import annotations

from .host_action import host_action

SPECS = (
    host_action("alloc.malloc", "cudaMalloc and cudaFree of n bytes", sizes=("n",)),
    host_action("alloc.pool", "cudaMallocAsync and cudaFreeAsync of n bytes from a pool that keeps them", sizes=("n",)),
)
