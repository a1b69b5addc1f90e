// The emulated devices: facts from the environment, the state of each context, and the errors that end one.
#pragma once
#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "types.hpp"

namespace ptxemu {
class Stream;

struct DeviceFacts {
    std::string name;
    int multiprocessors = 2;
    int l2_bytes = 64 << 10;
    u64 memory_bytes = u64{256} << 20;
    int shared_bytes = 233472;  // of a multiprocessor
    int major = 9;
    int minor = 0;
};

// PTXEMU_DEVICES, _SMS, _L2, _MEMORY, _SHARED (bytes), _CC ("9.0"), _TIMEOUT (seconds of a launch).
const DeviceFacts& device_facts();
int device_count();
double launch_timeout_s();

constexpr int kSharedDefault = 49152;  // dynamic and static shared memory of a block without opting in
constexpr int kSharedReserved = 1024;  // of a multiprocessor, for each block

struct Context {
    int device = 0;
    std::mutex order;                // submissions, so that the legacy stream and the others agree on who is first
    std::shared_ptr<Stream> legacy;  // stream 0
    std::vector<std::weak_ptr<Stream>> streams;
    u64 release_threshold = 0;  // of the default memory pool

    cudaError_t failure() const;
    void fail(cudaError_t code);  // sticky: every later call returns it
    void reset();
    void synchronize();

  private:
    mutable std::mutex mutex_;
    cudaError_t failure_ = cudaSuccess;
};

Context& context(int device);
int current_device();
void set_current_device(int device);

// Whether an error ends the context, as the runtime's documentation says of it.
bool is_sticky(cudaError_t code);
}  // namespace ptxemu
