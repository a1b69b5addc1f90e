// C = A B on tensor cores by mma.sync: A is m x k, B is k x n, C is m x n, all row-major and dense; m, n, k >= 1; float
// sums.
//
// A block computes a BM x BN tile of C in steps of 64 bytes along k. The tiles of A and B of the next steps are under
// way to shared memory by cp.async while one is multiplied; ldmatrix (for tf32, whose B it cannot transpose, plain
// loads) hands them to the warps, each of which holds a WM x WN tile of sums. Within a row 16-byte chunks change places
// (XOR by row), so that neither the copies nor the loads meet in a bank.
#pragma once
#include "gemm_store.cuh"
#include "gemm_tiles.cuh"
#include "ptx_async.cuh"
#include "ptx_mma.cuh"

namespace gm {

__device__ __forceinline__ void mma_step(half, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    mma_m16n8k16_f16(d, a, b);
}
__device__ __forceinline__ void mma_step(bfloat16, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    mma_m16n8k16_bf16(d, a, b);
}
__device__ __forceinline__ void mma_step(tf32, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    mma_m16n8k8_tf32(d, a, b);
}

// Where things lie in a stage of shared memory, in bytes: BM rows of A of 64, then 64 / sizeof(T) rows of B.
template <class T, int BM, int BN, int WM, int WN, int Stages>
struct MmaTile {
    static constexpr int size = sizeof(T), chunk = 16 / size,
                         depth = 64 / size;  // elements of a chunk; of a step along k
    static constexpr int warps_across = BN / WN, threads = 32 * (BM / WM) * warps_across;
    static constexpr int row_b = BN * size, stage_bytes = BM * 64 + depth * row_b, stages = Stages;
    static constexpr int chunks_a = BM * 4 / threads, across_b = BN / chunk, chunks_b = depth * across_b / threads;
    static constexpr int resident = threads > 128 ? 1 : WN > 32 ? 2 : 3;     // 64 x 64 sums a warp need 255 registers
    static constexpr int step_a = threads / 4, step_b = threads / across_b;  // rows between a thread's chunks
    static_assert(chunks_a * threads == BM * 4 && chunks_b * threads == depth * across_b, "loads fill the tiles");
    static_assert(step_a % 8 == 0 && step_b % (16 / size) == 0, "a thread's chunks are swizzled alike");
    static_assert(WM % 16 == 0 && WN % 32 == 0 && Stages >= 3, "whole fragments; the copies run ahead");

    // Rows 2 r and 2 r + 1 of A share 128 bytes, so pairs of rows take turns.
    static __device__ __forceinline__ unsigned at_a(unsigned row, unsigned c) {
        return row * 64 + (c ^ (row / 2 % 4)) * 16;
    }
    // ldmatrix reads a chunk of eight rows of B; for tf32 a warp reads two chunks of four rows.
    static __device__ __forceinline__ unsigned at_b(unsigned row, unsigned c) {
        return BM * 64 + row * row_b + (c ^ (size == 2 ? row % 8 : row % 4 * 2)) * 16;
    }
};

// Moves tiles of a matrix (rows x columns) to shared memory: a thread's chunks lie in one column of chunks, `step` rows
// apart, so that they have one place within a row whatever the swizzle. Beyond the matrix zeros come.
template <class T, int Chunks, int Step, bool aligned>
struct MmaLoader {
    static constexpr int chunk = 16 / sizeof(T);
    const T* __restrict__ matrix;
    index row, column, rows, columns;  // of this thread's first chunk

    // To shared address `to`, `pitch` bytes a row.
    __device__ __forceinline__ void load(unsigned to, unsigned pitch) const {
        const T* from = matrix + row * columns + column;
#pragma unroll
        for (int i = 0; i < Chunks; ++i) {
            move(to + i * Step * pitch, from + i * Step * columns, row + i * Step < rows && column < columns);
        }
    }

  private:
    __device__ __forceinline__ void move(unsigned to, const T* __restrict__ from, bool inside) const {
        if constexpr (aligned) {  // columns is a multiple of the chunk's elements
            cp_async_16(to, inside ? from : matrix, inside ? 16 : 0);
        } else {
            union {
                T at[chunk];
                unsigned words[4];
            } got = {};
#pragma unroll
            for (int i = 0; i < chunk; ++i) {
                if (inside && column + i < columns) got.at[i] = from[i];
            }
            store_shared_16(to, got.words);
        }
    }
};

// What a warp multiplies at a time: 32 bytes along k of its rows of A and columns of B.
template <class Tile, class T, int WM, int WN>
struct Fragments {
    unsigned a[WM / 16][4], b[WN / 8][2];

    __device__ __forceinline__ void load(unsigned stage, unsigned row, unsigned column, unsigned step) {
        const unsigned lane = threadIdx.x % 32;
        const unsigned from_a = stage + Tile::at_a(row + lane % 16, step * 2 + lane / 16);
#pragma unroll
        for (int i = 0; i < WM / 16; ++i) ldmatrix_x4(a[i], from_a + i * 16 * 64);
        if constexpr (sizeof(T) == 2) {
            // 16 x 16 of B at a time; an even number of chunks further on is the same by XOR as by adding
            const unsigned from_b = Tile::at_b(step * 16 + lane % 16, column / 8 + lane / 16);
#pragma unroll
            for (int j = 0; j < WN / 16; ++j) {
                unsigned pair[4];
                ldmatrix_x4_trans(pair, stage + (from_b ^ (j * 32)));
                b[2 * j][0] = pair[0];
                b[2 * j][1] = pair[1];
                b[2 * j + 1][0] = pair[2];
                b[2 * j + 1][1] = pair[3];
            }
        } else {
            const unsigned n = column + lane / 4;
            const unsigned from_b = Tile::at_b(step * 8 + lane % 4, n / 4) + n % 4 * 4;
#pragma unroll
            for (int j = 0; j < WN / 8; ++j) {
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    b[j][i] = load_shared<unsigned>(stage + (from_b ^ (j * 32)) + i * 4 * Tile::row_b);
            }
        }
    }

    __device__ __forceinline__ void multiply(float (&sum)[WM / 16][WN / 8][4]) const {
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
#pragma unroll
            for (int j = 0; j < WN / 8; ++j) mma_step(T{}, sum[i][j], a[i], b[j]);
    }
};

// Stage s is loaded Stages - 1 steps ahead.
template <class T, int BM, int BN, int WM, int WN, int Stages, bool aligned>
__device__ __forceinline__ void gemm_mma_tile(Product<T>* __restrict__ c, const T* __restrict__ a,
                                              const T* __restrict__ b, index m, index n, index k) {
    using Tile = MmaTile<T, BM, BN, WM, WN, Stages>;
    GM_DYNAMIC_SHARED(unsigned char, shared);
    const unsigned base = shared_address(shared), warp = threadIdx.x / 32;
    const TileAt tile = tile_at(blockIdx.x, tiles_of(m, BM), tiles_of(n, BN));
    const unsigned row = warp / Tile::warps_across * WM, column = warp % Tile::warps_across * WN;
    const index row0 = static_cast<index>(tile.row) * BM, column0 = static_cast<index>(tile.column) * BN;
    const unsigned row_a = threadIdx.x / 4, chunk_a = threadIdx.x % 4;
    const unsigned row_b = threadIdx.x / Tile::across_b, chunk_b = threadIdx.x % Tile::across_b;
    MmaLoader<T, Tile::chunks_a, Tile::step_a, aligned> load_a{a, row0 + row_a, chunk_a * Tile::chunk, m, k};
    MmaLoader<T, Tile::chunks_b, Tile::step_b, aligned> load_b{b, row_b, column0 + chunk_b * Tile::chunk, k, n};
    const unsigned to_a = base + Tile::at_a(row_a, chunk_a), to_b = base + Tile::at_b(row_b, chunk_b);
    // The next step, and an empty group where nothing is left: the number of younger groups says which stage has come.
    const auto load_next = [&](unsigned stage) {
        if (load_b.row - row_b < k) {
            load_a.load(to_a + stage, 64);
            load_b.load(to_b + stage, Tile::row_b);
        }
        load_a.column += Tile::depth;
        load_b.row += Tile::depth;
        cp_async_commit();
    };
    for (int s = 0; s < Stages - 1; ++s) load_next(s * Tile::stage_bytes);
    cp_async_wait<Stages - 2>();
    __syncthreads();

    float sum[WM / 16][WN / 8][4] = {};
    Fragments<Tile, T, WM, WN> fragments[2];
    fragments[0].load(base, row, column, 0);
    unsigned read = 0, write = (Stages - 1) * Tile::stage_bytes;
    for (index k0 = 0; k0 < k; k0 += Tile::depth) {
        fragments[1].load(base + read, row, column, 1);
        load_next(write);  // into the stage that all warps had read to its end at the last barrier
        write = read;
        read = read + Tile::stage_bytes == Stages * Tile::stage_bytes ? 0 : read + Tile::stage_bytes;
        fragments[0].multiply(sum);
        cp_async_wait<Stages - 2>();
        __syncthreads();
        if (k0 + Tile::depth < k) fragments[0].load(base + read, row, column, 0);
        fragments[1].multiply(sum);
    }

    const unsigned g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int j = 0; j < WN / 8; j += 4)
                store_row<aligned>(
                    c, row0 + row + i * 16 + h * 8 + g, column0 + column + j * 8, m, n,
                    [&](int x) { return sum[i][j + x][2 * h]; }, [&](int x) { return sum[i][j + x][2 * h + 1]; });
}

template <class T, int BM, int BN, int WM, int WN, int Stages, bool aligned>
__global__ void __launch_bounds__(MmaTile<T, BM, BN, WM, WN, Stages>::threads,
                                  MmaTile<T, BM, BN, WM, WN, Stages>::resident)
    gemm_mma(Product<T>* __restrict__ c, const T* __restrict__ a, const T* __restrict__ b, index m, index n, index k) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    unsupported();
#else
    gemm_mma_tile<T, BM, BN, WM, WN, Stages, aligned>(c, a, b, m, n, k);
#endif
}

}  // namespace gm

// `aligned`: n and k are multiples of 16 bytes' elements. Tile, then the warp's part of it, then stages.
#define GM_GEMM_MMA_SHAPES(X, T)                   \
    X(gm::gemm_mma<T, 128, 256, 64, 64, 4, true>)  \
    X(gm::gemm_mma<T, 128, 128, 64, 64, 3, true>)  \
    X(gm::gemm_mma<T, 128, 128, 64, 32, 3, false>) \
    X(gm::gemm_mma<T, 64, 64, 32, 32, 3, true>)    \
    X(gm::gemm_mma<T, 64, 64, 32, 32, 3, false>)
#define GM_GEMM_MMA_TABLE(X)            \
    GM_GEMM_MMA_SHAPES(X, gm::bfloat16) \
    GM_GEMM_MMA_SHAPES(X, gm::half)     \
    GM_GEMM_MMA_SHAPES(X, gm::tf32)
