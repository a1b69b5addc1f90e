// Blackwell's tensor core of sm_100a: operands in shared memory, results in tensor memory (128 lanes of 512 32-bit
// columns an SM), one thread issues. Section numbers are those of "PTX ISA 9.0", 9.7.16. No CPU body.
#pragma once
#include "types.cuh"

#ifndef GPUMICRO_CPU_SIM

namespace gm {

// The shared-memory descriptor (9.7.16.4.1): bits 0-13 address, 16-29 leading and 32-45 stride byte offset, all / 16,
// 46-48 the constant 1, 61-63 swizzle (0: none). Rows in 8 x 16-byte blocks as ptx_wgmma.cuh says.
__device__ __forceinline__ unsigned long long tcgen05_descriptor(unsigned shared_address, unsigned leading_bytes,
                                                                 unsigned stride_bytes) {
    const auto field = [](unsigned bytes) { return static_cast<unsigned long long>((bytes & 0x3ffffU) >> 4); };
    return field(shared_address) | field(leading_bytes) << 16 | field(stride_bytes) << 32 | 1ULL << 46;
}

// The instruction descriptor of kinds f16, tf32, f8f6f4 and i8 (9.7.16.4.2): bits 4-5 result (1 float, 2 int), 7-9 and
// 10-12 format of a and b, 14 b negated, 17-22 n / 8, 24-28 m / 16; both operands contiguous along k, dense.
constexpr __host__ __device__ unsigned tcgen05_instruction(unsigned result, unsigned format, unsigned m, unsigned n,
                                                           bool negate_b) {
    return result << 4 | format << 7 | format << 10 | (negate_b ? 1U << 14 : 0U) | (n / 8) << 17 | (m / 16) << 24;
}

#ifdef __CUDA_ARCH_FEAT_SM100_ALL

// 9.7.16.7.1: one warp gets `columns` (a power of two, at least 32) of tensor memory; their address goes to *shared.
__device__ __forceinline__ void tcgen05_alloc(unsigned shared, unsigned columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared), "r"(columns)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
}
__device__ __forceinline__ void tcgen05_dealloc(unsigned address, unsigned columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns));
}

// 9.7.16.10.9.1 tcgen05.mma: d (+)= a b by one thread, asynchronously; `add` false overwrites d.
#define GM_TCGEN05_MMA(name, kind)                                                                                     \
    __device__ __forceinline__ void name(unsigned d, unsigned long long a, unsigned long long b, unsigned instruction, \
                                         bool add) {                                                                   \
        asm volatile(                                                                                                  \
            "{\n.reg .pred add;\nsetp.ne.b32 add, %4, 0;\n"                                                            \
            "tcgen05.mma.cta_group::1.kind::" kind " [%0], %1, %2, %3, add;\n}" ::"r"(d),                              \
            "l"(a), "l"(b), "r"(instruction), "r"(static_cast<unsigned>(add))                                          \
            : "memory");                                                                                               \
    }
GM_TCGEN05_MMA(tcgen05_mma_f16, "f16")
GM_TCGEN05_MMA(tcgen05_mma_tf32, "tf32")
GM_TCGEN05_MMA(tcgen05_mma_f8f6f4, "f8f6f4")
GM_TCGEN05_MMA(tcgen05_mma_i8, "i8")
#undef GM_TCGEN05_MMA

// 9.7.16.10.10 tcgen05.commit: the barrier's phase ends when all products that this thread has issued are done.
__device__ __forceinline__ void tcgen05_commit(unsigned barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                 : "memory");
}
// 9.7.13.15 mbarrier: a phase ends with one arrival.
__device__ __forceinline__ void tcgen05_barrier_init(unsigned barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void tcgen05_barrier_wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}
// 9.7.16.6: order what other threads did with tensor memory, before and after a barrier of threads.
__device__ __forceinline__ void tcgen05_before_sync() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void tcgen05_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// 9.7.16.8.1 tcgen05.ld: 16 columns from `address` on of the lane that is this thread's (warp w of a warpgroup has
// lanes 32 w ... 32 w + 31, set in address bits 16-31), complete when it returns.
__device__ __forceinline__ void tcgen05_load(unsigned (&r)[16], unsigned address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15}, "
        "[%16];\ntcgen05.wait::ld.sync.aligned;"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7]), "=r"(r[8]),
          "=r"(r[9]), "=r"(r[10]), "=r"(r[11]), "=r"(r[12]), "=r"(r[13]), "=r"(r[14]), "=r"(r[15])
        : "r"(address)
        : "memory");
}
// 9.7.13.4 fence.proxy: shared memory written by this thread becomes visible to the tensor core.
__device__ __forceinline__ void tcgen05_shared_written() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// 9.7.14.6 elect.sync: true in one lane of a full warp, and known to the compiler to be one.
__device__ __forceinline__ bool elect_one() {
    unsigned chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen)::"memory");
    return chosen != 0;
}

#endif  // sm_100a

}  // namespace gm

#endif
