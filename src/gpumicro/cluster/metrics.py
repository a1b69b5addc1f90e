"""What the monitor watches: each quantity's key, unit and names. One list serves summary, tables and Prometheus."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity of each sample. A fraction's unit is "". `exported` is its name for Prometheus."""

    key: str
    title: str
    unit: str
    exported: str


HOST = (
    Metric("cpu_utilization", "CPU", "", "gpumicro_cpu_utilization_ratio"),
    Metric("cpu_busiest", "CPU, busiest core", "", "gpumicro_cpu_busiest_core_ratio"),
    Metric("cpu_iowait", "CPU, I/O wait", "", "gpumicro_cpu_iowait_ratio"),
    Metric("cpu_steal", "CPU given to other VMs", "", "gpumicro_cpu_steal_ratio"),
    Metric("memory_utilization", "memory", "", "gpumicro_memory_utilization_ratio"),
    Metric("memory_used_bytes", "memory used", "B", "gpumicro_memory_used_bytes"),
    Metric("disk_utilization", "busiest disk", "", "gpumicro_disk_busiest_ratio"),
    Metric("disk_read_bytes_per_s", "disk reads", "B/s", "gpumicro_disk_read_bytes_per_second"),
    Metric("disk_write_bytes_per_s", "disk writes", "B/s", "gpumicro_disk_written_bytes_per_second"),
    Metric("net_received_bytes_per_s", "network in", "B/s", "gpumicro_network_received_bytes_per_second"),
    Metric("net_sent_bytes_per_s", "network out", "B/s", "gpumicro_network_sent_bytes_per_second"),
    Metric("cpu_power_w", "CPU power", "W", "gpumicro_cpu_power_watts"),
)
GPU = (
    Metric("utilization", "GPU", "", "gpumicro_gpu_utilization_ratio"),
    Metric("memory_busy", "memory bandwidth in use", "", "gpumicro_gpu_memory_busy_ratio"),
    Metric("memory_utilization", "memory", "", "gpumicro_gpu_memory_utilization_ratio"),
    Metric("memory_used_bytes", "memory used", "B", "gpumicro_gpu_memory_used_bytes"),
    Metric("sm_hz", "SM clock", "Hz", "gpumicro_gpu_sm_clock_hertz"),
    Metric("memory_hz", "memory clock", "Hz", "gpumicro_gpu_memory_clock_hertz"),
    Metric("power_w", "power", "W", "gpumicro_gpu_power_watts"),
    Metric("temperature_c", "temperature", "C", "gpumicro_gpu_temperature_celsius"),
    Metric("pcie_received_bytes_per_s", "PCIe in", "B/s", "gpumicro_gpu_pcie_received_bytes_per_second"),
    Metric("pcie_sent_bytes_per_s", "PCIe out", "B/s", "gpumicro_gpu_pcie_sent_bytes_per_second"),
    Metric("nvlink_received_bytes_per_s", "NVLink in", "B/s", "gpumicro_gpu_nvlink_received_bytes_per_second"),
    Metric("nvlink_sent_bytes_per_s", "NVLink out", "B/s", "gpumicro_gpu_nvlink_sent_bytes_per_second"),
)


def grown(now: float, before: float, modulus: float | None = None) -> float | None:
    """What a counter grew by. One of `modulus` values that stood in its upper half has wrapped; else it was reset,
    and nothing is known of the time between: None."""
    if now >= before:
        return now - before
    if modulus is not None and before > modulus / 2:
        return now - before + modulus
    return None


def rate_of(now: float | None, before: float | None, seconds: float, modulus: float | None = None) -> float | None:
    """Growth over seconds; None where it is not known."""
    if now is None or before is None or seconds <= 0:
        return None
    growth = grown(now, before, modulus)
    return None if growth is None else growth / seconds
