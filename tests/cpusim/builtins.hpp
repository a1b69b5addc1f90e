// CUDA's built-in functions and vector types, as far as csrc/kernels uses them.
#pragma once
#include "warp.hpp"

// --- barriers and warps ---
#define __syncthreads() ::cusim::block_sync(__LINE__)
inline void __syncwarp(unsigned mask = ~0U) { cusim::warp_sync(mask); }
inline void __threadfence() { asm volatile("" ::: "memory"); }
inline void __threadfence_block() { asm volatile("" ::: "memory"); }
inline void __threadfence_system() { asm volatile("" ::: "memory"); }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    const unsigned w = static_cast<unsigned>(width), l = cusim::lane();
    return cusim::shuffle(mask, value, l / w * w + static_cast<unsigned>(source) % w);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const unsigned w = static_cast<unsigned>(width), l = cusim::lane();
    return cusim::shuffle(mask, value, l % w + delta < w ? l + delta : l);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const unsigned w = static_cast<unsigned>(width), l = cusim::lane();
    return cusim::shuffle(mask, value, l % w >= delta ? l - delta : l);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    const unsigned w = static_cast<unsigned>(width), l = cusim::lane(), source = l ^ static_cast<unsigned>(bits);
    return cusim::shuffle(mask, value, source / w <= l / w ? source : l);
}
inline unsigned __ballot_sync(unsigned mask, int vote) { return cusim::ballot(mask, vote != 0); }
inline int __any_sync(unsigned mask, int vote) { return cusim::ballot(mask, vote != 0) != 0; }
inline int __all_sync(unsigned mask, int vote) { return cusim::ballot(mask, vote == 0) == 0; }

// --- memory ---
template <class T>
T __ldg(const T* p) {
    return *p;
}
template <class T>
T __ldcg(const T* p) {
    return *p;
}

// Swaps in f(old) and returns old; float and double have no fetch_add in C++17.
template <class T, class F>
T cusim_exchange(T* p, F f) {
    T old, next;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        next = f(old);
    } while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
template <class T>
T atomicAdd(T* p, T value) {
    return cusim_exchange(p, [=](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicExch(T* p, T value) {
    return cusim_exchange(p, [=](T) { return value; });
}
template <class T>
T atomicMax(T* p, T value) {
    return cusim_exchange(p, [=](T old) { return old < value ? value : old; });
}
template <class T>
T atomicMin(T* p, T value) {
    return cusim_exchange(p, [=](T old) { return value < old ? value : old; });
}
template <class T>
T atomicCAS(T* p, T expected, T value) {
    return cusim_exchange(p, [=](T old) { return old == expected ? value : old; });
}

// --- clocks ---
inline long long clock64() { return static_cast<long long>(cusim::ticks()); }
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap() { cusim::fail("a trap"); }

// --- bits and arithmetic ---
template <class To, class From>
To cusim_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline unsigned __float_as_uint(float x) { return cusim_bits<unsigned>(x); }
inline int __float_as_int(float x) { return cusim_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return cusim_bits<float>(x); }
inline float __int_as_float(int x) { return cusim_bits<float>(x); }
inline long long __double_as_longlong(double x) { return cusim_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return cusim_bits<double>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
template <class T>
constexpr T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
    return a < b ? b : a;
}
// Four products of signed bytes and a sum, modulo 2^32.
inline int __dp4a(int a, int b, int c) {
    unsigned sum = static_cast<unsigned>(c);
    for (int i = 0; i < 4; ++i) {
        const int x = static_cast<signed char>(a >> (8 * i)), y = static_cast<signed char>(b >> (8 * i));
        sum += static_cast<unsigned>(x * y);
    }
    return static_cast<int>(sum);
}

// --- vector types ---
#define CUSIM_VECTOR(type, name)                                                                \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                    \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; }; \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                            \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
CUSIM_VECTOR(float, float)
CUSIM_VECTOR(double, double)
CUSIM_VECTOR(int, int)
CUSIM_VECTOR(unsigned, uint)
CUSIM_VECTOR(long long, longlong)
#undef CUSIM_VECTOR
