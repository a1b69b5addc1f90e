"""What must hold of an extra that was just installed beside gpumicro, on a machine that may have no GPU."""

from __future__ import annotations

import subprocess
import sys

import gpumicro as gm
from gpumicro import libraries


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gpumicro", *arguments], capture_output=True, text=True, check=False)


def information() -> str:
    """`gpumicro info` works and complains of nothing."""
    done = run("info")
    assert done.returncode == 0, done
    assert done.stderr == "", done.stderr
    return " ".join(done.stdout.split())


def cupy() -> None:
    from gpumicro import nvrtc

    told = information()
    assert "no cupy" not in told.lower(), told
    program = nvrtc.compile('extern "C" __global__ void k(float *x) { x[threadIdx.x] *= 2.0f; }', (), "sm_90a")
    assert program.image
    if "Backend cupy cannot run" in told:
        done = run("roofline", "--quick", "--backend", "cupy")
        assert done.returncode == 3, done
        assert "driver" in done.stderr, done.stderr


def numba() -> None:
    from numba import cuda, types

    information()
    with gm.prepare("stream.triad", backend="numba", n=100_003) as triad:
        assert triad.verify().passed
        assert gm.time_kernel(triad, max_time_s=0.2).estimate_s > 0

    def twice(x):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    text, _ = cuda.compile_ptx(twice, (types.float32[:],), cc=(9, 0))
    assert ".entry" in text


def cuda13() -> None:
    for name in ("cublasLt", "nccl"):
        assert libraries.find(name), libraries.find(name)
    information()


if __name__ == "__main__":
    extra = sys.argv[1]
    {"cupy-cuda13": cupy, "numba": numba, "cuda13": cuda13}[extra]()
    print(f"{extra} on Python {sys.version.split()[0]}: good")  # noqa: T201
