// Bandwidth of the levels that are close to an SM: every block reads n bytes again and again, in accesses of 16 bytes.
//
// What is read is summed as 32-bit words modulo 2^32, whatever the element type: exact, one integer addition for two
// words, and no narrower than the loads even where fp64 is slow. Loads are volatile (ptx.cuh), so each is made. One sum
// for each warp is stored, sums[block * 8 + warp]; no shared memory is used for that.
#pragma once
#include "ptx.cuh"

namespace gm {

constexpr int kCacheBlock = 256;                            // threads
constexpr int kCacheBatch = 4;                              // independent loads of a thread
constexpr int kCacheTile = kCacheBlock * kCacheBatch * 16;  // bytes
using Words = vec<unsigned, 4>;

// The words of the whole tiles in [begin, end), offsets in bytes. load(offset, V{}): the V there, V = Words or
// unsigned.
template <typename Offset, typename Load>
__device__ __forceinline__ unsigned read_tiles(Offset begin, Offset end, Load load) {
    unsigned sum = 0;
#pragma unroll 1
    for (Offset at = begin + threadIdx.x * 16; at < end; at += kCacheTile) {
        Words batch[kCacheBatch];
#pragma unroll
        for (int u = 0; u < kCacheBatch; ++u) batch[u] = load(at + u * kCacheBlock * 16, Words{});
#pragma unroll
        for (int u = 0; u < kCacheBatch; ++u) sum += batch[u][0] + batch[u][1] + batch[u][2] + batch[u][3];
    }
    return sum;
}

// What no whole tile has: vectors, then single words, up to `bytes` (a multiple of 4).
template <typename Offset, typename Load>
__device__ __forceinline__ unsigned read_rest(Offset bytes, Load load) {
    unsigned sum = 0;
    const Offset whole = bytes / 16 * 16;
    for (Offset at = bytes / kCacheTile * kCacheTile + threadIdx.x * 16; at < whole; at += kCacheBlock * 16) {
        const Words rest = load(at, Words{});
        sum += rest[0] + rest[1] + rest[2] + rest[3];
    }
    const Offset word = whole + threadIdx.x * 4;
    return word < bytes ? sum + load(word, 0U) : sum;
}

__device__ __forceinline__ void store_warp_sum(unsigned sum, unsigned* sums) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(~0U, sum, distance);
    if (threadIdx.x % 32 == 0) {
        sums[static_cast<index>(blockIdx.x) * (kCacheBlock / 32) + threadIdx.x / 32] = sum;
    }
}

// L1: every block reads a region of its own, `stride` bytes (a multiple of 16) after its neighbour's.
__global__ void __launch_bounds__(kCacheBlock)
    cache_private(const unsigned* data, unsigned* sums, index bytes, index stride, index reps) {
    const char* const region = reinterpret_cast<const char*>(data) + blockIdx.x * stride;
    const auto load = [=](index offset, auto like) {
        return load_ca(reinterpret_cast<const decltype(like)*>(region + offset));
    };
    const index tiles = bytes / kCacheTile * kCacheTile;
    unsigned sum = 0;
    for (index r = 0; r < reps; ++r) sum += read_tiles(index{0}, tiles, load) + read_rest(bytes, load);
    store_warp_sum(sum, sums);
}

// L2: all blocks read the same region past L1, each from another start and round to it.
__global__ void __launch_bounds__(kCacheBlock)
    cache_common(const unsigned* data, unsigned* sums, index bytes, index reps) {
    const char* const region = reinterpret_cast<const char*>(data);
    const auto load = [=](index offset, auto like) {
        return load_cg(reinterpret_cast<const decltype(like)*>(region + offset));
    };
    const index tiles = bytes / kCacheTile * kCacheTile;
    const index start = bytes / kCacheTile * blockIdx.x / gridDim.x * kCacheTile;
    unsigned sum = 0;
    for (index r = 0; r < reps; ++r) {
        sum += read_tiles(start, tiles, load) + read_tiles(index{0}, start, load) + read_rest(bytes, load);
    }
    store_warp_sum(sum, sums);
}

// Shared memory: every block copies the region into its own `bytes` of dynamic shared memory and reads that. A warp's
// accesses are 512 bytes in a row: no bank conflict.
__global__ void __launch_bounds__(kCacheBlock)
    cache_shared(const unsigned* data, unsigned* sums, index bytes, index reps) {
    GM_DYNAMIC_SHARED(unsigned, copy);
    for (index w = threadIdx.x; w < bytes / 4; w += kCacheBlock) copy[w] = data[w];
    __syncthreads();
    const unsigned region = shared_address(copy), size = static_cast<unsigned>(bytes);
    const auto load = [=](unsigned offset, auto like) { return load_shared<decltype(like)>(region + offset); };
    const unsigned tiles = size / kCacheTile * kCacheTile;
    unsigned sum = 0;
    for (index r = 0; r < reps; ++r) sum += read_tiles(0U, tiles, load) + read_rest(size, load);
    store_warp_sum(sum, sums);
}

}  // namespace gm

#define GM_CACHE_TABLE(X) X(gm::cache_private) X(gm::cache_common) X(gm::cache_shared)
