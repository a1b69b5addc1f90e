"""What `time_kernel` makes of works: arguments, streams, results that are none yet, and what a work does besides."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import functools
import multiprocessing.pool
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import fake_frameworks as fakes
import numpy as np
import pytest

from gpumicro import FakeTimer, FakeWork, compare, time_kernel
from gpumicro.errors import UsageError
from gpumicro.measure import MeasurementsInterrupted, Policy, measure, warn_if_slow
from gpumicro.works import Timed, as_timed
from gpumicro.works.place import leaves
from gpumicro.works.unfinished import waits_for

LABS = ctypes.CDLL(None).labs
LABS.argtypes, LABS.restype = [ctypes.c_long], ctypes.c_long
QUICK: dict[str, Any] = {"max_samples": 8, "max_time_s": 60.0, "warmup": 2, "batch": 1}


@pytest.fixture(autouse=True)
def no_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if none were loaded, whatever other tests did."""
    for name in fakes.FRAMEWORKS:
        monkeypatch.delitem(sys.modules, name, raising=False)


# --- arguments --------------------------------------------------------------------------------------------------


def test_a_keyword_that_is_no_policy_names_the_nearest() -> None:
    for call in (time_kernel, functools.partial(compare, lambda: None)):
        with pytest.raises(UsageError, match=r"unknown keyword 'max_times_s'; did you mean max_time_s"):
            call(lambda: None, max_times_s=1)  # type: ignore[operator]


def test_arguments_are_given_to_the_work() -> None:
    seen = []
    time_kernel(lambda x, y: seen.append((x, y)), 1, "two", **QUICK)
    assert set(seen) == {(1, "two")}
    assert len(seen) >= 8


def needs_two(x: object, y: object) -> None: ...


def needs_keyword(x: object, *, axis: int) -> None: ...


@pytest.mark.parametrize(
    ("work", "args", "says"),
    [
        (needs_two, (), r"needs_two\(x: .*needs x, y: give them after the work, time_kernel\(needs_two, x, y\)"),
        (needs_two, (1,), r"needs y: give them after the work, time_kernel\(needs_two, \.\.\., y\)"),
        (needs_two, (1, 2, 3), "does not take these 3 arguments: too many"),
        (needs_keyword, (1,), r"needs axis: bind them: functools\.partial\(needs_keyword, axis=\.\.\.\)"),
        (lambda: None, (1,), "does not take these 1 arguments"),
        (max, (), "max cannot be called with these 0 arguments: max expected at least 1 argument"),
        (LABS, ("a",), "labs cannot be called with these 1 arguments: argument 1"),
        (5, (), "int is no work"),
    ],
)
def test_arguments_that_do_not_fit_are_told_before_anything_runs(work: Any, args: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        time_kernel(work, *args)


def test_a_c_function_takes_arguments_through_ctypes() -> None:
    assert time_kernel(LABS, -3, **QUICK).loop == "python"


def test_what_is_prepared_takes_neither_arguments_nor_a_stream() -> None:
    for options in ({"stream": 5}, {}):
        with pytest.raises(UsageError, match="is bound to its"):
            time_kernel(FakeWork(1e-5), *([] if options else [1]), timer=FakeTimer(), **options)


def test_a_work_without_arguments_is_timed_as_it_is() -> None:
    def work() -> None: ...

    timed = as_timed(work)
    assert isinstance(timed, Timed)
    assert timed.work is work  # nothing is wrapped around it, which would be timed with it
    assert timed.timer is None
    assert (timed.facts["framework"], timed.facts["device"]) == ("python", "cpu")


# --- results that are none yet ----------------------------------------------------------------------------------


def generator() -> Any:
    yield 1


async def coroutine() -> None: ...


class LazyFrame:
    __module__ = "polars.lazyframe.frame"


class Collection:
    def __dask_graph__(self) -> None: ...


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (generator, "calling the generator generator runs nothing"),
        (lambda: generator(), "returned a generator: nothing was computed yet"),
        (lambda: {"a": [map(str, [1])]}, "returned a map"),
        (coroutine, "coroutine function runs nothing"),
        (lambda: coroutine(), "a coroutine runs nothing until it is awaited"),
        (lambda: LazyFrame(), r"returned a LazyFrame: it is not done; call \.collect\(\)"),
        (lambda: (1, Collection()), r"a dask collection is a plan; call \.compute\(\)"),
        (lambda: threading.Thread(target=int), r"Thread: it is not done; call \.join\(\)"),
    ],
)
def test_no_lazy_result_counts_as_done(work: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        time_kernel(work, **QUICK)


def test_handles_of_work_that_goes_on_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Popen: it is not done; call \.wait\(\)"):
        time_kernel(lambda: subprocess.Popen.__new__(subprocess.Popen), **QUICK)
    with multiprocessing.pool.ThreadPool(1) as pool, pytest.raises(UsageError, match=r"call \.get\(\)"):
        time_kernel(lambda: pool.apply_async(int), **QUICK)
    loop = asyncio.new_event_loop()
    with pytest.raises(UsageError, match="run the event loop to its end"):
        time_kernel(loop.create_future, **QUICK)
    loop.close()


def test_a_future_is_waited_for_each_time() -> None:
    class Counted(concurrent.futures.Future):  # type: ignore[type-arg]
        waits = 0

        def result(self, timeout: float | None = None) -> Any:
            Counted.waits += 1
            return super().result(timeout)

    calls = 0

    def work() -> Any:
        nonlocal calls
        calls += 1
        future = Counted()
        future.set_result(None)
        return [future]

    time_kernel(work, **QUICK)
    assert Counted.waits == calls >= 9


def test_each_of_many_futures_is_waited_for() -> None:
    waited = []

    class Counted(concurrent.futures.Future):  # type: ignore[type-arg]
        def result(self, timeout: float | None = None) -> Any:
            waited.append(timeout)

    found = waits_for([Counted() for _ in range(5000)])
    assert found is not None
    found([Counted() for _ in range(5000)])
    assert len(waited) == 5000


def test_a_matrix_of_lists_is_not_searched_to_its_end() -> None:
    row: list[Any] = [1.0] * 1000
    seen = list(leaves([row] * 1000))
    assert 0 < len(seen) <= 1000
    row[:] = [row] * 1000  # in itself
    assert list(leaves(row)) == []


def test_what_lies_further_out_is_seen_first() -> None:
    assert list(leaves({"a": [1, (2, [3])], "b": 4})) == [4, 1, 2, 3]


# --- what a work does besides -----------------------------------------------------------------------------------


def test_an_exception_passes_with_a_note_on_which_call_it_was() -> None:
    def fails_at(n: int) -> Callable[[], None]:
        left = iter(range(n))

        def work() -> None:
            if next(left, None) is None:
                raise LookupError("no more")

        return work

    with pytest.raises(LookupError, match="no more") as first:
        time_kernel(fails_at(0))
    assert first.value.__notes__ == ["gpumicro: the work raised this in its first call, before anything was timed"]
    with pytest.raises(LookupError, match="no more") as later:
        time_kernel(fails_at(3), **QUICK)
    assert later.value.__notes__ == ["gpumicro: the work raised this while it was timed, after 2 calls or more"]


def test_a_type_error_inside_the_work_stays_one() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        time_kernel(lambda: 1 + "a")  # type: ignore[operator]


def test_printing_is_flagged_and_reaches_its_reader(capsys: pytest.CaptureFixture[str]) -> None:
    found = time_kernel(lambda: print("x"), **QUICK)  # noqa: T201
    assert "prints" in found.flags
    assert capsys.readouterr().out.startswith("x\nx\n")
    assert "prints" not in time_kernel(lambda: None, **QUICK).flags


def test_a_process_without_standard_output_may_time_a_work_that_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert "prints" in time_kernel(lambda: print("x", flush=True), **QUICK).flags  # noqa: T201


@pytest.mark.parametrize("size", [100, 100_000_000])
def test_a_work_that_changes_its_inputs_is_flagged(size: int) -> None:
    data = np.zeros(size, np.uint8)[::-1]
    for work, flagged in ((lambda x: x.__iadd__(1), True), (lambda x: len(x), False)):
        assert ("changes-inputs" in time_kernel(work, data, **QUICK).flags) == flagged


def test_what_is_there_to_be_written_is_no_input() -> None:
    a, b = np.ones(10), np.zeros(10)
    assert "changes-inputs" not in time_kernel(np.add, a, a, b, **QUICK).flags

    def fill(x: Any, out: Any) -> None:
        out[:] = x

    assert "changes-inputs" not in time_kernel(fill, a, np.zeros(10), **QUICK).flags
    assert "changes-inputs" in time_kernel(lambda x: x["a"].fill(3), {"a": a}, **QUICK).flags


# --- slow work --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("true_s", "n"), [(2.0, 6), (40.0, 4), (100.0, 2), (3600.0, 1)])
def test_slow_work_is_not_run_for_hours(true_s: float, n: int) -> None:
    timer = FakeTimer()
    found = time_kernel(FakeWork(true_s, spread=0.0), timer=timer)
    assert found.n == n
    assert found.batch == 1
    assert ("few-samples" in found.flags) == (n < 6)
    assert ("target-missed" in found.flags) == (n < 6)
    assert found.ci95_s[0] < found.estimate_s < found.ci95_s[1]
    assert timer.now() < (n + 2) * true_s + 1 or true_s == 2.0


def test_what_was_asked_for_is_taken_however_slow() -> None:
    assert time_kernel(FakeWork(3600.0), timer=FakeTimer(), min_samples=3).n == 3


def test_a_slow_first_call_is_said_soon_and_a_compiler_is_not_taken_for_slow_work() -> None:
    timed = Timed(FakeWork(1e-4), None, {"first_call_s": 30.0})
    with pytest.warns(UserWarning, match=r"first call took 30 s, longer than the 8 s .* Ctrl-C keeps") as told:
        warn_if_slow(timed, Policy())
    assert told[0].filename == __file__
    found = measure(timed, Policy(), FakeTimer())
    assert found.n >= 100
    assert "few-samples" not in found.flags


def test_comparing_slow_works_ends_too() -> None:
    found = compare(FakeWork(100.0), FakeWork(150.0), timer=FakeTimer())
    assert (found.blocks, found.verdict, found.stop_reason) == (1, "inconclusive", "max-time")


def test_a_comparison_tells_what_its_works_do_besides() -> None:
    data = np.zeros(8)
    found = compare(functools.partial(np.ndarray.__iadd__, data, 1), lambda: None, blocks=6)
    assert "changes-inputs" in found.flags


def test_ctrl_c_keeps_what_slow_work_gave() -> None:
    class Impatient(FakeTimer):
        spans = 0

        def sample(self, work: Any, counts: Any) -> Any:
            if isinstance(work, FakeWork) and work.true_s > 1:
                self.spans += 1
                if self.spans > 3:
                    raise KeyboardInterrupt
            return super().sample(work, counts)

    with pytest.raises(MeasurementsInterrupted) as stop:
        time_kernel(FakeWork(10.0), timer=Impatient())
    (kept,) = stop.value.partial
    assert kept is not None
    assert (kept.n, kept.stop_reason) == (2, "interrupted")
    assert "keeps of each work: 2" in str(stop.value)
    assert "few-samples" in kept.flags


def test_ctrl_c_in_the_first_call_says_that_nothing_was_timed() -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stop:
        time_kernel(stopped)
    assert stop.value.__notes__ == ["gpumicro: interrupted in the first call of the work; nothing was timed yet"]
