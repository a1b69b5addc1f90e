"""A stand-in for fio on PATH: a script that writes a small file and prints fio 3's JSON, or fails as it is told."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

BW = 500_000_000


def _part(did: bool, bw: int, block: int) -> dict[str, Any]:
    if not did:
        return {"io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "total_ios": 0, "clat_ns": {"mean": 0.0, "N": 0}}
    latency = {"min": 1000, "max": 9_000_000, "mean": 150_000.0, "N": 100,
               "percentile": {"50.000000": 120_000, "99.000000": 800_000}}  # fmt: skip
    return {"io_bytes": bw, "bw_bytes": bw, "iops": bw / block, "total_ios": 100, "clat_ns": latency}


def main(arguments: list[str], how: str) -> int:
    """`how`: "", "old", "silent", "cut", "full", "no-reads", "interrupt", "zero"."""
    if "--version" in arguments:
        sys.stdout.write("fio-2.2.10\n" if how == "old" else "fio-3.36\n")
        return 0
    if "--enghelp" in arguments:
        sys.stdout.write("Available IO engines:\n\tpsync\n\tlibaio\n")
        return 0
    given = dict(one.removeprefix("--").partition("=")[::2] for one in arguments)
    with Path(os.environ["FAKE_FIO_LOG"]).open("a") as log:
        log.write(json.dumps(given) + "\n")
    write = "write" in given["rw"]
    if how == "full" or (how == "no-reads" and not write):
        sys.stderr.write("fio: io_u error on file data: No space left on device: write offset=0, buflen=1048576\n")
        return 1
    if how == "interrupt" and not write:
        os.kill(os.getppid(), 2)
        import time

        time.sleep(30)  # it is ended before
    if given["rw"] == "write":
        Path(given["filename"]).write_bytes(bytes(2 << 20))
    if how == "silent":
        return 0
    block, bw = int(given["bs"]), 0 if how == "zero" else BW
    job = {"jobname": given["name"], "error": 0, "job options": {key: given[key] for key in ("rw", "bs", "size")},
           "read": _part(not write, bw, block), "write": _part(write, bw, block)}  # fmt: skip
    text = json.dumps({"fio version": "fio-3.36", "jobs": [job], "disk_util": [{"name": "vda"}]}, indent=1)
    sys.stdout.write("note: a remark of fio\n" + (text[: len(text) // 2] if how == "cut" else text))
    return 0


def install(folder: Path) -> Path:
    """Put it into a folder as `fio`; returns the folder, for PATH."""
    folder.mkdir()
    script = folder / "fio"
    text = f"import os, sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport fake_fio\n"
    script.write_text(f"#!{sys.executable} -IS\n{text}sys.exit(fake_fio.main(sys.argv[1:], os.environ['FAKE_FIO']))\n")
    script.chmod(0o755)
    return folder
