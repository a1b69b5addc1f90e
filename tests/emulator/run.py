"""Runs Python with `gpumicro._cuda` replaced by a build against the test double of the CUDA runtime.

    python run.py CUDART CUDA_MODULE COUNTS -m MODULE [ARG...] | -c CODE [ARG...] | SCRIPT [ARG...]

CUDART: the double, libcudart.so.13. CUDA_MODULE: the other _cuda*.so. COUNTS: where what was executed is written, as
JSON, when the code ends; "" for nowhere. The library is loaded by path before the module that needs its name.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import runpy
import sys
from pathlib import Path


def replace_module(path: str) -> None:
    """Puts the extension at `path` where `import gpumicro._cuda` looks first."""
    package = importlib.import_module("gpumicro")
    spec = importlib.util.spec_from_file_location("gpumicro._cuda", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpumicro._cuda"] = module
    spec.loader.exec_module(module)
    package._cuda = module  # type: ignore[attr-defined]


def run(arguments: list[str]) -> None:
    """What `python ARGUMENTS` would do."""
    kind = arguments[0]
    if kind == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(kind, run_name="__main__")


def main() -> None:
    cudart, module, counts = sys.argv[1:4]
    double = ctypes.CDLL(cudart, mode=ctypes.RTLD_GLOBAL)
    double.ptxemu_counts_json.restype = ctypes.c_char_p
    replace_module(module)
    try:
        run(sys.argv[4:])
    finally:
        if counts:
            Path(counts).write_bytes(double.ptxemu_counts_json())


if __name__ == "__main__":
    main()
