// Operands made on the device: the very numbers of gpumicro/kernels/operands.py and csrc/cpu/random.hpp. Element i of
// operand k depends on (seed, k, i) alone.
#pragma once
#include "types.cuh"

namespace gm {

constexpr int kFillBlock = 256;  // threads

// Vigna's SplitMix64 output function.
__device__ __forceinline__ unsigned long long mix64(unsigned long long z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

// Uniform in [-1, 1) with as many random bits as the significand holds, so that every step is exact.
template <typename T>
struct Uniform {
    static __device__ __forceinline__ T of(unsigned long long bits) {
        return Convert<T>::from(static_cast<float>(bits >> 40) * 0x1p-23F - 1.0F);
    }
};
template <>
struct Uniform<double> {
    static __device__ __forceinline__ double of(unsigned long long bits) {
        return static_cast<double>(bits >> 11) * 0x1p-52 - 1.0;
    }
};

// a[i] = operand(n, "uniform", seed, operand)[i]; narrow types hold float's number rounded to nearest even.
template <typename T>
__global__ void __launch_bounds__(kFillBlock)
    fill_uniform(T* a, unsigned long long seed, unsigned long long operand, index n) {
    const unsigned long long key = mix64(seed + mix64(operand + 1));
    const index step = static_cast<index>(gridDim.x) * kFillBlock;
    for (index i = static_cast<index>(blockIdx.x) * kFillBlock + threadIdx.x; i < n; i += step) {
        a[i] = Uniform<T>::of(mix64(key + (static_cast<unsigned long long>(i) + 1) * 0x9E3779B97F4A7C15ULL));
    }
}

}  // namespace gm

#define GM_FILL_TABLE(X)              \
    X(gm::fill_uniform<float>)        \
    X(gm::fill_uniform<double>)       \
    X(gm::fill_uniform<gm::half>)     \
    X(gm::fill_uniform<gm::bfloat16>) \
    X(gm::fill_uniform<gm::tf32>)     \
    X(gm::fill_uniform<gm::e4m3>)     \
    X(gm::fill_uniform<gm::e5m2>)
