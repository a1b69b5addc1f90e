"""What the machine and the process looked like while it was measured: the `environment` of a result.

Reads files and asks Python; starts nothing but `git`. A fact that cannot be had is null with its reason beside it. The
host's name is recorded as a hash only, and of the environment variables only those on a list.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Any

from . import __version__
from .limits import read_text

# what changes how fast something runs, and nothing that could hold a secret, a host's name or a user's path
ENV_ALLOWED = re.compile(
    r"GPUMICRO_[A-Z0-9_]+|(OMP|KMP|GOMP|OPENBLAS|MKL|BLIS|NUMBA)_[A-Z0-9_]*|CUDA_(VISIBLE_DEVICES|MODULE_LOADING|DEVICE_ORDER"
    r"|LAUNCH_BLOCKING|CACHE_DISABLE|MPS_[A-Z_]+)|NVIDIA_(VISIBLE_DEVICES|TF32_OVERRIDE)|SLURM_(NTASKS|NNODES"
    r"|CPUS_PER_TASK|CPUS_ON_NODE|GPUS_ON_NODE|STEP_NUM_TASKS|STEP_NUM_NODES|MPI_TYPE|CPU_BIND_TYPE|DISTRIBUTION)"
    r"|(NCCL|TORCH_NCCL|UCX|UCC|FI|GLOO|MPICH|MPIR_CVAR|MV2|I_MPI|PSM2|PSM3)_[A-Z0-9_]+|OMPI_MCA_[a-z0-9_]+"
    r"|OMPI_COMM_WORLD_(LOCAL_)?SIZE|(LOCAL_)?WORLD_SIZE|PMI_SIZE|MPI_LOCALNRANKS"
    r"|GLIBC_TUNABLES|MALLOC_[A-Z_]+|LD_PRELOAD|LANG|LC_ALL"
)
# of those, what names where and as whom a job runs, or opens a door to it; NCCL_IB_PKEY is the number of a partition
ENV_REFUSED = re.compile(
    r".*(TOKEN|SECRET|PASSW|CRED|AUTH|COOKIE|_URI|_URL|SESSION|_KEY(S|_.*)?$|_RSH|_SSH|HOST|_LOGIN|USER|_ADDR|COMM_ID"
    r"|PLM_|AGENT|JOBID|TMP|DIR$|FILE$|PATH).*",
    re.IGNORECASE,
)
_GIT_SECONDS = 2.0

Facts = dict[str, Any]


def collect(argv: list[str] | None = None, root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> Facts:
    """The environment object of a result (timing.md 2.10), JSON-ready; `root` has /proc and /sys."""
    environ = os.environ if environ is None else environ
    return {
        "host": host(root),
        "cpu": cpu(root),
        "memory": memory(root),
        "driver": None,
        "driver_why": "no GPU backend took part",
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        **_numpy(),
        "gpumicro": __version__,
        **_git(Path(__file__).resolve().parents[2]),
        "env": {name: value for name, value in sorted(environ.items()) if env_recorded(name)},
        "argv": list(sys.argv if argv is None else argv),
        "utc": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "monotonic_s": monotonic(),
        "locale_encoding": sys.getfilesystemencoding(),
    }


def env_recorded(name: str) -> bool:
    """Whether an environment variable stands in a result."""
    return bool(ENV_ALLOWED.fullmatch(name)) and not ENV_REFUSED.fullmatch(name)


def _fact(key: str, value: Any, why: str) -> Facts:
    return {key: value} if value is not None else {key: None, f"{key}_why": why}


def _chosen(text: str | None) -> str | None:
    """The word in brackets of "always [madvise] never"."""
    match = re.search(r"\[(\w+)\]", text or "")
    return match[1] if match else None


# -- host ------------------------------------------------------------------------------------------------------------


def host(root: Path = Path("/")) -> Facts:
    """Kernel, virtualisation, container, load, clock source, and what steers the clock."""
    cpus = root / "sys/devices/system/cpu"
    name = platform.node()
    load = _load(root)
    return {
        **_fact(
            "hostname_hash",
            hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12] if name else None,
            "the host has no name",
        ),
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        **_fact("hypervisor", hypervisor(root), "no sign of one"),
        **_fact("container", container(root), "no sign of one"),
        **_fact("load_1min", load, "/proc/loadavg cannot be read"),
        **_fact(
            "clocksource",
            read_text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
            "not in sysfs",
        ),
        **_fact("governor", read_text(cpus / "cpu0/cpufreq/scaling_governor"), "no cpufreq here"),
        **_fact("turbo", _turbo(cpus), "no switch for it in sysfs"),
        **_fact("smt", read_text(cpus / "smt/control"), "not in sysfs"),
        **_fact("huge_pages", _chosen(read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")), "not in sysfs"),
        **_fact("numa_balancing", read_text(root / "proc/sys/kernel/numa_balancing"), "not in /proc"),
    }


def _load(root: Path) -> float | None:
    try:
        return float((read_text(root / "proc/loadavg") or "").split()[0])
    except (IndexError, ValueError):
        return None


def _turbo(cpus: Path) -> bool | None:
    no_turbo, boost = read_text(cpus / "intel_pstate/no_turbo"), read_text(cpus / "cpufreq/boost")
    if no_turbo in ("0", "1"):
        return no_turbo == "0"
    return boost == "1" if boost in ("0", "1") else None


def hypervisor(root: Path = Path("/")) -> str | None:
    """ "kvm", "xen", "microsoft", "vmware" ..., "unknown" where only the CPU's flag tells, None where nothing does."""
    kind = read_text(root / "sys/hypervisor/type")
    if kind:
        return kind.lower()
    identity = " ".join(
        filter(
            None,
            (read_text(root / f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name", "bios_vendor")),
        )
    )
    for word in ("kvm", "qemu", "vmware", "virtualbox", "xen", "microsoft", "amazon", "google", "bochs", "parallels"):
        if word in identity.lower():
            return word
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", read_text(root / "proc/cpuinfo") or "", re.MULTILINE)
    return "unknown" if flags else None


def container(root: Path = Path("/")) -> str | None:
    """ "docker", "podman", "kubernetes" ..., None where nothing shows one."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    groups = read_text(root / "proc/1/cgroup") or ""
    return next((word for word in ("kubepods", "docker", "lxc", "libpod", "containerd") if word in groups), None)


# -- CPU and memory --------------------------------------------------------------------------------------------------


def cpu(root: Path = Path("/")) -> Facts:
    """Who the CPU says it is, from /proc/cpuinfo, and how many this process may use."""
    text = read_text(root / "proc/cpuinfo") or ""
    first = dict(re.findall(r"^([^:\n]+?)\s*:\s*(.*)$", text.split("\n\n")[0], re.MULTILINE))
    absent = "not in /proc/cpuinfo"
    return {
        **_fact("name", first.get("model name") or first.get("Model"), absent),
        **_fact("vendor", first.get("vendor_id") or first.get("CPU implementer"), absent),
        **_fact("family", _integer(first.get("cpu family") or first.get("CPU architecture")), absent),
        **_fact("model", _integer(first.get("model") or first.get("CPU part")), absent),
        **_fact("stepping", _integer(first.get("stepping") or first.get("CPU revision")), absent),
        **_fact("microcode", first.get("microcode"), absent),
        "logical": os.cpu_count(),
        **_fact("usable", _usable(), "the system does not say"),
    }


def _usable() -> list[int] | None:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _integer(text: str | None) -> int | None:
    try:
        return int(text or "", 0)
    except ValueError:
        return None


def memory(root: Path = Path("/")) -> Facts:
    """Bytes: installed, available now, and the cgroup's limit."""
    table = dict(re.findall(r"^(\w+):\s+(\d+) kB", read_text(root / "proc/meminfo") or "", re.MULTILINE))
    sizes = {
        key: int(table[name]) * 1024 if name in table else None
        for key, name in (("total_bytes", "MemTotal"), ("available_bytes", "MemAvailable"))
    }
    limit = read_text(root / "sys/fs/cgroup/memory.max") or read_text(
        root / "sys/fs/cgroup/memory/memory.limit_in_bytes"
    )
    # cgroup v1 says "no limit" with a number near 2**63
    limited = int(limit) if limit and limit.isdigit() and int(limit) < 2**62 else None
    return {
        **_fact("total_bytes", sizes["total_bytes"], "/proc/meminfo cannot be read"),
        **_fact("available_bytes", sizes["available_bytes"], "/proc/meminfo cannot be read"),
        **_fact("limit_bytes", limited, "no cgroup limit"),
    }


# -- software --------------------------------------------------------------------------------------------------------


def _numpy() -> Facts:
    import numpy

    try:
        from threadpoolctl import threadpool_info

        pools = [pool for pool in threadpool_info() if pool.get("user_api") == "blas"]
        keys = ("internal_api", "version", "architecture", "threading_layer", "num_threads")
        blas = {key: pools[0].get(key) for key in keys if pools[0].get(key) is not None} if pools else None
        why = "NumPy's BLAS was not recognised"
    except Exception as error:  # a broken library must not cost the result
        blas, why = None, f"threadpoolctl: {error}"
    return {"numpy": numpy.__version__, **_fact("blas", blas, why)}


def _git(source: Path) -> Facts:
    """Revision and state, only where the package runs from its own checkout."""
    absent = "not run from a checkout"
    if not (source / ".git").exists():
        return {"git_revision": None, "git_revision_why": absent, "git_dirty": None, "git_dirty_why": absent}
    revision = _ask_git(source, "rev-parse", "HEAD")
    status = _ask_git(source, "status", "--porcelain", "--untracked-files=no")
    return {
        **_fact("git_revision", revision, "git gave no answer"),
        **_fact("git_dirty", None if status is None else bool(status), "git gave no answer"),
    }


def _ask_git(source: Path, *arguments: str) -> str | None:
    try:
        asked = subprocess.run(
            ["git", "-C", str(source), *arguments],
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.decode("utf-8", "replace").strip()
