// C = A B in plain FMAs: A is m x k, B is k x n, C is m x n, all row-major and dense; m, n, k >= 1.
//
// A block computes a BM x BN tile of C in steps of BK along k. Two tiles of A (transposed) and of B lie in shared
// memory: one is multiplied while the next is on its way in registers, so that a step needs one barrier. A thread holds
// TM x TN sums.
#pragma once
#include "gemm_tiles.cuh"

namespace gm {

// 16 bytes: the widest access of shared memory.
template <class T>
using Chunk = vec<T, 16 / sizeof(T)>;
template <class T>
constexpr int kChunk = 16 / sizeof(T);

// The shape of a tile. 4 x 8 threads of a warp take the chunks of its tile in turn: thread (r, c) has rows r V..., then
// those 4 V further on, and columns likewise by 8 V (V elements a chunk). So a warp reads 64 consecutive bytes of A and
// 128 of B at a time, without bank conflicts, and an element read serves TM or TN FMAs: 16 FMAs a 16-byte load for 8 x
// 8 float.
template <class T, int BM, int BN, int BK, int TM, int TN>
struct Tiled {
    static constexpr int vector = kChunk<T>;
    static constexpr int warps_down = BM / (4 * TM), warps_across = BN / (8 * TN);
    static constexpr int threads = 32 * warps_down * warps_across;
    static constexpr int pitch = BM + vector;  // of transposed A: chunks stored down a column fall into different banks
    static constexpr int chunks_a = BM * BK / vector / threads, chunks_b = BK * BN / vector / threads;
    // Blocks on an SM that the registers must suffice for: beside the sums lie two steps of k and what is being loaded.
    static constexpr int resident = (TM * TN * sizeof(T) > 256 ? 256 : sizeof(T) == 8 ? 384 : 512) / threads;
    static_assert(BM % (4 * TM) == 0 && BN % (8 * TN) == 0 && TM % vector == 0 && TN % vector == 0,
                  "warps fill the tile");
    static_assert(chunks_a * threads * vector == BM * BK && chunks_b * threads * vector == BK * BN,
                  "loads fill the tile");

    alignas(16) T a[2][BK * pitch];
    alignas(16) T b[2][BK * BN];
};

// Elements column... of a row; beyond `columns`, and in a row outside the matrix, zeros.
template <bool aligned, class T>
__device__ __forceinline__ Chunk<T> load_chunk(const T* __restrict__ row, index column, index columns, bool inside) {
    Chunk<T> chunk = {};
    if (aligned) {  // columns is a multiple of the chunk's size
        if (inside && column < columns) chunk = *reinterpret_cast<const Chunk<T>*>(row + column);
    } else {
#pragma unroll
        for (int i = 0; i < kChunk<T>; ++i) {
            if (inside && column + i < columns) chunk.at[i] = row[column + i];
        }
    }
    return chunk;
}

// The first `left` elements of a chunk, to a matrix's element `at`. Addresses are counted in chunks: nvcc stores
// element by element where a chunk's address was counted in elements.
template <bool aligned, class T>
__device__ __forceinline__ void store_chunk(T* __restrict__ matrix, index at, index left, const Chunk<T>& chunk) {
    if (aligned) {
        if (left > 0) reinterpret_cast<Chunk<T>*>(matrix)[at / kChunk<T>] = chunk;
    } else {
#pragma unroll
        for (int i = 0; i < kChunk<T>; ++i) {
            if (i < left) matrix[at + i] = chunk[i];
        }
    }
}

// What one thread carries from global to shared memory: its chunks of the next tiles of A and B.
template <class T, int BM, int BN, int BK, int TM, int TN, bool aligned>
struct Carrier {
    using Shape = Tiled<T, BM, BN, BK, TM, TN>;
    static constexpr int vector = Shape::vector, across_a = BK / vector, across_b = BN / vector;
    Chunk<T> a[Shape::chunks_a], b[Shape::chunks_b];

    __device__ __forceinline__ void load(const T* __restrict__ from_a, const T* __restrict__ from_b, index row0,
                                         index column0, index k0, index m, index n, index k) {
#pragma unroll
        for (int i = 0; i < Shape::chunks_a; ++i) {
            const int id = static_cast<int>(threadIdx.x) + i * Shape::threads;
            const index row = row0 + id / across_a;
            a[i] = load_chunk<aligned>(from_a + row * k, k0 + id % across_a * vector, k, row < m);
        }
#pragma unroll
        for (int i = 0; i < Shape::chunks_b; ++i) {
            const int id = static_cast<int>(threadIdx.x) + i * Shape::threads;
            const index row = k0 + id / across_b;
            b[i] = load_chunk<aligned>(from_b + row * n, column0 + id % across_b * vector, n, row < k);
        }
    }

    __device__ __forceinline__ void store(Shape& shared, int slot) const {
#pragma unroll
        for (int i = 0; i < Shape::chunks_a; ++i) {
            const int id = static_cast<int>(threadIdx.x) + i * Shape::threads;
            T* to = &shared.a[slot][id % across_a * vector * Shape::pitch + id / across_a];
#pragma unroll
            for (int j = 0; j < vector; ++j) to[j * Shape::pitch] = a[i].at[j];
        }
#pragma unroll
        for (int i = 0; i < Shape::chunks_b; ++i) {
            const int id = static_cast<int>(threadIdx.x) + i * Shape::threads;
            *reinterpret_cast<Chunk<T>*>(&shared.b[slot][id * vector]) = b[i];
        }
    }
};

// sum += the product of the tiles in shared memory. What the next step of k needs is read while this one is multiplied.
template <class Shape, class T, int BN, int BK, int TM, int TN>
__device__ __forceinline__ void multiply_tiles(const T* __restrict__ a, const T* __restrict__ b, T (&sum)[TM][TN]) {
    constexpr int vector = kChunk<T>;
    Chunk<T> x[2][TM / vector], y[2][TN / vector];
    auto read = [&](int k, int slot) {
#pragma unroll
        for (int i = 0; i < TM / vector; ++i)
            x[slot][i] = *reinterpret_cast<const Chunk<T>*>(a + k * Shape::pitch + i * 4 * vector);
#pragma unroll
        for (int j = 0; j < TN / vector; ++j)
            y[slot][j] = *reinterpret_cast<const Chunk<T>*>(b + k * BN + j * 8 * vector);
    };
    read(0, 0);
#pragma unroll
    for (int k = 0; k < BK; ++k) {
        if (k + 1 < BK) read(k + 1, (k + 1) % 2);
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j)
                sum[i][j] += x[k % 2][i / vector].at[i % vector] * y[k % 2][j / vector].at[j % vector];
    }
}

template <class T, int BM, int BN, int BK, int TM, int TN, bool aligned>
__global__ void __launch_bounds__(Tiled<T, BM, BN, BK, TM, TN>::threads, Tiled<T, BM, BN, BK, TM, TN>::resident)
    gemm_tiled(T* __restrict__ c, const T* __restrict__ a, const T* __restrict__ b, index m, index n, index k) {
    using Shape = Tiled<T, BM, BN, BK, TM, TN>;
    constexpr int vector = Shape::vector;
    __shared__ Shape shared;
    const TileAt tile = tile_at(blockIdx.x, tiles_of(m, BM), tiles_of(n, BN));
    const index row0 = static_cast<index>(tile.row) * BM, column0 = static_cast<index>(tile.column) * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / Shape::warps_across * 4 * TM + lane / 8 * vector;
    const int column = warp % Shape::warps_across * 8 * TN + lane % 8 * vector;

    T sum[TM][TN] = {};
    Carrier<T, BM, BN, BK, TM, TN, aligned> next;
    next.load(a, b, row0, column0, 0, m, n, k);
    next.store(shared, 0);
    __syncthreads();
    int slot = 0;
    for (index k0 = BK; k0 < k; k0 += BK, slot ^= 1) {
        next.load(a, b, row0, column0, k0, m, n, k);
        multiply_tiles<Shape, T, BN, BK>(shared.a[slot] + row, shared.b[slot] + column, sum);
        next.store(shared, slot ^ 1);
        __syncthreads();
    }
    multiply_tiles<Shape, T, BN, BK>(shared.a[slot] + row, shared.b[slot] + column, sum);

    const index left = n - column0 - column;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const index at = row0 + row + i / vector * 4 * vector + i % vector;
#pragma unroll
        for (int j = 0; j < TN / vector; ++j) {
            Chunk<T> chunk;
#pragma unroll
            for (int v = 0; v < vector; ++v) chunk[v] = sum[i][j * vector + v];
            const int on = j * 8 * vector;
            if (at < m) store_chunk<aligned>(c, at * n + column0 + column + on, left - on, chunk);
        }
    }
}

}  // namespace gm

// `aligned`: n and k are multiples of 16 bytes' elements, so that every row begins on a 16-byte boundary.
#define GM_GEMM_TABLE(X)                               \
    X(gm::gemm_tiled<float, 128, 128, 8, 8, 8, true>)  \
    X(gm::gemm_tiled<float, 128, 128, 8, 8, 8, false>) \
    X(gm::gemm_tiled<float, 64, 64, 8, 8, 8, true>)    \
    X(gm::gemm_tiled<float, 64, 64, 8, 8, 8, false>)   \
    X(gm::gemm_tiled<float, 32, 32, 8, 4, 4, true>)    \
    X(gm::gemm_tiled<float, 32, 32, 8, 4, 4, false>)   \
    X(gm::gemm_tiled<double, 128, 64, 8, 8, 8, true>)  \
    X(gm::gemm_tiled<double, 128, 64, 8, 8, 8, false>) \
    X(gm::gemm_tiled<double, 64, 64, 8, 8, 4, true>)   \
    X(gm::gemm_tiled<double, 64, 64, 8, 8, 4, false>)  \
    X(gm::gemm_tiled<double, 32, 32, 8, 4, 4, true>)   \
    X(gm::gemm_tiled<double, 32, 32, 8, 4, 4, false>)
