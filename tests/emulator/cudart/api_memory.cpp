// Allocation on the device, on the host and managed; pools.
#include <algorithm>
#include <cstring>

#include "api.hpp"
#include "memory.hpp"
#include "stream.hpp"

using namespace ptxemu;

namespace {
Memory& memory() { return Memory::instance(); }

cudaError_t allocate(void** out, std::size_t bytes, MemoryKind kind) {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    *out = memory().allocate(bytes, current_device(), kind, device_facts().memory_bytes);
    return *out == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

// Frees what begins at `pointer`, after all work of the device, as the runtime does.
cudaError_t release(void* pointer, bool host) {
    if (pointer == nullptr) return cudaSuccess;
    Allocation found;
    if (!memory().find(reinterpret_cast<u64>(pointer), &found) || found.begin != reinterpret_cast<u64>(pointer))
        return cudaErrorInvalidValue;
    if ((found.kind == MemoryKind::pinned) != host || found.kind == MemoryKind::registered)
        return cudaErrorInvalidValue;
    context(found.device).synchronize();
    memory().release(pointer);
    return context(current_device()).failure();
}

cudaMemPool_t pool_of(int device) { return reinterpret_cast<cudaMemPool_t>(static_cast<std::uintptr_t>(device) + 1); }
int device_of(cudaMemPool_t pool) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(pool)) - 1; }
bool valid(cudaMemPool_t pool) { return device_of(pool) >= 0 && device_of(pool) < device_count(); }

cudaError_t allocate_async(void** out, std::size_t bytes, cudaStream_t handle) {
    const auto stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    if (bytes == 0) return cudaErrorInvalidValue;
    const cudaError_t code = allocate(out, bytes, MemoryKind::device);
    if (code == cudaSuccess) return code;
    stream->finish();  // what was freed in the stream's order may serve
    return allocate(out, bytes, MemoryKind::device);
}
}  // namespace

PTXEMU_API cudaError_t cudaMalloc(void** out, std::size_t bytes) {
    return call("cudaMalloc", [&] { return allocate(out, bytes, MemoryKind::device); });
}
PTXEMU_API cudaError_t cudaFree(void* pointer) {
    return call("cudaFree", [&] { return release(pointer, false); });
}
PTXEMU_API cudaError_t cudaMallocManaged(void** out, std::size_t bytes, unsigned) {
    return call("cudaMallocManaged",
                [&] { return bytes == 0 ? cudaErrorInvalidValue : allocate(out, bytes, MemoryKind::managed); });
}
PTXEMU_API cudaError_t cudaMallocHost(void** out, std::size_t bytes) {
    return call("cudaMallocHost", [&] { return allocate(out, bytes, MemoryKind::pinned); });
}
PTXEMU_API cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
    return call("cudaHostAlloc", [&] { return allocate(out, bytes, MemoryKind::pinned); });
}
PTXEMU_API cudaError_t cudaFreeHost(void* pointer) {
    return call("cudaFreeHost", [&] { return release(pointer, true); });
}

PTXEMU_API cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
    return call("cudaHostRegister", [&] {
        Allocation found;
        if (pointer == nullptr || bytes == 0) return cudaErrorInvalidValue;
        if (memory().find(reinterpret_cast<u64>(pointer), &found)) return cudaErrorHostMemoryAlreadyRegistered;
        memory().enter(pointer, bytes, current_device(), MemoryKind::registered);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaHostUnregister(void* pointer) {
    return call("cudaHostUnregister", [&] {
        Allocation found;
        const bool known =
            memory().find(reinterpret_cast<u64>(pointer), &found) && found.kind == MemoryKind::registered;
        return known && memory().release(pointer) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
    });
}
PTXEMU_API cudaError_t cudaHostGetDevicePointer(void** out, void* pointer, unsigned) {
    return call("cudaHostGetDevicePointer", [&] {
        Allocation found;
        if (!memory().find(reinterpret_cast<u64>(pointer), &found) || found.kind == MemoryKind::device)
            return cudaErrorInvalidValue;
        *out = pointer;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
    return call("cudaMemGetInfo", [&] {
        *total = device_facts().memory_bytes;
        *free_bytes = *total - std::min<u64>(*total, memory().used(current_device()));
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    return call("cudaPointerGetAttributes", [&] {
        std::memset(attributes, 0, sizeof *attributes);
        attributes->device = -2;
        attributes->hostPointer = const_cast<void*>(pointer);
        Allocation found;
        if (!memory().find(reinterpret_cast<u64>(pointer), &found)) return cudaSuccess;  // cudaMemoryTypeUnregistered
        const bool on_device = found.kind == MemoryKind::device || found.kind == MemoryKind::module;
        attributes->type = on_device                           ? cudaMemoryTypeDevice
                           : found.kind == MemoryKind::managed ? cudaMemoryTypeManaged
                                                               : cudaMemoryTypeHost;
        attributes->device = found.device;
        attributes->devicePointer = const_cast<void*>(pointer);
        if (on_device) attributes->hostPointer = nullptr;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, cudaMemLocation) {
    return call("cudaMemAdvise", [] { return cudaSuccess; });
}
PTXEMU_API cudaError_t cudaMemPrefetchAsync(const void* pointer, std::size_t, cudaMemLocation, unsigned,
                                            cudaStream_t handle) {
    return call("cudaMemPrefetchAsync", [&] {
        Allocation found;
        if (!memory().find(reinterpret_cast<u64>(pointer), &found) || found.kind != MemoryKind::managed)
            return cudaErrorInvalidValue;
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        stream->enqueue(cudaGraphNodeTypeEmpty, [] {});
        return cudaSuccess;
    });
}

PTXEMU_API cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t stream) {
    return call("cudaMallocAsync", [&] { return allocate_async(out, bytes, stream); });
}
PTXEMU_API cudaError_t cudaMallocFromPoolAsync(void** out, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    return call("cudaMallocFromPoolAsync",
                [&] { return valid(pool) ? allocate_async(out, bytes, stream) : cudaErrorInvalidValue; });
}
PTXEMU_API cudaError_t cudaFreeAsync(void* pointer, cudaStream_t handle) {
    return call("cudaFreeAsync", [&] {
        Allocation found;
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (!memory().find(reinterpret_cast<u64>(pointer), &found) || found.begin != reinterpret_cast<u64>(pointer))
            return cudaErrorInvalidValue;
        stream->submit([pointer] { memory().release(pointer); });
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    return call("cudaDeviceGetDefaultMemPool", [&] {
        if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
        *pool = pool_of(device);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
    return call("cudaDeviceGetMemPool", [&] {
        if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
        *pool = pool_of(device);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t) {
    return call("cudaDeviceSetMemPool", [] { return cudaSuccess; });
}
PTXEMU_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t) {
    return call("cudaMemPoolTrimTo", [&] { return valid(pool) ? cudaSuccess : cudaErrorInvalidValue; });
}
PTXEMU_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
    return call("cudaMemPoolSetAttribute", [&] {
        if (!valid(pool)) return cudaErrorInvalidValue;
        if (which == cudaMemPoolAttrReleaseThreshold)
            context(device_of(pool)).release_threshold = *static_cast<u64*>(value);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
    return call("cudaMemPoolGetAttribute", [&] {
        if (!valid(pool)) return cudaErrorInvalidValue;
        const int device = device_of(pool);
        if (which == cudaMemPoolAttrReleaseThreshold) {
            *static_cast<u64*>(value) = context(device).release_threshold;
        } else if (which >= cudaMemPoolAttrReservedMemCurrent) {
            *static_cast<u64*>(value) = memory().used(device);
        } else {
            *static_cast<int*>(value) = 1;
        }
        return cudaSuccess;
    });
}
