"""Spec peaks as data with sources: what a data sheet or a formula promises, dense figures only.

GPUs come from gpus.toml, CPUs from their factors (cores, clock, width, ports) in cpus.toml, and a user's own file
overrides both. Nothing here is measured.
"""

from __future__ import annotations

from .cpu import CpuPeak, CpuSpec, Factor, cpu_spec
from .gpu import GpuMatch, GpuPeak, GpuSpec, find_gpu, gpu_specs, match_gpu
from .user import UserCpu, UserSpecs, load_user

__all__ = [
    "CpuPeak",
    "CpuSpec",
    "Factor",
    "GpuMatch",
    "GpuPeak",
    "GpuSpec",
    "UserCpu",
    "UserSpecs",
    "cpu_spec",
    "find_gpu",
    "gpu_specs",
    "load_user",
    "match_gpu",
]
