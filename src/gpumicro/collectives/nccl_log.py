"""What NCCL says of itself with NCCL_DEBUG=INFO: version, connections, transports, network, and what it picked per run.

Pure text in, a frozen record out; a line that is not known is passed over, and nothing here starts anything. Lines as
NCCL 2.10 to 2.30 print them (NVIDIA's user guide, "Logging", and the format strings of src/init.cc, enqueue.cc and
transport/*.cc). Algorithm and protocol of a run need the subsystem TUNING, which prints from 2.20 on, on rank 0 alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..result import or_why
from .operations import ALIASES, COLLECTIVES

# NCCL's own numbers (nccl_common.h) and NCCL_ALGO's words for what the log has in capitals
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")
SYMMETRIC, COPY_ENGINE = "Symmetric", "CopyEngine"  # kernels on symmetric memory, and no kernel at all
# for a run that is timed, and for one that is not: the line of each call costs time
INIT_SUBSYSTEMS, TUNING_SUBSYSTEMS = "INIT,ENV,NET", "INIT,ENV,NET,TUNING"

_INFO = re.compile(r"NCCL INFO (.*)$")
_WARN = re.compile(r"NCCL WARN (.*)$")
_VERSION = re.compile(r"NCCL version (\d\S*)")
_CHANNEL = re.compile(r"(?:Channel|Ring) \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\] (?:\[(?:send|receive)\] )?via (.+)$")
_COLLNET = re.compile(r"CollNet(?:Chain)? \d+(?:/\d+)? : .* via COLLNET/([^/ ]+)")
_COUNTS = re.compile(r"(\d+) coll channels, (?:(\d+) collnet channels, )?(?:(\d+) nvls channels, )?(\d+) p2p channels")
_NAMED = re.compile(r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}")
_NUMBERED = re.compile(r"(?:(\w+): )?(\d+) Bytes -> Algo (\d+) proto (\d+) time")
_SYMMETRIC = re.compile(r"(\w+) \[Symmetric\]: (\d+) Bytes -> Kernel (\w+) nchannels (\d+)")
_COPY_ENGINE = re.compile(r"(\w+) \[(?:Hierarchical CE|Copy Engine)\]: (\d+) Bytes -> (.+)$")
_INIT = re.compile(r"ncclComm\w* comm \S+ rank (\d+) nranks (\d+) .*Init COMPLETE")
_PLUGIN = re.compile(r"NET/Plugin: Loaded net plugin (.+?)(?: \(v\d+\))?$")
_NO_PLUGIN = re.compile(r"NET/Plugin ?:.*(?:No plugin found|Could not find|[Uu]sing internal)")
_STRUCTURES = (
    ("Connected all rings", "ring"), ("Connected all trees", "tree"), ("Connected NVLS tree", "nvls-tree"),
    ("Connected CollNet", "collnet"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """What NCCL picked for one run. `collective` is our name, "" where the log has none (before 2.23); `share`: whether
    `size_bytes` is one rank's part, as from 2.24 on, rather than the larger buffer. None: the log does not say."""

    collective: str
    size_bytes: int
    share: bool
    algorithm: str
    protocol: str | None
    channels: int | None


@dataclass(frozen=True, slots=True)
class NcclLog:
    """A log. None and empty tuples: nothing of it stood there. `transports` are kinds of connections, each once, as
    "P2P/CUMEM", "SHM/direct", "NET/IB/GDRDMA", "NET/Socket"; `structures` what was connected: ring, tree, ..."""

    version: str | None = None
    ranks: int | None = None
    channels: int | None = None
    nvls_channels: int | None = None
    nvls: bool | None = None  # whether multicast in the switch can be had
    structures: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    network: str | None = None  # "IB", "Socket", "AWS Libfabric"
    plugin: str | None = None  # the net plugin; "" where the log says that there is none
    choices: tuple[Choice, ...] = ()
    warnings: tuple[str, ...] = ()

    def choices_for(self, collective: str, size_bytes: int, ranks: int) -> tuple[Choice, ...]:
        """The different choices for a row of that size (nccl-tests' size: the larger buffer)."""
        kind = COLLECTIVES.get(collective)
        part = size_bytes // ranks if kind is not None and kind.whole and ranks > 0 else size_bytes
        return tuple(dict.fromkeys(
            one for one in self.choices
            if one.collective in ("", collective) and one.size_bytes == (part if one.share else size_bytes)
        ))  # fmt: skip

    def keys(self, collective: str, size_bytes: int, ranks: int) -> dict[str, Any]:
        """`algorithm`, `protocol`, `channels` of a row of a result, a null with its reason.

        Two choices for one size are joined, as "NVLS+Ring"; channels are then the most.
        """
        found = self.choices_for(collective, size_bytes, ranks)
        why = "NCCL's log has no line of this size: it takes NCCL_DEBUG_SUBSYS with TUNING and NCCL 2.20"
        protocols = "+".join(dict.fromkeys(one.protocol for one in found if one.protocol))
        counts = [one.channels for one in found if one.channels is not None]
        channels = max(counts, default=None if found else self.channels)
        return {
            **or_why("algorithm", "+".join(dict.fromkeys(one.algorithm for one in found)) or None, why),
            **or_why("protocol", protocols or None, why),
            **or_why("channels", channels, "NCCL's log does not say how many channels this run had"),
        }

    def facts(self) -> dict[str, Any]:
        """JSON-ready, for "facts" of a row or a device: what holds for the whole communicator."""
        return {
            "nccl_version": self.version, "nccl_network": self.network, "nccl_net_plugin": self.plugin,
            "nccl_transports": list(self.transports), "nccl_structures": list(self.structures),
            "nccl_channels": self.channels, "nccl_nvls_channels": self.nvls_channels, "nccl_nvls": self.nvls,
        }  # fmt: skip


@dataclass
class _Found:
    """What the lines so far said."""

    values: dict[str, Any] = field(default_factory=dict)
    structures: dict[str, None] = field(default_factory=dict)
    transports: dict[str, None] = field(default_factory=dict)
    choices: dict[Choice, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)


def parse(text: str) -> NcclLog:
    """The log of one job, of one rank or of all of them one after the other. Text of other programs may stand between.

    Never raises: a text that is no such log gives an empty record.
    """
    found = _Found()
    for line in text.splitlines():
        if version := _VERSION.search(line):
            found.values.setdefault("version", version[1])
        if warn := _WARN.search(line):
            found.warnings[warn[1].strip()] = None
        elif info := _INFO.search(line):
            _read(found, info[1].strip())
    return NcclLog(
        **found.values, structures=tuple(found.structures), transports=tuple(sorted(found.transports)),
        choices=tuple(found.choices), warnings=tuple(found.warnings),
    )  # fmt: skip


def _read(found: _Found, said: str) -> None:
    for pattern, act in _ACTS:
        if match := pattern.match(said):
            act(found, match)
            return
    for words, structure in _STRUCTURES:
        if words in said:
            found.structures[structure] = None
    if said.startswith("NVLS multicast support is"):
        found.values["nvls"] = "not available" not in said
    elif said.startswith("Using network "):
        found.values["network"] = said.removeprefix("Using network ").strip()


def _channel(found: _Found, match: re.Match[str]) -> None:
    found.transports[_transport(match[1])] = None


def _transport(words: str) -> str:
    """ "NET/IB/GDRDMA" of "NET/IB/3(1)/GDRDMA(PCI)/Shared": without the number of the device and of the proxy."""
    words = words.strip()
    if words.startswith("direct shared memory"):  # before 2.9
        return "SHM/direct"
    parts = words.split("/")
    if parts[0] != "NET":
        return "/".join(parts[:2])
    gpu_direct = "/GDRDMA" if any(part.startswith("GDRDMA") for part in parts[2:]) else ""
    return f"NET/{parts[1] if len(parts) > 1 else '?'}{gpu_direct}"


def _collnet(found: _Found, match: re.Match[str]) -> None:
    found.structures["collnet"] = None
    found.transports[f"COLLNET/{match[1]}"] = None


def _counts(found: _Found, match: re.Match[str]) -> None:
    found.values["channels"] = int(match[1])
    if match[3] is not None:
        found.values["nvls_channels"] = int(match[3])


def _init(found: _Found, match: re.Match[str]) -> None:
    found.values["ranks"] = int(match[2])


def _plugin(found: _Found, match: re.Match[str]) -> None:
    found.values["plugin"] = match[1].strip()


def _no_plugin(found: _Found, match: re.Match[str]) -> None:
    del match
    found.values.setdefault("plugin", "")


def _named(found: _Found, match: re.Match[str]) -> None:
    channels = int(match[6]) - int(match[5]) + 1
    algorithm, protocol = _word(match[3], _ALGORITHMS), _word(match[4], _PROTOCOLS)
    found.choices[Choice(our_name(match[1]), int(match[2]), True, algorithm, protocol, channels)] = None


def _numbered(found: _Found, match: re.Match[str]) -> None:
    algorithm, protocol = (_at(names, int(match[i])) for names, i in ((_ALGORITHMS, 3), (_PROTOCOLS, 4)))
    name = our_name(match[1]) if match[1] else ""
    found.choices[Choice(name, int(match[2]), False, algorithm, protocol, None)] = None


def _symmetric(found: _Found, match: re.Match[str]) -> None:
    kernel = match[3].partition("_")[2] or match[3]  # "RSxLDMC_AGxSTMC"; MC: multicast in the switch
    choice = Choice(our_name(match[1]), int(match[2]), True, f"{SYMMETRIC}:{kernel}", None, int(match[4]))
    found.choices[choice] = None


def _copy_engine(found: _Found, match: re.Match[str]) -> None:
    found.choices[Choice(our_name(match[1]), int(match[2]), True, COPY_ENGINE, None, None)] = None


def _word(word: str, known: Iterable[str]) -> str:
    """NCCL_ALGO's spelling of "NVLS_TREE"; an unknown word as it is."""
    plain = word.replace("_", "").lower()
    return next((name for name in known if name.lower() == plain), word)


def _at(names: tuple[str, ...], index: int) -> str:
    return names[index] if index < len(names) else f"number {index}"


def our_name(word: str) -> str:
    """ "all_reduce" of "AllReduce"; an unknown word in small letters."""
    plain = word.lower()
    return next((name for name in COLLECTIVES if name.replace("_", "") == plain), ALIASES.get(plain, plain))


_ACTS: tuple[tuple[re.Pattern[str], Callable[[_Found, re.Match[str]], None]], ...] = (
    (_CHANNEL, _channel), (_COLLNET, _collnet), (_COUNTS, _counts), (_INIT, _init), (_PLUGIN, _plugin),
    (_NO_PLUGIN, _no_plugin), (_NAMED, _named), (_NUMBERED, _numbered), (_SYMMETRIC, _symmetric),
    (_COPY_ENGINE, _copy_engine),
)  # fmt: skip


def environment(file: str, *, tuning: bool) -> Mapping[str, str]:
    """NCCL's variables for a log in `file` (%h: host, %p: process). `tuning`: also what was picked."""
    return {
        "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": TUNING_SUBSYSTEMS if tuning else INIT_SUBSYSTEMS,
        "NCCL_DEBUG_FILE": file,
    }  # fmt: skip
