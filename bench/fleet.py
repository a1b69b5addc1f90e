"""How long does `gpumicro fleet` take over thousands of result files, in how much memory, and whom does it name?

Makes the files (from one measured file, `--like`, all its samples kept), plants slow nodes, a slow rack and broken
files among them, runs the command in a process of its own and sets what it says against what was planted.

    python bench/fleet.py --files 10000 --like result.json
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

RACK = 32  # nodes
SLOW, BY = 0.004, 0.12  # share of the nodes, and by how much
LIKE = Path(__file__).parent.parent / "tests" / "data" / "roofline-cpu.json"


def make(folder: Path, files: int, like: Path, seed: int) -> set[str]:
    """Write the files; the names of the slow nodes. A 200th is broken: cut short, empty or foreign."""
    doc = json.loads(like.read_text())
    measurements = doc["measurements"]
    rest = {key: value for key, value in doc.items() if key not in ("measurements", "replayed", "synthetic")}
    block = json.dumps({"measurements": measurements}, indent=1)[len("{\n") : -len("\n}")]
    rng = np.random.default_rng(seed)
    slow = set()
    for number in range(files):
        rack = number // RACK
        name = f"r{rack:03d}-n{number % RACK:02d}"
        factor = np.exp(0.008 * rng.normal(size=len(rest["ceilings"])))
        if rng.random() < SLOW:
            slow.add(name)
            factor[rng.integers(len(factor))] *= 1 - BY
        if rack == 7:
            factor *= 0.94
        text = json.dumps(_node(rest, factor, number), indent=1)
        text = _in_order(text, block)
        if number % 200 == 57:
            text = ("", text[: len(text) // 2], '{"schema": "other/1"}', "[]")[number // 200 % 4]
            slow.discard(name)
        (folder / f"{name}.json").write_text(text)
    return slow


def _in_order(text: str, block: str) -> str:
    """With the measurements where the suite writes them, before the ceilings."""
    place = text.index('\n "ceilings": [') + 1
    return f"{text[:place]}{block},\n{text[place:]}"


def _node(rest: dict[str, Any], factor: np.ndarray, number: int) -> dict[str, Any]:
    one = copy.deepcopy(rest)
    for ceiling, part in zip(one["ceilings"], factor.tolist(), strict=True):
        if ceiling["achieved"]:
            ceiling["achieved"] *= part
            ceiling["ci95"] = ceiling["ci95"] and [end * part for end in ceiling["ci95"]]
    for device in one["devices"]:
        if device.get("uuid"):
            device["uuid"] = f"GPU-{number:08d}"
    return one


class Memory(threading.Thread):
    """The highest sum of proportional set sizes of a process and all below it, sampled."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.most_bytes, self.done = pid, 0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.1):
            self.most_bytes = max(self.most_bytes, sum(map(_pss, _family(self.pid))))


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        others = [Path(task, "children").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return [pid]
    below = {int(child) for group in (children, *others) for child in group}
    return [pid, *(each for child in below for each in _family(child))]


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def main() -> int:
    """Make, run, compare; 1 where the aim (60 s, 2 GiB, all planted found) is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--like", type=Path, default=LIKE)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="make the files there and leave them")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary) / "fleet"
        folder.mkdir(exist_ok=True, parents=True)
        slow = make(folder, asked.files, asked.like, asked.seed)
        return report(folder, Path(temporary), slow, asked.files)


def report(folder: Path, out: Path, slow: set[str], files: int) -> int:
    size = sum(path.stat().st_size for path in folder.glob("*.json"))
    print(f"{files} files, {size / 2**30:.2f} GiB, {size / files / 2**10:.0f} KiB each")
    outputs = ["-o", str(out / "fleet.json"), "--html", str(out / "fleet.html")]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpumicro", "fleet", str(folder), *outputs], stdout=subprocess.DEVNULL
    )
    memory = Memory(process.pid)
    memory.start()
    code = process.wait()
    wall_s = time.perf_counter() - began
    memory.done.set()
    memory.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"exit {code}, {wall_s:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU, "
        f"{memory.most_bytes / 2**20:.0f} MiB at most (sum of proportional set sizes)"
    )
    found = json.loads((out / "fleet.json").read_text())
    named = {outlier["node"] for outlier in found["slow"]}
    rack = {f"r007-n{i:02d}" for i in range(RACK)}
    missed, false = slow - named, named - slow - rack
    racks = sorted({group["group"] for group in found["groups"] if group["factor"] == "rack" and group["ratio"] < 1})
    print(f"broken files named: {len(found['faults'])} of {math.ceil((files - 57) / 200)}; slow racks: {racks} (r007)")
    print(f"slow nodes found: {len(slow & named)} of {len(slow)}; falsely named: {len(false)} of {files}")
    print(f"{found['tests']} tests; page {(out / 'fleet.html').stat().st_size / 2**20:.1f} MiB")
    return int(wall_s > 60 or memory.most_bytes > 2 << 30 or bool(missed) or bool(code))


if __name__ == "__main__":
    sys.exit(main())
