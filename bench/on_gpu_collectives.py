"""The part all_reduce of on_gpu.py: NCCL on one GPU, and between all of them where there are several."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from on_gpu_place import Place, Row, failed, row, skipped

NOT_HERE = 3  # exit code: NCCL or a GPU is missing


def commands(place: Place, gpus: int) -> list[tuple[str, list[str]]]:
    """(what, arguments): every collective checked, then all_reduce over sizes."""
    last = "64K" if place.emulated else "1G"
    small = ["-b", "64K", "-e", "64K", "--iters", "4", "--max-time", "0.05"]
    sweep = ["all_reduce", "-b", "8", "-e", last, "-f", "8", "--max-time", "0.15", "--place", "out"]
    found = [
        ("1 GPU", [*sweep, "--device", place.device.id]),
        ("1 GPU, graph of 8", [*sweep, "--device", place.device.id, "-e", "64K", "--graph", "8"]),
    ]
    if gpus > 1:
        device = ["--device", "cuda"]
        found = [
            (f"{gpus} GPUs", [*sweep, *device, "--algorithms"]),
            *found,
            (f"{gpus} GPUs, every collective", ["all", *small, *device]),
            (f"{gpus} GPUs, average in bf16", ["all_reduce", *small, *device, "--dtype", "bf16", "--op", "avg"]),
            (f"{gpus} GPUs, transports", [*sweep, *device, "-f", "512", "--transport", "p2p,shm,socket"]),
        ]
    else:
        found += [("1 GPU, every collective", ["all", *small, "--device", place.device.id])]
    return found


def all_reduce(place: Place) -> Row:
    """Each command's rows: its latency, its bandwidth, wrong elements; the documents are kept."""
    gpus = len(place.backend.devices())
    rows: list[Row] = []
    documents: dict[str, Any] = {}
    until_s = time.monotonic() + 1.4 * place.seconds  # the part is ended at 1.67 times that, with all it has
    for what, arguments in commands(place, gpus):
        left_s = until_s - time.monotonic()
        if left_s < 3.0:
            rows.append(skipped(f"NCCL, {what}", "no time was left"))
            continue
        code, said, document = run(arguments, left_s)
        documents[what] = document
        if document is None or not document["measurements"]:
            rows.append((skipped if code == NOT_HERE else failed)(f"NCCL, {what}", said))
            if code == NOT_HERE:
                break
            continue
        found = summary(f"NCCL, {what}", document["measurements"])
        rows += found if code == 0 else [failed(f"NCCL, {what}", said or f"exit code {code}"), *found]
    return {"rows": rows, "documents": documents}


def run(arguments: Sequence[str], limit_s: float) -> tuple[int, str, Any]:
    """(exit code, what it said last, its result or None)."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "r.json"
        command = [sys.executable, "-m", "gpumicro", "collectives", *arguments, "--timeout", "20", "-o", str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
            code, said = done.returncode, " ".join(done.stderr.splitlines()[-2:])
        except subprocess.TimeoutExpired as error:
            code, said = 1, f"was ended after {error.timeout:.0f} s"
        return code, said, json.loads(out.read_text("utf-8")) if out.exists() else None


def summary(name: str, measurements: Sequence[Row]) -> list[Row]:
    """The shortest time and the highest rate of each transport, and how many elements were wrong."""
    rows = []
    for transport in dict.fromkeys(m["transport"] for m in measurements):
        of_it = [m for m in measurements if m["transport"] == transport]
        called = name if transport == "auto" else f"{name}, {transport}"
        least = min(of_it, key=lambda m: float(m["time_s"]["estimate"]))
        note = f"{least['collective']} of {least['size_bytes']} B; {len(of_it)} rows, all checked"
        rows.append(row(f"{called}: least time", least["time_s"]["estimate"], "s", note))
        key = "busbw_bytes_per_s" if any(m["busbw_bytes_per_s"] for m in of_it) else "algbw_bytes_per_s"
        moving = [m for m in of_it if m[key]]
        if moving:
            best = max(moving, key=lambda m: float(m[key]["estimate"]))
            note = f"{best['collective']} of {best['size_bytes']} B, algorithm {best.get('algorithm')}"
            rows.append(row(f"{called}: most {key.partition('_')[0]}", best[key]["estimate"], "B/s", note))
        wrong = sum(m["wrong"] or 0 for m in of_it)
        if wrong:
            rows.append(failed(called, f"{wrong} elements were wrong"))
    return rows
