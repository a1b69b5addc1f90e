"""Works of real frameworks on the CPU, and that the calls which lead to a GPU exist where the package is installed."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

from gpumicro import compare, time_kernel
from gpumicro.errors import UsageError
from gpumicro.works import as_timed
from gpumicro.works.stream import Stream, handle_of

# Always eight samples: the budget is wide, also for what compiles in the first call.
QUICK: dict[str, Any] = {"max_samples": 8, "max_time_s": 60.0, "warmup": 2, "batch": 1}


def test_no_framework_is_imported_for_a_work() -> None:
    code = textwrap.dedent("""
        import sys, gpumicro as gm
        gm.time_kernel(sorted, [2, 1], max_samples=6, max_time_s=0.1, warmup=0)
        gm.compare(lambda: 1, lambda: 2, blocks=6)
        print(sorted({"torch", "jax", "cupy", "numba", "triton", "cuda.core"} & set(sys.modules)))
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"


# --- PyTorch ----------------------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def test_torch_on_the_cpu_is_timed_by_the_host(torch: Any) -> None:
    x = torch.ones(64, 64)
    timed = as_timed(torch.mm, (x, x))
    assert (timed.timer, timed.facts["framework"], timed.facts["device"]) == (None, "python", "cpu")
    found = time_kernel(torch.mm, x, x, **QUICK)
    assert (found.estimand, found.n, "changes-inputs" in found.flags) == ("host", 8, False)


def test_a_module_runs_as_it_is_with_its_gradient(torch: Any) -> None:
    module, modes = torch.nn.Linear(8, 8), []
    module.register_forward_hook(lambda *_: modes.append(torch.is_grad_enabled()))
    time_kernel(module, torch.ones(2, 8), **QUICK)
    assert set(modes) == {True}
    modes.clear()
    with torch.no_grad():
        time_kernel(module, torch.ones(2, 8), **QUICK)
    assert set(modes) == {False}


def test_a_tensor_changed_in_place_is_flagged(torch: Any) -> None:
    x = torch.ones(8)
    assert "changes-inputs" in time_kernel(torch.Tensor.add_, x, 1, **QUICK).flags
    assert "changes-inputs" not in time_kernel(torch.Tensor.add, x, 1, **QUICK).flags
    with torch.inference_mode():  # versions are not counted there
        assert "changes-inputs" not in time_kernel(torch.Tensor.add, torch.ones(8), 1, **QUICK).flags


def test_tensors_without_values_are_no_results(torch: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = torch.ones(8, device="meta")
    with pytest.raises(UsageError, match="a meta tensor has a shape and no values"):
        time_kernel(torch.add, x, x)
    with FakeTensorMode(), pytest.raises(UsageError, match="a fake tensor has a shape and no values"):
        time_kernel(torch.ones, 8)
    with pytest.raises(UsageError, match=r"Future: it is not done; call \.wait"):
        time_kernel(torch.futures.Future)


def test_torch_has_what_leads_to_its_gpu(torch: Any) -> None:
    assert list(inspect.signature(torch.cuda.ExternalStream.__new__).parameters)[1:3] == ["stream_ptr", "device"]
    assert list(inspect.signature(torch.cuda.stream).parameters) == ["stream"]
    assert list(inspect.signature(torch.cuda.synchronize).parameters) == ["device"]
    for name in ("is_available", "is_initialized", "current_device"):
        assert callable(getattr(torch.cuda, name))
    assert hasattr(torch.version, "hip")
    assert hasattr(torch.cuda.Stream, "__cuda_stream__") or hasattr(torch.cuda.Stream, "cuda_stream")


# --- JAX --------------------------------------------------------------------------------------------------------


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax", reason="JAX is not installed")


def count_waits(jax: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many arrays each wait was for."""
    waits, real = [], jax.block_until_ready

    def counted(tree: Any) -> Any:
        waits.append(len(jax.tree_util.tree_leaves(tree)))
        return real(tree)

    monkeypatch.setattr(jax, "block_until_ready", counted)
    return waits


def test_every_array_of_a_result_of_jax_is_waited_for_in_every_call(jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, calls = count_waits(jax, monkeypatch), 0
    double = jax.jit(lambda x: x + x)
    x = jax.numpy.ones(8)

    def work(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return {"a": double(x), "b": [x, (double(x),)]}

    found = time_kernel(work, x, **QUICK)
    assert found.estimand == "host"
    assert waits == [3] * calls
    assert calls >= 9


def test_jax_compiles_in_the_first_call_which_is_not_timed(jax: Any) -> None:
    traced = 0

    @jax.jit
    def work(x: Any) -> Any:
        nonlocal traced
        traced += 1
        return x + 1

    timed = as_timed(work, (jax.numpy.ones(8),))
    assert traced == 1
    assert timed.facts["first_call_s"] > 0
    time_kernel(timed.work, **QUICK)
    assert traced == 1


def test_what_jax_does_not_return_is_not_waited_for(jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, x = count_waits(jax, monkeypatch), jax.numpy.ones(8)
    time_kernel(lambda: np.asarray(x + x), **QUICK)  # the copy to the host waits
    assert waits == []


def test_a_donated_argument_ends_with_jaxs_words_and_our_note(jax: Any) -> None:
    work = jax.jit(lambda x: x + 1, donate_argnums=0)
    with pytest.raises((RuntimeError, ValueError), match=r"deleted|donated") as error:
        time_kernel(work, jax.numpy.ones(8), **QUICK)
    assert "after 1 calls or more" in error.value.__notes__[0]


# --- Numba, CuPy, cuda.core -------------------------------------------------------------------------------------


def test_a_compiled_function_of_numba_takes_its_arguments() -> None:
    numba = pytest.importorskip("numba", reason="Numba is not installed")

    @numba.njit
    def total(x: Any) -> Any:
        found = 0.0
        for value in x:
            found += value
        return found

    found = time_kernel(total, np.ones(1000), **QUICK)
    assert (found.estimand, found.n) == ("host", 8)
    assert len(total.signatures) == 1
    with pytest.raises(UsageError, match=r"total.* needs x"):
        time_kernel(total)
    assert compare(lambda: total(np.ones(10)), lambda: np.ones(10).sum(), blocks=6).blocks == 6


@pytest.mark.filterwarnings("ignore")  # Numba's about a small grid
def test_numbas_cuda_kernels_are_what_we_take_them_for() -> None:
    cuda = pytest.importorskip("numba.cuda", reason="Numba's CUDA target is not installed")
    from gpumicro.works import numba

    if type(cuda.jit).__module__.startswith("numba.cuda.simulator"):
        pytest.skip("Numba's simulator runs kernels on the host")

    @cuda.jit
    def kernel(x: Any, n: Any) -> None: ...

    configured = kernel[4, 32]
    assert numba.is_kernel(configured)
    assert not numba.is_kernel(kernel)
    assert numba.own_stream(configured) is None
    assert list(inspect.signature(kernel.configure).parameters) == ["griddim", "blockdim", "stream", "sharedmem"]
    assert list(inspect.signature(cuda.external_stream).parameters) == ["ptr"]
    with pytest.raises(UsageError, match=r"has no grid; time kernel\[blocks, threads\]"):
        time_kernel(kernel, 1, 2)
    with pytest.raises(UsageError, match="needs n"):
        as_timed(configured, (1,))


def test_cupy_has_what_leads_to_its_gpu() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    from gpumicro.works import cupy as ours

    assert hasattr(cupy.cuda.Stream, "from_external") or hasattr(cupy.cuda, "ExternalStream")
    assert callable(cupy.cuda.Device.synchronize)
    assert callable(cupy.cuda.is_available)
    assert callable(cupy.cuda.runtime.getDevice)
    assert ours.is_kernel(cupy.RawKernel('extern "C" __global__ void f() {}', "f"))
    assert ours.is_kernel(cupy.ElementwiseKernel("float32 x", "float32 y", "y = x", "f"))
    assert ours.is_kernel(cupy.add)
    assert not ours.is_kernel(len)


def test_cuda_core_takes_our_stream_and_we_take_its() -> None:
    core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
    assert "__cuda_stream__" in dir(core.Stream)
    assert handle_of(core.Stream.from_handle(0x1234)) == 0x1234
    assert "IsStreamType" in core.launch.__doc__  # what has __cuda_stream__
    with pytest.raises(TypeError, match="__cuda_stream__"):
        core.Stream._init(object())
    with contextlib.suppress(RuntimeError):  # ours is taken; without a driver it gets no further
        core.Stream._init(Stream(5))
