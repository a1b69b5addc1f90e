// Which instruction sets this build and this CPU share, chosen at run time.
#pragma once
#include <string>
#include <vector>

#include "cpu/isa/tables.hpp"

namespace gm::cpu {

// Names of the usable instruction sets, best first: "avx512", "avx2", "sse2"; "neon" on Arm; "baseline" elsewhere.
std::vector<std::string> usable_isas();

// The kernels for one of them; throws std::invalid_argument for any other name.
const Table& table_for(const std::string& isa);

DotFeatures dot_features();

struct CpuidCache {
    int level;
    long size_bytes, line_bytes;
    int shared_by;  // most logical CPUs that may share it
};

// Data and unified caches as cpuid tells them (leaf 4 or 0x8000001D); empty where there is no cpuid.
std::vector<CpuidCache> cpuid_caches();

// The hypervisor's signature ("KVMKVMKVM"), empty on bare metal and where there is no cpuid.
std::string cpuid_hypervisor();

}  // namespace gm::cpu
