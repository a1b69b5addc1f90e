"""The parts of on_gpu.py, each run as a process: `python bench/on_gpu_parts.py PART --device cuda:0 -o part.json`.

A part returns rows: name, value, unit, note, and status "ok", "failed" or "skipped". What it can't do it says. On an
emulated device everything is tiny.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from on_gpu_collectives import all_reduce
from on_gpu_peers import copies, matmul, stream
from on_gpu_place import Place, Row, failed, row, skipped

import gpumicro as gm
from gpumicro import cuda_native, device_probe
from gpumicro.backends import get
from gpumicro.device_timers import EventTimer, GraphTimer
from gpumicro.errors import CudaError, GpumicroError
from gpumicro.kernels import CATALOGUE
from gpumicro.plan import make_plan
from gpumicro.result import to_plain
from gpumicro.spec import Execution, KernelSpec, Problem

GPUMICRO = [sys.executable, "-m", "gpumicro"]
TRUTHS_US = (1, 2, 5, 10, 20, 50, 100, 1000)
STREAM_SIZES, GEMM_SIZES = (1, 31, 33, 1_000_003), ((1, 1, 1), (17, 33, 65), (256, 256, 256))


# -- parts ------------------------------------------------------------------------------------------------------------


def info(_: Place) -> list[Row]:
    """`gpumicro info` answers."""
    done = subprocess.run([*GPUMICRO, "info"], capture_output=True, text=True, timeout=60, check=False)
    return [row("gpumicro info", note=done.stdout) if done.returncode == 0 else failed("gpumicro info", done.stderr)]


def roofline(place: Place) -> Row:
    """`gpumicro roofline --quick` from end to end, its document kept."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "r.json"
        options = ["roofline", "--device", place.device.id, "--quick", "-o", str(out), "--html", f"{folder}/r.html"]
        done = subprocess.run([*GPUMICRO, *options], capture_output=True, text=True, check=False)
        document = json.loads(out.read_text("utf-8")) if out.exists() else None
    good = done.returncode == 0 and document is not None
    said = "verdicts passed" if good else " ".join(done.stderr.splitlines()[-3:])
    if document is not None and not good:
        said = "; ".join(v["text"] for v in document["verdicts"] if not v["passed"]) or said
    rows = [row("roofline --quick", note=said) if good else failed("roofline --quick", f"{done.returncode}: {said}")]
    return {"rows": rows, "document": document}


def checks(place: Place, spec: KernelSpec) -> Iterator[tuple[str, Problem, Execution]]:
    """(dtype, problem, execution) of each check of a kernel: its small default, and odd sizes."""
    assert spec.gpu is not None
    plan = make_plan(place.tiny, place.backend, mode="default")
    seen = {(i.problem, i.execution) for g in plan.groups for i in g.items if i.spec.name == spec.name}
    for dtype in spec.gpu.dtypes:
        for variant in spec.gpu.variants(dtype, place.device) or ("",):
            execution = Execution(1, variant)
            if spec.family == "stream":
                sizes: list[dict[str, int]] = [{"n": n} for n in STREAM_SIZES]
            elif spec.family == "gemm":
                sizes = [{"m": m, "n": n, "k": k} for m, n, k in GEMM_SIZES]
            else:
                sizes = []
            seen |= {(Problem.of(dtype, **size), execution) for size in sizes}
    for problem, execution in sorted(seen, key=str):
        small = all(size < 100_000 for _, size in problem.sizes)
        if small or not place.emulated:
            yield problem.dtype, problem, execution


def verify(place: Place, families: Sequence[str] = ()) -> list[Row]:
    """Every kernel's outputs against their reference; a lost context ends it, with what was found."""
    rows: list[Row] = []
    until_s = time.monotonic() + place.seconds
    for spec in CATALOGUE:
        if spec.gpu is None or (families and spec.family not in families):
            continue
        passed, reasons = 0, dict[str, None]()
        for dtype, problem, execution in checks(place, spec):
            can = place.backend.supports(spec, dtype, place.device)
            if time.monotonic() > until_s:
                reasons["no time was left"] = None
                break
            if not can:
                reasons[f"{dtype}: {can.reason}"] = None
                continue
            try:
                with place.backend.prepare(spec, problem, execution, place.device) as prepared:
                    prepared.verify()
                passed += 1
            except GpumicroError as error:
                rows.append(failed(f"verify {spec.name}", f"{problem} {execution.variant}: {error}"))
                if isinstance(error, CudaError) and error.lost:
                    return rows
        why = "; ".join(reasons)
        name = f"verify {spec.name}"
        rows.append(row(name, passed, note=why) if passed else skipped(name, why or "nothing could be checked"))
    return rows


def timers(place: Place) -> list[Row]:
    """Tick and costs of the device's clock; known durations by events and by graphs."""
    rows = []
    probe = device_probe.probe(place.index)
    rows.append(row("event tick", probe.tick.seconds, "s", probe.tick.how, probe=probe.to_json()))
    spin = cuda_native.load().timing.spin
    for make in (EventTimer, GraphTimer):
        timer = make(place.index)
        for truth in TRUTHS_US[-2:] if place.emulated else TRUTHS_US:
            name = f"{timer.name} timer: spin of {truth} us"
            try:
                seen = gm.time_kernel(spin(place.index, 1000 * truth), timer=timer, max_time_s=0.5, max_warmup_s=0.2)
            except GpumicroError as error:
                rows.append(failed(name, error))
                continue
            off = seen.estimate_s - 1e-6 * truth
            note = f"off by {off:+.3g} s ({off / (1e-6 * truth):+.2%}); n={seen.n}; {', '.join(seen.flags)}"
            rows.append(row(name, seen.estimate_s, "s", note, ci95=list(seen.ci95_s), error_s=off))
    return rows


def compare(place: Place) -> list[Row]:
    """A/A must not differ; B with 1% more cycles must be found slower."""
    spin, cycles = cuda_native.load().timing.spin, 2_000 if place.emulated else 40_000
    rows = []
    for name, more, wanted in (("A/A", 1.0, ("equivalent", "inconclusive")), ("A/B +1%", 1.01, ("slower",))):
        a, b = (spin(place.index, round(cycles * factor), True) for factor in (1.0, more))
        found = gm.compare(a, b, timer=EventTimer(place.index), margin=0.005, max_time_s=place.seconds / 3)
        note = f"{found}"
        good = found.verdict in wanted or place.emulated
        one = row(name, found.ratio, "", note, ci95=list(found.ci95), verdict=found.verdict)
        rows.append(one if good else one | {"status": "failed", "note": f"failed: {note}"})
    return rows


def subset(place: Place) -> list[Row]:
    """What the sanitizer watches: a kernel of each kind of access, at small sizes."""
    return verify(place, ("stream", "gemm", "atomics"))


def sanitizer(place: Place) -> list[Row]:
    """compute-sanitizer's memcheck and racecheck over `subset`."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return [skipped("compute-sanitizer", "it is not on PATH")]
    rows = []
    for check in ("memcheck", "racecheck"):
        command = [tool, "--tool", check, "--error-exitcode", "9", sys.executable, __file__, "subset", "--device",
                   place.device.id, "--seconds", str(place.seconds / 2), "-o", "/dev/null"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = " ".join((done.stdout + done.stderr).splitlines()[-3:])
        rows.append(
            row(f"sanitizer {check}", note=said) if done.returncode == 0 else failed(f"sanitizer {check}", said)
        )
    return rows


PARTS: dict[str, Callable[[Place], list[Row] | Row]] = {
    "info": info, "roofline": roofline, "verify": verify, "timers": timers, "compare": compare, "stream": stream,
    "copies": copies, "matmul": matmul, "all_reduce": all_reduce, "subset": subset, "sanitizer": sanitizer,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        backend = get("cuda")
        device = next(device for device in backend.devices() if device.id == given.device)
        made = PARTS[given.part](Place(device, backend, given.seconds))
        found: Row = {"status": "ok", "rows": made} if isinstance(made, list) else {"status": "ok", **made}
    except StopIteration:
        found = {"status": "failed", "why": f"there is no {given.device}", "rows": []}
    except Exception as error:  # whatever it is, it is a row of the table
        found = {"status": "failed", "why": f"{type(error).__name__}: {error}", "rows": []}
    given.output.write_text(json.dumps(to_plain(found)), encoding="utf-8")
    return 1 if found["status"] == "failed" or any(r["status"] == "failed" for r in found["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
