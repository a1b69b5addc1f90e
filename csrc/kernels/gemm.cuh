// C = A B in plain FMAs: A is m x k, B is k x n, C is m x n, all row-major and dense; m, n, k >= 1.
//
// A block computes a BM x BN tile of C in steps of BK along k. Two tiles of A (transposed) and of B lie in shared
// memory: one is multiplied while the next is on its way in registers, so that a step needs one barrier. A thread holds
// TM x TN sums.
#pragma once
#include "gemm_tiles.cuh"
#include "ptx_index.cuh"

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
    // More chunks a thread cost one block of 64 threads.
    static constexpr int sums_bytes = TM * TN * sizeof(T);
    static constexpr int resident = (sums_bytes > 256 ? 256
                                     : sizeof(T) == 8 ? 384
                                     : threads < 256  ? 384
                                                      : 512) /
                                    threads;
    static_assert(BM % (4 * TM) == 0 && BN % (8 * TN) == 0 && TM % vector == 0 && TN % vector == 0,
                  "warps fill the tile");
    static_assert(chunks_a * threads * vector == BM * BK && chunks_b * threads * vector == BK * BN,
                  "loads fill the tile");

    alignas(16) T a[2][BK * pitch];
    alignas(16) T b[2][BK * BN];
};

__device__ __forceinline__ int up_to(index left, int most) { return left < most ? static_cast<int>(left) : most; }

// The first `left` elements of a chunk and zeros for the rest; nothing is read where it is not `inside`.
template <bool aligned, class T>
__device__ __forceinline__ Chunk<T> load_chunk(const T* __restrict__ from, int left, bool inside) {
    Chunk<T> chunk = {};
    if (aligned) {  // all or nothing
        if (inside && left > 0) chunk = *reinterpret_cast<const Chunk<T>*>(from);
    } else {
#pragma unroll
        for (int i = 0; i < kChunk<T>; ++i) {
            if (inside && i < left) chunk[i] = from[i];
        }
    }
    return chunk;
}

// What one thread carries from global to shared memory: its chunks of the next tiles of A and B. They lie below each
// other, `down` rows apart, so that a pointer and a few bounds serve all of them.
template <class T, int BM, int BN, int BK, int TM, int TN, bool aligned>
struct Carrier {
    using Shape = Tiled<T, BM, BN, BK, TM, TN>;
    static constexpr int vector = Shape::vector, across_a = BK / vector, across_b = BN / vector;
    static constexpr int down_a = Shape::threads / across_a, down_b = Shape::threads / across_b;
    const T* __restrict__ from_a, * __restrict__ from_b;
    unsigned bounds;  // bit i: row i of the chunks of A is in the matrix; from bit 8 on: columns of B left
    Chunk<T> a[Shape::chunks_a], b[Shape::chunks_b];

    static __device__ __forceinline__ int at_row_a() { return static_cast<int>(threadIdx.x) / across_a; }
    static __device__ __forceinline__ int at_k_a() { return static_cast<int>(threadIdx.x) % across_a * vector; }
    static __device__ __forceinline__ int at_k_b() { return static_cast<int>(threadIdx.x) / across_b; }
    static __device__ __forceinline__ int at_column_b() { return static_cast<int>(threadIdx.x) % across_b * vector; }
    __device__ __forceinline__ Carrier(const T* __restrict__ a_, const T* __restrict__ b_, index row0, index column0,
                                       index m, index n, index k)
        : from_a(a_ + (row0 + at_row_a()) * k + at_k_a()),
          from_b(b_ + at_k_b() * n + column0 + at_column_b()),
          bounds(0) {
        const int rows = up_to(m - row0, BM) - at_row_a(), columns = up_to(n - column0, BN) - at_column_b();
        if (columns > 0) bounds = static_cast<unsigned>(columns) << 8;
#pragma unroll
        for (int i = 0; i < Shape::chunks_a; ++i) {
            if (i * down_a < rows) bounds |= 1U << i;
        }
    }

    // The next step along k, of which `depth` is left.
    __device__ __forceinline__ void load(int depth, index n, index k) {
#pragma unroll
        for (int i = 0; i < Shape::chunks_a; ++i) {
            a[i] = load_chunk<aligned>(from_a + i * down_a * k, depth - at_k_a(), (bounds >> i & 1U) != 0);
        }
#pragma unroll
        for (int i = 0; i < Shape::chunks_b; ++i) {
            b[i] = load_chunk<aligned>(from_b + i * down_b * n, static_cast<int>(bounds >> 8),
                                       at_k_b() + i * down_b < depth);
        }
        from_a += BK;
        from_b += BK * n;
    }

    __device__ __forceinline__ void store(Shape& shared, int slot) const {
        T* to_a = &shared.a[slot][at_k_a() * Shape::pitch + at_row_a()];
        T* to_b = &shared.b[slot][threadIdx.x * vector];
#pragma unroll
        for (int i = 0; i < Shape::chunks_a; ++i) {
#pragma unroll
            for (int j = 0; j < vector; ++j) to_a[j * Shape::pitch + i * down_a] = a[i][j];
        }
#pragma unroll
        for (int i = 0; i < Shape::chunks_b; ++i) {
            *reinterpret_cast<Chunk<T>*>(to_b + i * Shape::threads * vector) = b[i];
        }
    }
};

// sum += the product of the tiles in shared memory.
template <class Shape, class T, int BN, int BK, int TM, int TN>
__device__ __forceinline__ void multiply_tiles(const T* __restrict__ a, const T* __restrict__ b, T (&sum)[TM][TN]) {
    constexpr int vector = kChunk<T>;
#pragma unroll
    for (int k = 0; k < BK; ++k) {
        Chunk<T> x[TM / vector], y[TN / vector];
#pragma unroll
        for (int i = 0; i < TM / vector; ++i)
            x[i] = *reinterpret_cast<const Chunk<T>*>(a + k * Shape::pitch + i * 4 * vector);
#pragma unroll
        for (int j = 0; j < TN / vector; ++j) y[j] = *reinterpret_cast<const Chunk<T>*>(b + k * BN + j * 8 * vector);
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] += x[i / vector][i % vector] * y[j / vector][j % vector];
    }
}

// A thread's sums to C, of which `rows` and `columns` are left from its first element (row, column) on.
template <bool aligned, class T, int TM, int TN>
__device__ __forceinline__ void store_sums(T* __restrict__ c, index row, index column, index n, int rows, int columns,
                                           const T (&sum)[TM][TN]) {
    constexpr int vector = kChunk<T>;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int down = i / vector * 4 * vector + i % vector;
        if (down >= rows) continue;
        if constexpr (aligned) {
            // counted in chunks: where addresses count in elements nvcc stores element by element
            auto* to = reinterpret_cast<Chunk<T>*>(c) + (row + down) * (n / vector) + column / vector;
#pragma unroll
            for (int j = 0; j < TN; j += vector) {
                Chunk<T> chunk;
#pragma unroll
                for (int v = 0; v < vector; ++v) chunk[v] = sum[i][j + v];
                if (j * 8 < columns) to[j / vector * 8] = chunk;
            }
        } else {
            T* to = c + (row + down) * n + column;
#pragma unroll
            for (int j = 0; j < TN; ++j) {
                const int on = j / vector * 8 * vector + j % vector;
                if (on < columns) to[on] = sum[i][j];
            }
        }
    }
}

// Where a thread's sums are in its block's tile, and that tile in C.
template <class Shape, int BM, int BN, int TM, int TN>
struct Place {
    index row0, column0;
    int row, column;
    __device__ __forceinline__ Place(unsigned block, unsigned thread, index m, index n) {
        const TileAt tile = tile_at(block, tiles_of(m, BM), tiles_of(n, BN));
        row0 = static_cast<index>(tile.row) * BM;
        column0 = static_cast<index>(tile.column) * BN;
        const int warp = thread / 32, lane = thread % 32;
        row = warp / Shape::warps_across * 4 * TM + lane / 8 * Shape::vector;
        column = warp % Shape::warps_across * 8 * TN + lane % 8 * Shape::vector;
    }
};

template <class T, int BM, int BN, int BK, int TM, int TN, bool aligned>
__global__ void __launch_bounds__(Tiled<T, BM, BN, BK, TM, TN>::threads, Tiled<T, BM, BN, BK, TM, TN>::resident)
    gemm_tiled(T* __restrict__ c, const T* __restrict__ a, const T* __restrict__ b, index m, index n, index k) {
    using Shape = Tiled<T, BM, BN, BK, TM, TN>;
    using At = Place<Shape, BM, BN, TM, TN>;
    __shared__ Shape shared;
    T sum[TM][TN] = {};
    const At at(blockIdx.x, threadIdx.x, m, n);
    Carrier<T, BM, BN, BK, TM, TN, aligned> next(a, b, at.row0, at.column0, m, n, k);
    const int last = static_cast<int>((k - 1) % BK) + 1;  // of the last step
    int left = static_cast<int>((k - 1) / BK);            // steps after the one in shared memory
    next.load(left > 0 ? BK : last, n, k);
    next.store(shared, 0);
    __syncthreads();
    // One copy of the products serves the last step too, where nothing is left to load: a second one would be twice the
    // instructions, and the compiler would mix it with the stores below, for which it lacks the registers.
    for (int slot = 0;; slot ^= 1, --left) {
        if (left > 0) next.load(left > 1 ? BK : last, n, k);
        multiply_tiles<Shape, T, BN, BK>(shared.a[slot] + at.row, shared.b[slot] + at.column, sum);
        if (left == 0) break;
        next.store(shared, slot ^ 1);
        __syncthreads();
    }

    const At to(block_anew(), thread_anew(), m, n);
    store_sums<aligned>(c, to.row0 + to.row, to.column0 + to.column, n, up_to(m - to.row0, BM) - to.row,
                        up_to(n - to.column0, BN) - to.column, sum);
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
