// Instructions that C++ has no word for, one wrapper each: the only inline PTX besides ptx_*.cuh. Every wrapper has a
// body for the CPU shim, so that the kernels built on it run there. Section numbers are those of "PTX ISA 9.0".
#pragma once
#include "types.cuh"

namespace gm {

#ifdef GPUMICRO_CPU_SIM

[[noreturn]] inline void unsupported() { cusim::fail("a kernel that this architecture has not was run"); }
inline unsigned long long cycles() { return cusim::ticks(); }
inline unsigned long long globaltimer_ns() { return cusim::ticks(); }
inline void sleep_ns(unsigned) {}
inline unsigned sm_id() { return 0; }

template <typename V>
V load_ca(const V* p) {
    return *p;
}
template <typename V>
V load_cg(const V* p) {
    return *p;
}
template <typename T>
void red_add(T* p, T value) {
    atomicAdd(p, value);
}
// Shared addresses are offsets into the dynamic shared memory here.
inline unsigned shared_address(const void* p) { return cusim::dynamic_offset(p); }
template <typename V>
V load_shared(unsigned address) {
    return *reinterpret_cast<const V*>(cusim::dynamic_at(address, sizeof(V)));
}

#else

// What a kernel becomes on an architecture that lacks its instructions; Python never starts it there.
__device__ __forceinline__ void unsupported() { asm volatile("trap;"); }

// 10 Special registers: %clock64 (cycles of this SM), %globaltimer (ns, of the device), %smid.
__device__ __forceinline__ unsigned long long cycles() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
    return t;
}
__device__ __forceinline__ unsigned long long globaltimer_ns() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}
__device__ __forceinline__ unsigned sm_id() {
    unsigned id;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}
__device__ __forceinline__ void sleep_ns(unsigned ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns)); }

// Loads that are made as often as they are written and in that order (volatile): no compiler hoists them out of a loop
// or drops a second one. 9.7.9.1 Cache operators: .ca all levels, .cg L2 and below only.
#define GM_LOAD(name, operator)                                                                         \
    template <typename V>                                                                               \
    __device__ __forceinline__ V name(const V* p) {                                                     \
        static_assert(sizeof(V) == 4 || sizeof(V) == 8 || sizeof(V) == 16, "4, 8 or 16 bytes at once"); \
        union {                                                                                         \
            V value;                                                                                    \
            unsigned word[sizeof(V) / 4];                                                               \
            unsigned long long wide;                                                                    \
        } u;                                                                                            \
        if constexpr (sizeof(V) == 4) {                                                                 \
            asm volatile("ld.global." operator".b32 %0, [%1];" : "=r"(u.word[0]) : "l"(p) : "memory");  \
        } else if constexpr (sizeof(V) == 8) {                                                          \
            asm volatile("ld.global." operator".b64 %0, [%1];" : "=l"(u.wide) : "l"(p) : "memory");     \
        } else {                                                                                        \
            asm volatile("ld.global." operator".v4.b32 {%0, %1, %2, %3}, [%4];"                         \
                         : "=r"(u.word[0]), "=r"(u.word[1]), "=r"(u.word[2]), "=r"(u.word[3])           \
                         : "l"(p)                                                                       \
                         : "memory");                                                                   \
        }                                                                                               \
        return u.value;                                                                                 \
    }
GM_LOAD(load_ca, "ca")
GM_LOAD(load_cg, "cg")
#undef GM_LOAD

// 9.7.13.7 red: an atomic addition that returns nothing.
__device__ __forceinline__ void red_add(float* p, float value) {
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(p), "f"(value) : "memory");
}
__device__ __forceinline__ void red_add(int* p, int value) {
    asm volatile("red.global.add.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
template <typename V>
__device__ __forceinline__ V load_shared(unsigned address) {
    static_assert(sizeof(V) == 4 || sizeof(V) == 16, "4 or 16 bytes at once");
    union {
        V value;
        unsigned word[sizeof(V) / 4];
    } u;
    if constexpr (sizeof(V) == 4) {
        asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(u.word[0]) : "r"(address) : "memory");
    } else {
        asm volatile("ld.volatile.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(u.word[0]), "=r"(u.word[1]), "=r"(u.word[2]), "=r"(u.word[3])
                     : "r"(address)
                     : "memory");
    }
    return u.value;
}

#endif

}  // namespace gm
