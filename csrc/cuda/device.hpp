// What the runtime says about the machine and about each device.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace gm {

struct Probe {
    int count = 0;     // devices that this process may use
    int code = 0;      // of cudaGetDeviceCount
    std::string name;  // "cudaErrorInsufficientDriver"
    std::string text;
    int driver = 0;   // newest CUDA that the driver serves: 13000 for 13.0; 0 for no driver
    int runtime = 0;  // the runtime's own
};

Probe probe() noexcept;

// A fact that the runtime does not tell is missing.
struct DeviceFacts {
    std::string name, uuid, pci_bus_id;  // uuid: "GPU-..." or, for a part of a GPU, "MIG-..."
    int major = 0, minor = 0, sm_count = 0;
    std::size_t memory_bytes = 0, l2_bytes = 0, shared_bytes_per_sm = 0, shared_bytes_per_block = 0;
    int max_threads_per_sm = 0, copy_engines = 0;
    bool ecc = false, unified_addressing = false, managed = false, integrated = false, tcc = false;
    bool mig = false, emulated = false;
    std::optional<double> clock_hz, memory_clock_hz;
    std::optional<int> memory_bus_bits, compute_mode, cooperative_launch;
};

DeviceFacts device_facts(int device);

struct FreeMemory {
    std::size_t free_bytes, total_bytes;
};

FreeMemory free_memory(int device);  // makes the device's context

void synchronize_device(int device);  // waits for all streams, other libraries' too

}  // namespace gm
