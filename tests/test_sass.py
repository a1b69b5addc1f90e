"""Disassembly: its parser on recorded text, and every kernel of every table held to its claim on four architectures."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpumicro import sass
from gpumicro.cli import cli
from gpumicro.errors import BackendUnavailable, GpumicroError
from gpumicro.sass import Code, Instruction, Proof, Usage
from gpumicro.sass.claims import number
from gpumicro.sass.tools import find_tool

ROOT = Path(__file__).parent.parent
ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_120")
TABLES = sorted((ROOT / "csrc" / "cuda" / "tables").glob("*.cu"))

# As cuobjdump prints it: encodings at the end of lines and between them, a loop, the jump to itself behind the end.
FMA = """
	code for sm_80
	.target	sm_80

		Function : _ZN2gm8fma_peakIfEEvPKNS_6ChainsIT_E4WordEPNS3_3SumEx
	.headerflags	@"EF_CUDA_SM80 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM80)"
        /*0000*/                   MOV R1, c[0x0][0x28] ;                        /* 0x00000a0000017a02 */
                                                                                 /* 0x000fe40000000f00 */
        /*0010*/                   LDG.E.CONSTANT R12, [R2.64+0x80] ;            /* 0x0000000000007919 */
{loop}
        /*0f10*/              @!P0 CALL.REL.NOINC 0x0f30 ;                       /* 0x0000001000008944 */
        /*0f20*/                   BRA 0x100 ;                                   /* 0xffffefb000007947 */
        /*0f30*/                   STG.E [R2.64], R8 ;                           /* 0x0000000802007986 */
        /*0f40*/                   EXIT ;                                        /* 0x000000000000794d */
        /*0f50*/                   BRA 0xf50;                                    /* 0xfffffff000007947 */
		..........
"""
USAGE = """
Resource usage:
 Common:
  GLOBAL:0
 Function _ZN2gm8fma_peakIfEEvPKNS_6ChainsIT_E4WordEPNS3_3SumEx:
  REG:40 STACK:{stack} SHARED:0 LOCAL:0 CONSTANT[0]:376 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
TRAP = """
	code for sm_80
		Function : _ZN2gm10wgmma_peakINS_8bfloat16EfEEvPKjPT0_x
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/                   BPT.TRAP 0x1 ;
        /*0020*/                   EXIT ;
        /*0030*/                   BRA 0x30;
"""


def recorded(multiply_adds: int, others: int = 2, padding: int = 0) -> Code:
    lines = ["FFMA R4, R2.reuse, R4, R6"] * multiply_adds + ["IADD3 R0, R0, -0x1, RZ"] * others + ["NOP"] * padding
    text = "\n".join(f"        /*{0x100 + 16 * i:04x}*/                   {line} ;" for i, line in enumerate(lines))
    (code,) = sass.parse_code(FMA.replace("{loop}", text))
    return code


def usage(stack: int = 0) -> Usage:
    (found,) = sass.parse_usage(USAGE.format(stack=stack)).values()
    return found


def test_a_listing_is_read_into_kernels_instructions_and_loops() -> None:
    code = recorded(90)
    assert code.arch == "sm_80"
    assert code.instructions[1] == Instruction(0x10, "LDG.E.CONSTANT", "R12, [R2.64+0x80]")
    assert code.instructions[-5].predicate == "@!P0"
    (loop,) = code.loops
    assert loop.counts == {"FFMA": 90, "IADD3": 2, "CALL.REL.NOINC": 1, "BRA": 1}
    assert (loop.working, loop.padding) == (94, 0)
    assert not code.empty


def test_two_kernels_and_two_architectures_are_kept_apart() -> None:
    text = FMA.replace("{loop}", "") + TRAP + TRAP.replace("sm_80", "sm_100a")
    found = [(code.arch, sass.kernel_name(code.symbol), code.empty) for code in sass.parse_code(text)]
    assert found == [
        ("sm_80", "gm::fma_peak<float>", False),
        ("sm_80", "gm::wgmma_peak<gm::bfloat16, float>", True),
        ("sm_100a", "gm::wgmma_peak<gm::bfloat16, float>", True),
    ]


def test_only_the_innermost_loops_count() -> None:
    ops = [(0x00, "MOV", ""), (0x10, "FADD", ""), (0x20, "FFMA", ""), (0x30, "BRA", "0x20"), (0x40, "BRA", "0x10")]
    code = Code("sm_80", "k", tuple(Instruction(*op) for op in ops))
    assert [loop.counts for loop in code.loops] == [{"FFMA": 1, "BRA": 1}]


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN2gm8mma_peakINS_4halfES1_EEvPKNS_3MmaIT_T0_E4WordEPNS5_3OutEx", "gm::mma_peak<gm::half, gm::half>"),
        (
            "_ZN2gm8fma_peakINS_4pairINS_4halfEEEEEvPKNS_6ChainsIT_E4WordEPNS6_3SumEx",
            "gm::fma_peak<gm::pair<gm::half>>",
        ),
        ("_ZN2gm5triadIdLi4ELi2EEEvPT_PKS1_S4_S1_x", "gm::triad<double, 4, 2>"),
        ("_ZN2gm5chaseILb1EEEvPKjPjx", "gm::chase<true>"),
        ("_ZN2gm4spinEx", "gm::spin"),
        ("plain_c", "plain_c"),
    ],
)
def test_symbols_become_the_names_of_the_tables(symbol: str, name: str) -> None:
    assert sass.kernel_name(symbol) == name


def test_a_kernel_that_does_what_it_claims_has_no_faults() -> None:
    proof = sass.prove(recorded(90), usage())
    assert proof.faults == ()
    assert (proof.kernel, proof.opcode, proof.count, proof.whole) == ("gm::fma_peak<float>", "FFMA", 90, 94)
    assert proof.share == pytest.approx(90 / 94)


def test_padding_is_counted_and_is_no_part_of_the_share() -> None:
    proof = sass.prove(recorded(90, padding=50), usage())
    assert (proof.padding, proof.whole, proof.faults) == (50, 94, ())
    assert Instruction(0, "UIADD3", "URZ, URZ, URZ, URZ").pads, "sm_89's NOP beside matrix products"
    assert not Instruction(0, "UIADD3", "UR4, URZ, URZ, URZ").pads


@pytest.mark.parametrize(
    ("code", "stack", "fault"),
    [
        (recorded(60, others=3), 0, "FFMA is 92.3% of the hot loop, claimed is 95%"),
        (recorded(0, others=3), 0, "no loop has FFMA"),
        (recorded(90), 16, "16 bytes of stack"),
    ],
)
def test_a_kernel_that_does_not_is_found_out(code: Code, stack: int, fault: str) -> None:
    (found,) = sass.prove(code, usage(stack)).faults
    assert fault in found


def test_local_memory_and_an_unknown_use_are_faults() -> None:
    spilled = Code("sm_80", "_ZN2gm4spinEx", (Instruction(0, "STL.64", "[R1], R2"), Instruction(16, "EXIT")))
    assert sass.prove(spilled, None).faults == (
        "1 accesses to local memory",
        "its use of registers and memory is not known",
    )


def test_a_trap_is_right_only_where_the_instructions_are_missing() -> None:
    (there,) = sass.parse_code(TRAP)
    unused = Usage(there.symbol, 4, 0, 0, 0)
    proof = sass.prove(there, unused)
    assert proof.absent
    assert proof.faults == ()
    (missing,) = sass.prove(Code("sm_90a", there.symbol, there.instructions), unused).faults
    assert "is a trap" in missing
    (extra,) = sass.prove(Code("sm_80", there.symbol, recorded(9).instructions), unused).faults
    assert "lacks its instructions" in extra


def test_registers_of_one_bank_are_found_unless_kept_from_the_instruction_before() -> None:
    def loop(*operands: str) -> Code:
        ops = [Instruction(16 * i, "FFMA", each) for i, each in enumerate(operands)]
        return Code("sm_80", recorded(1).symbol, (*ops, Instruction(16 * len(ops), "BRA", "0x0")))

    apart = ["R4, R4, R2.reuse, R5"] * 39
    assert sass.prove(loop(*apart), usage()).faults == ()
    assert loop(*apart, "R4, R4, -R2, R6").loops[0].same_bank("FFMA") == 0, "R2 is kept"
    assert loop(*apart, "R4, R4, -R8, R6").loops[0].same_bank("FFMA") == 1
    assert loop(*apart, "R4, R4, R4, R6", "R4, R4, 1, R6").loops[0].same_bank("FFMA") == 0, "two registers"
    (fault,) = sass.prove(loop(*["R4, R4, R2, R6"] * 40), usage()).faults
    assert fault == "40 FFMA read three registers of one bank"


def test_narrow_accesses_of_a_stream_are_faults() -> None:
    def loop(*opcodes: str) -> Code:
        ops = [Instruction(16 * i, opcode) for i, opcode in enumerate(opcodes)]
        end = Instruction(16 * len(ops), "BRA", "0x0")
        return Code("sm_80", "_ZN2gm4copyIfLi4ELi2EEEvPT_PKS1_x", (*ops, end))

    none = Usage("", 32, 0, 0, 0)
    assert sass.prove(loop("LDG.E.128.CONSTANT", "LDG.E.128.CONSTANT", "STG.E.128"), none).faults == ()
    (narrow,) = sass.prove(loop("LDG.E.128.CONSTANT", "LDG.E.128.CONSTANT", "STG.E"), none).faults
    assert "66.7%" in narrow
    (single,) = sass.prove(loop("LDG.E.128.CONSTANT", "IADD3"), none).faults
    assert "has 1" in single


def test_spills_are_read_from_the_compilers_messages() -> None:
    text = """ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
    176 bytes stack frame, 180 bytes spill stores, 340 bytes spill loads
ptxas info    : Used 128 registers, used 0 barriers, 176 bytes cumulative stack size, 376 bytes cmem[0]
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"""
    assert sass.parse_spills(text) == {"a": (176, 180, 340), "b": (0, 0, 0)}


def test_architectures_are_listed_in_order() -> None:
    text = "ELF file    1: x.sm_120.cubin\nELF file    2: x.sm_90a.cubin\nELF file    3: y.sm_90a.cubin\n"
    assert sass.architectures_in(text) == ("sm_90a", "sm_120")


def test_a_missing_tool_says_how_to_get_it() -> None:
    with pytest.raises(BackendUnavailable, match=r"nosuchtool is not installed.*gpumicro\[proof\]"):
        find_tool("nosuchtool", folders=(), environment={"PATH": ""})


# --- the kernels themselves ---


def compile_table(table: Path, arch: str, folder: Path) -> Path:
    """A table's cubin and beside it what ptxas said; made once for the same sources and compiler."""
    nvcc = str(find_tool("nvcc"))
    version = subprocess.run([nvcc, "--version"], capture_output=True, check=True).stdout
    sources = [table, ROOT / "csrc" / "cuda" / "registry.hpp", *sorted((ROOT / "csrc" / "kernels").glob("*.cuh"))]
    digest = hashlib.sha256(b"\0".join([version, arch.encode(), *(path.read_bytes() for path in sources)])).hexdigest()
    cubin = folder / f"{table.stem}-{digest[:24]}.{arch}.cubin"
    if not cubin.exists():
        half = cubin.with_suffix(".half")
        target = f"arch=compute_{arch[3:]},code={arch}"
        command = [nvcc, "-std=c++17", "-O3", "-cubin", "-Xptxas", "-v", "-gencode", target, "-I", ROOT / "csrc"]
        done = subprocess.run([*command, table, "-o", half], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        cubin.with_suffix(".ptxas").write_text(done.stderr)
        half.rename(cubin)
    return cubin


@pytest.fixture(scope="session")
def disassembler() -> sass.Disassembler:
    try:
        return sass.Disassembler()
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def built(disassembler: sass.Disassembler, request: pytest.FixtureRequest) -> Callable[[str], list[Path]]:
    """The files with an architecture's code: the installed module where it has it, else a cubin for each table."""
    folder = Path(request.config.cache.mkdir("sass"))  # type: ignore[union-attr]

    def files(arch: str) -> list[Path]:
        try:
            module = sass.installed_module()
            if arch in disassembler.architectures(module):
                return [module]
        except (BackendUnavailable, GpumicroError):
            pass
        if shutil.which("nvcc") is None and not Path("/usr/local/cuda/bin/nvcc").exists():
            pytest.skip(f"no nvcc here, and no CUDA module with code for {arch}")
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda table: compile_table(table, arch, folder), TABLES))

    return files


def found(disassembler: sass.Disassembler, files: list[Path], arch: str) -> list[Proof]:
    return [proof for file in files for proof in sass.prove_file(disassembler, file, arch)]


@pytest.mark.parametrize("arch", ARCHS)
def test_every_kernel_holds_what_it_claims(
    disassembler: sass.Disassembler, built: Callable[[str], list[Path]], arch: str
) -> None:
    files = built(arch)
    proofs = found(disassembler, files, arch)
    assert [f"{proof.kernel}: {'; '.join(proof.faults)}" for proof in sass.failed(proofs)] == []
    claimed = {proof.kernel for proof in proofs if proof.share is not None}
    for claim in sass.CLAIMS:
        if claim.on(arch):
            assert any(sass.claim_for(kernel) is claim for kernel in claimed), f"no kernel shows {claim.kernel}"
    for file in files:
        said = file.with_suffix(".ptxas")
        for symbol, (_, stores, loads) in (sass.parse_spills(said.read_text()) if said.exists() else {}).items():
            assert (stores, loads) == (0, 0), f"{sass.kernel_name(symbol)} spills"


def test_the_command_prints_the_proof(disassembler: sass.Disassembler, built: Callable[[str], list[Path]]) -> None:
    del disassembler
    file = next(path for path in built("sm_90a") if "mma" not in path.name)
    arguments = ["list", "--proof", "--arch", "sm_90a", "--file", str(file)]
    table = CliRunner().invoke(cli, arguments)
    assert table.exit_code == 0, table.output
    listed = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).output)
    assert all(not one["faults"] and one["arch"] == "sm_90a" for one in listed)
    page = CliRunner().invoke(cli, [*arguments, "--markdown"]).output
    assert page.startswith("| kernel | sm_90a |\n| --- | --- |\n")
    wrong = CliRunner().invoke(cli, [*arguments[:3], "sm_10", *arguments[4:]])
    assert "holds no code for 'sm_10', only" in str(wrong.exception)


def test_the_proof_options_need_proof() -> None:
    result = CliRunner().invoke(cli, ["list", "--json"])
    assert result.exit_code == 2
    assert "belong to --proof" in result.output


def test_without_a_cuda_module_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(BackendUnavailable, match="built without CUDA"):
        sass.installed_module()


def test_numbers_of_architectures() -> None:
    assert [number(arch) for arch in ARCHS] == [80, 90, 100, 120]
