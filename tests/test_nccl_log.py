"""NCCL's log by its lines: hand-made after the format strings of several versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumicro.collectives import nccl_log
from gpumicro.collectives.crossing import in_switch, wire
from gpumicro.collectives.nccl_log import NcclLog, parse

LOGS = Path(__file__).parent / "data" / "nccl_logs"


def log(name: str) -> NcclLog:
    return parse((LOGS / name).read_text())


def test_one_node_says_what_it_has() -> None:
    found = log("one_node.log")
    assert (found.version, found.ranks, found.channels, found.nvls_channels) == ("2.30.7+cuda13.0", 8, 16, 16)
    assert (found.nvls, found.network, found.plugin) == (True, "Socket", "")
    assert found.structures == ("ring", "tree")
    assert found.transports == ("P2P/CUMEM",)
    assert found.warnings == ()


def test_two_nodes_through_a_plugin() -> None:
    found = log("two_nodes.log")
    assert (found.version, found.ranks, found.channels, found.nvls_channels) == ("2.22.3+cuda12.6", 4, 8, 0)
    assert (found.nvls, found.network, found.plugin) == (False, "AWS Libfabric", "AWS Libfabric")
    assert found.transports == ("COLLNET/SHARP", "NET/AWS Libfabric/GDRDMA", "P2P/direct pointer", "SHM/direct")
    assert found.structures == ("collnet",)
    assert found.warnings == ("NET/IB : Got completion with error 12",)


@pytest.mark.parametrize(
    ("collective", "size", "expected"),
    [
        ("all_reduce", 65536, ("Tree", "LL", 4)),
        ("all_reduce", 1 << 20, ("Ring", "LL128", 16)),
        ("all_reduce", 1 << 28, ("NVLS", "Simple", 16)),
        ("all_gather", 1 << 20, ("Ring", "Simple", 8)),  # the log has one rank's part: an eighth
        ("all_reduce", 4096, ("Symmetric:AGxLLMC_R", None, 4)),
        ("alltoall", 64 << 20, ("CopyEngine", None, None)),
        ("all_reduce", 999, (None, None, 16)),
        ("broadcast", 65536, (None, None, 16)),
    ],
)
def test_a_row_finds_what_was_picked_for_it(collective: str, size: int, expected: tuple[object, ...]) -> None:
    keys = log("one_node.log").keys(collective, size, 8)
    assert (keys["algorithm"], keys["protocol"], keys["channels"]) == expected
    assert [name for name in ("algorithm", "protocol", "channels") if keys[name] is None] == [
        name.removesuffix("_why") for name in keys if name.endswith("_why")
    ]


def test_older_logs_have_numbers_and_no_names() -> None:
    keys = log("two_nodes.log").keys("all_reduce", 1 << 25, 4)
    assert (keys["algorithm"], keys["protocol"]) == ("Ring+Tree", "Simple"), "two choices are both told"
    assert log("two_nodes.log").keys("all_reduce", 65536, 4)["algorithm"] == "number 9"


def test_whatever_is_no_log_is_an_empty_record() -> None:
    for text in ("", "\x00\x1b[31m", "NCCL INFO", "x NCCL INFO AllReduce: 8 Bytes -> Algo", "NCCL version"):
        assert parse(text) == NcclLog()
    assert NcclLog().keys("all_reduce", 8, 2)["algorithm_why"]


def test_facts_and_environment_are_plain() -> None:
    assert log("one_node.log").facts()["nccl_transports"] == ["P2P/CUMEM"]
    assert "TUNING" not in nccl_log.environment("x.%h.%p", tuning=False)["NCCL_DEBUG_SUBSYS"]
    assert nccl_log.environment("x.%h.%p", tuning=True)["NCCL_DEBUG_SUBSYS"].endswith("TUNING")


# -- what crosses a link -----------------------------------------------------------------------------------------------


def test_a_ring_moves_what_busbw_counts_and_a_switch_less() -> None:
    ring, nvls, tree = (wire("all_reduce", name, 8) for name in ("Ring", "NVLS", "Tree"))
    assert ring is not None
    assert nvls is not None
    assert tree is not None
    assert (ring.exact, ring.factor) == (True, 1.75)
    assert (nvls.exact, nvls.factor, nvls.bound(450e9)) == (False, 1.125, 400e9)
    assert (tree.exact, tree.factor) == (False, 2.0)


@pytest.mark.parametrize("algorithm", [None, "", "CollNetDirect", "Ring+Tree", "NVLS+Ring", "made up"])
def test_what_is_not_known_has_no_factor(algorithm: str | None) -> None:
    assert wire("all_reduce", algorithm, 8) is None


def test_messages_from_rank_to_rank_need_no_algorithm() -> None:
    found = wire("sendrecv", None, 8)
    assert found is not None
    assert (found.exact, found.factor) == (True, 1.0)


def test_multicast_kernels_are_told_by_their_name() -> None:
    assert all(map(in_switch, ("NVLSTree", "CollNetChain", "Symmetric:RSxLDMC_AGxSTMC", "SHARP")))
    assert not any(map(in_switch, ("Ring", "Symmetric:RSxLD_AGxST", "CopyEngine", "Tree")))
