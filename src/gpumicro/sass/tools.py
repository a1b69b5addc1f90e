"""cuobjdump and nvdisasm: where they are, and running them on a cubin or on the installed module."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import BackendUnavailable, GpumicroError
from .listing import Code, Usage, parse_code, parse_usage

REMEDY = "pip install 'gpumicro[proof]'"
_WHEEL_FOLDERS = ("nvidia/cu13/bin", "nvidia/cuda_cuobjdump/bin", "nvidia/cuda_nvdisasm/bin")


def find_tool(name: str, folders: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """A tool from NVIDIA's wheels, a CUDA toolkit or PATH. Raises BackendUnavailable."""
    for folder in sys.path if folders is None else folders:
        for inside in _WHEEL_FOLDERS:
            tool = Path(folder or ".", inside, name)
            if tool.is_file() and os.access(tool, os.X_OK):
                return tool
    toolkits = [Path(environment[key], "bin") for key in ("CUDA_HOME", "CUDA_PATH") if environment.get(key)]
    path = os.pathsep.join([*map(str, toolkits), environment.get("PATH", ""), "/usr/local/cuda/bin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise BackendUnavailable(f"{name} is not installed, and without it no kernel can be disassembled", REMEDY)
    return Path(found)


def installed_module() -> Path:
    """The file of gpumicro._cuda. Raises BackendUnavailable where it was not built."""
    spec = importlib.util.find_spec("gpumicro._cuda")
    if spec is None or spec.origin is None or not spec.origin.endswith((".so", ".pyd")):
        raise BackendUnavailable(
            "gpumicro was built without CUDA: there are no device kernels to disassemble",
            "Install it where nvcc is, or with GPUMICRO_CUDA_WHEELS=13 to have nvcc from PyPI",
        )
    return Path(spec.origin)


class Disassembler:
    """cuobjdump, which calls nvdisasm and looks for it on PATH only."""

    def __init__(self) -> None:
        self._cuobjdump = find_tool("cuobjdump")
        beside = [str(find_tool("nvdisasm").parent), os.environ.get("PATH", "")]
        self._environment = {**os.environ, "PATH": os.pathsep.join(beside)}

    def code(self, file: Path, arch: str) -> list[Code]:
        """Every kernel that the file holds for an architecture."""
        return [code for code in parse_code(self._run("-sass", "-arch", arch, file)) if code.arch == arch]

    def usage(self, file: Path, arch: str) -> dict[str, Usage]:
        """What every kernel takes, by symbol."""
        return parse_usage(self._run("-res-usage", "-arch", arch, file))

    def architectures(self, file: Path) -> tuple[str, ...]:
        """Those that the file holds code for, in order: ("sm_75", ..., "sm_120")."""
        return architectures_in(self._run("-lelf", file))

    def _run(self, *arguments: str | Path) -> str:
        command = [str(self._cuobjdump), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment, check=False)
        if done.returncode != 0:
            raise GpumicroError(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


def architectures_in(listing: str) -> tuple[str, ...]:
    """The architectures named by `cuobjdump -lelf`."""
    found = set(re.findall(r"\.(sm_\d+[a-z]?)\.cubin", listing))
    return tuple(sorted(found, key=lambda arch: (int(re.sub(r"\D", "", arch)), arch)))
