"""The first thing to run on a real GPU: does every kernel compute what it should, every clock say the truth, and how do
the ceilings stand beside the spec and beside other tools?

    python bench/on_gpu.py [--build] [--device cuda:0] [--seconds 300] [-o FILE]

--build first installs this checkout with its CUDA module (minutes, not counted).

Runs each part of on_gpu_parts.py in a process of its own, so that one that crashes, hangs or loses its CUDA context
costs the others nothing; a part that fails is a row with its reason. Prints one table and writes one JSON,
bench/results/<host>-<gpu>-<date>.json. Exit code: 0 all well, 1 a part failed, 3 no device (nothing is written).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpumicro import cuda_native, environment
from gpumicro.backends import get
from gpumicro.device import Device
from gpumicro.result import device_record, replace_file
from gpumicro.units import format_quantity

SCHEMA = "gpumicro-on-gpu/1"
PARTS_FILE = Path(__file__).with_name("on_gpu_parts.py")
# In this order, each with the seconds it may take at most. The roofline comes first: it wants the GPU to itself.
PARTS = {
    "roofline": 100.0, "info": 20.0, "verify": 90.0, "timers": 40.0, "compare": 40.0, "stream": 30.0, "copies": 30.0,
    "matmul": 60.0, "all_reduce": 45.0, "sanitizer": 60.0,
}  # fmt: skip
ROOT = Path(__file__).resolve().parent.parent
BUILD = "pip install . -C cmake.define.GPUMICRO_CUDA=ON"

Row = dict[str, Any]


def no_device(wanted: str) -> str | Device:
    """The device, or why there is none and what would help, in sentences."""
    why = cuda_native.missing()
    if why:
        return f"gpumicro was built without CUDA ({why}). Build it where nvcc is: {BUILD}"
    backend = get("cuda")
    can = backend.availability()
    if not can:
        return f"{can.reason}. {can.remedy}".rstrip(". ") + "."
    found = {device.id: device for device in backend.devices()}
    return found.get(wanted) or f"There is no {wanted} here, only {', '.join(found)}."


def run_process(command: Sequence[str], limit_s: float) -> str:
    """Run it and whatever it starts; "" or how it ended. At the limit all of them are ended."""
    with tempfile.TemporaryFile("w+") as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, text=True, start_new_session=True
            )
        except OSError as error:
            return str(error)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"was ended after {limit_s:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        last = "\n".join(said.read().strip().splitlines()[-5:])
        return f"ended with code {code}: {last}"


def run_part(name: str, device: str, limit_s: float, seconds: float) -> Row:
    """What a part wrote, or that it failed and how; a part is a process that writes one JSON."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "part.json"
        command = [sys.executable, str(PARTS_FILE), name, "--device", device, "--seconds", str(seconds), "-o", str(out)]
        why = run_process(command, limit_s)
        try:
            found: Row = json.loads(out.read_text("utf-8"))
        except (OSError, ValueError):
            found = {"status": "failed", "why": why, "rows": []}
    return found | {"seconds": time.monotonic() - began_s}


def run_parts(device: str, names: Sequence[str], seconds: float) -> dict[str, Row]:
    """Every part within the time that all of them have together."""
    until_s = time.monotonic() + seconds
    found: dict[str, Row] = {}
    for name in names:
        left_s = until_s - time.monotonic()
        if left_s < 5.0:
            found[name] = {"status": "skipped", "why": "no time was left", "rows": [], "seconds": 0.0}
            continue
        limit_s = min(PARTS[name], left_s)
        print(f"[{seconds - left_s:3.0f} of {seconds:.0f} s] {name}", file=sys.stderr, flush=True)
        found[name] = run_part(name, device, limit_s, 0.6 * limit_s)
    return found


# -- the table --------------------------------------------------------------------------------------------------------


def ceiling_rows(document: Row | None) -> list[Row]:
    """Each roof and GEMM point of the roofline run, with its spec."""
    if document is None:
        return []
    rows = [
        {"name": c["id"], "key": c["level"] or c["dtype"], "unit": c["unit"], "value": c["achieved"],
         "spec": c.get("spec"), "note": "; ".join(filter(None, (c["recipe"], *c["flags"])))}
        for c in document["ceilings"] if c["scope"] == "roof"
    ]  # fmt: skip
    for m in document["measurements"]:
        if m["status"] == "ok" and m["family"] == "gemm" and m.get("flop_per_s") and "repeat_of" not in m:
            rows.append({
                "name": f"{m['kernel']} {m['problem']['n']} {m['variant']}".rstrip(), "key": f"gemm {m['dtype']}",
                "unit": "FLOP/s", "value": m["flop_per_s"]["estimate"], "spec": None, "note": m["dtype"],
            })  # fmt: skip
    return rows


def table(parts: dict[str, Row]) -> list[Row]:
    """The rows of every part; a ceiling gets the peers' figures that mean the same beside it."""
    peers = [row for name in ("stream", "copies", "matmul") for row in parts.get(name, {}).get("rows", [])]
    rows = ceiling_rows(parts.get("roofline", {}).get("document"))
    for row in rows:
        same = [p for p in peers if p.get("beside") == row["key"] and p.get("value")]
        row["peers"] = {p["name"]: p["value"] for p in same}
    used = {name for row in rows for name in row["peers"]}
    rows += [{"spec": None, "peers": {}, "note": "", **p} for p in peers if p["name"] not in used]
    for name, part in parts.items():
        if name not in ("stream", "copies", "matmul"):
            rows += [{"spec": None, "peers": {}, "note": "", **row} for row in part.get("rows", [])]
        if part["status"] != "ok":
            note = f"{part['status']}: {part.get('why', '')}"
            rows.append({"name": f"part {name}", "value": None, "unit": "", "spec": None, "peers": {}, "note": note})
    return rows


def show(rows: Sequence[Row]) -> None:
    """One line a row: figure, spec and the share of it, peers, remark."""
    print(f"{'what':44} {'figure':>14} {'spec':>14} {'share':>7}  beside it and remarks")
    for row in rows:
        value, spec, unit = row.get("value"), row.get("spec"), row.get("unit") or ""

        def shown(figure: float | None, unit: str = unit) -> str:
            return "-" if figure is None else format_quantity(figure, unit) if unit else f"{figure:g}"

        share = f"{value / spec:.1%}" if value and spec else ""
        beside = [f"{name} {shown(figure)}" for name, figure in row["peers"].items()]
        note = " ".join(str(row.get("note", "")).split())
        print(f"{row['name'][:44]:44} {shown(value):>14} {shown(spec):>14} {share:>7}  {'; '.join([*beside, note])}")


def output_path(device: Device) -> Path:
    """bench/results/<host>-<gpu>-<date>.json; the host by its hash, as in every result."""
    host = environment.host()["hostname_hash"] or "host"
    name = re.sub(r"[^A-Za-z0-9]+", "-", device.name).strip("-")
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return Path(__file__).with_name("results") / f"{host}-{name}-{stamp}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=300.0, help="for all parts together")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="these parts alone")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--build", action="store_true", help="install this checkout with its CUDA module first")
    given = parser.parse_args(arguments)
    if given.build:
        if subprocess.call([sys.executable, "-m", *BUILD.split()], cwd=ROOT):
            return 1
        rest = [argument for argument in arguments or sys.argv[1:] if argument != "--build"]
        os.execv(sys.executable, [sys.executable, __file__, *rest])  # the module just built is not the one loaded here
    device = no_device(given.device)
    if isinstance(device, str):
        print(f"No device: {device}", file=sys.stderr)
        return 3
    parts = run_parts(given.device, given.only or list(PARTS), given.seconds)
    rows = table(parts)
    show(rows)
    emulated = bool(device.facts.get("emulated"))
    if emulated:
        print("EMULATED: kernels were interpreted on a CPU. No figure above says anything about a GPU.")
    path = given.output or output_path(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "schema": SCHEMA, "emulated": emulated, "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "environment": environment.collect(), "device": device_record(device), "build": cuda_native.load().build,
        "parts": parts, "table": rows,
    }  # fmt: skip
    replace_file(path, (json.dumps(record, indent=1) + "\n").encode())
    print(f"wrote {path}", file=sys.stderr)
    failed = any(part["status"] == "failed" for part in parts.values())
    return 1 if failed or any(row.get("status") == "failed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
