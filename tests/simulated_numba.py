"""Runs Numba's GPU kernels in its simulator and writes what they left; a program, since the simulator is for a process.

NUMBA_ENABLE_CUDASIM=1 python simulated_numba.py OUT.npz
"""

from __future__ import annotations

import sys

# A tile of a map or fold is 1,024 doubles or 2,048 floats; the simulated device gets 8 blocks at most of "persistent".
CASES: tuple[tuple[str, dict[str, int], tuple[str, ...]], ...] = (
    *(("stream.triad", {"n": n}, ("float64", "float32")) for n in (0, 1, 7, 2500)),
    *((f"stream.{name}", {"n": 2500}, ("float64", "float32")) for name in ("write", "scale", "add")),
    ("stream.copy", {"n": 9300}, ("float64", "float32")),
    *((f"stream.{name}", {"n": n}, ("float64",)) for name in ("read", "dot") for n in (7, 2500)),
    ("stream.dot", {"n": 4100}, ("float32",)),
    ("peak.fma", {"blocks": 2, "steps": 2}, ("float64", "float32")),
    ("gemm.tiled", {"m": 16, "n": 16, "k": 16}, ("float32",)),
    ("gemm.tiled", {"m": 17, "n": 19, "k": 23}, ("float64", "float32")),
    ("gemm.tiled", {"m": 65, "n": 3, "k": 1}, ("float64",)),
    ("latency.gpu_chase", {"n": 50, "hops": 70}, ("int64",)),
    ("latency.gpu_chase", {"n": 1, "hops": 3}, ("int64",)),
)


def label(name: str, sizes: dict[str, int], dtype: str, variant: str) -> str:
    """The name of a case's array in the file."""
    return "/".join((name, *(f"{key}={value}" for key, value in sizes.items()), dtype, variant))


def main(path: str) -> None:
    """Verify every case and keep its output."""
    import numpy as np

    from gpumicro import backends
    from gpumicro.kernels import find

    backend = backends.get("numba")
    device = backend.devices()[0]
    assert device.facts["emulated"]
    kept = {}
    for name, sizes, dtypes in CASES:
        for dtype in dtypes:
            variants = backend.variants(find(name), dtype, device)  # type: ignore[attr-defined]
            for variant in variants if name == "stream.copy" else variants[:1]:
                with backends.prepare(
                    name, backend="numba", device="cuda:0", dtype=dtype, variant=variant, **sizes
                ) as kernel:
                    for _ in range(2 if sizes.get("n") == 2500 else 1):  # what a run must leave for the next
                        check = kernel.verify()
                        assert check.passed
                    outputs = kernel.outputs()
                    assert kernel.facts["emulated"]
                kept[label(name, sizes, dtype, variant)] = next(iter(outputs.values()))
    np.savez(path, **kept)


if __name__ == "__main__":
    main(sys.argv[1])
