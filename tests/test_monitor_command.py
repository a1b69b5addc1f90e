"""The monitor at the command line: a command's code and signals, its ways out, and what a user gets wrong."""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_host import FakeClock, FakePsutil
from fake_nvml import GOOD, UUID, FakeNvml, NVMLError

from gpumicro.__main__ import main
from gpumicro.cluster import exporter, host_state, live
from gpumicro.cluster.host_state import HostReader
from gpumicro.cluster.monitoring import MonitorRun, MonitorSettings, Sample, monitor
from gpumicro.errors import UsageError
from gpumicro.result import missing_reasons, read

PYTHON = sys.executable
SHORT = ["--interval", "0.05"]


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """`main` in this process takes signals over."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def _psutil() -> None:
    pytest.importorskip("psutil", reason="the extra `monitor` is not installed")


# -- a command ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_psutil")
def test_a_commands_exit_code_is_ours_and_its_output_is_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.json"
    code = main(["monitor", *SHORT, "-o", str(path), "--", PYTHON, "-S", "-c", "print('result'); raise SystemExit(3)"])
    out = capfd.readouterr()
    assert code == 3
    assert out.out == "result\n"  # the summary is on standard error
    assert "Host over" in out.err
    assert "The command ended with 3" in out.err
    doc = read(path)
    assert missing_reasons(doc) == []
    assert doc["monitor"]["command"]["exit_code"] == 3
    assert doc["monitor"]["samples"] >= 1
    assert main(["report", str(path)]) == 0
    assert "CPU, busiest core" in capfd.readouterr().out


@pytest.mark.usefixtures("_psutil")
def test_a_command_that_a_signal_ends_gives_128_and_its_number(capfd: pytest.CaptureFixture[str]) -> None:
    code = main(["monitor", *SHORT, PYTHON, "-S", "-c", "import os; os.kill(os.getpid(), 9)"])
    assert code == 137
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.usefixtures("_psutil")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_signals_go_on_to_the_command_which_decides(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    child = (
        "import os, signal, sys\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(40))\n"
        f"os.kill(os.getppid(), {int(number)})\n"  # sent to the monitor alone
        "signal.pause()"
    )
    assert main(["monitor", *SHORT, "--", PYTHON, "-S", "-c", child]) == 40
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    capfd.readouterr()


@pytest.mark.usefixtures("_psutil")
def test_a_command_that_cannot_be_run_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--", "/no/such/program"]) == 2
    assert "cannot run '/no/such/program': no such file" in capfd.readouterr().err


@pytest.mark.usefixtures("_psutil")
def test_options_behind_the_command_are_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", *SHORT, PYTHON, "-S", "-c", "import sys; sys.exit(len(sys.argv))", "--interval", "x"]) == 3
    capfd.readouterr()


@pytest.mark.usefixtures("_psutil")
def test_a_sink_that_fails_never_leaves_the_command_behind(tmp_path: Path) -> None:
    def fail(_: Sample) -> None:
        raise RuntimeError("no")

    path = tmp_path / "done"
    child = f"import time; time.sleep(0.2); open({str(path)!r}, 'w').close()"
    with pytest.raises(RuntimeError):
        monitor(interval_s=0.02, command=[PYTHON, "-S", "-c", child], sinks=[fail])
    assert path.exists()


# -- without a command -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_psutil")
def test_lines_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", *SHORT, "--duration", "0.1"]) == 0
    out = capfd.readouterr()
    assert "host: CPU" in out.out.splitlines()[0]
    assert "What it says" in out.out
    assert "the host alone" in out.err or "gpu" in out.out


@pytest.mark.usefixtures("_psutil")
def test_ctrl_c_ends_a_watch_with_its_summary() -> None:
    argv = [PYTHON, "-m", "gpumicro", "monitor", "--interval", "0.05"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()  # a sample was taken
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Host over" in out
    assert "INTERRUPTED" not in out


@pytest.mark.usefixtures("_psutil")
def test_json_on_stdout_is_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", *SHORT, "--duration", "0.1", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["monitor"]["samples"] >= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--interval", "0"], "--interval must be"),
        (["--interval", "nan"], "--interval must be"),
        (["--duration", "-1"], "--duration must be"),
        (["--duration", "1", "--", "true"], "--duration is without a command"),
        (["--bind", "0.0.0.0"], "give that too"),
        (["--threshold", "grow=2"], "threshold grow must be 0 to 1"),
        (["--textfile", "x.txt", "--duration", "0.1"], "end in .prom"),
        (["--prometheus", "70000", "--duration", "0.1"], "a port is 0"),
        (["--gpu", "no", "--duration", "0.1"], "GPU"),
        (["-o", "/nowhere/m.json"], "cannot write"),
    ],
)
@pytest.mark.usefixtures("_psutil")
def test_wrong_use_is_named(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if {"--textfile", "--prometheus"} & set(arguments):
        pytest.importorskip("prometheus_client")
    monkeypatch.chdir(tmp_path)
    assert main(["monitor", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_without_psutil_the_cure_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(host_state, "import_module", missing)
    assert main(["monitor", "--duration", "1"]) == 3
    assert "pip install 'gpumicro[monitor]'" in capsys.readouterr().err
    monkeypatch.setattr(host_state, "import_module", importlib.import_module)
    pytest.importorskip("psutil")
    monkeypatch.setattr(exporter, "import_module", missing)
    assert main(["monitor", "--duration", "1", "--prometheus", "0"]) == 3
    assert "prometheus_client" in capsys.readouterr().err


# -- Prometheus --------------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(tmp_path: Path) -> tuple[exporter.Exporter, list[Sample], MonitorRun]:
    """An exporter that has seen a scripted watch of one GPU."""
    pytest.importorskip("prometheus_client", reason="the extra `monitor` is not installed")
    clock = FakeClock()
    script = {**GOOD, "nvmlDeviceGetCurrentClocksEventReasons": 0x40}
    run = MonitorRun(
        MonitorSettings(1.0, 3.0), host=HostReader(FakePsutil(clock), tmp_path), library=FakeNvml(script), clock=clock
    )
    made = exporter.Exporter([(gpu.reader.index, gpu.reader.uuid, gpu.reader.name) for gpu in run.gpus])
    seen: list[Sample] = []
    run.sinks += [made, seen.append]
    return made, seen, run


def families(text: str) -> dict[str, Any]:
    from prometheus_client.parser import text_string_to_metric_families

    return {family.name: family for family in text_string_to_metric_families(text)}


def test_the_exposition_is_read_by_prometheus_own_parser(watched: Any) -> None:
    made, _, run = watched
    assert made.text() == b""  # nothing before the first sample
    run.run()
    found = families(made.text().decode())
    use = found["gpumicro_gpu_utilization_ratio"].samples[0]
    assert use.value == 0.97
    assert use.labels == {"gpu": "0", "uuid": UUID, "name": "NVIDIA H200"}
    assert found["gpumicro_cpu_utilization_ratio"].samples[0].value == pytest.approx(0.4)
    assert found["gpumicro_gpu_held_back"].samples[0].labels["reason"] == "hardware thermal"
    assert found["gpumicro_monitor_samples"].samples[0].value == 3
    assert found["gpumicro_gpu_energy_joules"].type == "counter"
    assert "gpumicro_cpu_power_watts" not in found  # what is not known is not shown as a number


def test_it_answers_on_this_machine_alone_and_a_taken_port_is_said(watched: Any) -> None:
    made, _, run = watched
    run.run()
    address, port = made.serve(0)
    try:
        assert address == "127.0.0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert b"gpumicro_gpu_power_watts" in answer.read()
        with pytest.raises(UsageError, match=f"--prometheus {port} on 127.0.0.1: .*; take another port"):
            exporter.Exporter([]).serve(port)
    finally:
        made.close()
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))  # it is let go of


def test_an_address_that_is_not_ours_is_said(watched: Any) -> None:
    with pytest.raises(UsageError, match="take another port or --bind"):
        watched[0].serve(0, "no address")


def test_the_textfile_is_whole_and_nothing_is_left_beside_it(watched: Any, tmp_path: Path) -> None:
    made, _, run = watched
    path = tmp_path / "gpu.prom"
    seen = []
    written = exporter.Textfile(made, str(path))
    run.sinks += [written, lambda _: seen.append(families(path.read_text())["gpumicro_monitor_samples"])]
    run.run()
    assert [family.samples[0].value for family in seen] == [1, 2, 3]
    assert [p.name for p in tmp_path.iterdir()] == ["gpu.prom"]


def test_a_textfile_that_cannot_be_written_ends_no_watch(
    watched: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, seen, run = watched
    written = exporter.Textfile(made, str(tmp_path / "gpu.prom"))
    run.sinks.append(written)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    run.run()
    assert len(seen) == 3
    assert "No space left on device" in written.failure


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_a_sample_as_table_and_as_line(watched: Any) -> None:
    from rich.console import Console

    _, seen, run = watched
    run.run()
    gpus = [(0, "NVIDIA H200")]
    text = live.line(seen[-1], gpus)
    assert text.startswith("0:00:03; host: CPU 40%")
    assert "gpu 0: use 97%, mem bw 40%, clock 1.75 GHz, power 512 W, temp 61 C, held back by hardware thermal" in text
    console = Console(width=80, record=True, force_terminal=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(live.table(seen[-1], gpus))
    shown = console.export_text()
    assert "NVIDIA H200" in shown
    assert "..." not in shown.replace("\u2026", "...")  # nothing is cut at 80 columns
    assert "NVLink" not in shown  # a column that nobody fills
    console.file.close()


def test_a_driver_that_is_not_there_is_a_line(tmp_path: Path) -> None:
    clock = FakeClock()
    library = FakeNvml({"nvmlInit": NVMLError("Driver Not Loaded")})
    run = MonitorRun(MonitorSettings(1.0, 2.0), host=HostReader(FakePsutil(clock), tmp_path), library=library,
                     clock=clock)  # fmt: skip
    run.run()
    assert "Driver Not Loaded" in run.no_gpu
