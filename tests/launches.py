"""What the tests of job scripts share: hostile words, and programs on PATH that keep what they were given."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from gpumicro.cluster.launch import LaunchPlan, launch_plan

IMAGE = "registry.example:5000/team/gpumicro:0.1"
HOSTILE = (
    "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"; touch pwned; "', "a\n#SBATCH --partition=theirs\nb",
    "$HOME", "$(HOME)", "$$", "${HOME}", "", " ", "*", "~", "-n", "\\", "a\\'b", "é☃\U0001f680", "!!", "{a,b}",
    "x{node}y", "{node}", "$((1+1))", ": - [", "\t", "&", "|", "> pwned",
)  # fmt: skip


def plan(*words: str, nodes: int = 2, gpus: int = 8, **more: Any) -> LaunchPlan:
    return launch_plan(words or ("roofline",), nodes, gpus, **more)


def seen_by(program: str, folder: Path, *more: str) -> str:
    """A fake program on PATH that keeps its arguments, each ended by a NUL, and runs those after `--` if asked to."""
    fakes = folder / "fakes"
    fakes.mkdir(exist_ok=True)
    kept = folder / f"{program}.words"
    path = fakes / program
    path.write_text("\n".join(["#!/bin/bash", f"printf '%s\\0' \"$@\" > '{kept}'", *more]) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return str(fakes)


def words_of(program: str, folder: Path) -> list[str]:
    return (folder / f"{program}.words").read_text(encoding="utf-8").split("\0")[:-1]


def bash(script: str, folder: Path, **variables: str) -> None:
    environment = {"PATH": f"{folder / 'fakes'}:{os.environ['PATH']}", "HOME": "/nowhere", "LC_ALL": "C.UTF-8"}
    subprocess.run(["bash", "-c", script], cwd=folder, env=environment | variables, check=True, timeout=30)
    assert not (folder / "pwned").exists()


def expected(number: str) -> list[str]:
    return ["roofline", *(word.replace("{node}", number) for word in HOSTILE)]
