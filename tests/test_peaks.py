"""Spec peaks: the data holds together, lookups find the right model, and what is unknown stays unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumicro import peaks
from gpumicro.device import Device
from gpumicro.errors import SchemaError, UsageError
from gpumicro.peaks.gpu import FORMATS
from gpumicro.peaks.toml import read_toml
from gpumicro.units import GIB

TABLE = read_toml(Path(peaks.__file__).parent / "gpus.toml", "gpus.toml")
ENTRIES = {entry["id"]: entry for entry in TABLE["gpu"]}

# -- the data against itself -----------------------------------------------------------------------------------------

TOLERANCE = 0.03
EITHER_GIVEN_OR_UNKNOWN = [
    "sm_count",
    "cuda_cores",
    "tensor_cores",
    "boost_clock_mhz",
    "memory_type",
    "memory_gib",
    "bus_width_bits",
    "memory_data_rate_gbps",
    "memory_bandwidth_gbs",
    "l2_mib",
    "shared_mem_per_sm_kib",
    "link_type",
    "link_count",
    "link_gbs_total_bidir",
    "pcie_gen",
    "pcie_lanes",
    "pcie_gbs_per_dir",
    "tdp_w",
]
REQUIRED = [
    "id",
    "name",
    "aliases",
    "vendor",
    "form_factor",
    "architecture",
    "compute_capability",
    "rate_class",
    "unknown",
    "not_applicable",
    "derived",
    "contested",
    "unverified",
    "evidence",
    "source",
    "note",
    "peak",
]
# formats that run at tensor_clock_mhz where an entry has one; FP64 tensor does not
AT_TENSOR_CLOCK = {key for key in FORMATS if key.endswith(("_tensor", "_fp16acc"))} - {"fp64_tensor"}
# scalar cores and tensor cores of one SM (CU, Xe core)
PER_SM = {
    "GP100": (64, 0),
    "GP102": (128, 0),
    "GV100": (64, 8),
    "TU10x-pro": (64, 8),
    "TU10x-geforce": (64, 8),
    "GA100": (64, 4),
    "CDNA1": (64, 4),
    "CDNA2": (64, 4),
    "CDNA3": (64, 4),
    "CDNA4": (64, 4),
    "PVC": (128, 8),
}
NVLINK_GBS = {"NVLink 1": 40, "NVLink 2": 50, "NVLink 3": 50, "NVLink 4": 50, "NVLink 5": 100}
# GT/s x line code / 8 bits of one lane
PCIE_GBS = {3: 8 * 128 / 130 / 8, 4: 16 * 128 / 130 / 8, 5: 32 * 128 / 130 / 8, 6: 64 * 242 / 256 / 8}

# Where a listed value departs from its formula by more than the tolerance, in percent. Each is explained in its entry's
# note; one that is not here is a slip until shown otherwise.
_NVL = dict.fromkeys(
    ("tf32_tensor", "fp16_tensor", "fp16_tensor_fp16acc", "bf16_tensor", "fp8_tensor", "int8_tensor"), -13.4
)
_H20 = dict.fromkeys(
    ("tf32_tensor", "fp16_tensor", "fp16_tensor_fp16acc", "bf16_tensor", "fp8_tensor", "int8_tensor"), -6.4
)
_B200 = dict.fromkeys(
    ("tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor", "fp6_tensor", "fp4_tensor", "int8_tensor"), -5.6
)
_B300 = dict.fromkeys(("fp16_tensor", "bf16_tensor", "fp8_tensor", "fp6_tensor", "fp4_tensor"), -8.7)
DEVIATIONS: dict[str, dict[str, float]] = {
    "l40s": {"int4_tensor": -50.0, "int4_tensor/fp16_tensor": -49.4},
    "h100-nvl-94": _NVL,
    "h200-nvl-141": _NVL,
    "h20-96": {"fp32": 11.3, **_H20},
    "b200-sxm6-180": {**_B200, "memory_bandwidth": -5.9},
    "b300-sxm6": {**_B300, "int8_tensor/fp16_tensor": 9.2, "memory_bandwidth": -6.0},
    "gb300": {"int8_tensor/fp16_tensor": 5.6},
    "dgx-spark-gb10": {"fp4_tensor": 5.2},
}


def _formulas(entry: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """what -> (listed, by formula); derived peaks came from these formulas and would prove nothing."""
    rate, pairs = TABLE["rates"][entry["rate_class"]], {}
    peak = {key: value for key, value in entry["peak"].items() if key not in entry["derived"]}
    sm, boost = entry.get("sm_count"), entry.get("boost_clock_mhz")
    cores, tensor = PER_SM.get(entry["rate_class"], (128, 4))
    if sm and "cuda_cores" in entry:
        pairs["cuda_cores"] = (entry["cuda_cores"], sm * cores)
    if sm and entry.get("tensor_cores"):
        pairs["tensor_cores"] = (entry["tensor_cores"], sm * tensor)
    for key in set(peak) & set(rate) if sm and boost else ():
        clock = entry.get("tensor_clock_mhz", boost) if key in AT_TENSOR_CLOCK else boost
        pairs[key] = (peak[key], rate[key] * sm * clock / 1e6)
    base = "fp16_tensor" if "fp16_tensor" in peak else "fp8_tensor"
    if base in peak and base in rate:
        for key in AT_TENSOR_CLOCK & set(peak) & set(rate) - {base}:
            pairs[f"{key}/{base}"] = (peak[key] / peak[base], rate[key] / rate[base])
    if "memory_data_rate_gbps" in entry:
        pairs["memory_bandwidth"] = (
            entry["memory_bandwidth_gbs"],
            entry["bus_width_bits"] / 8 * entry["memory_data_rate_gbps"],
        )
    per_link = NVLINK_GBS.get(entry["link_type"][:8])
    if per_link and entry.get("link_gbs_total_bidir"):
        # GA102's NVLink 3 is narrower
        pairs["link"] = (
            entry["link_gbs_total_bidir"],
            entry["link_count"] * (28.125 if entry["rate_class"].startswith("GA10x") else per_link),
        )
    if "pcie_gen" in entry:
        pairs["pcie"] = (entry["pcie_gbs_per_dir"], entry["pcie_lanes"] * PCIE_GBS[entry["pcie_gen"]])
    return pairs


def test_the_table_is_whole() -> None:
    assert len(ENTRIES) == len(TABLE["gpu"]) == 65
    assert sum(len(entry["peak"]) for entry in ENTRIES.values()) == 584
    assert len({entry["name"] for entry in ENTRIES.values()}) == 65


@pytest.mark.parametrize("key", ENTRIES)
def test_every_value_is_given_or_named_as_missing(key: str) -> None:
    entry = ENTRIES[key]
    assert set(REQUIRED) <= set(entry)
    assert entry["source"]
    assert entry["rate_class"] in TABLE["rates"]
    for name in EITHER_GIVEN_OR_UNKNOWN:
        assert (name in entry) != (name in entry["unknown"]), name
    for name in FORMATS:
        assert (name in entry["peak"]) + (name in entry["unknown"]) + (name in entry["not_applicable"]) == 1, name
    assert set(entry["peak"]) <= set(FORMATS)
    assert set(entry["derived"]) <= set(entry["peak"]) | set(entry)
    if "memory_reported_mib" in entry and not key.startswith("h20-"):  # the H20 reports more than its label
        assert 0.90 <= entry["memory_reported_mib"] / 1024 / entry["memory_gib"] <= 1.0001


def test_the_deviations_from_the_formulas_are_the_known_ones() -> None:
    checked, found = 0, {}
    for key, entry in ENTRIES.items():
        for what, (listed, formula) in _formulas(entry).items():
            checked += 1
            if abs(listed / formula - 1) > TOLERANCE:
                found[key, what] = 100 * (listed / formula - 1)
    assert checked > 750
    expected = {(key, what): percent for key, entry in DEVIATIONS.items() for what, percent in entry.items()}
    assert found.keys() == expected.keys()
    assert found == {place: pytest.approx(percent, abs=0.11) for place, percent in expected.items()}


# -- GPUs ------------------------------------------------------------------------------------------------------------


def test_units_and_marks() -> None:
    h100 = peaks.find_gpu("h100-sxm5-80")
    assert h100.memory_bandwidth_bytes_per_s == 3.35e12
    assert h100.memory_bytes == 80 * GIB
    assert h100.peak("f64", "vector").flop_per_s == pytest.approx(33.5e12)  # type: ignore[union-attr]
    assert h100.peak("float16").flop_per_s == pytest.approx(989.4e12)  # type: ignore[union-attr]
    assert h100.peak("float16").accumulator == "float32"  # type: ignore[union-attr]
    assert h100.peak("tf32").unit == "tensor"  # type: ignore[union-attr]
    assert h100.peak("float4_e2m1fn") is None
    assert "derived" in peaks.find_gpu("t4").peak("float64").marks  # type: ignore[union-attr]
    assert peaks.find_gpu("b200-sxm6-180").marked["memory_bandwidth_gbs"] == ("contested",)
    # GeForce: float16 with float32 accumulate is half of that with float16 accumulate; the honest bound is taken
    assert peaks.find_gpu("rtx-4090").peak("float16", "tensor").key == "fp16_tensor"  # type: ignore[union-attr]


def test_every_spec_is_json_and_found_by_its_id_and_name() -> None:
    for spec in peaks.gpu_specs():
        assert peaks.find_gpu(spec.id.upper()) is spec
        assert peaks.find_gpu(f" {spec.name.lower()} ") is spec
        assert spec.to_json()["peaks"].keys() == ENTRIES[spec.id]["peak"].keys()


def test_unknown_and_ambiguous_names_say_what_is_near() -> None:
    with pytest.raises(UsageError, match=r"unknown spec 'h100-sxm'; did you mean h100-sxm5-80"):
        peaks.find_gpu("h100-sxm")
    with pytest.raises(UsageError, match="'V100' may be v100-sxm2-16 or v100-sxm2-32"):
        peaks.find_gpu("V100")
    with pytest.raises(UsageError, match="`gpumicro specs` lists them"):
        peaks.find_gpu("zzzzzzzz")
    assert peaks.find_gpu("a100").id == "a100-sxm4-40"


@pytest.mark.parametrize("key", [key for key, entry in ENTRIES.items() if "sm_count" in entry])
def test_a_device_is_matched_by_its_facts_and_name(key: str) -> None:
    entry = ENTRIES[key]
    memory = entry.get("memory_reported_mib", entry["memory_gib"] * 1024 * 0.985) * 2**20
    facts = {
        "compute_capability": entry["compute_capability"],
        "sm_count": entry["sm_count"],
        "memory_bytes": memory,
        "name": entry["name"],
    }
    match = peaks.match_gpu(facts)
    assert match.spec is not None, match.why
    assert match.spec.id == key


def test_facts_win_over_the_name() -> None:
    facts = {"compute_capability": "9.0", "sm_count": 132, "memory_bytes": 141 * GIB, "name": "NVIDIA H100 80GB HBM3"}
    assert peaks.match_gpu(facts).spec is None, "two H200 fit, and the name is of neither"
    sliced = {"compute_capability": "9.0", "sm_count": 16, "memory_bytes": 10 * GIB, "name": "NVIDIA H100 80GB HBM3"}
    assert peaks.match_gpu(sliced).why.startswith("no known model has")
    renamed = {"compute_capability": "8.6", "sm_count": 28, "memory_bytes": 12 * GIB, "name": "Engineering Sample"}
    assert peaks.match_gpu(renamed).spec.id == "rtx-3060"  # type: ignore[union-attr]
    assert peaks.match_gpu({"name": "anything"}).spec is None


def test_the_bus_tells_cards_apart_that_share_chip_and_name() -> None:
    known = peaks.find_gpu("h200-sxm-141")
    facts = {
        "compute_capability": "9.0", "sm_count": 132, "memory_bytes": known.memory_reported_bytes,
        "memory_bus_bits": known.memory_bus_bits, "name": known.name,
    }  # fmt: skip
    assert peaks.match_gpu(facts).spec == known
    assert peaks.match_gpu({**facts, "memory_bus_bits": 5120}).spec is None


# -- a user's file ---------------------------------------------------------------------------------------------------


def _user(tmp_path: Path, text: str) -> peaks.UserSpecs:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return peaks.load_user(path)


def test_a_users_file_is_merged(tmp_path: Path) -> None:
    user = _user(
        tmp_path,
        """
        [[gpu]]
        id = "t4"
        memory_bandwidth_gbs = 300
        peak = { fp64 = 0.25 }
        source = "my data sheet"
        [[gpu]]
        name = "Homemade 1"
        memory_bandwidth_gbs = 1
        peak = { fp32 = 2, int8_tensor = 8 }
    """,
    )
    t4 = peaks.find_gpu("t4", user)
    assert t4.memory_bandwidth_bytes_per_s == 3e11
    assert t4.peak("float64").flop_per_s == 0.25e12  # type: ignore[union-attr]
    assert t4.peak("float64").marks == ()  # type: ignore[union-attr]
    assert t4.peak("float16").flop_per_s == pytest.approx(65e12)  # type: ignore[union-attr]
    assert t4.source[0] == "my data sheet"
    assert peaks.find_gpu("homemade 1", user).peak("int8").flop_per_s == 8e12  # type: ignore[union-attr]
    assert len(peaks.gpu_specs(user)) == 66
    assert peaks.find_gpu("t4").memory_bandwidth_bytes_per_s == 3.2e11, "ours stay as they were"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[cpu]]\nname = \n", r"mine\.toml: not TOML: .*line 2"),
        ("", "holds neither"),
        ("[gpu]\nid = 't4'", r"mine\.toml: gpu must be an array of tables"),
        ("[[tpu]]", "unknown table 'tpu'"),
        ("[[gpu]]\nmemory_bandwidth_gbs = 3", r"gpu\[0\]: needs an id or a name"),
        ("[[gpu]]\nname = 'x'", r"gpu\[0\]: a new GPU needs memory_bandwidth_gbs"),
        (
            "[[gpu]]\nid = 't4'\nmemory_bandwidth_gbs = -1",
            r"gpu\[0\]\.memory_bandwidth_gbs must be a positive number, not -1",
        ),
        ("[[gpu]]\nid = 't4'\npeak = { fp16 = 'fast' }", r"gpu\[0\]\.peak\.fp16 must be a positive number"),
        ("[[gpu]]\nid = 't4'\npeak = { fp17 = 1 }", r"gpu\[0\]\.peak\.fp17: unknown key"),
        ("[[gpu]]\nid = 't4'\nbandwidth = 3", r"gpu\[0\]\.bandwidth: unknown key"),
        ("[[gpu]]\nid='t4'\nvendor=3", r"gpu\[0\]\.vendor must be a non-empty string"),
        ("[[gpu]]\nid='t4'\n[[gpu]]\nid='t4'", "'t4' is there twice"),
        ("[[cpu]]\nclock_ghz = nan", r"cpu\[0\]\.clock_ghz must be a positive number"),
        ("[[cpu]]\ncores = 2.5", r"cpu\[0\]\.cores must be a whole number"),
        ("[[cpu]]\ncores = true", r"cpu\[0\]\.cores must be a positive number"),
        ("[[cpu]]\nflop_per_cycle = 16", r"cpu\[0\]\.flop_per_cycle must be a table"),
        ("[[cpu]]\nflop_per_cycle = { f80 = 16 }", r"flop_per_cycle\.f80: unknown dtype"),
        ("[[cpu]]\nclock = 3", r"cpu\[0\]\.clock: unknown key \(known: name, cores"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        _user(tmp_path, text)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="no such file"):
        peaks.load_user(tmp_path / "none.toml")
    with pytest.raises(SchemaError, match="cannot be read"):
        peaks.load_user(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SchemaError, match="not UTF-8"):
        peaks.load_user(tmp_path / "bytes.toml")


# -- CPUs ------------------------------------------------------------------------------------------------------------


def _cpu(vendor: str, family: int, model: int, *isa: str, **more: Any) -> Device:
    facts = {"vendor": vendor, "family": family, "model": model}
    base = Device("cpu", "cpu", "Test CPU", 8, tuple(range(8)), (), None, isa=isa, clock_max_hz=3e9, facts=facts)
    return replace(base, **more)


@pytest.mark.parametrize(
    ("device", "float64", "float64_add"),
    [
        (_cpu("AuthenticAMD", 0x17, 0x01, "avx2", "fma"), 8, 12),
        (_cpu("AuthenticAMD", 0x17, 0x31, "avx2", "fma"), 16, 24),
        (_cpu("AuthenticAMD", 0x19, 0x01, "avx2", "fma"), 16, 24),
        (_cpu("AuthenticAMD", 0x19, 0x11, "avx2", "fma", "avx512f"), 16, 24),
        (_cpu("AuthenticAMD", 0x1A, 0x02, "avx2", "fma", "avx512f"), 32, 48),
        (_cpu("AuthenticAMD", 0x1A, 0x24, "avx2", "fma", "avx512f"), 16, 24),
        (_cpu("GenuineIntel", 6, 0x3F, "avx2", "fma"), 16, 16),
        (_cpu("GenuineIntel", 6, 0x6A, "avx2", "fma", "avx512f"), 32, 32),
        (_cpu("GenuineIntel", 6, 0x6A, "avx2", "fma"), 16, 16),
        (_cpu("GenuineIntel", 6, 0x55, "avx512f", "fma", name="Intel(R) Xeon(R) Platinum 8175M"), 32, 32),
        (_cpu("GenuineIntel", 6, 0x55, "avx512f", "fma", name="Intel(R) Xeon(R) Silver 4110"), 16, 16),
        (_cpu("0x41", 8, 0xD0C, "neon"), 8, 8),
        (_cpu("0x41", 8, 0xD40, "neon", "sve"), 16, 16),
    ],
)
def test_flop_per_cycle_of_known_cores(device: Device, float64: float, float64_add: float) -> None:
    spec = peaks.cpu_spec(device)
    assert spec.peak("float64").flop_per_cycle.value == float64
    assert spec.peak("float64", "fma_add").flop_per_cycle.value == float64_add
    assert spec.peak("float32").flop_per_cycle.value == 2 * float64
    assert spec.peak("float64").flop_per_s.value == 8 * 3e9 * float64
    assert spec.source


@pytest.mark.parametrize(
    ("facts", "float64"),
    [
        ({"vendor_id": "AuthenticAMD", "cpu_family": "25", "model": "1"}, 16),
        ({"cpu_implementer": "0x41", "cpu_part": "0xd40"}, 16),
        ({"cpu_implementer": "0x41", "cpu_part": "0xd0c"}, 8),
    ],
)
def test_facts_may_be_the_texts_of_cpuinfo(facts: dict[str, str], float64: float) -> None:
    isa = ("avx2", "fma") if "vendor_id" in facts else ("asimd",)
    device = replace(_cpu("", 0, 0, *isa), facts=facts)
    assert peaks.cpu_spec(device).peak("float64").flop_per_cycle.value == float64


def test_dot_products_need_the_instruction_and_a_source() -> None:
    zen4 = peaks.cpu_spec(_cpu("AuthenticAMD", 0x19, 0x11, "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni"))
    assert zen4.peak("bf16").flop_per_cycle.value == 64
    assert zen4.peak("int8").flop_per_cycle.value == 128
    zen3 = peaks.cpu_spec(_cpu("AuthenticAMD", 0x19, 0x01, "avx2", "fma"))
    assert "reports no int8 dot product" in zen3.peak("int8").flop_per_cycle.source
    v1 = peaks.cpu_spec(_cpu("0x41", 8, 0xD40, "neon", "asimddp"))
    assert "no source states" in v1.peak("int8").flop_per_cycle.source


def test_unknown_stays_unknown_with_its_reason() -> None:
    vm = replace(_cpu("AuthenticAMD", 0x19, 0x01, "avx2", "fma"), clock_max_hz=None, virtual="kvm")
    peak = peaks.cpu_spec(vm).peak("float64")
    assert peak.flop_per_cycle.value == 16, "still there without a clock"
    assert peak.flop_per_s.value is None
    assert peak.flop_per_s.source == "virtual machine: maximum clock hidden"
    assert peaks.cpu_spec(vm).memory_bandwidth_bytes_per_s.source == "virtual machine: memory channels hidden"
    assert peaks.cpu_spec(vm, clock_hz=2e9).peak("float64").flop_per_s.value == 8 * 2e9 * 16
    cloud = _cpu("GenuineIntel", 6, 0x55, "avx512f", "fma", name="Intel(R) Xeon(R) CPU @ 2.00GHz")
    assert "does not say which" in peaks.cpu_spec(cloud).peak("float64").flop_per_cycle.source
    hybrid = _cpu("GenuineIntel", 6, 0x97, "avx2", "fma")
    assert "performance and efficiency" in peaks.cpu_spec(hybrid).peak("float64").flop_per_s.source
    strange = _cpu("CentaurHauls", 7, 0x3B, "avx2", "fma")
    assert "is not in cpus.toml" in peaks.cpu_spec(strange).peak("float32").flop_per_cycle.source
    no_fma = _cpu("AuthenticAMD", 0x19, 0x01, "avx2")
    assert "no fused multiply-add" in peaks.cpu_spec(no_fma).peak("float64").flop_per_cycle.source
    with pytest.raises(UsageError, match="unknown recipe 'add'"):
        peaks.cpu_spec(vm).peak("float64", "add")


def test_every_null_of_a_cpu_spec_has_a_reason() -> None:
    from gpumicro.result import missing_reasons

    assert missing_reasons(peaks.cpu_spec(_cpu("CentaurHauls", 7, 0x3B, clock_max_hz=None)).to_json()) == []


def test_models_belong_to_one_core_only() -> None:
    table = read_toml(Path(peaks.__file__).parent / "cpus.toml", "cpus.toml")["cpu"]
    ranges = [(e["vendor"], f, low, high) for e in table for f, low, high in e["models"]]
    for i, (vendor, family, low, high) in enumerate(ranges):
        assert low <= high
        for other, its_family, its_low, its_high in ranges[:i]:
            assert (vendor, family) != (other, its_family) or high < its_low or its_high < low
    for entry in table:
        assert entry["source"]
        assert "hybrid" in entry or "fma_ports" in entry or "ports_by_name" in entry


def test_a_user_describes_a_cpu(tmp_path: Path) -> None:
    user = _user(
        tmp_path,
        """
        [[cpu]]
        cores = 4
        clock_ghz = 2.5
        flop_per_cycle = { f64 = 8, int8 = 64 }
        memory_bandwidth_gbs = 76.8
        source = "board manual"
    """,
    )
    spec = peaks.cpu_spec(_cpu("AuthenticAMD", 0x19, 0x01, "avx2", "fma", clock_max_hz=None), user=user)
    assert spec.peak("float64").flop_per_s.value == 4 * 2.5e9 * 8
    assert spec.peak("float64").flop_per_cycle.source == "board manual"
    assert spec.peak("int8").flop_per_s.value == 4 * 2.5e9 * 64
    assert spec.peak("float32").flop_per_cycle.value == 32, "what the user does not say stays ours"
    assert spec.memory_bandwidth_bytes_per_s.value == 76.8e9


def test_a_users_cpus_are_told_apart_by_name(tmp_path: Path) -> None:
    user = _user(tmp_path, "[[cpu]]\nname='Xeon'\ncores=1\n[[cpu]]\nname='EPYC'\ncores=2")
    assert peaks.cpu_spec(_cpu("x", 1, 1, name="AMD EPYC 7763"), user=user).cores.value == 2
    with pytest.raises(UsageError, match="none of its CPUs"):
        peaks.cpu_spec(_cpu("x", 1, 1, name="Neoverse-N1"), user=user)
