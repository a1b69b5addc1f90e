"""The environment of a result: complete or with reasons, on bare and on strange machines."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from gpumicro import environment, result

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 106
model name\t: Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz
stepping\t: 6
microcode\t: 0xd0003b9
flags\t\t: fpu avx2 avx512f

processor\t: 1
model\t\t: 999
"""


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_here_every_null_has_a_reason() -> None:
    found = environment.collect(["roofline"])
    assert result.missing_reasons(found) == []
    json.dumps(found, allow_nan=False)
    assert found["argv"] == ["roofline"]
    assert found["numpy"]


def test_without_proc_and_sys_only_reasons_remain(tmp_path: Path) -> None:
    found = environment.collect([], root=tmp_path)
    assert result.missing_reasons(found) == []
    assert found["cpu"]["name"] is None
    assert found["cpu"]["name_why"]
    assert found["memory"]["total_bytes_why"]
    assert found["host"]["governor_why"]


def test_the_hosts_name_is_only_there_as_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "secret-host-17")
    found = environment.host()
    assert "secret-host-17" not in json.dumps(found)
    assert len(found["hostname_hash"]) == 12


def test_only_listed_variables_are_recorded() -> None:
    allowed = {
        "OMP_NUM_THREADS": "2",
        "GPUMICRO_BACKEND": "cpu",
        "CUDA_VISIBLE_DEVICES": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "OMPI_MCA_btl": "self,sm",
        "OMPI_COMM_WORLD_SIZE": "4",
        "MPICH_ASYNC_PROGRESS": "1",
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "tree",
        "I_MPI_FABRICS": "shm",
        "UCX_TLS": "rc,sm",
        "UCX_NET_DEVICES": "mlx5_0:1",
        "FI_PROVIDER": "efa",
        "NCCL_ALGO": "Ring",
        "NCCL_IB_PKEY": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "WORLD_SIZE": "2",
    }
    secret = {
        "AWS_SECRET_ACCESS_KEY": "x",
        "HOME": "/home/me",
        "XOMP_NUM_THREADS": "1",
        "PATH": "/bin",
        "CUDA_PASSWORD": "x",
        "GPUMICRO_TOKEN": "x",
        "OMPI_MCA_orte_hnp_uri": "1;tcp://10.0.0.1:99",
        "OMPI_MCA_plm_rsh_args": "-l me -i /home/me/.ssh/id",
        "OMPI_MCA_sec_basic_key": "x",
        "I_MPI_HYDRA_HOST_FILE": "/home/me/hosts",
        "MPICH_INTERFACE_HOSTNAME": "node7",
        "NCCL_COMM_ID": "10.0.0.1:99",
        "NCCL_DEBUG_FILE": "/home/me/log",
        "UCX_AUTH_SECRET": "x",
        "PMI_SHARED_SECRET": "x",
        "MASTER_ADDR": "node7",
        "TORCHELASTIC_RUN_ID": "x",
    }
    assert environment.collect([], environ=allowed | secret)["env"] == allowed


def test_a_bare_intel_server(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/cpuinfo": CPUINFO,
            "proc/meminfo": "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n",
            "proc/loadavg": "0.52 0.58 0.59 1/977 12345\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
            "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
            "sys/devices/system/cpu/smt/control": "off\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "sys/fs/cgroup/memory.max": "1073741824\n",
            "sys/class/dmi/id/sys_vendor": "Dell Inc.\n",
        },
    )
    cpu, host, memory = environment.cpu(root), environment.host(root), environment.memory(root)
    assert (cpu["vendor"], cpu["family"], cpu["model"], cpu["stepping"]) == ("GenuineIntel", 6, 106, 6)
    assert (host["governor"], host["turbo"], host["smt"], host["huge_pages"]) == (
        "performance",
        False,
        "off",
        "madvise",
    )
    assert (host["load_1min"], host["hypervisor"], host["container"]) == (0.52, None, None)
    assert memory == {"total_bytes": 2**24, "available_bytes": 2**23, "limit_bytes": 2**30}


def test_virtual_machines_and_containers_are_told(tmp_path: Path) -> None:
    assert environment.hypervisor(_tree(tmp_path / "a", {"sys/class/dmi/id/sys_vendor": "QEMU"})) == "qemu"
    assert environment.hypervisor(_tree(tmp_path / "b", {"sys/hypervisor/type": "xen"})) == "xen"
    assert environment.hypervisor(_tree(tmp_path / "c", {"proc/cpuinfo": "flags\t: fpu hypervisor lm\n"})) == "unknown"
    assert (
        environment.container(_tree(tmp_path / "d", {"proc/1/cgroup": "0::/kubepods/besteffort/pod1\n"})) == "kubepods"
    )
    assert environment.container(_tree(tmp_path / "e", {".dockerenv": ""})) == "docker"


def test_an_arm_server(tmp_path: Path) -> None:
    text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40\nCPU revision\t: 1\n"
    cpu = environment.cpu(_tree(tmp_path, {"proc/cpuinfo": text}))
    assert (cpu["vendor"], cpu["family"], cpu["model"]) == ("0x41", 8, 0xD40)
    assert cpu["name_why"] == "not in /proc/cpuinfo"


def test_garbage_in_proc_is_survived(tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "proc/meminfo": "\ud7ff nonsense",
            "proc/cpuinfo": ":::\n::",
            "proc/loadavg": "",
            "sys/fs/cgroup/memory.max": "max",
        },
    )
    assert (
        result.missing_reasons({"a": environment.cpu(root), "b": environment.memory(root), "c": environment.host(root)})
        == []
    )


def test_git_that_hangs_or_is_missing_costs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for error in (
        subprocess.TimeoutExpired("git", 2),
        FileNotFoundError("git"),
        subprocess.CalledProcessError(128, "git"),
    ):

        def refuse(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(subprocess, "run", refuse)
        assert environment._git(tmp_path)["git_revision_why"] == "git gave no answer"
    assert environment._git(tmp_path / "none")["git_dirty_why"] == "not run from a checkout"


def test_works_without_home_in_an_ascii_locale() -> None:
    bare = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "from gpumicro.environment import collect; import json; print(json.dumps(collect()))"
    asked = subprocess.run(
        [sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(asked.stdout)["python"] == platform.python_version()
