// The indices of a thread, read anew: what is made of them before a loop and needed after it would otherwise be kept in
// registers throughout ("PTX ISA 9.0", 10 Special registers: %tid, %ctaid).
#pragma once

namespace gm {

#ifdef GPUMICRO_CPU_SIM
inline unsigned thread_anew() { return threadIdx.x; }
inline unsigned block_anew() { return blockIdx.x; }
#else
__device__ __forceinline__ unsigned thread_anew() {
    unsigned index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index)::"memory");
    return index;
}
__device__ __forceinline__ unsigned block_anew() {
    unsigned index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index)::"memory");
    return index;
}
#endif

}  // namespace gm
