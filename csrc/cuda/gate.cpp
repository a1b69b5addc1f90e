#include "cuda/gate.hpp"

#include <atomic>
#include <new>

#include "cuda/registry.hpp"

namespace gm {

// On lines of their own: the device polls the one while the host may read the other.
struct Gate::Words {
    alignas(128) std::atomic<std::uint32_t> opened;
    alignas(128) std::atomic<std::uint32_t> expired;
};

Gate::Gate(int device, cudaStream_t stream)
    : stream_(stream),
      memory_(device, sizeof(Words), Memory::pinned),
      words_(new (memory_.address()) Words{}),
      kernel_(find_symbol("gm::gate").function) {
    const DeviceScope scope(device);
    GM_CUDA(cudaHostGetDevicePointer(&opened_, &words_->opened, 0));
    GM_CUDA(cudaHostGetDevicePointer(&expired_, &words_->expired, 0));
}

void Gate::close(std::uint32_t ticket, double timeout_s, std::uint64_t delay) {
    auto timeout_ns = static_cast<unsigned long long>(1e9 * timeout_s);
    auto cycles = static_cast<unsigned long long>(delay);
    void* arguments[] = {&opened_, &ticket, &expired_, &timeout_ns, &cycles};
    GM_CUDA(cudaLaunchKernel(kernel_, dim3(1), dim3(32), arguments, 0, stream_));
}

void Gate::open(std::uint32_t ticket) noexcept { words_->opened.store(ticket, std::memory_order_release); }

bool Gate::expired(std::uint32_t ticket) const { return words_->expired.load(std::memory_order_acquire) == ticket; }

}  // namespace gm
