// Vectors of GM_VECTOR_BYTES for the files that are compiled once per ISA. Everything here has internal linkage: an
// inline function compiled with AVX flags must never be the copy that the linker keeps for the rest of the program.
#pragma once
#include <cstdint>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#define GM_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define GM_UNROLL _Pragma("clang loop unroll(full)")
#define GM_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define GM_UNROLL _Pragma("GCC unroll 64")
#define GM_UNROLL_4 _Pragma("GCC unroll 4")
#endif

// Vector registers: 32 on AVX-512 and Arm, 16 on SSE2 and AVX2.
#if defined(__AVX512F__) || defined(__aarch64__)
#define GM_REGISTERS 32
#else
#define GM_REGISTERS 16
#endif

namespace gm::cpu {
namespace {

template <class T>
struct VectorOf {
    typedef T type __attribute__((vector_size(GM_VECTOR_BYTES)));
};
template <class T>
using Vec = typename VectorOf<T>::type;
template <class T>
constexpr int kLanes = GM_VECTOR_BYTES / static_cast<int>(sizeof(T));

template <class T>
GM_INLINE Vec<T> load(const T* p) {
    Vec<T> v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

template <class T>
GM_INLINE void store(T* p, Vec<T> v) {
    __builtin_memcpy(p, &v, sizeof v);
}

template <class T>
GM_INLINE Vec<T> splat(T x) {
    return x - Vec<T>{};  // x - 0 and not x + 0: it keeps the sign of -0
}

// The compiler must take it that memory was read and written here: no pass of a loop is hoisted or dropped.
GM_INLINE void clobber() { asm volatile("" ::: "memory"); }

// Stops the compiler from reordering around a value or from moving its computation out of a loop; no instruction.
template <class V>
GM_INLINE void opaque(V& v) {
#if defined(__aarch64__)
    asm volatile("" : "+w"(v));
#elif defined(__x86_64__) || defined(__i386__)
    asm volatile("" : "+v"(v));
#else
    asm volatile("" : "+m"(v));
#endif
}

#if defined(__x86_64__) || defined(__i386__)
#define GM_NONTEMPORAL 1
#if GM_VECTOR_BYTES == 64
GM_INLINE void store_past_cache(double* p, Vec<double> v) { _mm512_stream_pd(p, (__m512d)v); }
GM_INLINE void store_past_cache(float* p, Vec<float> v) { _mm512_stream_ps(p, (__m512)v); }
#elif GM_VECTOR_BYTES == 32
GM_INLINE void store_past_cache(double* p, Vec<double> v) { _mm256_stream_pd(p, (__m256d)v); }
GM_INLINE void store_past_cache(float* p, Vec<float> v) { _mm256_stream_ps(p, (__m256)v); }
#else
GM_INLINE void store_past_cache(double* p, Vec<double> v) { _mm_stream_pd(p, (__m128d)v); }
GM_INLINE void store_past_cache(float* p, Vec<float> v) { _mm_stream_ps(p, (__m128)v); }
#endif
GM_INLINE void fence() { _mm_sfence(); }  // non-temporal stores are weakly ordered
#elif defined(__clang__)
#define GM_NONTEMPORAL 1
template <class T>
GM_INLINE void store_past_cache(T* p, Vec<T> v) {
    __builtin_nontemporal_store(v, reinterpret_cast<Vec<T>*>(p));
}
GM_INLINE void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#else
#define GM_NONTEMPORAL 0  // GCC has no non-temporal store for this architecture
#endif

}  // namespace
}  // namespace gm::cpu
