// Multiply-adds, one wrapper an instruction: what the compiler must neither fold nor reorder in a peak kernel, and the
// packed forms that C++ has no word for. Section numbers are those of "PTX ISA 9.0".
#pragma once
#include "ptx.cuh"

namespace gm {

// Two neighbours of a 16-bit format in a register, the first in the low half.
template <typename T>
struct pair {
    unsigned bits;
};

#ifdef GPUMICRO_CPU_SIM

// Rounded to odd, so that a second rounding to at most 22 digits comes out as if it were the first.
inline float round_to_odd(double x) {
    const float nearest = static_cast<float>(x);
    if (static_cast<double>(nearest) == x || (__float_as_uint(nearest) & 1U) != 0) return nearest;
    const float other = std::nextafterf(nearest, static_cast<double>(nearest) < x ? 3.4e38F : -3.4e38F);
    return other;
}

inline float multiply_add(float a, float x, float b) { return std::fma(a, x, b); }
inline double multiply_add(double a, double x, double b) { return std::fma(a, x, b); }
inline int multiply_add(int a, int x, int b) {
    return static_cast<int>(static_cast<unsigned>(a) * static_cast<unsigned>(x) + static_cast<unsigned>(b));
}
template <typename T>
pair<T> multiply_add(pair<T> a, pair<T> x, pair<T> b) {
    unsigned bits = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        const auto value = [shift](pair<T> p) {
            return static_cast<double>(Convert<T>::to(T{static_cast<unsigned short>(p.bits >> shift)}));
        };
        bits |= unsigned{Convert<T>::from(round_to_odd(std::fma(value(a), value(x), value(b)))).bits} << shift;
    }
    return {bits};
}
inline int dot_add(int a, int b, int sum) {
    unsigned total = static_cast<unsigned>(sum);
    for (int shift = 0; shift < 32; shift += 8) {
        total += static_cast<unsigned>(static_cast<signed char>(a >> shift) * static_cast<signed char>(b >> shift));
    }
    return static_cast<int>(total);
}

#else

// a x + b. 9.7.3.6 and 9.7.4.4 fma, 9.7.1.4 mad: not `volatile`, so that independent chains may be interleaved.
__device__ __forceinline__ float multiply_add(float a, float x, float b) {
    float r;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(x), "f"(b));
    return r;
}
__device__ __forceinline__ double multiply_add(double a, double x, double b) {
    double r;
    asm("fma.rn.f64 %0, %1, %2, %3;" : "=d"(r) : "d"(a), "d"(x), "d"(b));
    return r;
}
__device__ __forceinline__ int multiply_add(int a, int x, int b) {  // wraps
    int r;
    asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(x), "r"(b));
    return r;
}
__device__ __forceinline__ pair<half> multiply_add(pair<half> a, pair<half> x, pair<half> b) {
    unsigned r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a.bits), "r"(x.bits), "r"(b.bits));
    return {r};
}
__device__ __forceinline__ pair<bfloat16> multiply_add(pair<bfloat16> a, pair<bfloat16> x, pair<bfloat16> b) {
#if __CUDA_ARCH__ >= 800
    unsigned r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a.bits), "r"(x.bits), "r"(b.bits));
    return {r};
#else
    (void)a, (void)x;
    unsupported();
    return b;
#endif
}
// 9.7.1.23 dp4a: sum + the products of the four signed bytes of a and b; wraps.
__device__ __forceinline__ int dot_add(int a, int b, int sum) {
    int r;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
    return r;
}

#endif

}  // namespace gm
