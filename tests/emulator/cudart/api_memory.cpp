// Allocation on the device, on the host and managed.
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
