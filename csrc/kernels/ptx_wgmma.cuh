// Warpgroup products of sm_90a: d += a b by 128 threads, both operands in shared memory, results in registers, carried
// out asynchronously. Section numbers are those of "PTX ISA 9.0", 9.7.15. No CPU body: the shim compiles none of this.
//
// With w = warp in the warpgroup, g = lane / 4 and t = lane % 4, register i of a thread is (9.7.15.5.1.1)
//     row 16 w + g + 8 (i / 2 % 2), column 8 (i / 4) + 2 t + i % 2.
#pragma once
#include "types.cuh"

#ifndef GPUMICRO_CPU_SIM

namespace gm {

// How rows of an operand tile lie in shared memory (9.7.15.5.1.2): not swizzled, in 8-row by 16-byte blocks of 128
// bytes each, or rows of 128 bytes whose 16-byte parts are exchanged by row.
enum class Swizzle : unsigned long long { kNone = 0, k128 = 1, k64 = 2, k32 = 3 };

// The matrix descriptor (9.7.15.5.1.2.2): bits 0-13 address, 16-29 leading and 32-45 stride byte offset, all / 16,
// 62-63 swizzle. For operands whose k is contiguous: leading is from one 16-byte column of blocks to the next along k
// (not swizzled only), stride from one group of 8 rows to the next.
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned shared_address, unsigned leading_bytes,
                                                               unsigned stride_bytes, Swizzle swizzle) {
    const auto field = [](unsigned bytes) { return static_cast<unsigned long long>((bytes & 0x3ffffU) >> 4); };
    return field(shared_address) | field(leading_bytes) << 16 | field(stride_bytes) << 32 |
           static_cast<unsigned long long>(swizzle) << 62;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// 9.7.15.7.1: before the first product, and when registers or (after a proxy fence) shared memory were written.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// 9.7.15.7.2: all products so far become a group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// 9.7.15.7.3: until at most `Pending` groups are under way.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// Shared memory written by threads becomes visible to the products of all (9.7.13.4 fence.proxy).
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Keeps the compiler from moving a use of the results over a wait.
__device__ __forceinline__ void wgmma_keep(float& d) { asm volatile("" : "+f"(d)::"memory"); }
__device__ __forceinline__ void wgmma_keep(int& d) { asm volatile("" : "+r"(d)::"memory"); }

// clang-format off
#define GM_TEXT_64                                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"                 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"                 \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                 
#define GM_TEXT_128                                                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"                 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"                 \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"                 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"                 \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"                 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"     \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127" 
#define GM_SUMS_4(c, d, i) c(d[i]), c(d[(i) + 1]), c(d[(i) + 2]), c(d[(i) + 3])
#define GM_SUMS_16(c, d, i) GM_SUMS_4(c, d, i), GM_SUMS_4(c, d, (i) + 4), GM_SUMS_4(c, d, (i) + 8), GM_SUMS_4(c, d, (i) + 12)
#define GM_SUMS_64(c, d, i) GM_SUMS_16(c, d, i), GM_SUMS_16(c, d, (i) + 16), GM_SUMS_16(c, d, (i) + 32), GM_SUMS_16(c, d, (i) + 48)
#define GM_SUMS_128(c, d, i) GM_SUMS_64(c, d, i), GM_SUMS_64(c, d, (i) + 64)
// clang-format on

// 9.7.15.5.2 wgmma.mma_async, shape m64nNk(32 bytes): d += a (Sign b). Integers have no Sign and wrap.
template <typename T, int N, int Sign = 1>
struct Wgmma;  // ::product(d, descriptor of a, descriptor of b)

// A, B, SIGN: where the descriptors and the sign stand after COUNT results; TAIL: neither operand transposed.
#define GM_WGMMA_FLOAT(T, N, COUNT, A, B, SIGN, instruction, TAIL)                                                     \
    template <int Sign>                                                                                                \
    struct Wgmma<T, N, Sign> {                                                                                         \
        static __device__ __forceinline__ void product(float (&d)[COUNT], unsigned long long a,                        \
                                                       unsigned long long b) {                                         \
            asm volatile(                                                                                              \
                "{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"                                                         \
                "wgmma.mma_async.sync.aligned." instruction " {" GM_TEXT_##COUNT "}, " A ", " B ", add, 1, " SIGN TAIL \
                                                                                 ";\n}"                                \
                : GM_SUMS_##COUNT("+f", d, 0)                                                                          \
                : "l"(a), "l"(b), "n"(Sign)                                                                            \
                : "memory");                                                                                           \
        }                                                                                                              \
    };
#define GM_WGMMA_INT(T, N, COUNT, A, B, instruction)                                                                  \
    template <>                                                                                                       \
    struct Wgmma<T, N, 1> {                                                                                           \
        static __device__ __forceinline__ void product(int (&d)[COUNT], unsigned long long a, unsigned long long b) { \
            asm volatile(                                                                                             \
                "{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"                                                        \
                "wgmma.mma_async.sync.aligned." instruction " {" GM_TEXT_##COUNT "}, " A ", " B ", add;\n}"           \
                : GM_SUMS_##COUNT("+r", d, 0)                                                                         \
                : "l"(a), "l"(b)                                                                                      \
                : "memory");                                                                                          \
        }                                                                                                             \
    };
GM_WGMMA_FLOAT(half, 128, 64, "%64", "%65", "%66", "m64n128k16.f32.f16.f16", ", 0, 0")
GM_WGMMA_FLOAT(half, 256, 128, "%128", "%129", "%130", "m64n256k16.f32.f16.f16", ", 0, 0")
GM_WGMMA_FLOAT(bfloat16, 128, 64, "%64", "%65", "%66", "m64n128k16.f32.bf16.bf16", ", 0, 0")
GM_WGMMA_FLOAT(bfloat16, 256, 128, "%128", "%129", "%130", "m64n256k16.f32.bf16.bf16", ", 0, 0")
GM_WGMMA_FLOAT(tf32, 128, 64, "%64", "%65", "%66", "m64n128k8.f32.tf32.tf32", "")
GM_WGMMA_FLOAT(tf32, 256, 128, "%128", "%129", "%130", "m64n256k8.f32.tf32.tf32", "")
GM_WGMMA_FLOAT(e4m3, 256, 128, "%128", "%129", "%130", "m64n256k32.f32.e4m3.e4m3", "")
GM_WGMMA_INT(signed char, 256, 128, "%128", "%129", "m64n256k32.s32.s8.s8")
#undef GM_WGMMA_FLOAT
#undef GM_WGMMA_INT
#undef GM_SUMS_4
#undef GM_SUMS_16
#undef GM_SUMS_64
#undef GM_SUMS_128
#undef GM_TEXT_64
#undef GM_TEXT_128

#endif  // sm_90a

}  // namespace gm

#endif
