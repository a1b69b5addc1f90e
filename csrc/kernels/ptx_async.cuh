// Copies that run beside the arithmetic, and what waits for them: cp.async and ldmatrix (sm_75, sm_80), mbarrier and
// TMA (sm_90). Shared addresses are those of `shared_address`. Section numbers are those of "PTX ISA 9.0".
#pragma once
#include "ptx.cuh"

namespace gm {

#ifdef GPUMICRO_CPU_SIM

inline void cp_async_16(unsigned shared, const void* global, unsigned bytes) {
    cusim::cp_async(cusim::dynamic_at(shared, 16), global, 16, bytes);
}
inline void cp_async_commit() { cusim::cp_async_commit(); }
template <int pending>
void cp_async_wait() {
    cusim::cp_async_wait(pending);
}
inline void store_shared_16(unsigned address, const unsigned (&words)[4]) {
    auto* to = reinterpret_cast<unsigned*>(cusim::dynamic_at(address, 16));
    for (int i = 0; i < 4; ++i) to[i] = words[i];
}

// Word `lane % 4` of row `lane / 4` of each matrix; lanes 8 i ... 8 i + 7 gave the addresses of matrix i's rows.
inline void ldmatrix_x4(unsigned (&r)[4], unsigned address) {
    const cusim::WarpView<unsigned> rows(address);
    const unsigned lane = threadIdx.x % 32;
    for (unsigned i = 0; i < 4; ++i) {
        r[i] = reinterpret_cast<const unsigned*>(cusim::dynamic_at(rows[8 * i + lane / 4], 16))[lane % 4];
    }
}
// Elements [2 t][g] and [2 t + 1][g], g = lane / 4, t = lane % 4: the fragment of the transposed matrix.
inline void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address) {
    const cusim::WarpView<unsigned> rows(address);
    const unsigned lane = threadIdx.x % 32;
    const auto element = [&](unsigned row) {
        return unsigned{reinterpret_cast<const unsigned short*>(cusim::dynamic_at(rows[row], 16))[lane / 4]};
    };
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = 8 * i + lane % 4 * 2;
        r[i] = element(row) | element(row + 1) << 16;
    }
}

#else

// 9.7.9.25.3.1 cp.async: 16 bytes from global to shared memory, past L1; all but the first `bytes` become zeros, and of
// what lies behind them nothing is read.
__device__ __forceinline__ void cp_async_16(unsigned shared, const void* global, unsigned bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most `pending` of this thread's newest groups are under way; others see the data after a barrier.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
__device__ __forceinline__ void store_shared_16(unsigned address, const unsigned (&words)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
}

// 9.7.14.5.15 ldmatrix: four 8 x 8 matrices of 16-bit elements; lane 8 i + j gives the address of row j of matrix i.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// --- sm_90: barriers that count bytes, and the tensor memory accelerator; the shim has none of them ---

// 9.7.13.15 mbarrier: a phase ends when `arrivals` threads have arrived and all bytes that they announced have come.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Makes the barriers known to what other threads and the copy engine do after the block's next barrier.
__device__ __forceinline__ void mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Until the phase of this parity has ended; the phase before the first counts as ended, with parity 1.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
    unsigned done = 0;
    while (done == 0) {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    }
}

// 9.7.9.27.1.2 cp.async.bulk.tensor: the box at element (x, y) of the matrix that `map` describes, x along its rows;
// elements beyond the matrix become zeros, and the whole box's bytes are counted at the barrier.
__device__ __forceinline__ void tma_load(unsigned shared, const TensorMapBytes& map, int x, int y, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            shared),
        "l"(&map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}
__device__ __forceinline__ void tma_prefetch(const TensorMapBytes& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
#endif

#endif

}  // namespace gm
