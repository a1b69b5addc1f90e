"""What a group does when a kernel does not fit, fails or takes the device with it: scripted backends, a fake clock."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from gpumicro.backends.base import Availability
from gpumicro.device import Cache, Device
from gpumicro.errors import BackendUnavailable, CudaError, OutOfMemory, VerificationError
from gpumicro.kernels import find
from gpumicro.measure import Policy
from gpumicro.peaks.sheet import Sheet
from gpumicro.plan import Group, Item, Plan
from gpumicro.spec import Check, Execution, Problem, measurement_id
from gpumicro.taking import Target, halved, hold, run_group
from gpumicro.timers import FakeTimer, FakeWork
from gpumicro.watch import CpuWatch

POLICY = Policy(target=0.1, max_time_s=0.01, max_warmup_s=0.01)


class Dying(FakeTimer):
    """A clock whose device gives an error from the first span on."""

    def __init__(self, error: CudaError) -> None:
        super().__init__()
        self.error = error

    def sample(self, *_: Any) -> Any:
        raise self.error


class Scripted:
    """A prepared kernel; the backend's script says what goes wrong."""

    backend = "scripted"

    def __init__(self, owner: ScriptedBackend, item: tuple[Any, Any, Any, Any]) -> None:
        self.spec, self.problem, self.execution, self.device = item
        self.owner, self.work, self.facts = owner, FakeWork(1e-5), {"recipe": "none"}
        error = owner.dying.get(self.spec.name)
        self.timer = Dying(error) if error else owner.timer

    def verify(self) -> Check:
        self.owner.verified.append(self.spec.name)
        wrong = self.owner.wrong.get(self.spec.name)
        if wrong:
            raise wrong
        return Check(True, 0.0, 1.0, "none", 1)

    def outputs(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.owner.closed.append(self.spec.name)
        if self.owner.closing:
            raise self.owner.closing

    def __enter__(self) -> Scripted:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ScriptedBackend:
    name = "scripted"

    def __init__(self, room: int = 1 << 62) -> None:
        self.room, self.timer = room, FakeTimer()
        self.verified: list[str] = []
        self.closed: list[str] = []
        self.wrong: dict[str, Exception] = {}
        self.dying: dict[str, CudaError] = {}
        self.closing: CudaError | None = None

    def availability(self) -> Availability:
        return Availability(True)

    def devices(self) -> tuple[Device, ...]:
        return ()

    def supports(self, *_: Any) -> Availability:
        return Availability(True)

    def prepare(self, spec: Any, problem: Problem, execution: Execution, device: Device) -> Scripted:
        if sum(operand.size(problem) for operand in spec.operands) > self.room:
            raise OutOfMemory(f"{spec.name}: no room for {problem}")
        return Scripted(self, (spec, problem, execution, device))


def target(backend: ScriptedBackend, kind: str = "cuda") -> Target:
    device = Device("cuda:0", kind, "x", 100, (), (Cache("l2", 1 << 20, 128, (), 1),), 1 << 30)
    return Target(backend, device, Plan(), Sheet({}, None, None, None), CpuWatch())  # type: ignore[arg-type]


def item(name: str, level: str | None = "dram", **sizes: int) -> Item:
    spec, problem, execution = find(name), Problem.of("float64", **sizes), Execution()
    return Item(measurement_id(spec, problem, execution, "cuda:0", "scripted"), spec, problem, execution, level)


def group(*items: Item) -> Group:
    return Group("test", items, POLICY, 1.0)


def taken(backend: ScriptedBackend, *items: Item, kind: str = "cuda") -> Target:
    one = target(backend, kind)
    planned = group(*items)
    one.plan.groups.append(planned)
    run_group(one, planned)
    return one


def lost(kernel: str = "", gone: bool = True) -> CudaError:
    return CudaError("cudaStreamSynchronize", 700, "cudaErrorIllegalAddress", "an illegal access", kernel, "", gone)


TRIAD, COPY, READ = (item(f"stream.{name}", n=1 << 20) for name in ("triad", "copy", "read"))


# -- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("room", "n"), [(3 << 20, 1 << 20), (3 << 19, 1 << 19), (3 << 18, 1 << 18)])
def test_what_does_not_fit_is_halved_up_to_two_times(room: int, n: int) -> None:
    one = taken(ScriptedBackend(room), TRIAD)
    (record,) = one.records
    assert record["status"] == "ok"
    assert record["problem"] == {"n": n}
    assert ("smaller-size" in record["timing"]["flags"]) is (n < 1 << 20)
    # The repeat at the end and --sustained look the kernel up in the plan.
    assert [i.id for i in one.plan.groups[0].items] == [record["id"]]


def test_and_then_it_is_skipped() -> None:
    (record,) = taken(ScriptedBackend(3 << 17), TRIAD).records
    assert record["status"] == "skipped"
    assert "no room" in record["reason"]


def test_a_size_that_is_the_meaning_of_a_kernel_stays() -> None:
    one = target(ScriptedBackend())
    assert halved(one, item("stream.triad", "l2", n=1 << 20)) is None
    assert halved(one, item("stream.triad", "dram", n=1024)) is None  # too small to be worth it
    assert halved(target(ScriptedBackend(), "cpu"), TRIAD) is None
    smaller = halved(one, item("gemm.tiled", None, m=8192, n=8192, k=4096))
    assert smaller is not None
    assert dict(smaller.problem.sizes) == {"m": 4096, "n": 4096, "k": 2048}
    sweep = halved(one, item("mixed.fma", "dram", n=1 << 20, k=8))
    assert sweep is not None
    assert dict(sweep.problem.sizes) == {"n": 1 << 19, "k": 8}  # k is its intensity


# -- errors -----------------------------------------------------------------------------------------------------------


def by_kernel(one: Target) -> dict[str, dict[str, Any]]:
    return {record["kernel"]: record for record in one.records}


def test_an_error_while_measuring_costs_its_kernel_alone() -> None:
    backend = ScriptedBackend()
    backend.dying = {"stream.copy": lost(gone=False)}
    one = taken(backend, TRIAD, COPY, READ)
    assert {k: r["status"] for k, r in by_kernel(one).items()} == {
        "stream.triad": "ok", "stream.copy": "failed", "stream.read": "ok",
    }  # fmt: skip
    assert "cudaErrorIllegalAddress" in by_kernel(one)["stream.copy"]["error"]
    assert one.lost == ""
    assert sorted(backend.closed) == ["stream.copy", "stream.read", "stream.triad"]


@pytest.mark.parametrize("name", ["stream.copy", "gm::copy<double, 2>"])
def test_a_lost_context_is_blamed_on_the_kernel_that_the_error_names(name: str) -> None:
    backend = ScriptedBackend()
    backend.dying = dict.fromkeys(("stream.triad", "stream.copy", "stream.read"), lost(name))
    backend.closing = lost()
    one = taken(backend, TRIAD, COPY, READ)
    found = by_kernel(one)
    assert found["stream.copy"]["status"] == "failed"
    for other in ("stream.triad", "stream.read"):
        assert found[other]["status"] == "skipped"
        assert found[other]["reason"] == "the CUDA context is lost after stream.copy"
    run_group(one, group(TRIAD))
    assert one.records[-1]["reason"] == "the CUDA context is lost after stream.copy"
    assert backend.verified.count("stream.triad") == 1  # the device was left alone


def test_a_context_that_is_lost_while_checking_leaves_the_others_of_the_group() -> None:
    backend = ScriptedBackend()
    backend.wrong = {"stream.copy": lost("stream.copy")}
    found = by_kernel(taken(backend, TRIAD, COPY, READ))
    assert {name: record["status"] for name, record in found.items()} == {
        "stream.triad": "skipped", "stream.copy": "failed", "stream.read": "skipped",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (VerificationError("stream.copy", 3, 1.0, 2.0, 0.1), "failed"),
        (MemoryError(), "skipped"),
        (BackendUnavailable("no such variant"), "skipped"),
    ],
)
def test_a_check_that_goes_wrong_costs_its_kernel_alone(error: Exception, status: str) -> None:
    backend = ScriptedBackend()
    backend.wrong = {"stream.copy": error}
    found = by_kernel(taken(backend, TRIAD, COPY))
    assert found["stream.copy"]["status"] == status
    assert found["stream.triad"]["status"] == "ok"


def test_ctrl_c_records_what_there_is() -> None:
    class Interrupted(FakeTimer):
        spans = 0

        def sample(self, work: Any, counts: Any) -> Any:
            self.spans += len(counts)
            if self.spans > 300:
                raise KeyboardInterrupt
            return super().sample(work, counts)

    backend = ScriptedBackend()
    backend.timer = Interrupted()
    one = target(backend)
    with pytest.raises(KeyboardInterrupt):
        run_group(one, Group("test", (TRIAD,), Policy(target=1e-6, max_time_s=100.0, max_warmup_s=1e-3), 1.0))
    assert [record["timing"]["stop_reason"] for record in one.records] == ["interrupted"]


# -- held ceilings ----------------------------------------------------------------------------------------------------

CEILING = {"id": "cuda:0/dram", "kind": "memory"}


def test_a_ceiling_is_held_by_the_devices_own_clock() -> None:
    one = target(ScriptedBackend())
    hold(one, CEILING, TRIAD, 0.5)
    (held,) = one.sustained
    assert held.value[-1] == pytest.approx(24 * (1 << 20) / 1e-5, rel=0.1)
    assert len(held.value) == pytest.approx(5, abs=2)


@pytest.mark.parametrize(("gone", "after"), [(True, "stream.triad"), (False, "")])
def test_a_ceiling_that_can_not_be_held_is_a_note(gone: bool, after: str) -> None:
    backend = ScriptedBackend()
    backend.dying = {"stream.triad": lost("stream.triad", gone)}
    one = target(backend)
    hold(one, CEILING, TRIAD, 0.5)
    assert one.lost == after
    assert "could not be held" in one.notes[0]
    hold(one, CEILING, COPY, 0.5)
    assert len(one.sustained) == (0 if gone else 1)


def recorded_by(make: Callable[[], ScriptedBackend]) -> tuple[Target, Any]:
    from gpumicro.recorder import RecordingBackend

    one = target(make())
    listening = RecordingBackend(one.backend, one.device)
    one.backend = listening  # type: ignore[assignment]
    run_group(one, group(TRIAD, COPY))
    return one, listening


def test_a_recorder_changes_nothing_and_keeps_all_spans() -> None:
    plain = taken(ScriptedBackend(), TRIAD, COPY)
    one, listening = recorded_by(ScriptedBackend)
    assert [r["kernel"] for r in one.records] == [r["kernel"] for r in plain.records]
    for record in one.records:
        take = listening.track["measurements"][record["id"]]["takes"][0]
        raw = record["timing"]["raw_s"]
        assert take["spans_s"][-len(raw) :] == raw  # after the warm-up
        assert len(take["spans_s"]) > len(raw)
        assert len(take["counts"]) == len(take["spans_s"])
    assert listening.track["timers"]["fake"]["overhead_s"]


def test_what_failed_is_recorded_too() -> None:
    def make() -> ScriptedBackend:
        backend = ScriptedBackend()
        backend.wrong = {"stream.copy": VerificationError("stream.copy", 3, 1.0, 2.0, 0.1)}
        return backend

    one, listening = recorded_by(make)
    entry = listening.track["measurements"][COPY.id]
    assert entry["status"] == "failed"
    assert "wrong output" in entry["why"]
    assert {r["kernel"]: r["status"] for r in one.records} == {"stream.copy": "failed", "stream.triad": "ok"}


def test_what_fails_while_it_is_measured_is_no_good_time_in_the_recording() -> None:
    def make() -> ScriptedBackend:
        backend = ScriptedBackend()
        backend.dying = {"stream.copy": lost("stream.copy", gone=False)}
        return backend

    one, listening = recorded_by(make)
    assert {r["kernel"]: r["status"] for r in one.records} == {"stream.copy": "failed", "stream.triad": "ok"}
    assert listening.track["measurements"][COPY.id]["status"] == "failed"
    assert listening.track["measurements"][TRIAD.id]["status"] == "ok"


@pytest.mark.parametrize(("error", "status"), [(OutOfMemory("full"), "skipped"), (lost(gone=False), "failed")])
def test_what_cannot_be_prepared_is_recorded_as_the_run_has_it(error: Exception, status: str) -> None:
    class Refusing(ScriptedBackend):
        def prepare(self, spec: Any, *rest: Any) -> Scripted:
            if spec.name == "stream.copy":
                raise error
            return super().prepare(spec, *rest)

    one, listening = recorded_by(Refusing)
    assert next(r for r in one.records if r["kernel"] == "stream.copy")["status"] == status
    assert listening.track["measurements"][COPY.id]["status"] == status


def test_a_time_is_kept_though_the_context_was_lost_before_its_facts_were_asked() -> None:
    class Mute(Scripted):
        """Answers the sampling, which asks how long a span must be, and nobody after it."""

        asked = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "facts":
                self.asked += 1
                if self.asked > 1:
                    raise lost()
            return super().__getattribute__(name)

    class MuteBackend(ScriptedBackend):
        def prepare(self, spec: Any, problem: Problem, execution: Execution, device: Device) -> Scripted:
            return Mute(self, (spec, problem, execution, device))

    (record,) = taken(MuteBackend(), TRIAD).records
    assert record["status"] == "ok"
    assert "context" in record["facts"]["facts_why"]
