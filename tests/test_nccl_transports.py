"""The same sweep under several transports: variables, what can't be had, children, one result; and the command line."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_ranks import FakeRanks, World
from sweep_files import document, item

from gpumicro import result
from gpumicro.cli import collectives as cli
from gpumicro.cli import collectives_gpu
from gpumicro.collectives import nccl_sweeps
from gpumicro.collectives.nccl_sweeps import Place, Sweeps, Swept
from gpumicro.collectives.nccl_transports import VARIABLES, had, parse, taken_instead, why_not
from gpumicro.errors import UsageError

# -- names and variables -----------------------------------------------------------------------------------------------


def test_transports_are_named_each_once() -> None:
    assert parse("auto,P2P, shm,auto") == ("auto", "p2p", "shm")
    with pytest.raises(UsageError, match="unknown transport 'tcp'"):
        parse("auto,tcp")
    with pytest.raises(UsageError, match="names none"):
        parse(",")


def test_every_transport_but_auto_shuts_the_better_ones_out() -> None:
    assert VARIABLES["auto"] == {}
    assert VARIABLES["p2p"]["NCCL_SHM_DISABLE"] == "1"
    for name in ("shm", "ib", "socket"):
        assert VARIABLES[name]["NCCL_P2P_DISABLE"] == "1"
    for name, network in (("ib", "IB"), ("socket", "Socket")):
        assert (VARIABLES[name]["NCCL_SHM_DISABLE"], VARIABLES[name]["NCCL_NET"]) == ("1", network)


def test_what_cannot_be_had_is_known_before(tmp_path: Path) -> None:
    assert "no InfiniBand" in why_not("ib", 8, 1, tmp_path)
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    assert why_not("ib", 8, 1, tmp_path) == ""
    assert "each of the 4 hosts has one" in why_not("p2p", 4, 4, tmp_path)
    assert why_not("p2p", 1, 1, tmp_path) == why_not("shm", 8, 2, tmp_path) == why_not("socket", 4, 4, tmp_path) == ""


def test_nccls_log_tells_what_it_took() -> None:
    assert had("p2p", ["P2P/CUMEM", "NET/IB"])
    assert not had("p2p", ["SHM/direct"])
    assert had("ib", []), "a log that says nothing proves nothing"
    assert had("auto", ["SHM/direct"])
    assert taken_instead("p2p", ["P2P/CUMEM", "SHM/direct"], 1) == "SHM/direct"
    assert taken_instead("p2p", ["P2P/CUMEM", "NET/IB/GDRDMA"], 2) == "", "between hosts the choice is NCCL's"
    assert taken_instead("socket", ["NET/Socket"], 2) == taken_instead("auto", ["NET/IB"], 2) == ""


# -- children ----------------------------------------------------------------------------------------------------------


def found(transport: str, seen: str) -> dict[str, Any]:
    """A result of one transport."""
    rows = [item(size, 1e-5 + size * 1e-9) for size in (1024, 4096)]
    for row in rows:
        row |= {"transport": transport, "facts": {"nccl_transports": [seen]}, "id": f"{row['id']}/{transport}"}
    return copy.deepcopy(document(rows) | {"notes": ["a size was left out"], "settings": {"transport": transport}})


CHILD = """
import json, os, sys
seen, transport, out = sys.argv[1:4]
doc = json.loads(open(seen).read()).get(transport)
print("table of", transport, os.environ.get("RANK"), os.environ.get("PMI_RANK"))
if doc is None:
    print("gpumicro: rank 1 of 2 on h: no route", file=sys.stderr)
    sys.exit(int(os.environ.get("CHILD_CODE", "1")))
open(out, "w").write(json.dumps(doc))
sys.exit(1 if doc["interrupted"] else 0)
"""


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`children({transport: result})` sets what each child writes; one that is missing fails."""

    def set_up(documents: dict[str, Any]) -> None:
        (tmp_path / "docs.json").write_text(json.dumps(documents))
        started = [sys.executable, "-c", CHILD, str(tmp_path / "docs.json")]
        monkeypatch.setattr(nccl_sweeps, "command", lambda name, output, more=(): [*started, name, output, *more])

    return set_up


def carry(control: Any, make: Any) -> bytes:
    made = make() if control.rank == 0 else b""
    return control.exchange(made)[0]  # type: ignore[no-any-return]


def sweep(transports: tuple[str, ...], ranks: int = 1) -> tuple[Swept, list[str], list[bool]]:
    """(what came of them, the text, whether more was to come at each keeping)."""
    text: list[str] = []
    going: list[bool] = []

    def work(control: FakeRanks) -> Swept:
        place = Place(ranks, 1, "h", "h")
        return Sweeps(control, place, carry, text.append, text.append).run(
            transports, lambda _, more: going.append(more)
        )

    return World(ranks).each(work)[0], text, going


def test_one_that_cannot_be_had_says_why_and_the_others_go_on(children: Any, tmp_path: Path) -> None:
    children(
        {"auto": found("auto", "P2P/CUMEM"), "shm": found("shm", "NET/Socket"), "socket": found("socket", "NET/Socket")}
    )
    names = ("auto", "p2p", "shm", "socket")
    swept, text, going = sweep(names)
    assert list(swept.documents) == ["auto", "socket"]
    assert swept.reasons == {"p2p": "rank 1 of 2 on h: no route", "shm": "NCCL took NET/Socket instead"}
    assert (swept.code, going) == (0, [True, True, True, False])
    assert any("table of auto" in one for one in text)
    nccl_sweeps.keep(swept, names, str(tmp_path / "r.json"), interrupted=False)
    doc = result.read(tmp_path / "r.json")
    assert [row["transport"] for row in doc["measurements"]] == ["auto", "auto", "socket", "socket"]
    assert "auto: a size was left out" in doc["notes"]
    assert "transport shm could not be had: NCCL took NET/Socket instead" in doc["notes"]
    assert doc["settings"]["transports"] == list(names)
    assert not doc["interrupted"]


def test_rows_of_a_transport_that_breaks_off_are_kept(children: Any) -> None:
    children({"auto": found("auto", "P2P/CUMEM") | {"interrupted": True}, "shm": found("shm", "SHM/direct")})
    swept, _, _ = sweep(("auto", "shm"))
    assert list(swept.documents) == ["auto", "shm"]
    assert "ended with exit code 1" in swept.reasons["auto"]
    assert swept.code == 1
    whole = nccl_sweeps.merged(swept, ("auto", "shm"), interrupted=False)
    assert whole is not None
    assert whole["interrupted"]


def test_without_a_gpu_none_is_tried_after_the_first(children: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHILD_CODE", "3")
    children({})
    swept, _, going = sweep(("auto", "shm"))
    assert (swept.code, going, list(swept.reasons)) == (3, [False], ["auto"])
    assert nccl_sweeps.merged(swept, ("auto",), interrupted=False) is None


def test_processes_of_a_launcher_each_start_a_child_that_is_none_of_its(
    children: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_RANK", "1")
    children({"socket": found("socket", "NET/Socket")})
    swept, text, _ = sweep(("socket",), ranks=2)
    assert (swept.code, list(swept.documents)) == (0, ["socket"])
    assert any("table of socket 0 None" in one for one in text)


def test_children_meet_by_a_secret_at_rank_0() -> None:
    told = World(2).each(lambda control: nccl_sweeps.variables(control, "host-a", carry))
    assert told[0] | {"RANK": "1"} == told[1]
    assert told[0]["MASTER_ADDR"] == "host-a"
    assert len(told[0]["GPUMICRO_TOKEN"]) == 64
    given = {"RANK": "7", "SLURM_PROCID": "3", "OMPI_COMM_WORLD_RANK": "1", "PATH": "/bin", "NCCL_ALGO": "Ring"}
    assert nccl_sweeps.environment(given, {"RANK": "0"}) == {"PATH": "/bin", "NCCL_ALGO": "Ring", "RANK": "0"}


def test_a_child_is_this_command_with_one_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "orig_argv", ["python", "-m", "gpumicro", "collectives", "--transport", "auto,shm", "-o", "r"]
    )
    made = nccl_sweeps.command("shm", "/tmp/x.json")[3:]
    with cli.command.make_context("collectives", made[1:]) as context:
        assert (context.params["transport"], context.params["output"]) == ("shm", "/tmp/x.json")


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cuda:a"], "the devices are numbers"),
        (["--device", "cuda:1,1"], "names a device twice"),
        (["--device", "gpu"], "--device is cpu, cuda"),
        (["--device", "cuda", "--ranks", "2"], "--ranks starts ranks on CPUs"),
        (["--device", "cuda", "--graph", "-1"], "--graph must be"),
        (["--device", "cuda", "--aggregate", "0"], "--aggregate must be"),
        (["--device", "cuda", "--transport", "tcp"], "unknown transport"),
        (["--device", "cuda", "--dtype", "tf32"], "unknown dtype"),
        (["--graph", "4"], "--graph is of NCCL"),
        (["--transport", "ib"], "--transport is of NCCL"),
        (["--op", "avg"], "MPI has no average"),
        (["--dtype", "fp8"], "MPI has no fp8"),
    ],
)
def test_wrong_use_is_said_before_anything_starts(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectives_gpu, "run", lambda *_: pytest.fail("it was started"))
    done = CliRunner().invoke(cli.command, arguments, standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert words in str(done.exception)


def test_dtypes_and_operators_of_nccl_by_the_names_that_people_use(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(collectives_gpu, "run", lambda settings, *_: seen.append(settings) or 0)
    for dtype in ("half", "bf16", "fp8", "float8_e5m2"):
        CliRunner().invoke(
            cli.command, ["--device", "cuda", "--dtype", dtype, "--op", "mean", "--graph", "8"], catch_exceptions=False,
            standalone_mode=False,
        )  # fmt: skip
    assert [one.dtype for one in seen] == ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
    assert {(one.op, one.graph, one.library, one.transport) for one in seen} == {("avg", 8, "nccl", "auto")}


def test_devices_are_chosen_by_number() -> None:
    assert collectives_gpu.chosen("cuda") is None
    assert collectives_gpu.chosen("cuda:0,2") == (0, 2)
    assert collectives_gpu.chosen("cuda:0,cuda:1") == (0, 1)
