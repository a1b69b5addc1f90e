// Stream-ordered allocation.
#include "api.hpp"
#include "memory.hpp"
#include "pool.hpp"

namespace ptxemu {
namespace {
std::mutex pools_mutex;
std::map<const void*, std::shared_ptr<Pool>>& pools() {
    static auto* all = new std::map<const void*, std::shared_ptr<Pool>>;
    return *all;
}

bool valid(int device) { return device >= 0 && device < device_count(); }

cudaError_t allocate(void** out, std::size_t bytes, const std::shared_ptr<Pool>& pool, cudaStream_t handle) {
    const auto stream = stream_of(handle);
    if (pool == nullptr || out == nullptr || bytes == 0) return cudaErrorInvalidValue;
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    *out = pool->take(bytes, stream);
    if (*out != nullptr) return cudaSuccess;
    stream->finish();  // what was freed in the stream's order may serve
    pool->trim(0);
    *out = pool->take(bytes, stream);
    return *out == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t give_back(void* pointer, cudaStream_t handle) {
    const auto stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    {
        const std::lock_guard<std::mutex> lock(pools_mutex);
        for (const auto& [unused, pool] : pools()) {
            if (pool->give_back(pointer, stream)) return cudaSuccess;
        }
    }
    Allocation found;
    const u64 address = reinterpret_cast<u64>(pointer);
    if (!Memory::instance().find(address, &found) || found.begin != address) return cudaErrorInvalidValue;
    stream->submit([pointer] { Memory::instance().release(pointer); });
    return cudaSuccess;
}
}  // namespace

std::shared_ptr<Pool> pool_of(cudaMemPool_t handle) {
    const std::lock_guard<std::mutex> lock(pools_mutex);
    const auto at = pools().find(handle);
    return at == pools().end() ? nullptr : at->second;
}

std::shared_ptr<Pool> default_pool(int device) {
    static auto* found = new std::map<int, std::shared_ptr<Pool>>;
    const std::lock_guard<std::mutex> lock(pools_mutex);
    std::shared_ptr<Pool>& pool = (*found)[device];
    if (pool == nullptr) {
        pool = std::make_shared<Pool>(device);
        pools()[pool.get()] = pool;
    }
    return pool;
}
}  // namespace ptxemu

using namespace ptxemu;

PTXEMU_API cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t stream) {
    return call("cudaMallocAsync", [&] { return allocate(out, bytes, default_pool(current_device()), stream); });
}
PTXEMU_API cudaError_t cudaMallocFromPoolAsync(void** out, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    return call("cudaMallocFromPoolAsync", [&] { return allocate(out, bytes, pool_of(pool), stream); });
}
PTXEMU_API cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    return call("cudaFreeAsync", [&] { return give_back(pointer, stream); });
}
PTXEMU_API cudaError_t cudaMemPoolCreate(cudaMemPool_t* out, const cudaMemPoolProps* properties) {
    return call("cudaMemPoolCreate", [&] {
        const bool on_device = properties->location.type == cudaMemLocationTypeDevice;
        if (properties->allocType != cudaMemAllocationTypePinned || !on_device) return cudaErrorInvalidValue;
        if (!valid(properties->location.id)) return cudaErrorInvalidDevice;
        const auto pool = std::make_shared<Pool>(properties->location.id);
        const std::lock_guard<std::mutex> lock(pools_mutex);
        pools()[pool.get()] = pool;
        *out = reinterpret_cast<cudaMemPool_t>(pool.get());
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
    return call("cudaMemPoolDestroy", [&] {
        const auto pool = pool_of(handle);
        if (pool == nullptr) return cudaErrorInvalidValue;
        context(current_device()).synchronize();  // frees under way still name the pool
        pool->trim(0);
        const std::lock_guard<std::mutex> lock(pools_mutex);
        pools().erase(handle);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* out, int device) {
    return call("cudaDeviceGetDefaultMemPool", [&] {
        if (!valid(device)) return cudaErrorInvalidDevice;
        *out = reinterpret_cast<cudaMemPool_t>(default_pool(device).get());
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* out, int device) {
    return call("cudaDeviceGetMemPool", [&] {
        if (!valid(device)) return cudaErrorInvalidDevice;
        *out = reinterpret_cast<cudaMemPool_t>(default_pool(device).get());
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, std::size_t keep) {
    return call("cudaMemPoolTrimTo", [&] {
        const auto pool = pool_of(handle);
        if (pool == nullptr) return cudaErrorInvalidValue;
        pool->trim(keep);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr which, void* value) {
    return call("cudaMemPoolSetAttribute", [&] {
        const auto pool = pool_of(handle);
        return pool == nullptr ? cudaErrorInvalidValue : pool->set(which, value);
    });
}
PTXEMU_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr which, void* value) {
    return call("cudaMemPoolGetAttribute", [&] {
        const auto pool = pool_of(handle);
        return pool == nullptr ? cudaErrorInvalidValue : pool->get(which, value);
    });
}
