// Peak arithmetic of the tensor cores by mma.sync: a warp's operands and accumulators stay in registers.
//
// Where sums are wide (float from 16-bit and tf32 operands, double, int) the accumulators grow by the same products in
// every trip through the loop, which is what a GEMM with a long k does. Where they are narrow (half; e4m3, whose sums
// keep as few as 13 bits: "DeepSeek-V3", arXiv 2412.19437, 3.3.2) that would stop at a constant: there each product is
// taken back by the next, operands are few-digit numbers so that this is exact, and one product more after the loop is
// what remains. Either way the result is known; gpumicro/kernels/peak_check.py computes it. Fragments come from `seeds`
// as in peak.cuh, and out[thread] is the sum of the thread's accumulators.
#pragma once
#include "peak.cuh"
#include "ptx_mma.cuh"

namespace gm {

__device__ __forceinline__ float total(const float (&d)[4]) { return (d[0] + d[1]) + (d[2] + d[3]); }
__device__ __forceinline__ double total(const double (&d)[4]) { return (d[0] + d[1]) + (d[2] + d[3]); }
__device__ __forceinline__ int total(const int (&d)[4]) { return plus(plus(d[0], d[1]), plus(d[2], d[3])); }
__device__ __forceinline__ float total(const unsigned (&d)[2]) {
    using Pair = Chains<pair<half>>;
    return Pair::sum({d[0]}) + Pair::sum({d[1]});
}

// For each element and accumulator type: the instruction, its fragments, how a seed becomes an operand.
struct Words {
    using Word = unsigned;
    using Out = float;
    static constexpr int kLeft = 4, kRight = 2, kSum = 4;  // registers of a fragment
    static constexpr int kSums = 8;                        // accumulators of a warp
    static constexpr int kUnroll = 16;                     // products into each of them in a trip through the loop
    static constexpr bool kCancels = false;
    static __device__ __forceinline__ Word negative(Word word) { return word; }
};
template <typename T, typename Sum>
struct Mma;
template <>
struct Mma<half, float> : Words {
    using Acc = float;
    static __device__ __forceinline__ void product(Acc (&d)[4], const Word (&a)[4], const Word (&b)[2]) {
        mma_m16n8k16_f16(d, a, b);
    }
};
template <>
struct Mma<bfloat16, float> : Words {
    using Acc = float;
    static __device__ __forceinline__ void product(Acc (&d)[4], const Word (&a)[4], const Word (&b)[2]) {
        mma_m16n8k16_bf16(d, a, b);
    }
};
template <>
struct Mma<tf32, float> : Words {
    using Acc = float;
    static __device__ __forceinline__ void product(Acc (&d)[4], const Word (&a)[4], const Word (&b)[2]) {
        mma_m16n8k8_tf32(d, a, b);
    }
};
template <>
struct Mma<half, half> : Words {
    using Acc = unsigned;
    static constexpr int kSum = 2;
    static constexpr bool kCancels = true;
    static __device__ __forceinline__ Word negative(Word word) { return word ^ 0x80008000U; }
    static __device__ __forceinline__ void product(Acc (&d)[2], const Word (&a)[4], const Word (&b)[2]) {
        mma_m16n8k16_f16_f16(d, a, b);
    }
};
template <>
struct Mma<e4m3, float> : Words {
    using Acc = float;
    static constexpr int kUnroll = 32;  // sm_89 makes the negative operands anew in every trip
    static constexpr bool kCancels = true;
    static __device__ __forceinline__ Word negative(Word word) { return word ^ 0x80808080U; }
    static __device__ __forceinline__ void product(Acc (&d)[4], const Word (&a)[4], const Word (&b)[2]) {
        mma_m16n8k32_e4m3(d, a, b);
    }
};
template <>
struct Mma<signed char, int> : Words {
    using Acc = int;
    using Out = int;
    static __device__ __forceinline__ void product(Acc (&d)[4], const Word (&a)[4], const Word (&b)[2]) {
        mma_m16n8k32_s8(d, a, b);
    }
};
template <>
struct Mma<double, double> : Words {
    using Word = double;
    using Acc = double;
    using Out = double;
    static constexpr int kLeft = 8, kRight = 4;
    static constexpr int kSums = 4, kUnroll = 24;
    static __device__ __forceinline__ Word negative(Word word) { return word; }
    static __device__ __forceinline__ void product(Acc (&d)[4], const Word (&a)[8], const Word (&b)[4]) {
        mma_m16n8k16_f64(d, a, b);
    }
};

// A warp's fragments: two a and kSums b. Without cancelling, step u of accumulator c adds a[u % 2] b[(c + u) %
// sums]; with it, steps u and u + 1 add and subtract a[u / 2 % 2] b[(c + u / 2) % (sums / 2)], the second half being
// -b.
template <typename T, typename Sum>
__device__ __forceinline__ void mma_peak_body(const typename Mma<T, Sum>::Word* __restrict__ seeds,
                                              typename Mma<T, Sum>::Out* __restrict__ out, int steps) {
    using M = Mma<T, Sum>;
    typename M::Word a[2][M::kLeft], b[M::kSums][M::kRight];
    typename M::Acc d[M::kSums][M::kSum];
#pragma unroll
    for (int i = 0; i < 2 * M::kLeft; ++i) a[i / M::kLeft][i % M::kLeft] = seed(seeds, i);
#pragma unroll
    for (int c = 0; c < M::kSums; ++c) {
#pragma unroll
        for (int i = 0; i < M::kRight; ++i) {
            const int source = c % (M::kCancels ? M::kSums / 2 : M::kSums),
                      word = 2 * M::kLeft + source * M::kRight + i;
            b[c][i] = seed(seeds, word);
            if (source != c) b[c][i] = M::negative(b[c][i]);
        }
#pragma unroll
        for (int i = 0; i < M::kSum; ++i) d[c][i] = 0;
    }
#pragma unroll 1
    for (int left = steps; left > 0; --left) {
#pragma unroll
        for (int u = 0; u < M::kUnroll; ++u) {
#pragma unroll
            for (int c = 0; c < M::kSums; ++c) {
                const int kept = (c + u / 2) % (M::kSums / 2) + u % 2 * (M::kSums / 2);
                M::product(d[c], a[M::kCancels ? u / 2 % 2 : u % 2], b[M::kCancels ? kept : (c + u) % M::kSums]);
            }
        }
    }
    typename M::Out sum = 0;
#pragma unroll
    for (int c = 0; c < M::kSums; ++c) {
        if (M::kCancels) M::product(d[c], a[0], b[c % (M::kSums / 2)]);
        sum = plus(sum, total(d[c]));
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Where there is a unit for T's products. Elsewhere the instruction is there for compatibility only: e4m3 is converted
// and computed as half (sm_90, sm_100), double crawls (sm_86, sm_89, sm_120).
#ifdef __CUDA_ARCH__
template <typename T>
constexpr bool kHasUnit = __CUDA_ARCH__ >= 800;
template <>
constexpr bool kHasUnit<e4m3> = __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200;
template <>
constexpr bool kHasUnit<double> = __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000;
#else
template <typename T>
constexpr bool kHasUnit = true;
#endif

template <typename T, typename Sum>
__global__ void __launch_bounds__(kPeakThreads, 2) mma_peak(const typename Mma<T, Sum>::Word* __restrict__ seeds,
                                                            typename Mma<T, Sum>::Out* __restrict__ out, index steps) {
    if constexpr (kHasUnit<T>) {
        mma_peak_body<T, Sum>(seeds, out, static_cast<int>(steps));
    } else {
        unsupported();
    }
}

}  // namespace gm

#define GM_PEAK_MMA_TABLE(X)             \
    X(gm::mma_peak<gm::half, float>)     \
    X(gm::mma_peak<gm::half, gm::half>)  \
    X(gm::mma_peak<gm::bfloat16, float>) \
    X(gm::mma_peak<gm::tf32, float>)     \
    X(gm::mma_peak<gm::e4m3, float>)     \
    X(gm::mma_peak<signed char, int>)    \
    X(gm::mma_peak<double, double>)
