// Allocation, managed memory and round trips as works.
#pragma once
#include <cstddef>
#include <string>

#include "cuda/handles.hpp"
#include "cuda/task.hpp"

namespace gm {

// n pairs of cudaMalloc and cudaFree; done when it returns.
class MallocFree : public Task {
  public:
    MallocFree(int device, std::size_t size_bytes) : device_(device), size_bytes_(size_bytes) {}
    void run(std::int64_t n) override;

  private:
    int device_;
    std::size_t size_bytes_;
};

// n pairs of cudaMallocFromPoolAsync and cudaFreeAsync on the measuring stream, from a pool of its own that gives
// nothing back to the driver: after the first pair the same memory serves again.
class PoolPair : public Task {
  public:
    PoolPair(int device, std::size_t size_bytes);
    ~PoolPair() override;
    void run(std::int64_t n) override;

    // Bytes that the pool holds, and the most it ever held.
    std::size_t reserved_bytes() const { return ask(cudaMemPoolAttrReservedMemCurrent); }
    std::size_t most_used_bytes() const { return ask(cudaMemPoolAttrUsedMemHigh); }

  private:
    std::size_t ask(cudaMemPoolAttr which) const;

    int device_;
    cudaStream_t stream_;
    std::size_t size_bytes_;
    cudaMemPool_t pool_ = nullptr;
};

// n times: managed memory to the device and back to the host by prefetch, on the measuring stream.
class Prefetch : public Task {
  public:
    Prefetch(int device, void* address, std::size_t size_bytes);
    void run(std::int64_t n) override;

  private:
    int device_;
    cudaStream_t stream_;
    void* address_;
    std::size_t size_bytes_;
};

// n times: a kernel adds 1 to the first word of every page of managed memory, then the host does; each time the page
// has to move on demand. Done when it returns.
class Touch : public Task {
  public:
    Touch(int device, void* address, std::size_t size_bytes, std::size_t page_bytes);
    void run(std::int64_t n) override;

  private:
    int device_;
    cudaStream_t stream_;
    void* address_;
    long long pages_, stride_;  // in 4-byte words
    const void* kernel_;
};

// n times: `inner` once and the host waits for the measuring stream. With each = false the host waits once, after n
// runs. Without `inner` nothing is enqueued.
class Synced : public Task {
  public:
    Synced(int device, Work inner, bool each);
    void run(std::int64_t n) override;

  private:
    int device_;
    cudaStream_t stream_;
    Work inner_;
    bool each_;
};

// n times: an event is recorded and the host waits for it.
class EventTrip : public Task {
  public:
    explicit EventTrip(int device);
    void run(std::int64_t n) override;

  private:
    int device_;
    cudaStream_t stream_;
    Event event_;
};

// One kernel that spins for n times `step` nanoseconds of the device's timer, or cycles of an SM: known truth.
class Spin : public Task {
  public:
    Spin(int device, unsigned long long step, bool of_cycles);
    void run(std::int64_t n) override;

  private:
    int device_;
    cudaStream_t stream_;
    unsigned long long step_;
    std::string symbol_;
    const void* kernel_;
};

}  // namespace gm
