// Copies as works. Addresses are the caller's, who keeps the memory.
#pragma once
#include <cstddef>
#include <string>

#include "cuda/handles.hpp"
#include "cuda/task.hpp"

namespace gm {

struct Transfer {
    void* to;
    const void* from;
    std::size_t size_bytes;
};

cudaMemcpyKind kind_of(const std::string& direction);  // "h2d", "d2h", "d2d"; throws std::invalid_argument

// Enqueues n copies on the measuring stream. A copy from or to pageable memory returns when it is done or staged.
class Copy : public Task {
  public:
    Copy(int device, const Transfer& transfer, cudaMemcpyKind kind);
    void run(std::int64_t n) override;

  private:
    int device_;
    cudaStream_t stream_;
    Transfer transfer_;
    cudaMemcpyKind kind_;
};

// Enqueues n copies to the device and, on a stream beside it, n copies from it; the measuring stream waits for both.
class CopyBoth : public Task {
  public:
    CopyBoth(int device, const Transfer& in, const Transfer& out);
    void run(std::int64_t n) override;

  private:
    int device_;
    cudaStream_t stream_;
    Stream beside_;
    Event fork_, join_;
    Transfer in_, out_;
};

// Enqueues n copies from one device to another on the measuring stream of the first.
class CopyPeer : public Task {
  public:
    CopyPeer(int from_device, int to_device, const Transfer& transfer);
    void run(std::int64_t n) override;

  private:
    int from_device_, to_device_;
    cudaStream_t stream_;
    Transfer transfer_;
};

// Direct access of two devices to each other's memory, while this lives. What was on already stays on.
class PeerAccess {
  public:
    PeerAccess(int a, int b, bool wanted);  // CudaFailure where it cannot be had
    ~PeerAccess();
    PeerAccess(const PeerAccess&) = delete;
    PeerAccess& operator=(const PeerAccess&) = delete;

    static bool possible(int a, int b);  // both ways

  private:
    int a_, b_;
    bool wanted_;
    bool before_[2] = {false, false};
};

}  // namespace gm
