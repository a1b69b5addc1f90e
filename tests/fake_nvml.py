"""A scripted stand-in for pynvml: bits, counters and errors by plan; what the script leaves out is 'Not Supported'."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

UUID = "GPU-11111111-2222-3333-4444-555555555555"


class NVMLError(Exception):
    """As pynvml's: the text alone."""


GOOD: Mapping[str, Any] = {
    "nvmlDeviceGetName": b"NVIDIA H200",
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetPowerManagementLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetClock": 1980,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetVirtualizationMode": 0,
    "nvmlDeviceGetClockInfo": lambda clock: 1755 if clock == 1 else 3201,
    "nvmlDeviceGetPowerUsage": 512_345,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetCurrentClocksEventReasons": 0,
    "nvmlDeviceGetTotalEnergyConsumption": 1_000_000,
    "nvmlDeviceGetViolationStatus": SimpleNamespace(referenceTime=0, violationTime=0),
    "nvmlDeviceGetComputeRunningProcesses": [],
    "nvmlDeviceGetGraphicsRunningProcesses": [],
    "nvmlDeviceGetMPSComputeRunningProcesses": [],
    "nvmlDeviceIsMigDeviceHandle": SimpleNamespace(value=0),
}


class FakeNvml:
    """The module. `script` maps a call to its value, to an exception to raise, or to a function of the arguments
    behind the handle; a call that it does not have is not supported."""

    def __init__(self, script: Mapping[str, Any] | None = None, uuids: tuple[str, ...] = (UUID,)) -> None:
        self.script = dict(GOOD if script is None else script)
        self.uuids = uuids
        self.calls: list[str] = []
        self.threads: set[str] = set()

    def nvmlInit(self) -> None:
        self._plan("nvmlInit", None)

    def nvmlShutdown(self) -> None:
        self.calls.append("nvmlShutdown")

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return self._plan("nvmlSystemGetDriverVersion", b"580.95.05")  # type: ignore[no-any-return]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self.uuids:
            raise NVMLError("Not Found")
        return f"handle of {uuid}"

    def nvmlDeviceGetCount(self) -> int:
        return self._plan("nvmlDeviceGetCount", len(self.uuids))  # type: ignore[no-any-return]

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"handle of {self.uuids[index]}"

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle.removeprefix("handle of ")

    def nvmlDeviceGetFieldValues(self, handle: str, ids: list[int]) -> list[Any]:
        del handle
        fields = self._plan("nvmlDeviceGetFieldValues", NVMLError("Not Supported"))
        if callable(fields):
            fields = fields(ids[0])
        return [fields]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(handle: str, *arguments: Any) -> Any:
            assert handle.startswith(("handle", "parent")), "asked by something else than the handle"
            value = self._plan(name, NVMLError("Not Supported"))
            return value(*arguments) if callable(value) else value

        return call

    def _plan(self, name: str, default: Any) -> Any:
        self.calls.append(name)
        self.threads.add(threading.current_thread().name)
        value = self.script.get(name, default)
        if isinstance(value, Exception):
            raise value
        return value


def field(seconds: float, error: int = 0) -> Any:
    """An nvmlFieldValue_t with a counter of nanoseconds."""
    return SimpleNamespace(nvmlReturn=error, value=SimpleNamespace(ullVal=round(seconds * 1e9)))


def processes(*pids: int) -> list[Any]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in pids]
