"""gpumicro: what does this machine really deliver, and where does my kernel stand?

Everything public is reachable from here and loaded on first use, so that importing the package costs little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# name -> module that defines it; the one list of what is public. No module may bear a public name: importing the
# submodule would put it in the name's place.
_PUBLIC = {
    "Comparison": "comparison",
    "Measurement": "measure",
    "Policy": "measure",
    "ProcessComparison": "replicates",
    "compare": "comparison",
    "time_kernel": "measure",
    "FakeTimer": "timers",
    "FakeWork": "timers",
    "TscTimer": "timers",
    "WallTimer": "timers",
    "probe": "timers",
    "Device": "device",
    "Problem": "spec",
    "KernelSpec": "spec",
    "CATALOGUE": "kernels",
    "prepare": "backends",
    "Kernel": "source_kernel",
    "Roofline": "chart",
    "roofline": "chart",
    "import_results": "imports",
    "precision": "cluster.precision",
    "scale": "cluster.scale",
    "measure_storage": "cluster.storage",
    "monitor": "cluster.monitoring",
    "Placed": "placed",
    "measured": "measuring",
    "break_even": "cluster.ownership",
    "checkpoint_plan": "cluster.checkpoint",
    "cost_efficiency_score": "cluster.cost",
    "cost_report": "cluster.cost_report",
    "launch_plan": "cluster.launch",
    "launch_text": "cluster.launch",
    "memory_advice": "cluster.memory",
    "fleet": "cluster.fleet",
    "cluster_overview": "cluster.overview",
    "CudaError": "errors",
    "GpumicroError": "errors",
}
_ROOMS = ("counts",)  # modules that are public as such: gm.counts.gemm(...)
__all__ = ["__version__", *_PUBLIC, *_ROOMS]

if TYPE_CHECKING:
    from . import counts
    from .backends import prepare
    from .chart import Roofline, roofline
    from .cluster.checkpoint import checkpoint_plan
    from .cluster.cost import cost_efficiency_score
    from .cluster.cost_report import cost_report
    from .cluster.fleet import fleet
    from .cluster.launch import launch_plan, launch_text
    from .cluster.memory import memory_advice
    from .cluster.monitoring import monitor
    from .cluster.overview import cluster_overview
    from .cluster.ownership import break_even
    from .cluster.precision import precision
    from .cluster.scale import scale
    from .cluster.storage import measure_storage
    from .comparison import Comparison, compare
    from .device import Device
    from .errors import CudaError, GpumicroError
    from .imports import import_results
    from .kernels import CATALOGUE
    from .measure import Measurement, Policy, time_kernel
    from .measuring import measured
    from .placed import Placed
    from .replicates import ProcessComparison
    from .source_kernel import Kernel
    from .spec import KernelSpec, Problem
    from .timers import FakeTimer, FakeWork, TscTimer, WallTimer, probe


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"gpumicro.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'gpumicro' has no attribute {name!r}")
    return getattr(import_module(f"gpumicro.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
