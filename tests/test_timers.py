from __future__ import annotations

import ctypes
import signal
import threading

import numpy as np
import pytest

from gpumicro import FakeTimer, FakeWork, TscTimer, WallTimer, probe
from gpumicro._core import timing as native
from gpumicro.errors import BackendUnavailable, UsageError
from gpumicro.timers import Timer, as_timer, as_work, default_timer


def host_timers() -> list[Timer]:
    timers: list[Timer] = [WallTimer()]
    if not native.tsc_facts()[1]:
        timers.append(TscTimer())
    return timers


def capsule(function: object, name: bytes, context: int | None = None) -> object:
    """A PyCapsule of a ctypes function, which the caller keeps alive."""
    api = ctypes.pythonapi
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    api.PyCapsule_SetContext.argtypes = [ctypes.py_object, ctypes.c_void_p]
    made = api.PyCapsule_New(ctypes.cast(function, ctypes.c_void_p), name, None)  # type: ignore[arg-type]
    api.PyCapsule_SetContext(made, context)
    return made


class Calls:
    """C functions that write down how they were called."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []
        note = lambda *arguments: self.seen.append(arguments)  # noqa: E731
        self.plain = ctypes.CFUNCTYPE(None)(note)
        self.context = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(note)
        self.batched = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(note)


def test_every_kind_of_c_function_runs_as_often_as_asked() -> None:
    calls = Calls()
    timer = WallTimer()
    for function, expected in (
        (calls.plain, [()] * 5),
        (calls.context, [(None,)] * 5),
        (calls.batched, [(None, 2), (None, 3)]),
    ):
        calls.seen.clear()
        assert timer.sample(function, [2, 3]).shape == (2,)
        assert calls.seen == expected


def test_capsules_get_their_context() -> None:
    calls = Calls()
    kept = [
        (capsule(calls.context, name := b"void (void *)", 42), [(42,)] * 3, name),
        (capsule(calls.batched, name := b"void (void *, int64_t)", 43), [(43, 3)], name),
    ]
    for made, expected, _name in kept:
        calls.seen.clear()
        WallTimer().sample(made, [3])
        assert calls.seen == expected


def test_a_capsule_keeps_its_signature_honest() -> None:
    calls = Calls()
    name = b"double (double)"
    with pytest.raises(UsageError, match=r"unknown signature 'double \(double\)'.*PyCapsule"):
        as_work(capsule(calls.context, name))


def test_work_is_found_behind_an_attribute_and_left_alone_when_it_is_work() -> None:
    spin = native.spin_work()

    class Prepared:
        work = spin

    assert as_work(Prepared()) is spin
    assert as_work(spin) is spin


def test_a_function_that_needs_the_gil_is_called_as_python() -> None:
    function = ctypes.pythonapi.Py_GetVersion
    assert as_work(function) is function


@pytest.mark.parametrize("what", [3, "text", None, [1]])
def test_what_is_no_work_is_told_what_would_be(what: object) -> None:
    with pytest.raises(UsageError, match="accepted are: a callable without arguments; a PyCapsule"):
        as_work(what)


def test_functions_with_arguments_or_structures_are_refused() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int64), ("b", ctypes.c_int64))

    for kind in (ctypes.CFUNCTYPE(None, ctypes.c_double), ctypes.CFUNCTYPE(Pair), ctypes.CFUNCTYPE(ctypes.py_object)):
        with pytest.raises(UsageError, match="a ctypes function"):
            as_work(kind(1))


def test_a_coroutine_function_is_refused() -> None:
    async def later() -> None: ...

    with pytest.raises(UsageError, match="coroutine"):
        as_work(later)


def test_fake_work_and_fake_timer_belong_together() -> None:
    with pytest.raises(UsageError, match="FakeWork only"):
        FakeTimer().sample(lambda: None, [1])
    with pytest.raises(UsageError, match="give it to a FakeTimer"):
        WallTimer().sample(FakeWork(1e-6), [1])
    with pytest.raises(ValueError, match="unknown law 'cauchy'"):
        FakeWork(1e-6, law="cauchy")


def test_an_exception_of_the_work_comes_through_and_ends_the_sample() -> None:
    calls = []

    def fails() -> None:
        calls.append(None)
        if len(calls) == 3:
            raise ZeroDivisionError("third")

    for timer in host_timers():
        calls.clear()
        with pytest.raises(ZeroDivisionError, match="third"):
            timer.sample(fails, [2, 2, 2])
        assert len(calls) == 3


def test_ctrl_c_ends_a_native_sample() -> None:
    # A hundred seconds of native work, interrupted from outside: the test ends in time or not at all.
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        WallTimer().sample(native.spin_work(), np.full(100_000, 1_000_000))
    timer.join()


def test_bad_counts_are_refused() -> None:
    for counts in ([-1], [[1, 2]]):
        with pytest.raises(ValueError, match="counts must"):
            WallTimer().sample(native.spin_work(), counts)


def test_host_timers_move_forward_and_find_a_tick() -> None:
    for timer in host_timers():
        before = timer.now()
        spans = timer.sample(native.spin_work(), [0, 1000, 100_000])
        assert timer.now() > before
        assert (spans > 0).all()
        assert spans[2] > spans[1]
        tick = timer.tick()
        assert 0 < tick.lsb_s <= tick.seconds < 1e-3
        assert timer.overhead(7).shape == (7,)
        assert timer.throttled_s() >= 0.0


def test_probe_is_made_once_and_is_plain_json() -> None:
    found = probe()
    assert probe() is found
    assert found.python_call_s > 0
    assert (found.tsc_hz is None) == bool(found.tsc_why)
    wall = found.to_json()["timers"][0]
    assert wall["name"] == "wall"
    assert wall["usable"]
    assert wall["empty_p50_s"] <= wall["empty_p99_s"]
    assert wall["tick"]["seconds"] > 0


def test_an_unusable_tsc_is_refused_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "tsc_facts", lambda: (0.0, "the kernel's clock source is hpet, not tsc"))
    with pytest.raises(BackendUnavailable, match="hpet, not tsc"):
        TscTimer()
    default_timer.cache_clear()
    try:
        assert default_timer().name == "wall"
    finally:
        default_timer.cache_clear()


def test_timers_go_by_name() -> None:
    assert as_timer("fake").name == "fake"
    assert as_timer("auto") is default_timer()
    with pytest.raises(UsageError, match="unknown timer 'sundial'"):
        as_timer("sundial")


@pytest.mark.parametrize("tick_ns", [32, 500, 1024])
@pytest.mark.parametrize("float32_ms", [False, True])
def test_fake_tick_is_found_exactly(tick_ns: int, float32_ms: bool) -> None:
    timer = FakeTimer(tick_s=tick_ns * 1e-9, overhead_s=1.3e-6, overhead_sd_s=1e-7, float32_ms=float32_ms, seed=tick_ns)
    tick = timer.tick()
    assert (tick.lsb_s, tick.seconds) == pytest.approx((tick_ns * 1e-9, tick_ns * 1e-9), rel=1e-5)


def test_fake_spans_are_what_was_chosen() -> None:
    ones = np.ones(20_001, dtype=np.int64)
    for law in ("normal", "lognormal", "exponential"):
        spans = FakeTimer(seed=5).sample(FakeWork(1e-5, law=law, spread=0.1), ones)
        assert np.median(spans) == pytest.approx(1e-5, rel=3e-3)
    spans = FakeTimer(seed=5).sample(FakeWork(1e-5, spread=0.0, spike_probability=0.25), ones)
    assert np.mean(spans > 2.9e-5) == pytest.approx(0.25, abs=0.01)
    spans = FakeTimer(seed=5).sample(FakeWork(1e-5, law="two-modes", spread=0.0, second_factor=2.0), ones)
    assert np.mean(spans > 1.9e-5) == pytest.approx(0.3, abs=0.01)
    chain = FakeTimer(seed=5).sample(FakeWork(1e-5, rho=0.6), ones)
    assert np.corrcoef(chain[1:], chain[:-1])[0, 1] == pytest.approx(0.6, abs=0.02)
    sagging = FakeTimer(sag=0.1, sag_time_s=0.01, seed=5).sample(FakeWork(1e-5, spread=0.0), ones)
    assert sagging[0] == pytest.approx(1e-5)
    assert sagging[-1] == pytest.approx(1.1e-5, rel=1e-4)
    ticked = FakeTimer(tick_s=1024e-9, overhead_s=2e-6, seed=5).sample(FakeWork(1e-5, spread=0.0), ones)
    assert set(np.unique(np.round(ticked / 1024e-9))) == {11.0, 12.0}
    assert ticked.mean() == pytest.approx(1.2e-5, rel=1e-3)


def test_the_fakes_first_numbers_never_change() -> None:
    # Any change of generator, law or order of draws would make every seed in every test mean something else.
    spans = FakeTimer(overhead_s=1e-6, overhead_sd_s=1e-7, seed=1).sample(FakeWork(1e-5), [1, 1, 1])
    np.testing.assert_allclose(spans, [1.12444676944342e-05, 1.1085898817176023e-05, 1.1088796739813962e-05], rtol=1e-9)
