// What one instruction set offers: plain function pointers, filled by the files of this folder (compiled once per ISA)
// and called by the rest, which is compiled for the baseline.
#pragma once
#include <cstdint>

namespace gm::cpu {

enum class StreamMap { write, copy, scale, add, triad };
constexpr int kStreamMaps = 5;

template <class T>
struct StreamTable {
    // a[i] = f(b[i], c[i], s) for i in [0, n), `passes` times; a, b, c aligned to 64 bytes.
    using Map = void (*)(T* a, const T* b, const T* c, T s, std::int64_t n, std::int64_t passes);
    // Stores the sum over i of b[i], or of b[i] * c[i], `passes` times to *out.
    using Fold = void (*)(const T* b, const T* c, std::int64_t n, std::int64_t passes, T* out);
    Map temporal[kStreamMaps];
    Map nontemporal[kStreamMaps];  // null where the compiler has no such store
    Fold read, dot;
    int accumulators;  // of read and dot, in elements: sums that run side by side
};

// Chains in registers. `seeds` holds fma + add vectors of start values, then one vector a and one vector b; `out` gets
// the last values of the chains. A step is x = a * x + b on each fma chain, and y = b - y on each add chain.
template <class T>
struct ChainTable {
    void (*run)(const T* seeds, T* out, std::int64_t steps);
    int fma_chains, add_chains, lanes;
    int fma_per_step, add_per_step;  // how often each chain is advanced in one step
};

// Steps after which the chains start from their seeds again: with |a| <= 1 - 2^-13 a chain would otherwise come to
// rest.
constexpr std::int64_t kChainBlock = 8192;

// Dot products of narrow types into wide accumulators: acc += x . y on `chains` vectors of accumulators.
struct DotTable {
    void (*run)(const void* x, const void* y, void* accumulators, std::int64_t steps);  // two vectors each of x and y
    const char* recipe;  // the instructions, null where this ISA has none
    int chains, vector_bytes;
};

template <class T>
struct GemmTable {
    int mr, nr;
    // Panels of mr rows, k columns, zero-padded: out[panel][p][row].
    void (*pack_a)(const T* a, std::int64_t lda, std::int64_t m, std::int64_t k, T* out);
    // Panels of nr columns, zero-padded: out[panel][p][column].
    void (*pack_b)(const T* b, std::int64_t ldb, std::int64_t k, std::int64_t n, T* out);
    // C (m x n, row stride ldc) = or += packed A times packed B.
    void (*block)(const T* a, const T* b, std::int64_t m, std::int64_t n, std::int64_t k, T* c, std::int64_t ldc,
                  bool accumulate);
};

constexpr int kMixedChains = 8;
constexpr int kMixedMaxFma = 8192;

// Streams x; does `fma` multiply-adds for every 8 elements, and folds every element into an XOR checksum.
// acc: kMixedChains vectors, in and out; checksum: one vector, out.
template <class T>
struct MixedTable {
    void (*run)(const T* x, std::int64_t n, T a, T* acc, T* checksum, int fma, std::int64_t passes);
    int lanes;
};

struct Table {
    const char* isa;
    int vector_bytes;
    bool fused;  // a * x + b is one instruction
    StreamTable<double> stream64;
    StreamTable<float> stream32;
    ChainTable<double> fma64, fma_add64;
    ChainTable<float> fma32, fma_add32;
    DotTable int8, bfloat16;
    GemmTable<double> gemm64;
    GemmTable<float> gemm32;
    MixedTable<double> mixed64;
    MixedTable<float> mixed32;
};

// What this CPU has beyond the ISA that a table is compiled for.
struct DotFeatures {
    bool avx_vnni, avx512_vnni, avx512_bf16, arm_dotprod, arm_bf16;
};

}  // namespace gm::cpu
