// Peak arithmetic of Hopper's tensor cores by wgmma: two warpgroups of a block multiply the same operand tiles, which
// stay in shared memory, into accumulators that stay in registers. Nothing is loaded after the start.
//
// A tile of a is 64 rows, of b 256 rows, each row kWgmmaParts x 32 bytes (one instruction takes 32 bytes of k, whatever
// the type); what they hold is taken from `seeds`, see tile_word. Sums and what is known of them: peak_mma.cuh.
#pragma once
#include "peak_mma.cuh"
#include "ptx_wgmma.cuh"

namespace gm {

constexpr int kWgmmaUnroll = 128;  // products in a trip through the loop
constexpr int kWgmmaParts = 2;     // operand tiles in turn
constexpr int kWgmmaRowsA = 64, kWgmmaRowsB = 256, kWgmmaSums = 128;

// Word i of the tile of a block's operand number `operand` (0: a, 1: b).
__device__ __forceinline__ unsigned tile_word(const unsigned* __restrict__ seeds, unsigned operand, unsigned i) {
    return seeds[(i + 37U * (i / kSeedWords) + 512U * operand + 32U * blockIdx.x) % kSeedWords];
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <typename Sum>
__device__ __forceinline__ Sum sum_of(const Sum (&d)[kWgmmaSums]) {
    Sum sum = d[0];
#pragma unroll
    for (int i = 1; i < kWgmmaSums; ++i) sum = plus(sum, d[i]);
    return sum;
}

template <typename T, typename Sum>
__device__ __forceinline__ void wgmma_peak_body(const unsigned* __restrict__ seeds, Sum* __restrict__ out, int steps) {
    using M = Mma<T, Sum>;
    constexpr int kMinus = M::kCancels ? -1 : 1;  // what every second product is multiplied by
    constexpr unsigned kRowBytes = 32 * kWgmmaParts, kBlockBytes = 128, kGroupBytes = 8 * kRowBytes;
    __shared__ alignas(128) unsigned tile_a[kWgmmaRowsA * kRowBytes / 4], tile_b[kWgmmaRowsB * kRowBytes / 4];
    for (unsigned i = threadIdx.x; i < sizeof(tile_a) / 4; i += blockDim.x) tile_a[i] = tile_word(seeds, 0, i);
    for (unsigned i = threadIdx.x; i < sizeof(tile_b) / 4; i += blockDim.x) tile_b[i] = tile_word(seeds, 1, i);
    fence_async_shared();
    __syncthreads();

    // Blocks of 8 rows x 16 bytes, neighbours along k side by side: part p starts two blocks further.
    unsigned long long a[kWgmmaParts], b[kWgmmaParts];
#pragma unroll
    for (unsigned p = 0; p < kWgmmaParts; ++p) {
        const unsigned start = 2 * p * kBlockBytes;
        a[p] = wgmma_descriptor(shared_address(tile_a) + start, kBlockBytes, kGroupBytes, Swizzle::kNone);
        b[p] = wgmma_descriptor(shared_address(tile_b) + start, kBlockBytes, kGroupBytes, Swizzle::kNone);
    }
    Sum d[kWgmmaSums];
#pragma unroll
    for (int i = 0; i < kWgmmaSums; ++i) d[i] = 0;
#pragma unroll 1
    for (int left = steps; left > 0; --left) {
        wgmma_fence();
#pragma unroll
        for (int u = 0; u < kWgmmaUnroll; u += 2) {
            const int p = u / 2 % kWgmmaParts;
            Wgmma<T, 256, 1>::product(d, a[p], b[p]);
            Wgmma<T, 256, kMinus>::product(d, a[p], b[p]);
        }
        wgmma_commit();
        wgmma_wait<1>();
    }
    if (M::kCancels) {
        wgmma_fence();
        Wgmma<T, 256, 1>::product(d, a[0], b[0]);
        wgmma_commit();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kWgmmaSums; ++i) wgmma_keep(d[i]);
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum_of(d);
}

#endif

#ifndef GPUMICRO_CPU_SIM

template <typename T, typename Sum>
__global__ void __launch_bounds__(kPeakThreads, 1)
    wgmma_peak(const unsigned* __restrict__ seeds, Sum* __restrict__ out, index steps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    wgmma_peak_body<T, Sum>(seeds, out, static_cast<int>(steps));
#else
    unsupported();
#endif
}

#endif

}  // namespace gm

#define GM_PEAK_WGMMA_TABLE(X)             \
    X(gm::wgmma_peak<gm::half, float>)     \
    X(gm::wgmma_peak<gm::bfloat16, float>) \
    X(gm::wgmma_peak<gm::tf32, float>)     \
    X(gm::wgmma_peak<gm::e4m3, float>)     \
    X(gm::wgmma_peak<signed char, int>)
