// C = A B on Hopper's tensor cores (sm_90a): A is m x k, B is k x n, C is m x n, all row-major; float sums; 16-bit
// types. k and n are multiples of 8, since TMA wants rows at multiples of 16 bytes; m is any.
//
// One block an SM goes from tile to tile of C. One thread of its first warpgroup fetches tiles of A and B by TMA into a
// ring of stages, as far ahead as the ring reaches, also while the other two warpgroups, which multiply 64 rows each by
// wgmma, store what they have. Two barriers a stage: `full` (its bytes have come) and `empty` (all warps have
// multiplied it).
//
// Nothing here has run: it was compiled for sm_90a, its instructions were read, and it was held against the PTX ISA
// (9.0, 9.7.15.5.1.2; the element strides in brackets are for 128-byte swizzle):
// - A's stage is 128 rows of 64 elements: rows of 128 bytes, k contiguous ("K-major"). Stride offset: 8 rows = 1,024
// bytes;
//   no leading offset. 16 elements along k are 32 bytes further in the swizzled row.
// - B's stage is BN / 64 boxes of 64 rows (k) of 64 elements (n), n contiguous ("MN-major": ((8, 8, n), (8, k)) lies at
//   ((1, 8, leading), (64, stride))). Leading offset: from one 64 columns to the next, one box = 8,192 bytes. Stride
//   offset: 8 rows along k = 1,024 bytes. 16 along k are 2,048 bytes further.
#pragma once
#include "gemm_store.cuh"
#include "gemm_tiles.cuh"
#include "ptx_async.cuh"
#include "ptx_wgmma_gemm.cuh"

#ifndef GPUMICRO_CPU_SIM

namespace gm {

template <class T, int BN>
struct WgmmaTile {
    static constexpr int rows = 128, depth = 64, box_columns = 64;  // BM; of a stage along k; of a box of B
    static constexpr unsigned bytes_a = rows * 128, bytes_box = depth * 128, bytes_b = BN / box_columns * bytes_box;
    static constexpr unsigned stage_bytes = bytes_a + bytes_b;
    static constexpr int stages = 196608 / stage_bytes;  // 192 KiB of the 227 that a block may have
    static constexpr unsigned barriers = stages * stage_bytes;
    static constexpr unsigned shared_bytes = barriers + stages * 16 + 1024;  // 1,024 to align the stages
    static constexpr int threads = 384, consumer_warps = 8;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A place in the ring: the stage, and the parity of the barriers' phases on this way round.
template <class Tile>
struct RingPlace {
    unsigned base, stage = 0, parity = 0;
    __device__ __forceinline__ unsigned data() const { return base + stage * Tile::stage_bytes; }
    __device__ __forceinline__ unsigned full() const { return base + Tile::barriers + stage * 16; }
    __device__ __forceinline__ unsigned empty() const { return full() + 8; }
    __device__ __forceinline__ void next() {
        if (++stage == Tile::stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

template <class Tile, int BN>
__device__ __forceinline__ void fetch_tiles(unsigned base, const TensorMapBytes& map_a, const TensorMapBytes& map_b,
                                            index m, index n, index k) {
    tma_prefetch(map_a);
    tma_prefetch(map_b);
    const unsigned tiles_m = tiles_of(m, Tile::rows), tiles_n = tiles_of(n, BN);
    RingPlace<Tile> at{base};
    for (unsigned tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        const TileAt to = tile_at(tile, tiles_m, tiles_n);
        const int row0 = static_cast<int>(to.row) * Tile::rows, column0 = static_cast<int>(to.column) * BN;
        for (int k0 = 0; k0 < k; k0 += Tile::depth) {
            mbarrier_wait(at.empty(), at.parity ^ 1);
            mbarrier_arrive_expect(at.full(), Tile::stage_bytes);
            tma_load(at.data(), map_a, k0, row0, at.full());
#pragma unroll
            for (int j = 0; j < BN / Tile::box_columns; ++j) {
                tma_load(at.data() + Tile::bytes_a + j * Tile::bytes_box, map_b, column0 + j * Tile::box_columns, k0,
                         at.full());
            }
            at.next();
        }
    }
}

// The products of one stage: 64 rows of A at shared address `a` times its B. `add`: whether there are sums already.
template <class Tile, class T, int BN>
__device__ __forceinline__ void multiply_stage(float (&sum)[BN / 2], unsigned a, unsigned b, int add) {
    const unsigned long long from_a = wgmma_descriptor(a, 16, 1024, Swizzle::k128);
    const unsigned long long from_b = wgmma_descriptor(b, Tile::bytes_box, 1024, Swizzle::k128);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Tile::depth / 16; ++step) {  // addresses count in 16 bytes
        WgmmaRows<T, BN>::product(sum, from_a + step * 32 / 16, from_b + step * 2048 / 16, step == 0 ? add : 1);
    }
    wgmma_commit();
}

template <class Tile, class T, int BN>
__device__ __forceinline__ void multiply_and_store(unsigned base, T* __restrict__ c, index m, index n, index k) {
    const unsigned group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const unsigned tiles_m = tiles_of(m, Tile::rows), tiles_n = tiles_of(n, BN);
    RingPlace<Tile> at{base};
    for (unsigned tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        float sum[BN / 2];
        unsigned before = 0;  // barrier of the stage whose products are still under way
        for (index k0 = 0; k0 < k; k0 += Tile::depth) {
            mbarrier_wait(at.full(), at.parity);
            multiply_stage<Tile, T, BN>(sum, at.data() + group * 64 * 128, at.data() + Tile::bytes_a, k0 != 0);
            wgmma_wait<1>();  // the products of the stage before are done
            if (k0 != 0 && lane == 0) mbarrier_arrive(before);
            before = at.empty();
            at.next();
        }
        wgmma_wait<0>();
        if (lane == 0) mbarrier_arrive(before);
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) wgmma_keep(sum[i]);

        const TileAt to = tile_at(tile, tiles_m, tiles_n);
        const index row = static_cast<index>(to.row) * Tile::rows + group * 64 + warp * 16 + lane / 4;
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int j = 0; j < BN / 8; j += 4)
                store_row<true>(
                    c, row + 8 * h, static_cast<index>(to.column) * BN + 8 * j, m, n,
                    [&](int x) { return sum[4 * (j + x) + 2 * h]; },
                    [&](int x) { return sum[4 * (j + x) + 2 * h + 1]; });
    }
}

template <class T, int BN>
__device__ __forceinline__ void gemm_wgmma_body(T* __restrict__ c, const TensorMapBytes& map_a,
                                                const TensorMapBytes& map_b, index m, index n, index k) {
    using Tile = WgmmaTile<T, BN>;
    GM_DYNAMIC_SHARED(unsigned char, shared);
    const unsigned base = (shared_address(shared) + 1023) & ~1023U;  // the swizzle counts rows from there
    if (threadIdx.x == 0) {
        for (RingPlace<Tile> at{base}; at.parity == 0; at.next()) {
            mbarrier_init(at.full(), 1);
            mbarrier_init(at.empty(), Tile::consumer_warps);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        give_registers<40>();
        if (threadIdx.x == 0) fetch_tiles<Tile, BN>(base, map_a, map_b, m, n, k);
    } else {
        take_registers<232>();
        multiply_and_store<Tile, T, BN>(base, c, m, n, k);
    }
}

#endif

template <class T, int BN>
__global__ void __launch_bounds__(384, 1)
    gemm_wgmma(T* __restrict__ c, const __grid_constant__ TensorMapBytes map_a,
               const __grid_constant__ TensorMapBytes map_b, index m, index n, index k) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    gemm_wgmma_body<T, BN>(c, map_a, map_b, m, n, k);
#else
    unsupported();
#endif
}

}  // namespace gm

#endif

// The number is the width of a block's tile of C; its height is 128.
#define GM_GEMM_WGMMA_TABLE(X)           \
    X(gm::gemm_wgmma<gm::bfloat16, 256>) \
    X(gm::gemm_wgmma<gm::bfloat16, 128>) \
    X(gm::gemm_wgmma<gm::half, 256>)     \
    X(gm::gemm_wgmma<gm::half, 128>)
