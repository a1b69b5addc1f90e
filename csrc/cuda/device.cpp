#include "cuda/device.hpp"

#include <array>
#include <cstdio>

#include "cuda/handles.hpp"

namespace gm {
namespace {

// CUDA 13 took the clocks out of cudaDeviceProp: all that may be missing is asked as an attribute.
std::optional<int> attribute(cudaDeviceAttr which, int device) {
    int value = 0;
    const cudaError_t code = cudaDeviceGetAttribute(&value, which, device);
    forget(code);
    if (code != cudaSuccess) return std::nullopt;
    return value;
}

std::optional<double> clock(cudaDeviceAttr which, int device) {
    const std::optional<int> khz = attribute(which, device);
    if (!khz || *khz <= 0) return std::nullopt;
    return *khz * 1e3;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

std::string uuid_text(const cudaUUID_t& uuid, bool mig) {
    std::string text = mig ? "MIG" : "GPU";
    for (int i = 0; i < 16; ++i) {
        std::array<char, 4> digits{};
        std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
        if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += digits.data();
    }
    return text;
}

std::string bus_id(int device) {
    std::array<char, 32> text{};
    const cudaError_t code = cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device);
    forget(code);
    return code == cudaSuccess ? text.data() : "";
}

}  // namespace

Probe probe() noexcept {
    Probe found;
    forget(cudaRuntimeGetVersion(&found.runtime));
    forget(cudaDriverGetVersion(&found.driver));
    const cudaError_t code = cudaGetDeviceCount(&found.count);
    if (code != cudaSuccess) {
        forget(code);
        found.count = 0;
        found.code = code;
        found.name = cudaGetErrorName(code);
        found.text = cudaGetErrorString(code);
    }
    return found;
}

DeviceFacts device_facts(int device) {
    cudaDeviceProp all{};
    GM_CUDA(cudaGetDeviceProperties(&all, device));
    DeviceFacts facts;
    facts.name = all.name;
    facts.mig = contains(facts.name, " MIG ");
    facts.emulated = contains(facts.name, "PTXEMU") || contains(facts.name, "(emulated)");
    facts.uuid = uuid_text(all.uuid, facts.mig);
    facts.pci_bus_id = bus_id(device);
    facts.major = all.major;
    facts.minor = all.minor;
    facts.sm_count = all.multiProcessorCount;
    facts.memory_bytes = all.totalGlobalMem;
    facts.l2_bytes = static_cast<std::size_t>(all.l2CacheSize);
    facts.shared_bytes_per_sm = all.sharedMemPerMultiprocessor;
    facts.shared_bytes_per_block = all.sharedMemPerBlockOptin != 0 ? all.sharedMemPerBlockOptin : all.sharedMemPerBlock;
    facts.max_threads_per_sm = all.maxThreadsPerMultiProcessor;
    facts.copy_engines = all.asyncEngineCount;
    facts.ecc = all.ECCEnabled != 0;
    facts.unified_addressing = all.unifiedAddressing != 0;
    facts.managed = all.managedMemory != 0;
    facts.integrated = all.integrated != 0;
    facts.tcc = all.tccDriver != 0;
    facts.clock_hz = clock(cudaDevAttrClockRate, device);
    facts.memory_clock_hz = clock(cudaDevAttrMemoryClockRate, device);
    facts.memory_bus_bits = attribute(cudaDevAttrGlobalMemoryBusWidth, device);
    facts.compute_mode = attribute(cudaDevAttrComputeMode, device);
    facts.cooperative_launch = attribute(cudaDevAttrCooperativeLaunch, device);
    return facts;
}

FreeMemory free_memory(int device) {
    const DeviceScope scope(device);
    FreeMemory found{};
    GM_CUDA(cudaMemGetInfo(&found.free_bytes, &found.total_bytes));
    return found;
}

void synchronize_device(int device) {
    const DeviceScope scope(device);
    GM_CUDA(cudaDeviceSynchronize());
}

}  // namespace gm
