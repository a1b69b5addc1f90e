// Warp-level matrix products: d += a b, one wrapper for each mma.sync. Fragments are registers as the instruction takes
// them ("PTX ISA 9.0", 9.7.14.5 Matrix fragments for mma); all 32 lanes must call together.
//
// With g = lane / 4 and t = lane % 4, a 32-bit word holds P = 32 / bits neighbours along k (f64: one value a register),
// and every shape here follows one rule:
//     a[i]: row g + 8 (i % 2),  k-word t + 4 (i / 2)        (m8n8k4: one register, row g, k = t)
//     b[i]: k-word t + 4 i,     column g
//     d[i]: row g + 8 (i / 2),  column 2 t + i % 2          (packed halves: d[0] row g, d[1] row g + 8)
#pragma once
#include "types.cuh"

#ifdef GPUMICRO_CPU_SIM

namespace gm::mma_model {

// One k-word of both operands for each of this lane's M / 8 x 2 results; `dot` adds their products to a result. The
// lanes publish their fragments once: barriers are what costs time in the simulation.
template <int M, int KWords, typename Word, typename Sum, typename Dot>
void accumulate(Sum* d, const Word* a, const Word* b, Dot dot) {
    constexpr int kRows = M / 8, kParts = KWords / 4;
    struct Fragments {
        Word a[kRows * kParts], b[kParts];
    } mine;
    for (int i = 0; i < kRows * kParts; ++i) mine.a[i] = a[i];
    for (int i = 0; i < kParts; ++i) mine.b[i] = b[i];
    const cusim::WarpView<Fragments> lanes(mine);
    const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
    for (int word = 0; word < KWords; ++word) {
        const int from = word % 4, part = word / 4;
        for (int i = 0; i < kRows; ++i) {
            for (int j = 0; j < 2; ++j) {
                dot(d[2 * i + j], lanes[g * 4 + from].a[i + kRows * part], lanes[(2 * t + j) * 4 + from].b[part]);
            }
        }
    }
}

// 16-bit and 8-bit floats (T has bits), two or four a word; summed in double, rounded once.
template <typename T>
double dot_word(unsigned x, unsigned y) {
    constexpr int kBits = 8 * sizeof(T);
    constexpr unsigned kMask = static_cast<unsigned>((1ULL << kBits) - 1);
    double sum = 0;
    for (int shift = 0; shift < 32; shift += kBits) {
        const T p{static_cast<decltype(T::bits)>((x >> shift) & kMask)};
        const T q{static_cast<decltype(T::bits)>((y >> shift) & kMask)};
        sum += static_cast<double>(Convert<T>::to(p)) * static_cast<double>(Convert<T>::to(q));
    }
    return sum;
}

template <typename T>
void floats_16x8(float (&d)[4], const unsigned* a, const unsigned* b) {
    double sum[4] = {d[0], d[1], d[2], d[3]};
    accumulate<16, 8>(sum, a, b, [](double& s, unsigned x, unsigned y) { s += dot_word<T>(x, y); });
    for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(sum[i]);
}

}  // namespace gm::mma_model

namespace gm {

inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    mma_model::floats_16x8<half>(d, a, b);
}
inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    mma_model::floats_16x8<bfloat16>(d, a, b);
}
inline void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    mma_model::floats_16x8<tf32>(d, a, b);
}
inline void mma_m16n8k32_e4m3(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    mma_model::floats_16x8<e4m3>(d, a, b);
}
inline void mma_m16n8k16_f16_f16(unsigned (&d)[2], const unsigned (&a)[4], const unsigned (&b)[2]) {
    const auto value = [](unsigned bits) { return Convert<half>::to(half{static_cast<unsigned short>(bits)}); };
    float sum[4] = {value(d[0] & 0xffffU), value(d[0] >> 16), value(d[1] & 0xffffU), value(d[1] >> 16)};
    mma_model::floats_16x8<half>(sum, a, b);
    for (int i = 0; i < 2; ++i) {
        d[i] = Convert<half>::from(sum[2 * i]).bits | unsigned{Convert<half>::from(sum[2 * i + 1]).bits} << 16;
    }
}
inline void mma_m16n8k32_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    unsigned sum[4];
    for (int i = 0; i < 4; ++i) sum[i] = static_cast<unsigned>(d[i]);
    mma_model::accumulate<16, 8>(sum, &a[0], &b[0], [](unsigned& s, unsigned x, unsigned y) {
        for (int shift = 0; shift < 32; shift += 8) {
            const int product = static_cast<signed char>(x >> shift) * static_cast<signed char>(y >> shift);
            s += static_cast<unsigned>(product);
        }
    });
    for (int i = 0; i < 4; ++i) d[i] = static_cast<int>(sum[i]);
}
inline void mma_m8n8k4_f64(double (&d)[2], const double (&a)[1], const double (&b)[1]) {
    mma_model::accumulate<8, 4>(&d[0], &a[0], &b[0], [](double& s, double x, double y) { s += x * y; });
}
inline void mma_m16n8k16_f64(double (&d)[4], const double (&a)[8], const double (&b)[4]) {
    mma_model::accumulate<16, 16>(&d[0], &a[0], &b[0], [](double& s, double x, double y) { s += x * y; });
}

}  // namespace gm

#else

namespace gm {

// 9.7.14.5.14 mma. The results are inputs too, so nothing here may be moved or dropped by accident; `volatile` would
// only forbid the compiler to interleave independent chains, and is not needed.
#define GM_MMA_16X8(name, instruction)                                                                         \
    __device__ __forceinline__ void name(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {      \
        asm("mma.sync.aligned." instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                   \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                               \
    }
GM_MMA_16X8(mma_m16n8k16_f16, "m16n8k16.row.col.f32.f16.f16.f32")     // sm_80
GM_MMA_16X8(mma_m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")  // sm_80
GM_MMA_16X8(mma_m16n8k8_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")    // sm_80
GM_MMA_16X8(mma_m16n8k32_e4m3, "m16n8k32.row.col.f32.e4m3.e4m3.f32")  // sm_89
#undef GM_MMA_16X8

__device__ __forceinline__ void mma_m16n8k16_f16_f16(  // sm_80
    unsigned (&d)[2], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_m16n8k32_s8(  // sm_80; wraps
    int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_m8n8k4_f64(  // sm_80
    double (&d)[2], const double (&a)[1], const double (&b)[1]) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(d[0]), "+d"(d[1])
        : "d"(a[0]), "d"(b[0]));
}

// sm_80; one instruction on sm_90. Before it, and after it in ptxas' hands, eight m8n8k4 on the same registers: its
// fragment is theirs side by side. The two row halves in turn keep two chains going.
__device__ __forceinline__ void mma_m16n8k16_f64(double (&d)[4], const double (&a)[8], const double (&b)[4]) {
#if __CUDA_ARCH__ == 900
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
        "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]),
          "d"(b[2]), "d"(b[3]));
#else
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int half_rows = 0; half_rows < 2; ++half_rows) {
            double part[2] = {d[2 * half_rows], d[2 * half_rows + 1]};
            const double left[1] = {a[2 * k + half_rows]}, right[1] = {b[k]};
            mma_m8n8k4_f64(part, left, right);
            d[2 * half_rows] = part[0];
            d[2 * half_rows + 1] = part[1];
        }
    }
#endif
}

}  // namespace gm

#endif
