#include "cuda/handles.hpp"

#include <cuda.h>  // types only: libcuda is never linked

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "cuda/hung.hpp"
#include "cuda/loader.hpp"
#include "cuda/stream.hpp"

namespace gm {
namespace {

// Whether this thread has a context of CUDA's; true where the driver has no way to tell.
bool has_context() {
    using Current = CUresult(CUcontext*);
    static auto* const current = reinterpret_cast<Current*>(driver_function("cuCtxGetCurrent", 4000));
    CUcontext context = nullptr;
    return current == nullptr || (current(&context) == CUDA_SUCCESS && context != nullptr);
}

}  // namespace

DeviceScope::DeviceScope(int device) {
    GM_CUDA(cudaGetDevice(&before_));
    if (device == before_) return;
    back_ = has_context();
    GM_CUDA(cudaSetDevice(device));
}

Memory memory_of(const std::string& kind) {
    if (kind == "device") return Memory::device;
    if (kind == "pinned") return Memory::pinned;
    if (kind == "managed") return Memory::managed;
    if (kind == "host") return Memory::host;
    throw std::invalid_argument("unknown kind of memory '" + kind + "': device, pinned, managed or host");
}

Buffer::Buffer(int device, std::size_t size_bytes, Memory kind)
    : size_bytes_(size_bytes), device_(device), kind_(kind) {
    if (size_bytes == 0) return;
    if (kind == Memory::host) {
        constexpr std::size_t page = 4096;
        if (size_bytes > SIZE_MAX - page) throw std::bad_alloc();
        address_ = std::aligned_alloc(page, (size_bytes + page - 1) / page * page);
        if (address_ == nullptr) throw std::bad_alloc();
        return;
    }
    const DeviceScope scope(device);
    if (kind == Memory::device) GM_CUDA(cudaMalloc(&address_, size_bytes));
    if (kind == Memory::pinned)
        GM_CUDA(cudaHostAlloc(&address_, size_bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    if (kind == Memory::managed) GM_CUDA(cudaMallocManaged(&address_, size_bytes, cudaMemAttachGlobal));
}

void Buffer::release() noexcept {
    void* const address = std::exchange(address_, nullptr);
    size_bytes_ = 0;
    if (address == nullptr || (kind_ != Memory::host && is_hung(device_))) return;  // freeing waits for the device
    if (kind_ == Memory::host)
        std::free(address);
    else if (kind_ == Memory::pinned)
        GM_CUDA_NOEXCEPT(cudaFreeHost(address));
    else
        GM_CUDA_NOEXCEPT(cudaFree(address));  // an address belongs to its device, whichever is current
}

void Buffer::check_range(std::size_t size_bytes, std::size_t offset_bytes) const {
    if (offset_bytes > size_bytes_ || size_bytes > size_bytes_ - offset_bytes)
        throw std::invalid_argument(std::to_string(size_bytes) + " bytes at offset " + std::to_string(offset_bytes) +
                                    " do not fit into a buffer of " + std::to_string(size_bytes_));
}

void Buffer::upload(const void* from, std::size_t size_bytes, std::size_t offset_bytes) {
    check_range(size_bytes, offset_bytes);
    if (size_bytes == 0) return;
    char* const to = static_cast<char*>(address_) + offset_bytes;
    if (kind_ == Memory::host) {
        std::memcpy(to, from, size_bytes);
        return;
    }
    const DeviceScope scope(device_);
    const cudaStream_t stream = measuring_stream(device_);
    GM_CUDA(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, stream));
    wait(stream);
}

void Buffer::download(void* to, std::size_t size_bytes, std::size_t offset_bytes) const {
    check_range(size_bytes, offset_bytes);
    if (size_bytes == 0) return;
    const char* const from = static_cast<const char*>(address_) + offset_bytes;
    if (kind_ == Memory::host) {
        std::memcpy(to, from, size_bytes);
        return;
    }
    const DeviceScope scope(device_);
    const cudaStream_t stream = measuring_stream(device_);
    GM_CUDA(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, stream));
    wait(stream);
}

void Buffer::fill(unsigned char byte) {
    if (size_bytes_ == 0) return;
    if (kind_ == Memory::host) {
        std::memset(address_, byte, size_bytes_);
        return;
    }
    const DeviceScope scope(device_);
    const cudaStream_t stream = measuring_stream(device_);
    GM_CUDA(cudaMemsetAsync(address_, byte, size_bytes_, stream));
    wait(stream);
}

}  // namespace gm
