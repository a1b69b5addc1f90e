"""The parts of `gpumicro io` alone: the loader's files and figure, where a directory lies, the answer, fio itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpumicro.cluster import fio_runs, loader
from gpumicro.cluster.feeding import Need, judge, supplies
from gpumicro.cluster.scratch import StorageError
from gpumicro.cluster.storage_place import Place, cufile, look
from gpumicro.errors import BackendUnavailable, UsageError
from gpumicro.units import GIB, KIB, MIB

# -- where it lies -----------------------------------------------------------------------------------------------------


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _machine(root: Path, here: Path) -> None:
    """An NVMe disk's partition in a RAID, under an ext4 with a space in its mount point."""
    number = here.stat().st_dev
    disk = root / "sys/devices/pci/nvme/nvme0/nvme0n1"
    for name, text in (
        ("queue/rotational", "0"), ("queue/scheduler", "[none]"), ("size", "2097152"), ("nvme0n1p1/partition", "1"),
        ("device/model", "Fast 9000  "), ("device/device/current_link_speed", "8.0 GT/s PCIe"),
        ("device/device/max_link_speed", "16.0 GT/s PCIe"), ("device/device/current_link_width", "4"),
        ("device/device/max_link_width", "4"), ("device/device/numa_node", "1"),
    ):  # fmt: skip
        _write(disk / name, text)
    raid = root / "sys/devices/virtual/block/md0"
    (raid / "slaves").mkdir(parents=True)
    (raid / "slaves/nvme0n1p1").symlink_to(disk / "nvme0n1p1")
    link = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(raid)
    point = str(here).replace(" ", "\\040")
    _write(
        root / "proc/self/mountinfo", f"1 0 0:1 / / rw - ext4 /dev/root rw\n2 1 9:0 / {point} rw - xfs /dev/md0 rw\n"
    )


def test_disks_below_a_raid_are_found_with_their_link(tmp_path: Path) -> None:
    here, root = tmp_path / "with space", tmp_path / "root"
    here.mkdir()
    _machine(root, here)
    place = look(str(here), root)
    assert (place.file_system, place.mount, place.source) == ("xfs", str(here), "/dev/md0")
    (disk,) = place.disks
    assert (disk.name, disk.model, disk.rotational, disk.size_bytes) == ("nvme0n1", "Fast 9000", False, GIB)
    assert disk.nvme is not None
    assert (disk.nvme["pcie_speed"], disk.nvme["numa_node"]) == ("8.0 GT/s PCIe", 1)
    assert place.free_bytes > 0


def test_without_proc_and_sys_only_the_space_is_known(tmp_path: Path) -> None:
    place = look(str(tmp_path), tmp_path / "nothing")
    assert (place.mount, place.file_system, place.disks) == (None, None, ())
    assert place.size_bytes > 0


def test_cufile_is_told_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    none = cufile(tmp_path)
    assert none["library"] is None
    assert none["library_why"]
    assert none["nvidia_fs"] is False
    _write(tmp_path / "usr/local/cuda/lib64/libcufile.so.0", "")
    _write(tmp_path / "proc/modules", "nvidia_fs 262144 0 - Live 0x0\n")
    _write(tmp_path / "proc/driver/nvidia-fs/version", "2.24\n")
    found = cufile(tmp_path)
    assert found["library"].endswith("libcufile.so.0")
    assert (found["nvidia_fs"], found["nvidia_fs_version"]) == (True, "2.24")


@pytest.mark.parametrize(("kind", "memory", "remote"), [
    ("tmpfs", True, False), ("nfs4", False, True), ("fuse.sshfs", False, True), ("ext4", False, False),
    (None, False, False),
])  # fmt: skip
def test_memory_and_remote_file_systems_are_known(kind: str | None, memory: bool, remote: bool) -> None:
    place = Place("/x", "/", kind, "x", GIB, GIB, None)
    assert (place.in_memory, place.remote) == (memory, remote)


# -- the answer --------------------------------------------------------------------------------------------------------


def _rows(random: float, ordered: float, block: int = 128 * KIB) -> list[dict[str, Any]]:
    return [
        {"name": "read-1m", "mode": "read", "block_bytes": MIB, "bytes_per_s": ordered},
        {"name": "randread-sample", "mode": "randread", "block_bytes": block, "bytes_per_s": random},
    ]


def _read(rate: float, low: float) -> loader.LoaderRead:
    return loader.LoaderRead(4, 100, 100, 1000, 1.0, rate, (low, 2 * rate - low), "", 0.1, 0.2, 0.0, False)


def test_the_need_is_the_product_of_its_three_parts() -> None:
    need = Need(8, 400.0, 110e3)
    assert need.total_samples_per_s == 3200
    assert need.bytes_per_s == 352e6


def test_a_sample_picked_at_random_costs_its_block() -> None:
    found = {one.name: one for one in supplies(_rows(512e6, 1e9, block=4 * KIB), None, 1000)}
    assert found["randread-sample"].samples_per_s == 512e6 / 4096
    assert found["read-1m"].samples_per_s == 1e6  # in order they lie side by side
    large = {one.name: one for one in supplies(_rows(512e6, 1e9, block=4 * MIB), None, 64e6)}
    assert large["randread-sample"].samples_per_s == 8


@pytest.mark.parametrize(("random", "ordered", "loader_rate", "passed", "cure"), [
    (2e9, 2e9, 5000, [True, True], ""),
    (2e9, 2e9, 500, [True, False], "take more --workers"),
    (1e8, 2e9, 5000, [False, True], "Packed into shards"),
    (1e8, 1e8, 500, [False, False], "faster or more storage"),
])  # fmt: skip
def test_storage_and_loader_are_judged_each(
    random: float, ordered: float, loader_rate: float, passed: list[bool], cure: str
) -> None:
    need = Need(4, 1000.0, 128 * KIB)
    verdicts = judge(need, supplies(_rows(random, ordered), _read(loader_rate, 0.9 * loader_rate), 128 * KIB))
    assert [verdict.name for verdict in verdicts] == ["storage-feeds", "loader-feeds"]
    assert [verdict.passed for verdict in verdicts] == passed
    assert cure in " ".join(verdict.text for verdict in verdicts)


def test_the_loader_is_judged_by_the_lower_end_of_its_interval() -> None:
    (_, one) = judge(Need(1, 95.0, 128 * KIB), supplies(_rows(1e9, 1e9), _read(100, 90), 128 * KIB))
    assert not one.passed


@pytest.mark.parametrize("value", [0, -1, 10**9])
def test_a_number_of_gpus_that_makes_no_sense_is_named(value: int) -> None:
    with pytest.raises(UsageError, match="--gpus must be 1 to 10,000,000"):
        Need(value, 1.0, 1.0)


# -- the loader --------------------------------------------------------------------------------------------------------


def test_a_worker_that_fails_is_quoted(tmp_path: Path) -> None:
    files = loader.write_files(tmp_path, 20, 100, 60.0)
    shutil.rmtree(tmp_path / "00000")
    with pytest.raises(StorageError, match="FileNotFoundError"):
        loader.read_files(tmp_path, files, 2, 0.1)


def test_every_file_is_read_once_an_epoch_and_the_order_is_shuffled() -> None:
    order_of = loader.loader_worker.order_of
    shares = [order_of(100, worker, 3, 7) for worker in range(3)]
    assert sorted(index for share in shares for index in share) == list(range(100))
    assert shares[0] != sorted(shares[0])
    assert order_of(100, 0, 3, 8) != shares[0]


def test_no_more_files_are_written_than_the_time_allows(tmp_path: Path) -> None:
    moments = iter([0.0, *[0.1] * 300, *[9.0] * 1000])
    files = loader.write_files(tmp_path, 1000, 10, 1.0, now=lambda: next(moments))
    there = sum(1 for path in tmp_path.rglob("*") if path.is_file())
    assert 256 <= there < 1000
    assert files.count < there


def _seen(begin: float, rate: float, seconds: float) -> dict[str, Any]:
    stamps = [begin + (k + 0.5) / rate for k in range(int(rate * seconds))]
    return {"began_s": begin, "ended_s": begin + seconds, "stamps_s": stamps, "latencies_s": [1 / rate] * len(stamps)}


def test_the_rate_is_of_the_time_in_which_all_workers_read() -> None:
    files = loader.Files(100_000, 1000, 0.0)
    found = loader.summarize([_seen(0.0, 1000, 4.0), _seen(1.0, 1000, 4.0)], files, 4.0)
    assert found.duration_s == 3.0
    assert found.samples_per_s == pytest.approx(2000, rel=0.01)
    assert found.ci95 is not None
    assert found.bytes_per_s == pytest.approx(2e6, rel=0.01)
    few = loader.summarize([_seen(0.0, 5, 1.0)], files, 1.0)
    assert few.ci95 is None
    assert "too few" in few.why


def test_fio_itself_is_read(tmp_path: Path) -> None:
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    try:
        tool = fio_runs.find()
    except BackendUnavailable as error:
        pytest.skip(str(error))
    first = fio_runs.jobs(4096)[0]
    record = fio_runs.run(tool, first, tmp_path, 16 * MIB, 0.2, False)
    assert record["bandwidth_bytes_per_s"]["estimate"] > 0
    assert 0 < fio_runs.written_bytes(tmp_path) <= 16 * MIB
    job = fio_runs.Job("randread-sample", "randread", 64 * KIB, 2, "samples")
    row = fio_runs.row(job, fio_runs.run(tool, job, tmp_path, fio_runs.written_bytes(tmp_path), 0.2, False))
    assert row["operations_per_s"] > 0
    assert row["latency_s"] > 0
