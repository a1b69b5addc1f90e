// Memory pools: what is freed in a stream's order is kept and given out again, in the same stream at once.
#pragma once
#include <cuda_runtime_api.h>

#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "stream.hpp"

namespace ptxemu {
class Pool {
  public:
    explicit Pool(int device) : device_(device) {}
    // nullptr where there is no memory left.
    void* take(u64 bytes, const std::shared_ptr<Stream>& stream);
    bool give_back(void* pointer, const std::shared_ptr<Stream>& stream);  // false: none of this pool's
    void trim(u64 keep);
    cudaError_t set(cudaMemPoolAttr which, const void* value);
    cudaError_t get(cudaMemPoolAttr which, void* value);

  private:
    struct Idle {
        void* pointer;
        u64 bytes;
        std::shared_ptr<Stream> stream;  // where it was freed
        bool reached;                    // that stream has come to the free
    };
    void release_reached(u64 keep);
    const int device_;
    std::mutex mutex_;
    std::map<void*, u64> live_;
    std::list<Idle> idle_;
    u64 threshold_ = 0;
    u64 used_ = 0, used_high_ = 0, reserved_ = 0, reserved_high_ = 0;
};

// The pool of a handle; that of the device's default pool for the handle that cudaDeviceGetDefaultMemPool gives.
std::shared_ptr<Pool> pool_of(cudaMemPool_t handle);
std::shared_ptr<Pool> default_pool(int device);
}  // namespace ptxemu
