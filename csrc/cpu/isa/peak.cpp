// Peak arithmetic for one ISA: multiply-add chains that never leave the registers, and dot products of narrow types.
#include "cpu/isa/simd.hpp"
#include "cpu/isa/tables.hpp"

namespace gm::cpu {
namespace {

// Chains in flight. FMA: two to four pipes of four cycles need 8 to 16. Mixed with adds: 8 + 6 chains and two constants
// are all 16 registers; three rounds over 8 FMA chains and 6 add chains then make 24 FMA and 24 adds.
#if GM_REGISTERS == 32
constexpr int kFma = 24, kMixFma = 12, kMixAdd = 12, kRounds = 1;
#else
constexpr int kFma = 12, kMixFma = 8, kMixAdd = 6, kRounds = 3;
#endif

// `Adds` chains of y = b - y run beside `Fmas` chains of x = a * x + b; both are bounded and neither ever rests.
template <class T, int Fmas, int Adds, int Rounds>
void chains(const T* seeds, T* out, std::int64_t steps) {
    constexpr int lanes = kLanes<T>;
    const Vec<T> a = load(seeds + (Fmas + Adds) * lanes);
    const Vec<T> b = load(seeds + (Fmas + Adds + 1) * lanes);
    while (steps > 0) {
        const std::int64_t block = steps < kChainBlock ? steps : kChainBlock;
        Vec<T> x[Fmas], y[Adds + 1];
        GM_UNROLL for (int c = 0; c < Fmas; ++c) x[c] = load(seeds + c * lanes);
        GM_UNROLL for (int c = 0; c < Adds; ++c) y[c] = load(seeds + (Fmas + c) * lanes);
        for (std::int64_t i = 0; i < block; ++i) {
            GM_UNROLL for (int j = 0; j < Fmas * Rounds; ++j) {
                x[j % Fmas] = a * x[j % Fmas] + b;
                if constexpr (Adds > 0) y[j % Adds] = b - y[j % Adds];
            }
        }
        GM_UNROLL for (int c = 0; c < Fmas; ++c) store(out + c * lanes, x[c]);
        GM_UNROLL for (int c = 0; c < Adds; ++c) store(out + (Fmas + c) * lanes, y[c]);
        clobber();
        steps -= block;
    }
}

template <class T>
void fill(ChainTable<T>& fma, ChainTable<T>& fma_add) {
    fma = {chains<T, kFma, 0, 1>, kFma, 0, kLanes<T>, 1, 0};
    fma_add = {chains<T, kMixFma, kMixAdd, kRounds>, kMixFma, kMixAdd, kLanes<T>, kRounds, kMixFma * kRounds / kMixAdd};
}

// acc[c] = Step(acc[c], x[c % 2], y[c % 2]); Acc and In are the intrinsics' vector types.
#define GM_DOT_LOOP(NAME, TARGET, ACC, IN, CHAINS, STEP)                                                \
    TARGET void NAME(const void* xs, const void* ys, void* accumulators, std::int64_t steps) {          \
        ACC acc[CHAINS];                                                                                \
        IN x[2], y[2];                                                                                  \
        __builtin_memcpy(&x, xs, sizeof x);                                                             \
        __builtin_memcpy(&y, ys, sizeof y);                                                             \
        GM_UNROLL for (int c = 0; c < CHAINS; ++c)                                                      \
            __builtin_memcpy(&acc[c], static_cast<char*>(accumulators) + c * sizeof(ACC), sizeof(ACC)); \
        for (; steps > 0; --steps) {                                                                    \
            opaque(x[0]);                                                                               \
            opaque(x[1]);                                                                               \
            GM_UNROLL for (int c = 0; c < CHAINS; ++c) { STEP }                                         \
        }                                                                                               \
        GM_UNROLL for (int c = 0; c < CHAINS; ++c)                                                      \
            __builtin_memcpy(static_cast<char*>(accumulators) + c * sizeof(ACC), &acc[c], sizeof(ACC)); \
        clobber();                                                                                      \
    }

#if GM_VECTOR_BYTES == 64 && defined(__AVX512BW__)
GM_DOT_LOOP(dot_vnni512, __attribute__((target("avx512vnni"))), __m512i, __m512i, 24,
            acc[c] = _mm512_dpbusd_epi32(acc[c], x[c % 2], y[c % 2]);)
// y and then -y, so that the sums stay bounded; one loop iteration is one step and the sign alternates by chain and
// step: the caller passes y[1] = -y[0], x[1] = x[0].
GM_DOT_LOOP(dot_bf16_512, __attribute__((target("avx512bf16"))), __m512, __m512i, 24,
            acc[c] = _mm512_dpbf16_ps(acc[c], (__m512bh)x[0], (__m512bh)y[0]);
            acc[c] = _mm512_dpbf16_ps(acc[c], (__m512bh)x[1], (__m512bh)y[1]);)
#elif GM_VECTOR_BYTES == 32
#if (defined(__GNUC__) && __GNUC__ >= 11) || defined(__clang__)
#define GM_AVX_VNNI 1
GM_DOT_LOOP(dot_vnni256, __attribute__((target("avxvnni"))), __m256i, __m256i, 12,
            acc[c] = _mm256_dpbusd_avx_epi32(acc[c], x[c % 2], y[c % 2]);)
#endif
// No VNNI: unsigned x signed to 16 bit, pairs to 32 bit, add. Three instructions for the same 32 products.
GM_DOT_LOOP(dot_maddubs256, , __m256i, __m256i, 8, const __m256i pair = _mm256_maddubs_epi16(x[c % 2], y[c % 2]);
            acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(pair, _mm256_set1_epi16(1))); opaque(x[c % 2]);)
#elif defined(__aarch64__)
GM_DOT_LOOP(dot_sdot, __attribute__((target("arch=armv8.2-a+dotprod"))), int32x4_t, int8x16_t, 24,
            acc[c] = vdotq_s32(acc[c], x[c % 2], y[c % 2]);)
GM_DOT_LOOP(dot_bfdot, __attribute__((target("arch=armv8.2-a+bf16"))), float32x4_t, bfloat16x8_t, 24,
            acc[c] = vbfdotq_f32(acc[c], x[0], y[0]);
            acc[c] = vbfdotq_f32(acc[c], x[1], y[1]);)
#endif

}  // namespace

namespace GM_ISA {
void fill_peak(Table& table, [[maybe_unused]] const DotFeatures& has) {
    fill(table.fma64, table.fma_add64);
    fill(table.fma32, table.fma_add32);
#if GM_VECTOR_BYTES == 64 && defined(__AVX512BW__)
    if (has.avx512_vnni) table.int8 = {dot_vnni512, "vpdpbusd, 512 bit (AVX512_VNNI)", 24, 64};
    if (has.avx512_bf16) table.bfloat16 = {dot_bf16_512, "vdpbf16ps, 512 bit (AVX512_BF16)", 24, 64};
#elif GM_VECTOR_BYTES == 32
    table.int8 = {dot_maddubs256, "vpmaddubsw + vpmaddwd + vpaddd, 256 bit (AVX2, no VNNI)", 8, 32};
#ifdef GM_AVX_VNNI
    if (has.avx_vnni) table.int8 = {dot_vnni256, "vpdpbusd, 256 bit (AVX-VNNI)", 12, 32};
#endif
#elif defined(__aarch64__)
    if (has.arm_dotprod) table.int8 = {dot_sdot, "sdot, 128 bit", 24, 16};
    if (has.arm_bf16) table.bfloat16 = {dot_bfdot, "bfdot, 128 bit", 24, 16};
#endif
}
}  // namespace GM_ISA
}  // namespace gm::cpu
