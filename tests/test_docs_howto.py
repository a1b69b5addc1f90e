"""README and docs: every command line is one that the command takes; how-tos' lines marked `runs` are run in order."""

from __future__ import annotations

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpumicro.cli import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
HOW_TOS = ("accept-a-node", "why-slower", "cloud-a-or-b", "is-my-kernel-good")
PAGES = ("README", *sorted(page.stem for page in DOCS.glob("*.md")))
LAUNCHERS = ("mpirun", "srun", "torchrun")
FILE = re.compile(r"<!-- file: ([\w.]+) -->\n```\w*\n(.*?)```\n", re.DOTALL)
BLOCK = re.compile(r"(?:(<!-- runs -->)\n\n)?((?:^ {4}.+\n)+)", re.MULTILINE)


def page(name: str) -> Path:
    return ROOT / "README.md" if name == "README" else DOCS / f"{name}.md"


def lines(name: str) -> list[tuple[bool, str]]:
    """Each command line of a page, and whether it is marked to run."""
    text = FILE.sub("", page(name).read_text(encoding="utf-8"))
    return [(bool(mark), line.strip()) for mark, block in BLOCK.findall(text) for line in block.splitlines()]


def words_of(line: str) -> list[str]:
    """gpumicro's arguments of a command line, none where it is another program's."""
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        del words[0]
    if words[:1] == ["gpumicro"]:
        return words[1:]
    module = next((index for index, pair in enumerate(pairwise(words)) if pair == ("-m", "gpumicro")), None)
    launched = module is not None and (words[0] in LAUNCHERS or (module == 1 and words[0] == "python"))
    return words[module + 2 :] if module is not None and launched else []


COMMAND_LINES = [
    (name, part) for name in PAGES for _, line in lines(name) for part in line.split("&&") if words_of(part)
]


def test_the_pages_have_command_lines() -> None:
    assert {name for name, _ in COMMAND_LINES} >= {"README", *HOW_TOS}
    assert words_of("mpirun -n 8 python -m gpumicro info  # x") == ["info"]
    assert words_of("RANK=0 torchrun --nproc-per-node 2 -m gpumicro info") == ["info"]
    assert words_of("docker build .") == words_of("python -m gpumicroscope") == []


@pytest.mark.parametrize("name", sorted({name for name, _ in COMMAND_LINES}))
def test_the_commands_options_exist(name: str) -> None:
    for line in (line for page, line in COMMAND_LINES if page == name):
        try:
            parses(cli, words_of(line))
        except click.ClickException as error:
            pytest.fail(f"{line}: {error.format_message()}")


def parses(group: click.Command, words: list[str]) -> None:
    """The words fill a command's context; nothing is run."""
    with click.Context(cli) as context:
        while isinstance(group, click.Group):
            found = group.get_command(context, words[0])
            assert found is not None
            group, words = found, words[1:]
        group.make_context(group.name, words, parent=context)


@pytest.mark.parametrize("name", HOW_TOS)
def test_what_is_marked_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests" / "data" / "roofline-cpu.json", "r.json")
    for file, content in FILE.findall((DOCS / f"{name}.md").read_text(encoding="utf-8")):
        Path(file).write_text(content, encoding="utf-8")
    marked = [line for runs, line in lines(name) if runs]
    assert marked
    for line in marked:
        done = CliRunner().invoke(cli, words_of(line), catch_exceptions=False)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        assert done.output


# -- facts -------------------------------------------------------------------------------------------------------------

FACTS = (
    (r"A100 .*8,192.*\| 6,912 are enabled", "A100's cores"),
    (r"p4d\.24xlarge has 8 x A100 .* and 400 Gbit/s of EFA", "AWS p4d"),
    (r"A2 has NVIDIA A100s", "GCP A2"),
    (r"has 8 x A100 and 8 x 200 Gbit/s HDR InfiniBand", "Azure ND A100 v4"),
    (r"NCCL is NVIDIA's Collective Communications Library", "NCCL"),
)


@pytest.mark.parametrize(("said", "what"), FACTS)
def test_the_page_of_facts_has_each_correction_with_its_source(said: str, what: str) -> None:
    row = next(
        (line for line in (DOCS / "facts.md").read_text(encoding="utf-8").splitlines() if re.search(said, line)), None
    )
    assert row is not None, what
    assert all(cell.strip() for cell in row.strip("|").split("|")[:3])


def test_the_facts_agree_with_the_data() -> None:
    from gpumicro.peaks import find_gpu
    from gpumicro.peaks.instances import find_instance

    a100 = find_gpu("a100-sxm4-40")
    peak = a100.peak("float32", "vector")
    assert a100.sm_count == 108
    assert peak is not None
    assert peak.flop_per_s == pytest.approx(2 * 6912 * 1.41e9, rel=0.005)
    assert find_instance("p4d.24xlarge").network_bits_per_s == 400e9
    assert find_instance("Standard_ND96asr_v4").network_bits_per_s == 8 * 200e9
