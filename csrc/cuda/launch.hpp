// The one launcher: a kernel, of the registry or of a module, its shape and its arguments, bound.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/check.hpp"
#include "cuda/registry.hpp"
#include "timing/work.hpp"

namespace gm {

struct Extent {
    unsigned x = 1, y = 1, z = 1;
};

class Launch {
  public:
    // `arguments`: the bytes of each, in the kernel's order. Throws std::invalid_argument where their number or sizes
    // are not the kernel's (as far as the driver tells, from CUDA 12.4 on), CudaFailure where the device cannot run it.
    Launch(const Symbol& kernel, Extent grid, Extent block, std::size_t shared_bytes,
           const std::vector<std::string>& arguments, int device);
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

    // Enqueues n launches, one after the other, and returns; the device must be the current one.
    void enqueue(std::int64_t n, cudaStream_t stream);
    // The same on the device's measuring stream, whatever the current device. This object must outlive it.
    Work work() { return {&Launch::run, this}; }

    int device() const { return device_; }
    const std::string& symbol() const { return symbol_; }
    const std::string& shape() const { return shape_; }

  private:
    struct alignas(64) Cell {  // a TMA descriptor's alignment
        unsigned char bytes[64];
    };
    static void run(void* self, std::int64_t n);

    std::string symbol_, shape_;
    const void* function_;
    dim3 grid_, block_;
    std::size_t shared_bytes_;
    int device_;
    cudaStream_t stream_ = nullptr;
    std::vector<Cell> storage_;
    std::vector<void*> arguments_;  // into storage_
};

// What the compiler made of a kernel; see cudaFuncAttributes.
cudaFuncAttributes attributes(const Symbol& kernel, int device);

// Blocks that one SM holds at a time.
int occupancy(const Symbol& kernel, int device, int block_threads, std::size_t shared_bytes);

}  // namespace gm
