"""One process of several on the doubles of CUDA and NCCL: makes its communicators, sums, says what came of it.

    python nccl_rank.py ID SIZE RANKS [TIMEOUT_S [blocking]]

ID: the unique id in hexadecimal. RANKS: of this process, with commas; rank i is on device i. Prints a line of JSON:
{"sum": what every element of its ranks is after two all_reduces of ones, "spans": the shape of a clock's sample} or
{"error": ncclResult_t's name, "detail": ..., "timed_out": ..., "text": the message}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from gpumicro import cuda_native, libraries
from gpumicro.errors import NcclError


def sums(key: bytes, size: int, ranks: list[int], timeout_s: float, blocking: bool) -> dict[str, Any]:
    cuda = cuda_native.load()
    library = cuda.nccl.Nccl(libraries.find("nccl").path)
    made = cuda.nccl.Communicators(library, size, key, ranks, ranks, timeout_s=timeout_s, blocking=blocking)
    buffers = [cuda.Buffer(rank, 8000) for rank in ranks]
    for buffer in buffers:
        buffer.upload(np.ones(1000))
    at = [buffer.address for buffer in buffers]
    one = cuda.nccl.Collective(made, "all_reduce", "float64", 1000, at, at)
    one.run(2)
    spans = cuda.nccl.Clock(made, gate_timeout_s=10.0).sample(None, np.zeros(2, np.int64))
    elements = {float(x) for buffer in buffers for x in buffer.download().view(np.float64)}
    made.close()
    return {"sum": sorted(elements), "spans": list(spans.shape)}


def main() -> None:
    key, size, ranks, *rest = sys.argv[1:]
    try:
        timeout_s = float(rest[0]) if rest else 20.0
        found = sums(bytes.fromhex(key), int(size), [int(rank) for rank in ranks.split(",")], timeout_s, len(rest) > 1)
    except NcclError as error:
        found = {"error": error.name, "detail": error.detail, "timed_out": error.timed_out, "text": str(error)}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
