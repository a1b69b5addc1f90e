// Peak arithmetic of Blackwell's tensor cores by tcgen05.mma: one thread multiplies operand tiles that stay in shared
// memory into two 128 x 256 results in tensor memory. The thread issues as fast as the tensor core takes products and
// waits once, at the end.
//
// A tile of a is 128 rows, of b 256 rows, laid out and filled as in peak_wgmma.cuh. Thread t of the block's 128 sums
// row t of both results into out[thread]. Sums and what is known of them: peak_mma.cuh.
#pragma once
#include "peak_wgmma.cuh"
#include "ptx_tcgen05.cuh"

namespace gm {

constexpr int kTcgen05Threads = 128;
constexpr int kTcgen05Unroll = 128;  // products in a trip through the loop
constexpr unsigned kTcgen05RowsA = 128, kTcgen05RowsB = 256, kTcgen05Parts = 2;
constexpr unsigned kTcgen05Columns = 2 * kTcgen05RowsB;  // all of tensor memory

#ifdef __CUDA_ARCH_FEAT_SM100_ALL

// The instruction's kind and operand format (9.7.16.4.2) for each type.
template <typename T>
struct Tcgen05;
#define GM_TCGEN05(T, format, result, function)                                                                     \
    template <>                                                                                                     \
    struct Tcgen05<T> {                                                                                             \
        static constexpr unsigned kPlus = tcgen05_instruction(result, format, kTcgen05RowsA, kTcgen05RowsB, false); \
        static constexpr unsigned kMinus = tcgen05_instruction(result, format, kTcgen05RowsA, kTcgen05RowsB, true); \
        static __device__ __forceinline__ void product(unsigned d, unsigned long long a, unsigned long long b,      \
                                                       unsigned instruction, bool add) {                            \
            function(d, a, b, instruction, add);                                                                    \
        }                                                                                                           \
    };
GM_TCGEN05(half, 0, 1, tcgen05_mma_f16)
GM_TCGEN05(bfloat16, 1, 1, tcgen05_mma_f16)
GM_TCGEN05(tf32, 2, 1, tcgen05_mma_tf32)
GM_TCGEN05(e4m3, 0, 1, tcgen05_mma_f8f6f4)
GM_TCGEN05(signed char, 1, 2, tcgen05_mma_i8)
#undef GM_TCGEN05

// All products of a block, by one thread: `d` are the two results. The first product overwrites what was there; where
// the others cancel it is what remains.
template <typename T, typename Sum>
__device__ __forceinline__ void tcgen05_products(const unsigned (&d)[2], const unsigned long long (&a)[kTcgen05Parts],
                                                 const unsigned long long (&b)[kTcgen05Parts], int steps) {
    using M = Mma<T, Sum>;
    using I = Tcgen05<T>;
    I::product(d[0], a[0], b[0], I::kPlus, false);
    I::product(d[1], a[0], b[0], I::kPlus, false);
#pragma unroll 1
    for (int left = steps; left > 0; --left) {
#pragma unroll
        for (int u = 0; u < kTcgen05Unroll; u += 2) {
            const int p = u / 2 % static_cast<int>(kTcgen05Parts), sum = u / 4 % 2;
            I::product(d[sum], a[p], b[p], I::kPlus, true);
            I::product(d[sum], a[p], b[p], M::kCancels ? I::kMinus : I::kPlus, true);
        }
    }
}

template <typename T, typename Sum>
__device__ __forceinline__ void tcgen05_peak_body(const unsigned* __restrict__ seeds, Sum* __restrict__ out,
                                                  int steps) {
    constexpr unsigned kRowBytes = 32 * kTcgen05Parts, kBlockBytes = 128, kGroupBytes = 8 * kRowBytes;
    __shared__ alignas(128) unsigned tile_a[kTcgen05RowsA * kRowBytes / 4], tile_b[kTcgen05RowsB * kRowBytes / 4];
    __shared__ alignas(8) unsigned long long barrier;
    __shared__ unsigned tensor_memory;
    const unsigned warp = threadIdx.x / 32, done = shared_address(&barrier);
    if (warp == 0) tcgen05_alloc(shared_address(&tensor_memory), kTcgen05Columns);
    if (threadIdx.x == 0) tcgen05_barrier_init(done);
    for (unsigned i = threadIdx.x; i < sizeof(tile_a) / 4; i += blockDim.x) tile_a[i] = tile_word(seeds, 0, i);
    for (unsigned i = threadIdx.x; i < sizeof(tile_b) / 4; i += blockDim.x) tile_b[i] = tile_word(seeds, 1, i);
    tcgen05_shared_written();
    tcgen05_before_sync();
    __syncthreads();
    tcgen05_after_sync();
    const unsigned d[2] = {tensor_memory, tensor_memory + kTcgen05RowsB};
    unsigned long long a[kTcgen05Parts], b[kTcgen05Parts];
#pragma unroll
    for (unsigned p = 0; p < kTcgen05Parts; ++p) {
        a[p] = tcgen05_descriptor(shared_address(tile_a) + 2 * p * kBlockBytes, kBlockBytes, kGroupBytes);
        b[p] = tcgen05_descriptor(shared_address(tile_b) + 2 * p * kBlockBytes, kBlockBytes, kGroupBytes);
    }
    if (warp == 0 && elect_one()) {
        tcgen05_products<T, Sum>(d, a, b, steps);
        tcgen05_commit(done);
    }
    tcgen05_barrier_wait(done, 0);
    __syncwarp();  // lanes leave the wait one by one, and one of warp 0 comes late; the loads want all of a warp
    tcgen05_after_sync();
    Sum sum = 0;
#pragma unroll 1
    for (unsigned column = 0; column < kTcgen05Columns; column += 16) {
        unsigned r[16];
        tcgen05_load(r, tensor_memory + column + (warp << 21));
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            if constexpr (sizeof(Sum) == 4 && Sum(0.5F) != Sum(0)) {
                sum = plus(sum, __uint_as_float(r[i]));
            } else {
                sum = plus(sum, static_cast<Sum>(r[i]));
            }
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    tcgen05_before_sync();
    __syncthreads();
    if (warp == 0) tcgen05_dealloc(tensor_memory, kTcgen05Columns);
}

#endif

#ifndef GPUMICRO_CPU_SIM

template <typename T, typename Sum>
__global__ void __launch_bounds__(kTcgen05Threads, 1)
    tcgen05_peak(const unsigned* __restrict__ seeds, Sum* __restrict__ out, index steps) {
#ifdef __CUDA_ARCH_FEAT_SM100_ALL
    tcgen05_peak_body<T, Sum>(seeds, out, static_cast<int>(steps));
#else
    unsupported();
#endif
}

#endif

}  // namespace gm

#define GM_PEAK_TCGEN05_TABLE(X)             \
    X(gm::tcgen05_peak<gm::half, float>)     \
    X(gm::tcgen05_peak<gm::bfloat16, float>) \
    X(gm::tcgen05_peak<gm::tf32, float>)     \
    X(gm::tcgen05_peak<gm::e4m3, float>)     \
    X(gm::tcgen05_peak<signed char, int>)
