#include "cpu/isa.hpp"

#include <cstring>
#include <stdexcept>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#define GM_X86 1
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace gm::cpu {

// One namespace for each ISA that the build compiles the folder isa/ for.
#define GM_DECLARE(ISA)                         \
    namespace ISA {                             \
    void fill_stream(Table&);                   \
    void fill_peak(Table&, const DotFeatures&); \
    void fill_gemm(Table&);                     \
    void fill_mixed(Table&);                    \
    }
GM_DECLARE(isa_baseline)
#ifdef GM_X86
GM_DECLARE(isa_avx2)
GM_DECLARE(isa_avx512)
#endif

namespace {

// The fill functions may themselves use the ISA: call this only where the CPU has it.
#define GM_TABLE(ISA, NAME, BYTES, FUSED)      \
    []() -> const Table& {                     \
        static const Table table = [] {        \
            Table t{};                         \
            t.isa = NAME;                      \
            t.vector_bytes = BYTES;            \
            t.fused = FUSED;                   \
            ISA::fill_stream(t);               \
            ISA::fill_peak(t, dot_features()); \
            ISA::fill_gemm(t);                 \
            ISA::fill_mixed(t);                \
            return t;                          \
        }();                                   \
        return table;                          \
    }

struct Entry {
    const char* name;
    bool (*usable)();
    const Table& (*table)();
};

const Entry kEntries[] = {
#ifdef GM_X86
    {"avx512",
     [] {
         return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
     },
     GM_TABLE(isa_avx512, "avx512", 64, true)},
    {"avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); },
     GM_TABLE(isa_avx2, "avx2", 32, true)},
    {"sse2", [] { return true; }, GM_TABLE(isa_baseline, "sse2", 16, false)},
#elif defined(__aarch64__)
    {"neon", [] { return true; }, GM_TABLE(isa_baseline, "neon", 16, true)},
#else
    {"baseline", [] { return true; }, GM_TABLE(isa_baseline, "baseline", 16, false)},
#endif
};

}  // namespace

std::vector<std::string> usable_isas() {
    std::vector<std::string> names;
    for (const Entry& entry : kEntries) {
        if (entry.usable()) names.emplace_back(entry.name);
    }
    return names;
}

const Table& table_for(const std::string& isa) {
    for (const Entry& entry : kEntries) {
        if (isa == entry.name && entry.usable()) return entry.table();
    }
    throw std::invalid_argument("no kernels for the instruction set '" + isa + "' on this CPU");
}

DotFeatures dot_features() {
    DotFeatures has{};
#ifdef GM_X86
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool avx2 = __builtin_cpu_supports("avx2"), avx512 = __builtin_cpu_supports("avx512f");
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) has.avx512_vnni = avx512 && (c >> 11 & 1);
    const unsigned subleaves = a;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        has.avx_vnni = avx2 && (a >> 4 & 1);
        has.avx512_bf16 = avx512 && (a >> 5 & 1);
    }
#elif defined(__aarch64__) && defined(__linux__)
    has.arm_dotprod = getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
    has.arm_bf16 = getauxval(AT_HWCAP2) & HWCAP2_BF16;
#endif
    return has;
}

std::vector<CpuidCache> cpuid_caches() {
    std::vector<CpuidCache> caches;
#ifdef GM_X86
    // Intel tells its caches in leaf 4, AMD in 0x8000001D, in the same layout.
    for (const unsigned leaf : {4U, 0x8000001DU}) {
        unsigned a = 0, b = 0, c = 0, d = 0;
        for (unsigned index = 0; index < 16 && __get_cpuid_count(leaf, index, &a, &b, &c, &d); ++index) {
            const unsigned type = a & 31;  // 0 none, 1 data, 2 instruction, 3 unified
            if (type == 0) break;
            if (type == 2) continue;
            const long line = (b & 0xfff) + 1, parts = (b >> 12 & 0x3ff) + 1, ways = (b >> 22) + 1;
            caches.push_back({static_cast<int>(a >> 5 & 7), line * parts * ways * (static_cast<long>(c) + 1), line,
                              static_cast<int>((a >> 14 & 0xfff) + 1)});
        }
        if (!caches.empty()) break;
    }
#endif
    return caches;
}

std::string cpuid_hypervisor() {
#ifdef GM_X86
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c >> 31) == 0) return "";
    char signature[13] = {};
    __cpuid(0x40000000, a, b, c, d);
    std::memcpy(signature, &b, 4);
    std::memcpy(signature + 4, &c, 4);
    std::memcpy(signature + 8, &d, 4);
    return signature;
#else
    return "";
#endif
}

}  // namespace gm::cpu
