"""How the GPUs of a host are joined, through NVML: NVLinks and the PCIe path of each pair, CPUs and NUMA node of each.

The content of `nvidia-smi topo -m`, in its words. Every call may fail; what can't be had is None with its reason.
Source of meanings: NVML API reference, nvmlGpuTopologyLevel_t, nvmlIntNvLinkDeviceType_t.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from .device import Device
from .nvml import Answer, Gpu

Record = dict[str, Any]

LEVELS = {0: "INT", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
LEVEL_WORDS = {
    "INT": "on one board", "PIX": "one PCIe switch at most", "PXB": "several PCIe switches, no host bridge",
    "PHB": "a PCIe host bridge", "NODE": "host bridges of one NUMA node", "SYS": "the link between NUMA nodes",
}  # fmt: skip
_MOST_LINKS = 36  # of any GPU so far; a number that a GPU does not have is an error, and counts as none
_ACTIVE = 1
_SWITCH = 2
_CPU_WORDS = 32  # of 64 bits: 2048 logical CPUs


def topology(uuids: Sequence[str | None], library: Any = None) -> Record:
    """JSON-ready: `gpus` in the order of `uuids`, and `pairs` of their indices.

    A pair has `nvlinks` (how many join the two, directly or through a switch: nvidia-smi's "NV18"), `through`
    ("direct", "switch", None without any) and `pcie` (PIX, PXB, PHB, NODE, SYS). `library`: a stand-in for pynvml.
    """
    with ExitStack() as stack:
        gpus = [Gpu(uuid, library) for uuid in uuids]
        for gpu in gpus:
            stack.callback(gpu.close)
        links = [_links(gpu) for gpu in gpus]
        found = [_gpu(gpu, joined) for gpu, joined in zip(gpus, links, strict=True)]
        pairs = [
            _pair(gpus, links, found, a, b) for a in range(len(gpus)) for b in range(a + 1, len(gpus))
        ]  # fmt: skip
    return {"gpus": found, "pairs": pairs}


def of_devices(devices: Iterable[Device]) -> Record:
    """{"topology": ...} of a run's devices, as a result has it; {} below two GPUs, or where none is real."""
    uuids = [
        device.uuid for device in devices
        if device.kind != "cpu" and not (device.facts.get("emulated") or device.facts.get("replayed"))
    ]  # fmt: skip
    uuids = list(dict.fromkeys(uuids))
    return {"topology": topology(uuids)} if len(uuids) > 1 else {}


def _gpu(gpu: Gpu, joined: Counter[str] | None) -> Record:
    made: Record = {"uuid": gpu.uuid}
    _put(made, "bus_id", gpu.ask("nvmlDeviceGetPciInfo", convert=lambda info: bus_id(info.busId)))
    _put(made, "numa_node", gpu.ask("nvmlDeviceGetNumaNodeId", convert=int))
    if made["numa_node"] is None:  # a call of recent drivers; the older one tells the same as bits
        _put(made, "numa_node", gpu.ask("nvmlDeviceGetMemoryAffinity", 1, 0, convert=_only_bit))
    _put(made, "cpus", gpu.ask("nvmlDeviceGetCpuAffinity", _CPU_WORDS, convert=lambda w: cpu_list(_bits(w))))
    active = None if joined is None else sum(joined.values())
    _put(made, "nvlinks", Answer(active, "" if joined is not None else gpu.why or "NVML tells no NVLink's state"))
    return made


def _links(gpu: Gpu) -> Counter[str] | None:
    """Active NVLinks by what is at their other end: a bus id, or "switch". None where not even one could be asked."""
    found: Counter[str] = Counter()
    told = False
    for link in range(_MOST_LINKS):
        state = gpu.ask("nvmlDeviceGetNvLinkState", link, convert=int)
        if state.why:
            if link == 0 and "Not Supported" in state.why:  # a GPU without NVLink
                return found
            break
        told = True
        if state.value == _ACTIVE:
            found[_far_end(gpu, link)] += 1
    return found if told else None


def _far_end(gpu: Gpu, link: int) -> str:
    kind = gpu.ask("nvmlDeviceGetNvLinkRemoteDeviceType", link, convert=int)
    if kind.value == _SWITCH:
        return "switch"
    remote = gpu.ask("nvmlDeviceGetNvLinkRemotePciInfo", link, convert=lambda info: bus_id(info.busId))
    return remote.value or "unknown"


def _pair(gpus: Sequence[Gpu], links: Sequence[Counter[str] | None], found: Sequence[Record], a: int, b: int) -> Record:
    made: Record = {"a": a, "b": b}
    mine, others = links[a], links[b]
    if mine is None or others is None:
        made |= {"nvlinks": None, "nvlinks_why": found[a if mine is None else b]["nvlinks_why"], "through": None}
    else:
        direct = mine[found[b]["bus_id"]] if found[b]["bus_id"] else 0
        switched = min(mine["switch"], others["switch"])
        made |= {"nvlinks": direct or switched, "through": "direct" if direct else "switch" if switched else None}
    level = gpus[a].level_to(gpus[b])
    _put(made, "pcie", Answer(None if level.why else LEVELS.get(level.value, f"level {level.value}"), level.why))
    return made


def word_of(pair: Record) -> str:
    """As nvidia-smi has it: "NV18" where NVLinks join the two, else the PCIe level, "?" where nothing is known."""
    return f"NV{pair['nvlinks']}" if pair.get("nvlinks") else str(pair.get("pcie") or "?")


def bus_id(raw: object) -> str:
    """ "0000:1b:00.0" of NVML's "00000000:1B:00.0", bytes or text."""
    text = (raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(raw)).strip("\0 ").lower()
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}"


def cpu_list(cpus: Iterable[int]) -> str:
    """ "0-3,8" of 0, 1, 2, 3, 8."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _bits(words: Iterable[Any]) -> list[int]:
    """The numbers of the bits that are set in words of 64."""
    return [64 * i + bit for i, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1]


def _only_bit(words: Iterable[Any]) -> int:
    nodes = _bits(words)
    if len(nodes) != 1:
        raise ValueError(f"{len(nodes)} NUMA nodes")
    return nodes[0]


def _put(made: Record, key: str, answer: Answer) -> None:
    made[key] = answer.value
    made.pop(f"{key}_why", None)
    if answer.value is None:
        made[f"{key}_why"] = answer.why or "NVML gives nothing"
