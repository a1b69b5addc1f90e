#include "cuda/memory.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/hung.hpp"
#include "cuda/registry.hpp"
#include "cuda/stream.hpp"

namespace gm {
namespace {

Event event_of(int device) {
    const DeviceScope scope(device);
    return Event(cudaEventDisableTiming);
}

// CUDA 13 made a place of what was a device's number.
void prefetch(const void* address, std::size_t size_bytes, int device, cudaStream_t stream) {
#if CUDART_VERSION >= 13000
    cudaMemLocation place{};
    place.type = device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
    place.id = device < 0 ? 0 : device;
    GM_CUDA(cudaMemPrefetchAsync(address, size_bytes, place, 0, stream));
#else
    GM_CUDA(cudaMemPrefetchAsync(address, size_bytes, device < 0 ? cudaCpuDeviceId : device, stream));
#endif
}

}  // namespace

void MallocFree::run(std::int64_t n) {
    const DeviceScope scope(device_);
    for (std::int64_t i = 0; i < n; ++i) {
        void* address = nullptr;
        GM_CUDA(cudaMalloc(&address, size_bytes_));
        GM_CUDA(cudaFree(address));
    }
}

PoolPair::PoolPair(int device, std::size_t size_bytes)
    : device_(device), stream_(measuring_stream(device)), size_bytes_(size_bytes) {
    const DeviceScope scope(device);
    int pools = 0;
    GM_CUDA(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device));
    if (pools == 0) throw std::invalid_argument("this device or driver has no memory pools");
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.handleTypes = cudaMemHandleTypeNone;
    wanted.location.type = cudaMemLocationTypeDevice;
    wanted.location.id = device;
    GM_CUDA(cudaMemPoolCreate(&pool_, &wanted));
    unsigned long long keep = ~0ULL;  // bytes: more than there are, so nothing is given back
    const cudaError_t code = cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep);
    if (code == cudaSuccess) return;
    GM_CUDA_NOEXCEPT(cudaMemPoolDestroy(pool_));
    fail(code, "cudaMemPoolSetAttribute");
}

PoolPair::~PoolPair() {
    if (!is_hung(device_)) GM_CUDA_NOEXCEPT(cudaMemPoolDestroy(pool_));
}

void PoolPair::run(std::int64_t n) {
    const DeviceScope scope(device_);
    for (std::int64_t i = 0; i < n; ++i) {
        void* address = nullptr;
        GM_CUDA(cudaMallocFromPoolAsync(&address, size_bytes_, pool_, stream_));
        GM_CUDA(cudaFreeAsync(address, stream_));
    }
}

std::size_t PoolPair::ask(cudaMemPoolAttr which) const {
    unsigned long long bytes = 0;
    GM_CUDA(cudaMemPoolGetAttribute(pool_, which, &bytes));
    return static_cast<std::size_t>(bytes);
}

Prefetch::Prefetch(int device, void* address, std::size_t size_bytes)
    : device_(device), stream_(measuring_stream(device)), address_(address), size_bytes_(size_bytes) {}

void Prefetch::run(std::int64_t n) {
    const DeviceScope scope(device_);
    for (std::int64_t i = 0; i < n; ++i) {
        prefetch(address_, size_bytes_, device_, stream_);
        prefetch(address_, size_bytes_, -1, stream_);
    }
}

Touch::Touch(int device, void* address, std::size_t size_bytes, std::size_t page_bytes)
    : device_(device),
      stream_(measuring_stream(device)),
      address_(address),
      pages_(static_cast<long long>((size_bytes + page_bytes - 1) / page_bytes)),
      stride_(static_cast<long long>(page_bytes / 4)),
      kernel_(find_symbol("gm::touch").function) {
    if (page_bytes < 4 || page_bytes % 4 != 0)
        throw std::invalid_argument("a page has a multiple of 4 bytes, not " + std::to_string(page_bytes));
}

void Touch::run(std::int64_t n) {
    const DeviceScope scope(device_);
    const auto grid = static_cast<unsigned>(std::clamp<long long>((pages_ + 127) / 128, 1, 1024));
    note_launch("gm::touch", "grid " + std::to_string(grid) + "x1x1, block 128x1x1");
    for (std::int64_t i = 0; i < n; ++i) {
        void* arguments[] = {&address_, &pages_, &stride_};
        GM_CUDA(cudaLaunchKernel(kernel_, dim3(grid), dim3(128), arguments, 0, stream_));
        wait(stream_);
        auto* words = static_cast<volatile std::uint32_t*>(address_);
        for (long long page = 0; page < pages_; ++page) words[page * stride_] = words[page * stride_] + 1;
    }
}

Synced::Synced(int device, Work inner, bool each)
    : device_(device), stream_(measuring_stream(device)), inner_(inner), each_(each) {}

void Synced::run(std::int64_t n) {
    if (is_hung(device_)) fail(cudaErrorLaunchTimeout, "cudaStreamSynchronize", "a kernel hangs on this device", true);
    const DeviceScope scope(device_);
    for (std::int64_t done = 0; done < n;) {
        const std::int64_t runs = each_ ? 1 : n;
        if (inner_.run != nullptr) inner_.run(inner_.context, runs);
        GM_CUDA(cudaStreamSynchronize(stream_));
        done += runs;
    }
}

EventTrip::EventTrip(int device) : device_(device), stream_(measuring_stream(device)), event_(event_of(device)) {}

void EventTrip::run(std::int64_t n) {
    const DeviceScope scope(device_);
    for (std::int64_t i = 0; i < n; ++i) {
        GM_CUDA(cudaEventRecord(event_.get(), stream_));
        GM_CUDA(cudaEventSynchronize(event_.get()));
    }
}

Spin::Spin(int device, unsigned long long step, bool of_cycles)
    : device_(device),
      stream_(measuring_stream(device)),
      step_(step),
      symbol_(of_cycles ? "gm::spin_cycles" : "gm::spin_ns"),
      kernel_(find_symbol(symbol_).function) {}

void Spin::run(std::int64_t n) {
    const DeviceScope scope(device_);
    unsigned long long length = step_ * static_cast<unsigned long long>(n);
    void* arguments[] = {&length};
    note_launch(symbol_, "grid 1x1x1, block 32x1x1");
    GM_CUDA(cudaLaunchKernel(kernel_, dim3(1), dim3(32), arguments, 0, stream_));
}

}  // namespace gm
