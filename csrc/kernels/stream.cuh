// STREAM's kernels and read, write and dot: a = f(b, c), or one sum, over n elements at 256-byte aligned addresses.
//
// A tile is UNROLL vectors of N elements for each thread of a block. Every load of a batch is made before its first
// store, so that UNROLL x sizeof(vector) x arrays bytes a thread are under way. Blocks take tiles in turn: a grid as
// large as the number of tiles ("wide") gives each block one, a grid that just fills the device ("persistent") many.
// 64-bit indices throughout; what is left behind the last whole tile and the last whole vector is done by one block.
#pragma once
#include "ptx.cuh"

namespace gm {

constexpr int kStreamBlock = 256;  // threads
// Four such blocks fit into the registers of every SM since sm_70: 64 a thread.
#define GM_STREAM_BOUNDS __launch_bounds__(kStreamBlock, 4)

// Vectors of 32 bytes are one access on sm_100 and later only; elsewhere Python asks for 16.
template <typename T, int N>
constexpr bool kVectorIsThere =
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000
    sizeof(T) * N <= 16;
#else
    true;
#endif

// `whole(first)` for each whole tile that is this block's, then, in one block, `part(first)` from the first vector that
// no whole tile has: it must deal with the vectors and the single elements from there on.
template <int TILE, typename Whole, typename Part>
__device__ __forceinline__ void for_tiles(index vectors, Whole whole, Part part) {
    const index whole_end = vectors / TILE * TILE;
    index first = static_cast<index>(blockIdx.x) * TILE;
#pragma unroll 1  // the batch is the unrolling
    for (; first < whole_end; first += static_cast<index>(gridDim.x) * TILE) whole(first + threadIdx.x);
    if (first == whole_end) part(first + threadIdx.x);
}

// --- maps: a[i] = f(b[i], c[i]) ---

template <int INPUTS, typename T, int N, typename F>
__device__ __forceinline__ vec<T, N> map_vector(const vec<T, N>& x, const vec<T, N>& y, F f) {
    vec<T, N> result;
#pragma unroll
    for (int e = 0; e < N; ++e) {
        if constexpr (INPUTS == 0) result[e] = f();
        if constexpr (INPUTS == 1) result[e] = f(x[e]);
        if constexpr (INPUTS == 2) result[e] = f(x[e], y[e]);
    }
    return result;
}

template <int INPUTS, int UNROLL, typename T, int N, typename F>
__device__ __forceinline__ void map_batch(vec<T, N>* __restrict__ a, const vec<T, N>* __restrict__ b,
                                          const vec<T, N>* __restrict__ c, F f) {
    vec<T, N> x[UNROLL], y[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if constexpr (INPUTS >= 1) x[u] = b[u * kStreamBlock];
        if constexpr (INPUTS >= 2) y[u] = c[u * kStreamBlock];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) a[u * kStreamBlock] = map_vector<INPUTS>(x[u], y[u], f);
}

template <int INPUTS, int N, int UNROLL, typename T, typename F>
__device__ __forceinline__ void stream_map(T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, index n,
                                           F f) {
    if constexpr (kVectorIsThere<T, N>) {
        using V = vec<T, N>;
        V* const va = reinterpret_cast<V*>(a);
        const V* const vb = reinterpret_cast<const V*>(b);
        const V* const vc = reinterpret_cast<const V*>(c);
        const index vectors = n / N;
        for_tiles<kStreamBlock * UNROLL>(
            vectors, [&](index i) { map_batch<INPUTS, UNROLL>(va + i, vb + i, vc + i, f); },
            [&](index i) {
#pragma unroll 1
                for (; i < vectors; i += kStreamBlock) map_batch<INPUTS, 1>(va + i, vb + i, vc + i, f);
                const index single = vectors * N + threadIdx.x;
                if (single < n) {
                    if constexpr (INPUTS == 0) a[single] = f();
                    if constexpr (INPUTS == 1) a[single] = f(b[single]);
                    if constexpr (INPUTS == 2) a[single] = f(b[single], c[single]);
                }
            });
    } else {
        unsupported();
    }
}

template <typename T, int N, int UNROLL>
__global__ void GM_STREAM_BOUNDS write(T* __restrict__ a, T s, index n) {
    stream_map<0, N, UNROLL>(a, static_cast<const T*>(nullptr), static_cast<const T*>(nullptr), n, [=] { return s; });
}

template <typename T, int N, int UNROLL>
__global__ void GM_STREAM_BOUNDS copy(T* __restrict__ a, const T* __restrict__ b, index n) {
    stream_map<1, N, UNROLL>(a, b, static_cast<const T*>(nullptr), n, [](T x) { return x; });
}

template <typename T, int N, int UNROLL>
__global__ void GM_STREAM_BOUNDS scale(T* __restrict__ a, const T* __restrict__ b, T s, index n) {
    stream_map<1, N, UNROLL>(a, b, static_cast<const T*>(nullptr), n, [=](T x) { return s * x; });
}

template <typename T, int N, int UNROLL>
__global__ void GM_STREAM_BOUNDS add(T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, index n) {
    stream_map<2, N, UNROLL>(a, b, c, n, [](T x, T y) { return x + y; });
}

template <typename T, int N, int UNROLL>
__global__ void GM_STREAM_BOUNDS triad(T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, T s,
                                       index n) {
    stream_map<2, N, UNROLL>(a, b, c, n, [=](T x, T y) { return x + s * y; });
}

// --- folds: one sum of b[i] or b[i] * c[i] ---

// One partial sum a block; the block that ends last adds them in their order, so that the same grid always gives the
// same sum, and leaves the ticket at zero for the next run. One fold at a time in a process: these are shared by all.
constexpr int kMostPartials = 32768;  // blocks; kernels/stream.py keeps to it
static __device__ double stream_partials[kMostPartials];
static __device__ unsigned stream_ticket;

// The sum over the block, in thread 0. Barriers let it be called again at once.
template <typename T>
__device__ __forceinline__ T block_sum(T value) {
    __shared__ T warps[kStreamBlock / 32];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(~0U, value, distance);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    T sum = 0;
    if (threadIdx.x == 0) {
        for (int w = 0; w < kStreamBlock / 32; ++w) sum += warps[w];
    }
    __syncthreads();
    return sum;
}

template <typename T>
__device__ __forceinline__ void grid_sum(T value, T* sum) {
    __shared__ bool last;
    T* const partials = reinterpret_cast<T*>(stream_partials);
    const T mine = block_sum(value);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = mine;
        __threadfence();  // the partial sum is seen by whoever sees the ticket
        last = atomicAdd(&stream_ticket, 1U) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    T rest = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += kStreamBlock) rest += load_cg(partials + i);
    const T total = block_sum(rest);
    if (threadIdx.x == 0) {
        *sum = total;
        stream_ticket = 0;
    }
}

template <int INPUTS, int UNROLL, typename T, int N>
__device__ __forceinline__ void fold_batch(vec<T, N>& sums, const vec<T, N>* __restrict__ b,
                                           const vec<T, N>* __restrict__ c) {
    vec<T, N> x[UNROLL], y[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        x[u] = b[u * kStreamBlock];
        if constexpr (INPUTS == 2) y[u] = c[u * kStreamBlock];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
        for (int e = 0; e < N; ++e) {
            if constexpr (INPUTS == 1) sums[e] += x[u][e];
            if constexpr (INPUTS == 2) sums[e] += x[u][e] * y[u][e];
        }
    }
}

template <int INPUTS, int N, int UNROLL, typename T>
__device__ __forceinline__ void stream_fold(const T* __restrict__ b, const T* __restrict__ c, T* sum, index n) {
    if constexpr (kVectorIsThere<T, N>) {
        using V = vec<T, N>;
        const V* const vb = reinterpret_cast<const V*>(b);
        const V* const vc = reinterpret_cast<const V*>(c);
        const index vectors = n / N;
        V sums{};
        T rest = 0;
        for_tiles<kStreamBlock * UNROLL>(
            vectors, [&](index i) { fold_batch<INPUTS, UNROLL>(sums, vb + i, vc + i); },
            [&](index i) {
#pragma unroll 1
                for (; i < vectors; i += kStreamBlock) fold_batch<INPUTS, 1>(sums, vb + i, vc + i);
                const index single = vectors * N + threadIdx.x;
                if (single < n) {
                    if constexpr (INPUTS == 1) rest = b[single];
                    if constexpr (INPUTS == 2) rest = b[single] * c[single];
                }
            });
#pragma unroll
        for (int e = 0; e < N; ++e) rest += sums[e];
        grid_sum(rest, sum);
    } else {
        unsupported();
    }
}

template <typename T, int N, int UNROLL>
__global__ void GM_STREAM_BOUNDS read(const T* __restrict__ b, T* sum, index n) {
    stream_fold<1, N, UNROLL>(b, static_cast<const T*>(nullptr), sum, n);
}

template <typename T, int N, int UNROLL>
__global__ void GM_STREAM_BOUNDS dot(const T* __restrict__ b, const T* __restrict__ c, T* sum, index n) {
    stream_fold<2, N, UNROLL>(b, c, sum, n);
}

}  // namespace gm

// Bytes a thread and array: 32, 64, and 128 where one array or none is read (two would not fit into 64 registers).
#define GM_STREAM_ONE(X, kernel) \
    X(gm::kernel<float, 4, 2>)   \
    X(gm::kernel<float, 4, 4>)   \
    X(gm::kernel<float, 4, 8>)   \
    X(gm::kernel<float, 8, 2>)   \
    X(gm::kernel<float, 8, 4>)   \
    X(gm::kernel<double, 2, 2>)  \
    X(gm::kernel<double, 2, 4>)  \
    X(gm::kernel<double, 2, 8>)  \
    X(gm::kernel<double, 4, 2>)  \
    X(gm::kernel<double, 4, 4>)
#define GM_STREAM_TWO(X, kernel) \
    X(gm::kernel<float, 4, 2>)   \
    X(gm::kernel<float, 4, 4>)   \
    X(gm::kernel<float, 8, 2>)   \
    X(gm::kernel<double, 2, 2>)  \
    X(gm::kernel<double, 2, 4>)  \
    X(gm::kernel<double, 4, 2>)
#define GM_STREAM_TABLE(X)  \
    GM_STREAM_ONE(X, read)  \
    GM_STREAM_ONE(X, write) \
    GM_STREAM_ONE(X, copy)  \
    GM_STREAM_ONE(X, scale) \
    GM_STREAM_TWO(X, add)   \
    GM_STREAM_TWO(X, triad) \
    GM_STREAM_TWO(X, dot)
