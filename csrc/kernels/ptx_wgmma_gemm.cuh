// Warpgroup products of sm_90a for a row-major GEMM: a's k is contiguous, b's n is (PTX ISA 9.0, 9.7.15.5: the flag
// imm-trans-b, which 16-bit types have), and the first product of a sum sets it. Registers and descriptors:
// ptx_wgmma.cuh.
#pragma once
#include "ptx_wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace gm {

// clang-format off
#define GM_ROWS_TEXT_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                      \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                      \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GM_ROWS_TEXT_128 \
    GM_ROWS_TEXT_64 ", "                 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                      \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                      \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                      \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define GM_ROWS_4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define GM_ROWS_16(d, i) GM_ROWS_4(d, i), GM_ROWS_4(d, (i) + 4), GM_ROWS_4(d, (i) + 8), GM_ROWS_4(d, (i) + 12)
#define GM_ROWS_64(d, i) GM_ROWS_16(d, i), GM_ROWS_16(d, (i) + 16), GM_ROWS_16(d, (i) + 32), GM_ROWS_16(d, (i) + 48)
#define GM_ROWS_128(d, i) GM_ROWS_64(d, i), GM_ROWS_64(d, (i) + 64)
// clang-format on

// m64nNk16: d = a b, or d += a b where `add` is not 0.
template <typename T, int N>
struct WgmmaRows;  // ::product(d, descriptor of a, descriptor of b, add)

// A, B, ADD: where the descriptors and `add` stand after COUNT results. The constants: neither operand negated, a as it
// is, b transposed.
#define GM_WGMMA_ROWS(T, N, COUNT, A, B, ADD, instruction)                                                             \
    template <>                                                                                                        \
    struct WgmmaRows<T, N> {                                                                                           \
        static __device__ __forceinline__ void product(float (&d)[COUNT], unsigned long long a, unsigned long long b,  \
                                                       int add) {                                                      \
            asm volatile("{\n.reg .pred add;\nsetp.ne.s32 add, " ADD                                                   \
                         ", 0;\n"                                                                                      \
                         "wgmma.mma_async.sync.aligned." instruction " {" GM_ROWS_TEXT_##COUNT "}, " A ", " B          \
                                                                                               ", add, 1, 1, 0, 1;\n}" \
                         : GM_ROWS_##COUNT(d, 0)                                                                       \
                         : "l"(a), "l"(b), "r"(add)                                                                    \
                         : "memory");                                                                                  \
        }                                                                                                              \
    };
GM_WGMMA_ROWS(half, 128, 64, "%64", "%65", "%66", "m64n128k16.f32.f16.f16")
GM_WGMMA_ROWS(half, 256, 128, "%128", "%129", "%130", "m64n256k16.f32.f16.f16")
GM_WGMMA_ROWS(bfloat16, 128, 64, "%64", "%65", "%66", "m64n128k16.f32.bf16.bf16")
GM_WGMMA_ROWS(bfloat16, 256, 128, "%128", "%129", "%130", "m64n256k16.f32.bf16.bf16")
#undef GM_WGMMA_ROWS
#undef GM_ROWS_4
#undef GM_ROWS_16
#undef GM_ROWS_64
#undef GM_ROWS_128
#undef GM_ROWS_TEXT_64
#undef GM_ROWS_TEXT_128

// 9.7.20.5 setmaxnreg: registers a thread of this warpgroup may have from now on; all its warps must come.
template <int Registers>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace gm

#endif
