"""How GPUs are joined, from a scripted NVML: two behind switches, two wired directly, one without NVLink."""

from __future__ import annotations

import csv
from types import SimpleNamespace
from typing import Any

import pytest
import result_files
from fake_nvml import FakeNvml, NVMLError

from gpumicro import gpu_pairs, schema
from gpumicro.device import Device
from gpumicro.gpu_pairs import bus_id, cpu_list, topology, word_of
from gpumicro.report.console import render_text
from gpumicro.report.csv import to_csv
from gpumicro.report.gpus import topology_table
from gpumicro.report.markdown import to_markdown

UUIDS = tuple(f"GPU-{i}" for i in range(4))
BUSES = tuple(f"00000000:{16 * (i + 1):02X}:00.0" for i in range(4))
# what is at the other end of each NVLink of a GPU: "switch" or another GPU's number
WIRES: dict[int, list[Any]] = {0: ["switch"] * 3, 1: ["switch"] * 2, 2: [3, 3], 3: [2, 2]}
LEVELS = {(0, 1): 40, (0, 2): 50, (0, 3): 50, (1, 2): 50, (1, 3): 50, (2, 3): 10}


class Wired(FakeNvml):
    """NVML of that host. `silent`: calls that it does not support."""

    def __init__(self, *silent: str, wires: dict[int, list[Any]] = WIRES) -> None:
        super().__init__(uuids=UUIDS)
        self.silent, self.wires = silent, wires

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "silent"):
            return self._refuse
        return super().__getattribute__(name)

    @staticmethod
    def _refuse(*_: object) -> None:
        raise NVMLError("Not Supported")

    @staticmethod
    def _index(handle: str) -> int:
        return int(handle[-1])

    def nvmlDeviceGetPciInfo(self, handle: str) -> Any:
        return SimpleNamespace(busId=BUSES[self._index(handle)].encode())

    def nvmlDeviceGetNumaNodeId(self, handle: str) -> int:
        return self._index(handle) // 2

    def nvmlDeviceGetMemoryAffinity(self, handle: str, words: int, scope: int) -> list[int]:
        assert (words, scope) == (1, 0)
        return [1 << self._index(handle) // 2]

    def nvmlDeviceGetCpuAffinity(self, handle: str, words: int) -> list[int]:
        return [0xFF << 8 * (self._index(handle) // 2), 1 << 3] + [0] * (words - 2)

    def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
        wires = self.wires.get(self._index(handle))
        if not wires:
            raise NVMLError("Not Supported")
        if link > len(wires):
            raise NVMLError("Invalid Argument")
        return 1 if link < len(wires) else 0  # one link more, that is down

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: str, link: int) -> int:
        return 2 if self.wires[self._index(handle)][link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: str, link: int) -> Any:
        return SimpleNamespace(busId=BUSES[self.wires[self._index(handle)][link]])

    def nvmlDeviceGetTopologyCommonAncestor(self, one: str, other: str) -> int:
        return LEVELS[self._index(one), self._index(other)]


def test_every_pair_has_its_links_and_its_path() -> None:
    found = topology(UUIDS, Wired())
    said = {(pair["a"], pair["b"]): (word_of(pair), pair["through"], pair["pcie"]) for pair in found["pairs"]}
    assert said == {
        (0, 1): ("NV2", "switch", "NODE"), (0, 2): ("SYS", None, "SYS"), (0, 3): ("SYS", None, "SYS"),
        (1, 2): ("SYS", None, "SYS"), (1, 3): ("SYS", None, "SYS"), (2, 3): ("NV2", "direct", "PIX"),
    }  # fmt: skip
    assert [gpu["nvlinks"] for gpu in found["gpus"]] == [3, 2, 2, 2]
    assert [gpu["numa_node"] for gpu in found["gpus"]] == [0, 0, 1, 1]
    assert [gpu["cpus"] for gpu in found["gpus"]] == ["0-7,67", "0-7,67", "8-15,67", "8-15,67"]
    assert found["gpus"][0]["bus_id"] == "0000:10:00.0"


def test_a_gpu_without_nvlink_has_none_and_not_unknown() -> None:
    found = topology(UUIDS[:2], Wired(wires={}))
    assert [gpu["nvlinks"] for gpu in found["gpus"]] == [0, 0]
    assert word_of(found["pairs"][0]) == "NODE"


def test_an_older_driver_tells_the_numa_node_by_a_mask() -> None:
    found = topology(UUIDS, Wired("nvmlDeviceGetNumaNodeId"))
    assert [gpu["numa_node"] for gpu in found["gpus"]] == [0, 0, 1, 1]
    assert all("numa_node_why" not in gpu for gpu in found["gpus"])


def test_what_is_not_told_is_null_with_its_reason() -> None:
    for found in (topology(UUIDS[:2], FakeNvml({}, UUIDS)), topology(["GPU-x", None], Wired())):
        assert schema_errors(found) == ""
        for gpu in found["gpus"]:
            assert all(gpu[f"{key}_why"] for key in ("bus_id", "numa_node", "cpus"))
        assert word_of(found["pairs"][0]) == "?"


def schema_errors(found: dict[str, Any]) -> str:
    schema.validate(result_files.file() | {"topology": found})
    return ""


def test_the_report_shows_the_matrix() -> None:
    doc = result_files.file() | {"topology": topology(UUIDS, Wired())}
    table = topology_table(doc)
    assert table.rows[0][:5] == ("GPU0", "X", "NV2", "SYS", "SYS")
    assert table.rows[3][:5] == ("GPU3", "SYS", "SYS", "NV2", "X")
    assert any("the link between NUMA nodes" in remark for remark in table.remarks)
    assert "How the GPUs are joined" in render_text(doc)
    assert "| GPU0 | X | NV2 |" in to_markdown(doc)
    rows = [row for row in csv.DictReader(to_csv(doc).splitlines()) if row["record"] == "gpu-pair"]
    assert [row["name"] for row in rows][:2] == ["GPU0--GPU1", "GPU0--GPU2"]
    assert rows[0]["bound_by"] == "NV2"


def test_only_real_gpus_and_only_several_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_pairs, "topology", lambda uuids: list(uuids))
    one, two = (Device(f"cuda:{i}", "cuda", "H200", 132, (), (), None, uuid=UUIDS[i]) for i in range(2))
    emulated = Device("cuda:2", "cuda", "H200", 132, (), (), None, uuid="GPU-9", facts={"emulated": True})
    cpu = Device("cpu", "cpu", "EPYC", 2, (0, 1), (), None)
    assert gpu_pairs.of_devices([cpu, one]) == {}
    assert gpu_pairs.of_devices([emulated, one]) == {}
    assert gpu_pairs.of_devices([cpu, one, two, one]) == {"topology": [UUIDS[0], UUIDS[1]]}


def test_numbers_and_names_are_plain() -> None:
    assert cpu_list([]) == ""
    assert cpu_list([3, 1, 2, 9]) == "1-3,9"
    assert bus_id("00000001:0A:00.0\0") == "0001:0a:00.0"
