"""The monitor's last sample for Prometheus: over HTTP, or as a file for node_exporter's textfile collector."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from ..errors import BackendUnavailable, UsageError
from ..result import check_writable, replace_file
from . import metrics
from .host_state import CURE
from .monitoring import Sample

LOCAL = "127.0.0.1"
_HELP = {"": " (0 to 1)", "B": " in bytes", "B/s": " in bytes a second", "Hz": " in hertz", "W": " in watts",
         "C": " in degrees Celsius"}  # fmt: skip


def load_client() -> Any:
    """prometheus_client. BackendUnavailable with the cure."""
    try:
        import_module("prometheus_client.core")
        return import_module("prometheus_client")
    except ImportError as error:
        raise BackendUnavailable(f"--prometheus and --textfile need prometheus_client ({error})", CURE) from None


class Exporter:
    """A collector of the last sample; nothing is shown before the first. `gpus` are (index, UUID, name)."""

    def __init__(self, gpus: Sequence[tuple[int, str, str]]) -> None:
        self.gpus = [[str(index), uuid, name] for index, uuid, name in gpus]
        self._client = load_client()
        self.registry = self._client.CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self._lock = threading.Lock()
        self._sample: Sample | None = None
        self._count = 0
        self._server: Any = None

    def __call__(self, sample: Sample) -> None:
        """Take a sample."""
        with self._lock:
            self._sample, self._count = sample, self._count + 1

    def collect(self) -> Iterator[Any]:
        """What prometheus_client asks for."""
        with self._lock:
            sample, count = self._sample, self._count
        if sample is None:
            return
        gauge = self._client.core.GaugeMetricFamily
        counter = self._client.core.CounterMetricFamily
        for metric in metrics.HOST:
            value = sample.host.get(metric.key)
            if value is not None:
                yield gauge(metric.exported, _help(metric), value=value)
        yield from self._gpus(sample, gauge, counter)
        yield counter("gpumicro_monitor_samples", "Samples taken", value=count)
        yield counter("gpumicro_monitor_missed", "Samples missed, for they took too long", value=sample.missed)
        yield gauge("gpumicro_monitor_sample_seconds", "Time that the sample took", value=sample.seconds)
        yield gauge("gpumicro_monitor_sample_timestamp_seconds", "When it was taken, Unix time", value=sample.unix_s)

    def _gpus(self, sample: Sample, gauge: Any, counter: Any) -> Iterator[Any]:
        labels = ["gpu", "uuid", "name"]
        for metric in metrics.GPU:
            family = gauge(metric.exported, f"GPU: {_help(metric)}", labels=labels)
            for names, values in zip(self.gpus, sample.gpus, strict=True):
                if values.get(metric.key) is not None:
                    family.add_metric(names, values[metric.key])
            if family.samples:
                yield family
        energy = counter("gpumicro_gpu_energy_joules", "Energy since the monitor began", labels=labels)
        held = gauge("gpumicro_gpu_held_back", "What holds the clock back now", labels=[*labels, "reason"])
        for names, joules, reasons in zip(self.gpus, sample.energies_j, sample.reasons, strict=True):
            if joules is not None:
                energy.add_metric(names, joules)
            for reason in reasons:
                held.add_metric([*names, reason], 1)
        yield from (family for family in (energy, held) if family.samples)

    # -- the ways out --------------------------------------------------------------------------------------------------

    def serve(self, port: int, bind: str = LOCAL) -> tuple[str, int]:
        """Answer HTTP on that address; the address and port that it is. UsageError where it can't be had."""
        if not 0 <= port <= 65535:
            raise UsageError(f"--prometheus {port}: a port is 0 (any free one) to 65535")
        try:
            self._server, _ = self._client.start_http_server(port, addr=bind, registry=self.registry)
        except (OSError, OverflowError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"--prometheus {port} on {bind}: {why}; take another port or --bind") from None
        return bind, int(self._server.server_address[1])

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def text(self) -> bytes:
        """The exposition format."""
        content: bytes = self._client.generate_latest(self.registry)
        return content


class Textfile:
    """Writes each sample to a file, whole or not at all: a temporary name beside it, then a rename."""

    def __init__(self, exporter: Exporter, path: str) -> None:
        if not path.endswith(".prom"):
            raise UsageError(f"--textfile {path}: node_exporter reads files that end in .prom alone")
        check_writable(path)
        self._exporter, self.path = exporter, path
        self.failure = ""

    def __call__(self, sample: Sample) -> None:
        """After the exporter has taken the sample."""
        del sample
        try:
            replace_file(self.path, self._exporter.text())
            self.failure = ""
        except UsageError as error:  # a full disk must not end the watch, still less what is watched
            self.failure = str(error)


def _help(metric: metrics.Metric) -> str:
    return f"{metric.title}{_HELP[metric.unit]}"
