"""What the monitor's figures say: idle, throttled, memory-bound, input-bound, shrink, grow. Pure rules with reasons.

The thresholds are rules of thumb, and all can be set; each verdict names the figures that it rests on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

from ..errors import UsageError, unknown
from ..watch_gpu import THROTTLED_OVER
from .series import Series, Spread


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Fractions, 0 to 1."""

    shrink: float = 0.30  # average use, below which less would do
    grow: float = 0.70  # average use, above which there is no room left for bursts
    idle: float = 0.05  # average use of a GPU that nothing needs
    memory_bound: float = 0.60  # of the time that the GPU works, its memory is being read or written
    throttled: float = THROTTLED_OVER  # of the time, held down by heat or the supply
    power_capped: float = 0.10  # of the time, held down by the power limit: boost touches it now and then
    cpu_busy: float = 0.85  # average use of all CPUs, or of the busiest one
    io_wait: float = 0.10  # of the CPUs' time, waiting for I/O
    disk_busy: float = 0.80  # average of the busiest disk

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not 0 <= value <= 1:  # NaN too
                raise UsageError(f"threshold {one.name} must be 0 to 1 (30% is 0.3), not {value:g}")
        if self.shrink >= self.grow:
            raise UsageError(f"threshold shrink ({self.shrink:g}) must be below grow ({self.grow:g})")

    @classmethod
    def of(cls, given: Sequence[str]) -> Thresholds:
        """ "shrink=0.2" or "shrink=20%" each. Raises UsageError."""
        known = [one.name for one in fields(cls)]
        found: dict[str, float] = {}
        for text in given:
            name, equals, value = text.partition("=")
            name = name.strip().replace("-", "_")
            if not equals:
                raise UsageError(f"a threshold is NAME=FRACTION, such as shrink=0.2, not {text!r}")
            if name not in known:
                raise UsageError(unknown("threshold", name, known))
            try:
                found[name] = float(value.strip().removesuffix("%")) / (100 if value.strip().endswith("%") else 1)
            except ValueError:
                raise UsageError(f"threshold {name}: {value!r} is not a number") from None
        return replace(cls(), **found)

    def to_json(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Advice:
    """One verdict: of what ("gpu 0", "CPU", "memory"), which, and why."""

    subject: str
    verdict: str
    reason: str


def gpu_advice(
    subject: str, series: Series, host: Series, flags: Sequence[str], held: Mapping[str, float], limits: Thresholds
) -> list[Advice]:
    """Of one GPU. `flags` are those of watch_gpu over the whole time, `held` the share of it by reason."""
    use = series.spread("utilization")
    found = list(_held(subject, flags, held, limits))
    if use is None:
        return found
    if use.average < limits.idle:
        words = f"used {use.average:.1%} of the time on average, under {limits.idle:.0%}: nothing needs it"
        return [*found, Advice(subject, "idle", words)]
    memory = series.spread("memory_busy")
    if memory is not None and memory.average / max(use.average, memory.average) > limits.memory_bound:
        words = (
            f"its memory was being read or written {memory.average:.0%} of the time, "
            f"{memory.average / max(use.average, memory.average):.0%} of what it worked ({use.average:.0%}), over "
            f"{limits.memory_bound:.0%}; `gpumicro roofline` tells how much of the bandwidth that is"
        )
        found.append(Advice(subject, "memory-bound", words))
    starved = _starved(host, limits)
    if use.average <= limits.grow and starved:
        words = f"used {use.average:.0%} of the time on average while {starved}: it waits for its input"
        found.append(Advice(subject, "input-bound", words))
    return [*found, *_size(subject, use, limits)]


def _held(subject: str, flags: Sequence[str], held: Mapping[str, float], limits: Thresholds) -> list[Advice]:
    """Held down by heat, the supply or the power limit."""
    slow = {name: share for name, share in held.items() if name in _SLOWING and share > limits.throttled}
    found = []
    if "throttled" in flags or slow:
        words = ", ".join(f"{name} {share:.1%} of the time" for name, share in slow.items()) or "its counters say so"
        found.append(Advice(subject, "throttled", f"the clock was held down: {words}; look at cooling and supply"))
    capped = held.get("power cap", 0.0)
    if capped > limits.power_capped:
        words = f"at its power limit {capped:.0%} of the time; a higher limit, where allowed, raises the clock"
        found.append(Advice(subject, "power-capped", words))
    return found


_SLOWING = ("hardware slowdown", "software thermal", "hardware thermal", "power brake", "reliability")


def _starved(host: Series, limits: Thresholds) -> str:
    """What on the host is short, in words; "" where nothing is."""
    busy, core, wait, disk = (
        host.spread(key) for key in ("cpu_utilization", "cpu_busiest", "cpu_iowait", "disk_utilization")
    )
    if wait is not None and wait.average > limits.io_wait:
        return f"the CPUs waited for I/O {wait.average:.0%} of their time"
    if disk is not None and disk.average > limits.disk_busy:
        return f"the busiest disk was busy {disk.average:.0%} of the time"
    if busy is not None and busy.average > limits.cpu_busy:
        return f"the CPUs were busy {busy.average:.0%} of their time"
    if core is not None and core.average > limits.cpu_busy:
        return f"one CPU was busy {core.average:.0%} of the time (a loader with one worker?)"
    return ""


def _size(subject: str, use: Spread, limits: Thresholds) -> list[Advice]:
    """Shrink or grow, by the average; a peak above `grow` speaks against shrinking."""
    if use.average > limits.grow:
        words = f"used {use.average:.0%} on average, over {limits.grow:.0%}: no room for bursts"
        return [Advice(subject, "grow", words)]
    if use.average < limits.shrink and use.p95 <= limits.grow:
        words = f"used {use.average:.0%} on average and {use.p95:.0%} at the 95th percentile, under {limits.shrink:.0%}"
        return [Advice(subject, "shrink", f"{words}: a smaller or shared one would do")]
    if use.average < limits.shrink:
        words = f"used {use.average:.0%} on average but {use.p95:.0%} at the 95th percentile: bursts need it"
        return [Advice(subject, "keep", words)]
    return [Advice(subject, "keep", f"used {use.average:.0%} on average, between {limits.shrink:.0%} and "
                                    f"{limits.grow:.0%}")]  # fmt: skip


def host_advice(host: Series, with_gpus: bool, throttled: int | None, limits: Thresholds) -> list[Advice]:
    """Of CPUs and memory."""
    found = []
    if throttled:
        found.append(Advice("CPU", "throttled", f"cores were slowed for heat {throttled} times; look at the cooling"))
    wait, disk = host.spread("cpu_iowait"), host.spread("disk_utilization")
    if not with_gpus and wait is not None and wait.average > limits.io_wait:
        disks = f", the busiest disk busy {disk.average:.0%}" if disk else ""
        words = f"the CPUs waited for I/O {wait.average:.0%} of their time{disks}; see `gpumicro io`"
        found.append(Advice("CPU", "input-bound", words))
    steal = host.spread("cpu_steal")
    if steal is not None and steal.average > limits.throttled:
        found.append(Advice("CPU", "contended", f"the hypervisor gave {steal.average:.1%} of its time to others"))
    for subject, key in (("CPU", "cpu_utilization"), ("memory", "memory_utilization")):
        use = host.spread(key)
        if use is not None and subject == "CPU" and use.average < limits.idle:
            found.append(Advice(subject, "idle", f"used {use.average:.1%} on average, under {limits.idle:.0%}"))
        elif use is not None:
            found += _size(subject, use, limits)
    return found
