// From the accumulators of mma and wgmma to C. Both leave an m16n8 tile in a warp alike (PTX ISA 9.0, 9.7.14.5.8 and
// 9.7.15.5.1.1): with g = lane / 4 and t = lane % 4, d[0] and d[1] are row g, columns 2 t and 2 t + 1; d[2] and d[3]
// row g + 8.
#pragma once
#include "types.cuh"

namespace gm {

// The element type of C: that of A and B, as users of cuBLAS have it; float for tf32, which is a form of float.
template <class T>
struct ProductOf {
    using type = T;
};
template <>
struct ProductOf<tf32> {
    using type = float;
};
template <class T>
using Product = typename ProductOf<T>::type;

template <class T>
__device__ __forceinline__ unsigned pack_pair(float low, float high) {
    return Convert<T>::from(low).bits | static_cast<unsigned>(Convert<T>::from(high).bits) << 16;
}

// Word i of lane t of four neighbouring lanes becomes word t of lane i.
__device__ __forceinline__ void transpose_quad(unsigned (&w)[4], unsigned lane) {
    constexpr unsigned all = 0xffffffffU;
    const bool odd = (lane & 1U) != 0, high = (lane & 2U) != 0;
    const unsigned x = __shfl_xor_sync(all, odd ? w[0] : w[1], 1), y = __shfl_xor_sync(all, odd ? w[2] : w[3], 1);
    const unsigned a = odd ? x : w[0], b = odd ? w[1] : x, c = odd ? y : w[2], d = odd ? w[3] : y;
    const unsigned u = __shfl_xor_sync(all, high ? a : c, 2), v = __shfl_xor_sync(all, high ? b : d, 2);
    w[0] = high ? u : a;
    w[1] = high ? v : b;
    w[2] = high ? c : u;
    w[3] = high ? d : v;
}

// A row of four tiles that lie side by side, 32 columns from `column` on: `low(j)` and `high(j)` are this lane's sums
// of tile j. Where every row of C begins on a 16-byte boundary (`aligned`), four lanes exchange their pairs of 2-byte
// elements, so that each stores 16 bytes of one tile: 64 in a row instead of four times 16.
template <bool aligned, class P, class Low, class High>
__device__ __forceinline__ void store_row(P* __restrict__ c, index row, index column, index m, index n, Low low,
                                          High high) {
    const unsigned lane = threadIdx.x % 32, t = lane % 4;
    if constexpr (aligned && sizeof(P) == 2) {
        unsigned words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) words[j] = pack_pair<P>(low(j), high(j));
        transpose_quad(words, lane);
        const index at = column + 8 * t;
        if (row < m && at < n)
            reinterpret_cast<uint4*>(c)[(row * n + at) / 8] = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const index at = column + 8 * j + 2 * t;
            if (row >= m) continue;
            if constexpr (aligned) {
                if (at < n) reinterpret_cast<float2*>(c)[(row * n + at) / 2] = make_float2(low(j), high(j));
            } else {
                if (at < n) c[row * n + at] = Convert<P>::from(low(j));
                if (at + 1 < n) c[row * n + at + 1] = Convert<P>::from(high(j));
            }
        }
    }
}

}  // namespace gm
