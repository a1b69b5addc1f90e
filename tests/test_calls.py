"""`gm.measured`: the function stays what it was, its calls and counts stand beside it. A stepped clock rules."""

from __future__ import annotations

import functools
import inspect
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from test_placing import document

import gpumicro as gm
from gpumicro import measuring
from gpumicro.errors import UsageError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that stands still unless it is advanced."""
    now = [100.0]
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


@gm.measured(flops=1, bytes=8)
def at_module_level(x: int) -> int:
    """Doubles."""
    return 2 * x


def test_the_function_stays_what_it_was() -> None:
    assert at_module_level(4) == 8
    assert at_module_level.__name__ == "at_module_level"  # type: ignore[attr-defined]
    assert at_module_level.__doc__ == "Doubles."
    assert list(inspect.signature(at_module_level).parameters) == ["x"]
    assert inspect.isfunction(at_module_level)
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level


def test_its_calls_have_a_median_with_an_interval_and_the_first_stands_apart(clock: Any) -> None:
    @gm.measured(flops=10e6, bytes=20e6)
    def work(seconds: float) -> None:
        clock(seconds)

    for seconds in (1.0, *[2e-3] * 20):
        work(seconds)
    (times,) = work.calls.times()
    assert (times.n, times.first_s) == (20, 1.0)
    assert times.estimate_s == pytest.approx(2e-3)
    assert times.ci95_s is not None
    text = str(work.report(gm.Roofline(document())))
    for part in ("calls: 20", "first call: 1.00 s", "held by DRAM bandwidth", "50.0%", "host time"):
        assert part in text


def test_fewer_than_6_calls_give_no_interval_and_say_so(clock: Any) -> None:
    @gm.measured
    def work() -> None:
        clock(1e-3)

    for _ in range(3):
        work()
    (times,) = work.calls.times()
    assert (times.n, times.ci95_s) == (2, None)
    assert "few-samples" in times.flags
    assert "no interval" in str(work.report())


def test_calls_of_other_sizes_are_groups_of_their_own(clock: Any) -> None:
    @gm.measured(flops=lambda n: n, bytes=lambda n: 8 * n)
    def work(n: int) -> None:
        clock(n * 1e-3)

    for n in (1, 1, 5, 5, 5):
        work(n)
    seen = [(one.n, one.estimate_s, one.counts.flops if one.counts else None) for one in work.calls.times()]
    assert seen == [(1, pytest.approx(1e-3), 1), (2, pytest.approx(5e-3), 5)]


def test_each_size_has_its_first_call_apart(clock: Any) -> None:
    compiled: set[int] = set()

    @gm.measured(flops=lambda n: n, bytes=0)
    def work(n: int) -> None:
        clock(1e-3 if n in compiled else 1.0)
        compiled.add(n)

    for n in (1, 1, 5, 5):
        work(n)
    seen = [(one.first_s, one.estimate_s) for one in work.calls.times()]
    assert seen == [pytest.approx((1.0, 1e-3)), pytest.approx((1.0, 1e-3))]


def test_a_report_says_that_a_group_is_impossible(clock: Any) -> None:
    @gm.measured(flops=0, bytes=1e12)
    def work() -> None:
        clock(1e-3)

    for _ in range(10):
        work()
    assert "flags: impossible" in str(work.report(gm.Roofline(document())))


def test_a_call_that_raises_passes_its_error_on_and_is_not_timed(clock: Any) -> None:
    @gm.measured
    def work(fails: bool) -> None:
        clock(1e-3)
        if fails:
            raise ZeroDivisionError("mine")

    work(False)
    with pytest.raises(ZeroDivisionError, match="mine"):
        work(True)
    assert (work.calls.made, work.calls.failed) == (1, 1)
    assert "1 more calls raised" in str(work.report())


def test_counts_that_fail_do_not_reach_the_script() -> None:
    @gm.measured(flops=lambda x: x.size, bytes=0)
    def work(x: int) -> int:
        return x

    assert work(3) == 3
    assert "counts are missing: the flops function failed" in str(work.report(gm.Roofline(document())))


def test_only_the_outermost_call_of_a_recursion_counts() -> None:
    @gm.measured
    def factorial(n: int) -> int:
        return n * factorial(n - 1) if n > 1 else 1

    assert factorial(5) == 120
    assert factorial.calls.made == 1


def test_threads_do_not_lose_calls() -> None:
    threads = [threading.Thread(target=lambda: [at_module_level(1) for _ in range(200)]) for _ in range(4)]
    at_module_level.calls.clear()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert at_module_level.calls.made == 800


def test_calls_beyond_those_kept_are_counted() -> None:
    @gm.measured(keep=10)
    def work() -> None:
        return

    for _ in range(25):
        work()
    assert work.calls.made == 25
    assert sum(one.n for one in work.calls.times()) == 9  # without the first
    assert "15 later calls" in str(work.report())


def test_work_that_a_call_only_starts_is_waited_for(clock: Any) -> None:
    @gm.measured(sync=lambda: clock(1.0))
    def work() -> None:
        clock(1e-3)

    work()
    assert work.calls.times()[0].estimate_s == pytest.approx(1.001)


def test_a_method_is_measured_and_placed_with_its_instance() -> None:
    class Layer:
        size = 10

        @gm.measured(flops=lambda self, n: self.size * n, bytes=lambda _, n: 8 * n)
        def run(self, n: int) -> int:
            return self.size * n

    layer = Layer()
    assert layer.run(3) == 30
    point = gm.Roofline(document()).look(layer.run, 3, max_time_s=0.01, warmup=0, min_samples=2)
    assert (point["flops"], point["bytes_moved"], point["name"]) == (30, 24, "run")
    assert Layer.run.calls.made == 1  # placing times the function itself, not the one that counts its calls


def test_place_finds_the_counts_that_were_declared() -> None:
    @gm.measured(counts=lambda n: gm.counts.elementwise(n))
    def work(n: int) -> None:
        del n

    point = gm.Roofline(document()).look(work, 1000, max_time_s=0.01, warmup=0, min_samples=2)
    assert (point["flops"], point["bytes_moved"]) == (1000, 16000)
    bound = gm.Roofline(document()).look(functools.partial(work, 1000), max_time_s=0.01, warmup=0, min_samples=2)
    assert bound["flops"] == 1000
    assert work.calls.made == 0


def test_a_region_is_timed_once_and_says_that_it_has_no_interval(clock: Any) -> None:
    with gm.measured(flops=10e6, bytes=20e6, name="step") as region:
        clock(2e-3)
    assert region.time_s == pytest.approx(2e-3)
    assert "no interval" in str(region)
    point = gm.Roofline(document()).place(region)
    assert (point["name"], point["fraction_ci95"], point["flags"]) == ("step", None, ["few-samples"])
    assert point.fraction == pytest.approx(0.5)
    with pytest.raises(AssertionError, match="too few calls for an interval"):
        point.assert_at_least(0.9)


def test_a_region_that_raises_has_no_time() -> None:
    measuring = gm.measured(flops=1, bytes=1)
    with pytest.raises(ZeroDivisionError), measuring as region:
        raise ZeroDivisionError
    with pytest.raises(UsageError, match="it raised"):
        gm.Roofline(document()).place(region)


def test_regions_may_be_nested_and_entered_again(clock: Any) -> None:
    step = gm.measured()
    with step as outer:
        clock(1.0)
        with step as inner:
            clock(2.0)
    assert (outer.time_s, inner.time_s) == (3.0, 2.0)


def coroutine() -> Any:
    async def work() -> None: ...

    return work


def asynchronous_generator() -> Any:
    async def work() -> Any:
        yield 1

    return work


def generator() -> Any:
    def work() -> Any:
        yield 1

    return work


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: gm.measured(coroutine()), "calling it runs nothing"),
        (lambda: gm.measured(generator()), "calling it runs nothing"),
        (lambda: gm.measured(asynchronous_generator()), "calling it runs nothing"),
        (lambda: gm.measured(flops=1), "bytes of one call is missing"),
        (lambda: gm.measured(flops=-1, bytes=1)(lambda: None), "from 0 up"),
        (lambda: gm.measured(keep=0), "keep must be"),
        (lambda: gm.measured()(3), "decorates a function, not int"),
        (lambda: gm.measured(lambda: None).report(), "has not been called"),
    ],
)
def test_wrong_use_is_refused_in_words(wrong: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        wrong()


def test_a_notebook_shows_a_report_escaped(clock: Any) -> None:
    @gm.measured(name="<i>")
    def work() -> None:
        clock(1.0)

    work()
    assert "&lt;i&gt;" in work.report()._repr_html_()
