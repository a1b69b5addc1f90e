// Latency of a load: one thread follows a chain of pointers, p = *p, in which every load waits for the one before it.
//
// The chain is one cycle over all lines in a pseudo-random order, so that no prefetcher knows the next and no walk gets
// caught in a short cycle: line order(i) points to line order(i + 1). `order` is a permutation that each thread can
// compute for itself (a Feistel network with cycle walking), so the kernel builds the chain where it runs: in its first
// run, which it knows by a signature in `state` that no other content has by chance.
#pragma once
#include "ptx.cuh"

namespace gm {

constexpr int kChaseBlock = 256;  // threads build, one walks
constexpr int kLineWords = 16;    // a line of 128 bytes: one pointer and 15 unused words
constexpr int kChaseRounds = 4;

__device__ __forceinline__ unsigned scramble(unsigned x) {  // the 32-bit finalizer of MurmurHash3 (public domain)
    x = (x ^ (x >> 16)) * 0x85ebca6bU;
    x = (x ^ (x >> 13)) * 0xc2b2ae35U;
    return x ^ (x >> 16);
}

// Bits of half a Feistel block: the network permutes [0, 4^bits), no more than four times `lines` where lines > 1.
__device__ __forceinline__ int half_bits(index lines) {
    int bits = 1;
    while ((index{1} << (2 * bits)) < lines) ++bits;
    return bits;
}

// Where the i-th step of the walk stands, 0 <= i < lines <= 2^40: a permutation of the lines.
__device__ __forceinline__ index chase_order(index i, index lines, int bits) {
    const unsigned mask = (1U << bits) - 1;
    do {  // numbers that are no line are permuted on until they are one
        unsigned left = static_cast<unsigned>(i >> bits), right = static_cast<unsigned>(i) & mask;
#pragma unroll
        for (int round = 0; round < kChaseRounds; ++round) {
            const unsigned next = left ^ (scramble(right + 0x9e3779b9U * (round + 1)) & mask);
            left = right;
            right = next;
        }
        i = (static_cast<index>(left) << bits) | right;
    } while (i >= lines);
    return i;
}

// state[]: what a chase keeps from run to run and what it found in the last one.
enum ChaseState { kSignature, kPosition, kHops, kCycles, kNanoseconds, kStateWords = 8 };

__device__ __forceinline__ index address_of(const index* p) { return reinterpret_cast<index>(p); }

__device__ __forceinline__ void build_chase(index* next, index* state, index lines, index signature) {
    const int bits = half_bits(lines);
    for (index i = threadIdx.x; i < lines; i += kChaseBlock) {
        const index from = chase_order(i, lines, bits);
        const index to = chase_order(i + 1 < lines ? i + 1 : 0, lines, bits);
        next[from * kLineWords] = address_of(next + to * kLineWords);
        if (i == 0) state[kPosition] = address_of(next + from * kLineWords);
    }
    if (threadIdx.x == 0) {
        state[kHops] = 0;
        state[kSignature] = signature;
    }
}

template <typename P, typename Load>
__device__ __forceinline__ P walk(P p, index hops, Load load) {
#pragma unroll 8
    for (index h = 0; h < hops; ++h) p = load(p);
    return p;
}

// Cycles and nanoseconds of `hops` loads go into state. The store of p before the clock is read makes the clock wait
// for the last load: instructions are issued in order.
template <typename P, typename Load>
__device__ __forceinline__ P timed_walk(P p, index hops, index* state, Load load) {
    const unsigned long long from_ns = globaltimer_ns(), from = cycles();
    p = walk(p, hops, load);
    *static_cast<volatile index*>(state + kPosition) = p;
    const unsigned long long to = cycles(), to_ns = globaltimer_ns();
    state[kCycles] = static_cast<index>(to - from);
    state[kNanoseconds] = static_cast<index>(to_ns - from_ns);
    return p;
}

// Walks `warm` hops untimed (a lap brings all lines into L1, which every launch finds empty), then `hops` timed ones.
// The walk goes on where the last run ended. CACHED: through L1; else past it.
template <bool CACHED>
__global__ void __launch_bounds__(kChaseBlock) chase(index* next, index* state, index lines, index warm, index hops) {
    const auto key = static_cast<unsigned long long>(lines) * 0x632be59bd9b4e019ULL;
    const index signature = address_of(next) ^ static_cast<index>(key | 1);
    const bool built = state[kSignature] == signature;
    __syncthreads();
    if (!built) {
        build_chase(next, state, lines, signature);
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    const auto load = [](index p) {
        const index* const at = reinterpret_cast<const index*>(p);
        return CACHED ? load_ca(at) : load_cg(at);
    };
    const index p = walk(state[kPosition], warm, load);
    timed_walk(p, hops, state, load);
    state[kHops] += warm + hops;
}

// The same in shared memory, over `lines` words of 4 bytes; built in every run, position as bytes from the first word.
__global__ void __launch_bounds__(kChaseBlock) chase_shared(index* state, index lines, index hops) {
    GM_DYNAMIC_SHARED(unsigned, next);
    const unsigned first = shared_address(next);
    const int bits = half_bits(lines);
    for (index i = threadIdx.x; i < lines; i += kChaseBlock) {
        const index to = chase_order(i + 1 < lines ? i + 1 : 0, lines, bits);
        next[chase_order(i, lines, bits)] = first + static_cast<unsigned>(to) * 4;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    const unsigned start = first + static_cast<unsigned>(chase_order(0, lines, bits)) * 4;
    const unsigned p = timed_walk(start, hops, state, [](unsigned at) { return load_shared<unsigned>(at); });
    state[kPosition] = p - first;
    state[kHops] = hops;
}

}  // namespace gm

#define GM_LATENCY_TABLE(X) X(gm::chase<true>) X(gm::chase<false>) X(gm::chase_shared)
