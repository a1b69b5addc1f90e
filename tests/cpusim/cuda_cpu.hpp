// Runs CUDA kernels on the CPU, to be sanitized: `cusim::launch({grid, block, shared_bytes}, kernel, arguments...)`.
// Compile with `-include cuda_cpu.hpp`, since it must come before csrc/kernels/*.cuh. One fiber a CUDA thread, or one
// std::thread with -DGPUMICRO_SIM_THREADS; one block after another. It shows accesses out of bounds, races within a
// block, missing barriers and waits. It cannot show races between blocks, the order of roundings, bank conflicts or
// speed. It has no instruction of its own: inline PTX stays in csrc/kernels/ptx*.cuh, where each wrapper has a body for
// GPUMICRO_CPU_SIM.
#pragma once
#define GPUMICRO_CPU_SIM 1
#include "engine.hpp"
#ifdef GPUMICRO_SIM_THREADS
#include "threads.hpp"
#else
#include "fibers.hpp"
#endif
#include <cmath>
#include <cstring>

#include "warp.hpp"

// --- the language ---
#define __global__ inline
#define __device__
#define __host__
#define __constant__ static const
#define __shared__ static  // blocks run one after another, so a static is exactly a block's copy
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define GM_DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(::cusim::state.dynamic)

#define threadIdx (::cusim::current->index)
#define blockIdx (::cusim::state.block_index)
#define blockDim (::cusim::state.block)
#define gridDim (::cusim::state.grid)
constexpr int warpSize = 32;

namespace cusim {

template <class Kernel, class... Arguments>
void launch(const Shape& shape, Kernel kernel, Arguments... arguments) {
    const unsigned threads = shape.block.x * shape.block.y * shape.block.z;
    DynamicShared dynamic(shape.shared_bytes);
    state.grid = shape.grid;
    state.block = shape.block;
    state.threads = threads;
    state.dynamic = dynamic.get();
    state.dynamic_bytes = shape.shared_bytes;
    state.buffers.assign((threads + kWarp - 1) / kWarp, WarpBuffer{});
    Engine engine(threads);
    for (unsigned i = 0; i < threads; ++i) {
        const dim3& b = shape.block;
        engine.thread(i).rank = i;
        engine.thread(i).index = {i % b.x, i / b.x % b.y, i / (b.x * b.y)};
    }
    const Body body = [=] { kernel(arguments...); };
    for (unsigned z = 0; z < shape.grid.z; ++z) {
        for (unsigned y = 0; y < shape.grid.y; ++y) {
            for (unsigned x = 0; x < shape.grid.x; ++x) {
                state.block_index = {x, y, z};
                dynamic.poison();
                engine.run_block(body);
            }
        }
    }
}

}  // namespace cusim

#include "builtins.hpp"
