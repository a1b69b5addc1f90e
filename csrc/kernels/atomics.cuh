// Throughput of atomic additions whose result nobody takes: on one address, on one address a thread, and both in shared
// memory. Each thread adds 1 `reps` times; the totals are stored, so
// that each run can be checked.
#pragma once
#include "ptx.cuh"

namespace gm {

constexpr int kAtomicsBlock = 256;  // threads

// Zero before the first run (as all global variables) and left so by each. One such kernel at a time in a process.
static __device__ double atomics_counter;  // 8 bytes for any T; all bits zero are 0 in each
static __device__ unsigned atomics_ticket;

// All threads on one address. `one` is 1 and `spread` 0 (here) or 255: were they known, the compiler would add up a
// warp's ones beforehand, or count lanes instead of adding.
template <typename T>
__global__ void __launch_bounds__(kAtomicsBlock) atomics_one(T* total, index reps, T one, unsigned spread) {
    T* const counter = reinterpret_cast<T*>(&atomics_counter) + (threadIdx.x & spread);
#pragma unroll 8
    for (index r = 0; r < reps; ++r) red_add(counter, one);
    __threadfence();
    __syncthreads();
    if (threadIdx.x != 0 || atomicAdd(&atomics_ticket, 1U) != gridDim.x - 1) return;
    __threadfence();
    *total = atomicExch(counter, T{0});
    atomics_ticket = 0;
}

// One address a thread, a warp's in a row.
template <typename T>
__global__ void __launch_bounds__(kAtomicsBlock) atomics_spread(T* totals, index reps, T one) {
    T* const mine = totals + static_cast<index>(blockIdx.x) * kAtomicsBlock + threadIdx.x;
    *mine = T{0};  // program order holds for one thread and one address
#pragma unroll 8
    for (index r = 0; r < reps; ++r) red_add(mine, one);
}

// In shared memory, on word (thread & spread) of the block: 0 for one address, 255 for one a thread.
template <typename T>
__global__ void __launch_bounds__(kAtomicsBlock) atomics_shared(T* totals, index reps, T one, unsigned spread) {
    __shared__ T words[kAtomicsBlock];
    words[threadIdx.x] = T{0};
    __syncthreads();
    T* const word = words + (threadIdx.x & spread);
#pragma unroll 8
    for (index r = 0; r < reps; ++r) atomicAdd(word, one);
    __syncthreads();
    totals[static_cast<index>(blockIdx.x) * kAtomicsBlock + threadIdx.x] = words[threadIdx.x];
}

}  // namespace gm

#define GM_ATOMICS_TABLE(X)      \
    X(gm::atomics_one<float>)    \
    X(gm::atomics_one<int>)      \
    X(gm::atomics_spread<float>) \
    X(gm::atomics_spread<int>)   \
    X(gm::atomics_shared<float>) \
    X(gm::atomics_shared<int>)
