#include "cuda/launch.hpp"

#include <cstring>
#include <stdexcept>

#include "cuda/handles.hpp"
#include "cuda/stream.hpp"

namespace gm {
namespace {

std::string text(Extent extent) {
    return std::to_string(extent.x) + "x" + std::to_string(extent.y) + "x" + std::to_string(extent.z);
}

// A wrong argument would be read from beyond its bytes: ask the driver for the kernel's own list.
void check_arguments(const std::string& symbol, const void* function, const std::vector<std::string>& arguments) {
#if CUDART_VERSION >= 12040
    std::size_t offset = 0, size = 0;
    for (std::size_t i = 0; i <= arguments.size(); ++i) {
        const cudaError_t code = cudaFuncGetParamInfo(function, i, &offset, &size);
        forget(code);
        if (i == arguments.size()) {
            if (code == cudaSuccess)
                throw std::invalid_argument(symbol + " takes more than " + std::to_string(i) + " arguments");
        } else if (code == cudaErrorInvalidValue) {
            throw std::invalid_argument(symbol + " takes " + std::to_string(i) + " arguments, not " +
                                        std::to_string(arguments.size()));
        } else if (code != cudaSuccess) {
            return;  // a driver older than the call
        } else if (size != arguments[i].size()) {
            throw std::invalid_argument(symbol + ": argument " + std::to_string(i) + " has " + std::to_string(size) +
                                        " bytes, not " + std::to_string(arguments[i].size()));
        }
    }
#else
    (void)symbol, (void)function, (void)arguments;
#endif
}

// Lets a kernel have more dynamic shared memory than the 48 KiB that every block may. Also loads it, which the first
// launch would do otherwise, and with it the device would stop.
void allow_shared(const void* function, std::size_t shared_bytes) {
    cudaFuncAttributes now{};
    GM_CUDA(cudaFuncGetAttributes(&now, function));
    if (static_cast<std::size_t>(now.maxDynamicSharedSizeBytes) < shared_bytes)
        GM_CUDA(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes)));
}

}  // namespace

Launch::Launch(const Symbol& kernel, Extent grid, Extent block, std::size_t shared_bytes,
               const std::vector<std::string>& arguments, int device)
    : symbol_(kernel.name),
      shape_("grid " + text(grid) + ", block " + text(block) + ", " + std::to_string(shared_bytes) +
             " bytes of dynamic shared memory"),
      function_(kernel.function),
      grid_(grid.x, grid.y, grid.z),
      block_(block.x, block.y, block.z),
      shared_bytes_(shared_bytes),
      device_(device) {
    std::size_t cells = 0;
    for (const std::string& argument : arguments) cells += (argument.size() + sizeof(Cell) - 1) / sizeof(Cell);
    storage_.resize(cells);
    std::size_t next = 0;
    for (const std::string& argument : arguments) {
        std::memcpy(storage_.data() + next, argument.data(), argument.size());
        arguments_.push_back(storage_.data() + next);
        next += (argument.size() + sizeof(Cell) - 1) / sizeof(Cell);
    }
    const DeviceScope scope(device);
    note_launch(symbol_, shape_);
    stream_ = measuring_stream(device);
    check_arguments(symbol_, function_, arguments);
    allow_shared(function_, shared_bytes_);
}

void Launch::enqueue(std::int64_t n, cudaStream_t stream) {
    note_launch(symbol_, shape_);
    for (std::int64_t i = 0; i < n; ++i)
        GM_CUDA(cudaLaunchKernel(function_, grid_, block_, arguments_.data(), shared_bytes_, stream));
}

void Launch::run(void* self, std::int64_t n) {
    auto& launch = *static_cast<Launch*>(self);
    const DeviceScope scope(launch.device_);
    launch.enqueue(n, launch.stream_);
}

cudaFuncAttributes attributes(const Symbol& kernel, int device) {
    const DeviceScope scope(device);
    cudaFuncAttributes found{};
    GM_CUDA(cudaFuncGetAttributes(&found, kernel.function));
    return found;
}

int occupancy(const Symbol& kernel, int device, int block_threads, std::size_t shared_bytes) {
    const DeviceScope scope(device);
    allow_shared(kernel.function, shared_bytes);  // else the driver answers 0 for more than 48 KiB
    int blocks = 0;
    GM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.function, block_threads, shared_bytes));
    return blocks;
}

}  // namespace gm
