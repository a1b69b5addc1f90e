// Peak arithmetic of the plain (vector) units: every thread holds independent chains in registers and does nothing
// else.
//
// A step of a chain is x = a x + b, the next x = -a x + b: with |a| < 1 a chain stays bounded and never comes to rest
// (it settles on two values in turn), so that operands keep changing as real data do. a, b and x(0) come from `seeds`,
// kSeedWords words: pair (thread + 32 i) % (kSeedWords / 2) is the i-th that a thread takes, so results repeat every
// kSeedWords / 2 threads and gpumicro/kernels/peak_check.py can compute them in closed form. out[thread] is the sum of
// a thread's chains. One of `steps` is kUnroll steps of every chain.
#pragma once
#include "ptx_math.cuh"

namespace gm {

constexpr int kPeakThreads = 256;      // of a block
constexpr unsigned kSeedWords = 1024;  // a power of two
constexpr int kUnroll = 16;            // steps of a chain in a trip through the loop

template <typename W>
__device__ __forceinline__ W seed(const W* __restrict__ seeds, int i) {
    return seeds[(blockIdx.x * blockDim.x + threadIdx.x + 32U * static_cast<unsigned>(i)) % kSeedWords];
}

// Two seeds by one load, which puts them into neighbouring registers: an even and an odd one, so in the two banks of
// the register file. x and b are such a pair, for three operands from one bank would cost a multiply-add a cycle.
template <typename W>
__device__ __forceinline__ vec<W, 2> seed_pair(const W* __restrict__ seeds, int i) {
    const unsigned pair = blockIdx.x * blockDim.x + threadIdx.x + 32U * static_cast<unsigned>(i);
    return reinterpret_cast<const vec<W, 2>*>(seeds)[pair % (kSeedWords / 2)];
}

// A quarter of it within +-7/8: a multiplier that bounds its chain for any operand class.
template <typename F>
__device__ __forceinline__ F bounded(F x) {
    const F quarter = x * F(0.25), limit = F(0.875);
    return quarter > limit ? limit : quarter < -limit ? -limit : quarter;
}

// What chains of T are made of: Word in registers, Sum of a thread, how many chains, which seed means what.
template <typename T>
struct Chains {  // float, double
    using Word = T;
    using Sum = T;
    static constexpr int kCount = 64 / static_cast<int>(sizeof(T));
    static __device__ __forceinline__ Word multiplier(Word word) { return bounded(word); }
    static __device__ __forceinline__ Word negative(Word a) { return -a; }
    static __device__ __forceinline__ Sum sum(Word x) { return x; }
};

template <typename T>
struct Chains<pair<T>> {  // half, bfloat16: two chains a register
    using Word = pair<T>;
    using Sum = float;
    static constexpr int kCount = 16;
    static __device__ __forceinline__ float low(Word w) {
        return Convert<T>::to(T{static_cast<unsigned short>(w.bits & 0xffffU)});
    }
    static __device__ __forceinline__ float high(Word w) {
        return Convert<T>::to(T{static_cast<unsigned short>(w.bits >> 16)});
    }
    static __device__ __forceinline__ Word multiplier(Word word) {
        return {Convert<T>::from(bounded(low(word))).bits | unsigned{Convert<T>::from(bounded(high(word))).bits} << 16};
    }
    static __device__ __forceinline__ Word negative(Word a) { return {a.bits ^ 0x80008000U}; }
    static __device__ __forceinline__ Sum sum(Word x) { return low(x) + high(x); }
};

template <>
struct Chains<int> {  // modulo 2^32; zero stays zero, any other multiplier is odd, so that no bits are lost
    using Word = int;
    using Sum = int;
    static constexpr int kCount = 16;
    static __device__ __forceinline__ Word multiplier(Word word) { return word | (word != 0 ? 1 : 0); }
    static __device__ __forceinline__ Word negative(Word a) { return static_cast<int>(0U - static_cast<unsigned>(a)); }
    static __device__ __forceinline__ Sum sum(Word x) { return x; }
};

__device__ __forceinline__ float plus(float a, float b) { return a + b; }
__device__ __forceinline__ double plus(double a, double b) { return a + b; }
__device__ __forceinline__ int plus(int a, int b) {
    return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
}

template <typename T>
__global__ void __launch_bounds__(kPeakThreads, 4) fma_peak(const typename Chains<T>::Word* __restrict__ seeds,
                                                            typename Chains<T>::Sum* __restrict__ out, index steps) {
    using C = Chains<T>;
    using Word = typename C::Word;
    const Word a = C::multiplier(seed_pair(seeds, 0)[0]), minus_a = C::negative(a);
    Word x[C::kCount], b[C::kCount];
#pragma unroll
    for (int c = 0; c < C::kCount; ++c) {
        const vec<Word, 2> start = seed_pair(seeds, 1 + c);
        x[c] = start[0];
        b[c] = start[1];
    }
#pragma unroll 1
    for (int left = static_cast<int>(steps); left > 0; --left) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
            for (int c = 0; c < C::kCount; ++c) x[c] = multiply_add(u % 2 == 0 ? a : minus_a, x[c], b[c]);
        }
    }
    typename C::Sum sum = C::sum(x[0]);
#pragma unroll
    for (int c = 1; c < C::kCount; ++c) sum = plus(sum, C::sum(x[c]));
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Words (thread + 32 i) % kSeedWords: sum += a . b of four signed bytes (T: signed char); two b in turn, an a for each
// chain, sums from zero and modulo 2^32.
template <typename T>
__global__ void __launch_bounds__(kPeakThreads, 4)
    dot_peak(const int* __restrict__ seeds, int* __restrict__ out, index steps) {
    constexpr int kCount = 16;
    const int b[2] = {seed(seeds, 0), seed(seeds, 1)};
    int a[kCount], sum[kCount];
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
        a[c] = seed(seeds, 2 + c);
        sum[c] = 0;
    }
#pragma unroll 1
    for (int left = static_cast<int>(steps); left > 0; --left) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
            for (int c = 0; c < kCount; ++c) sum[c] = dot_add(a[c], b[u % 2], sum[c]);
        }
    }
    int total = sum[0];
#pragma unroll
    for (int c = 1; c < kCount; ++c) total = plus(total, sum[c]);
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

}  // namespace gm

#define GM_PEAK_TABLE(X)                    \
    X(gm::fma_peak<float>)                  \
    X(gm::fma_peak<double>)                 \
    X(gm::fma_peak<gm::pair<gm::half>>)     \
    X(gm::fma_peak<gm::pair<gm::bfloat16>>) \
    X(gm::fma_peak<int>)                    \
    X(gm::dot_peak<signed char>)
