// Element types, vectors and conversions that device code shares. No header is included: nvcc, NVRTC and the CPU shim
// (tests/cpusim/cuda_cpu.hpp, which must come first there) all compile it as it stands.
#pragma once

#ifndef GPUMICRO_CPU_SIM
// The block's dynamic shared memory as `type* name`; 1,024-byte aligned, as swizzled tiles of 128-byte rows need it.
#define GM_DYNAMIC_SHARED(type, name)                                     \
    extern __shared__ __align__(1024) unsigned char gm_dynamic_shared_[]; \
    type* const name = reinterpret_cast<type*>(gm_dynamic_shared_)
#endif

namespace gm {

using index = long long;  // of elements and bytes: an array may have more than 2^31

// Narrow formats as they are stored; gpumicro/kernels/formats.py has the same in NumPy.
struct half {
    unsigned short bits;
};
struct bfloat16 {
    unsigned short bits;
};
struct e4m3 {  // no infinity, largest finite 448 (arXiv 2209.05433)
    unsigned char bits;
};
struct e5m2 {
    unsigned char bits;
};
struct tf32 {  // float's form, the low 13 bits zero
    unsigned bits;
};

// A TMA descriptor (CUDA driver API, CUtensorMap), passed as `const __grid_constant__ TensorMapBytes`.
struct alignas(64) TensorMapBytes {
    unsigned char bytes[128];
};

// N elements that are loaded and stored as one: 16 bytes, or 32 on sm_100 and later.
template <typename T, int N>
struct alignas(sizeof(T) * N) vec {
    T at[N];
    __device__ __forceinline__ T& operator[](int i) { return at[i]; }
    __device__ __forceinline__ const T& operator[](int i) const { return at[i]; }
};

template <typename T>
constexpr __host__ __device__ T ceil_div(T a, T b) {
    return (a + b - 1) / b;
}

// --- conversions by integer arithmetic: the same on every architecture and on the CPU, rounded to nearest even ---

// Magnitude pattern of a float with E exponent and M fraction bits; values beyond its largest come out above it.
template <int E, int M>
__device__ __forceinline__ unsigned narrow_magnitude(unsigned magnitude) {
    constexpr unsigned kBias = (1U << (E - 1)) - 1;
    if (magnitude < (128U - kBias) << 23) {  // below the smallest normal: the addition rounds at the last fraction bit
        const unsigned magic = (151U - M - kBias) << 23;
        return __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(magic)) - magic;
    }
    const unsigned rounded = magnitude + (1U << (22 - M)) - 1 + ((magnitude >> (23 - M)) & 1U);
    return (rounded >> (23 - M)) - ((127U - kBias) << M);
}

// `largest`: pattern that magnitudes beyond it become; `nan`: pattern of a NaN.
template <int E, int M>
__device__ __forceinline__ unsigned narrow(float x, unsigned largest, unsigned nan) {
    const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffffU;
    const unsigned sign = (bits >> 31) << (E + M);
    if (magnitude > 0x7f800000U) return sign | nan;
    const unsigned pattern = narrow_magnitude<E, M>(magnitude);
    return sign | (pattern < largest ? pattern : largest);
}

template <int E, int M>
__device__ __forceinline__ float widen(unsigned pattern) {
    constexpr unsigned kBias = (1U << (E - 1)) - 1;
    const unsigned magnitude = pattern & ((1U << (E + M)) - 1);
    const float size = __uint_as_float(magnitude << (23 - M)) * __uint_as_float((254U - kBias) << 23);
    return (pattern >> (E + M)) != 0 ? -size : size;
}

// Infinity and NaN keep float's exponent where the format has them as IEEE 754 does.
template <int E, int M>
__device__ __forceinline__ float widen_ieee(unsigned pattern) {
    constexpr unsigned kTop = ((1U << E) - 1) << M;
    if ((pattern & kTop) != kTop) return widen<E, M>(pattern);
    return __uint_as_float(((pattern >> (E + M)) << 31) | 0x7f800000U | ((pattern & ((1U << M) - 1)) << (23 - M)));
}

__device__ __forceinline__ unsigned round_low_bits(float x, int dropped) {
    const unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return bits | 0x400000U;  // a NaN stays one when its low bits go
    return bits + (1U << (dropped - 1)) - 1 + ((bits >> dropped) & 1U);
}

template <typename T>
struct Convert;  // to(T): exact float or double; from(x): nearest T

template <>
struct Convert<float> {
    static __device__ __forceinline__ float to(float x) { return x; }
    static __device__ __forceinline__ float from(float x) { return x; }
};
template <>
struct Convert<double> {
    static __device__ __forceinline__ double to(double x) { return x; }
    static __device__ __forceinline__ double from(double x) { return x; }
};
template <>
struct Convert<half> {
    static __device__ __forceinline__ float to(half x) { return widen_ieee<5, 10>(x.bits); }
    static __device__ __forceinline__ half from(float x) {
        return {static_cast<unsigned short>(narrow<5, 10>(x, 0x7c00U, 0x7e00U))};
    }
};
template <>
struct Convert<bfloat16> {
    static __device__ __forceinline__ float to(bfloat16 x) { return __uint_as_float(unsigned{x.bits} << 16); }
    static __device__ __forceinline__ bfloat16 from(float x) {
        return {static_cast<unsigned short>(round_low_bits(x, 16) >> 16)};
    }
};
template <>
struct Convert<tf32> {
    static __device__ __forceinline__ float to(tf32 x) { return __uint_as_float(x.bits); }
    static __device__ __forceinline__ tf32 from(float x) { return {round_low_bits(x, 13) & ~0x1fffU}; }
};
template <>
struct Convert<e4m3> {
    static __device__ __forceinline__ float to(e4m3 x) {
        return (x.bits & 0x7fU) == 0x7fU ? __uint_as_float(0x7fc00000U) : widen<4, 3>(x.bits);
    }
    static __device__ __forceinline__ e4m3 from(float x) {  // saturates
        return {static_cast<unsigned char>(narrow<4, 3>(x, 0x7eU, 0x7fU))};
    }
};
template <>
struct Convert<e5m2> {
    static __device__ __forceinline__ float to(e5m2 x) { return widen_ieee<5, 2>(x.bits); }
    static __device__ __forceinline__ e5m2 from(float x) {  // saturates
        return {static_cast<unsigned char>(narrow<5, 2>(x, 0x7bU, 0x7fU))};
    }
};

}  // namespace gm
