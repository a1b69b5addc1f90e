// Devices: count, choice, properties, peers, versions.
#include <cstdio>
#include <cstring>

#include "api.hpp"
#include "memory.hpp"

using namespace ptxemu;

namespace {
bool valid(int device) { return device >= 0 && device < device_count(); }

void fill(cudaDeviceProp* properties, int device) {
    const DeviceFacts& facts = device_facts();
    std::memset(properties, 0, sizeof *properties);
    std::snprintf(properties->name, sizeof properties->name, "%s", facts.name.c_str());
    std::snprintf(properties->uuid.bytes, sizeof properties->uuid.bytes, "PTXEMU-dev%03d", device & 255);
    properties->totalGlobalMem = facts.memory_bytes;
    properties->sharedMemPerBlock = kSharedDefault;
    properties->sharedMemPerBlockOptin = static_cast<std::size_t>(facts.shared_bytes - kSharedReserved);
    properties->sharedMemPerMultiprocessor = static_cast<std::size_t>(facts.shared_bytes);
    properties->reservedSharedMemPerBlock = kSharedReserved;
    properties->totalConstMem = 65536;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = 2147483647;
    properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->maxBlocksPerMultiProcessor = 32;
    properties->major = facts.major;
    properties->minor = facts.minor;
    properties->multiProcessorCount = facts.multiprocessors;
    properties->l2CacheSize = facts.l2_bytes;
    properties->memoryBusWidth = 256;
    properties->pciBusID = device + 1;
    properties->asyncEngineCount = 2;
    properties->canMapHostMemory = properties->unifiedAddressing = properties->managedMemory = 1;
    properties->concurrentManagedAccess = properties->concurrentKernels = properties->cooperativeLaunch = 1;
    properties->streamPrioritiesSupported = properties->globalL1CacheSupported = 1;
    properties->memoryPoolsSupported = properties->hostRegisterSupported = 1;
    properties->canUseHostPointerForRegisteredMem = properties->computePreemptionSupported = 1;
    properties->memPitch = 2147483647;
}

// The attributes that are no field of the properties, and the fields by attribute.
int attribute(cudaDeviceAttr which, int device) {
    cudaDeviceProp p;
    fill(&p, device);
    switch (which) {
        case cudaDevAttrMaxThreadsPerBlock:
            return p.maxThreadsPerBlock;
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY:
            return 1024;
        case cudaDevAttrMaxBlockDimZ:
            return 64;
        case cudaDevAttrMaxGridDimX:
            return p.maxGridSize[0];
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ:
            return 65535;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            return static_cast<int>(p.sharedMemPerBlock);
        case cudaDevAttrTotalConstantMemory:
            return 65536;
        case cudaDevAttrWarpSize:
            return 32;
        case cudaDevAttrMaxRegistersPerBlock:
        case cudaDevAttrMaxRegistersPerMultiprocessor:
            return 65536;
        case cudaDevAttrClockRate:
            return 1000000;  // kHz
        case cudaDevAttrMemoryClockRate:
            return 1000000;  // kHz
        case cudaDevAttrGlobalMemoryBusWidth:
            return p.memoryBusWidth;
        case cudaDevAttrMultiProcessorCount:
            return p.multiProcessorCount;
        case cudaDevAttrL2CacheSize:
            return p.l2CacheSize;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            return p.maxThreadsPerMultiProcessor;
        case cudaDevAttrMaxBlocksPerMultiprocessor:
            return p.maxBlocksPerMultiProcessor;
        case cudaDevAttrPciBusId:
            return p.pciBusID;
        case cudaDevAttrAsyncEngineCount:
            return p.asyncEngineCount;
        case cudaDevAttrComputeCapabilityMajor:
            return p.major;
        case cudaDevAttrComputeCapabilityMinor:
            return p.minor;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            return static_cast<int>(p.sharedMemPerMultiprocessor);
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            return static_cast<int>(p.sharedMemPerBlockOptin);
        case cudaDevAttrReservedSharedMemoryPerBlock:
            return kSharedReserved;
        case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrManagedMemory:
        case cudaDevAttrConcurrentKernels:
        case cudaDevAttrCanMapHostMemory:
        case cudaDevAttrConcurrentManagedAccess:
        case cudaDevAttrCooperativeLaunch:
        case cudaDevAttrStreamPrioritiesSupported:
        case cudaDevAttrGlobalL1CacheSupported:
        case cudaDevAttrMemoryPoolsSupported:
        case cudaDevAttrHostRegisterSupported:
        case cudaDevAttrCanUseHostPointerForRegisteredMem:
        case cudaDevAttrComputePreemptionSupported:
            return 1;
        default:
            return 0;
    }
}
}  // namespace

PTXEMU_API cudaError_t cudaGetDeviceCount(int* count) {
    return call_anyway("cudaGetDeviceCount", [&] {
        *count = device_count();
        return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
    });
}
PTXEMU_API cudaError_t cudaSetDevice(int device) {
    return call_anyway("cudaSetDevice", [&] {
        if (!valid(device)) return cudaErrorInvalidDevice;
        set_current_device(device);
        return context(device).failure();
    });
}
PTXEMU_API cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
    return call_anyway("cudaInitDevice", [&] { return valid(device) ? cudaSuccess : cudaErrorInvalidDevice; });
}
PTXEMU_API cudaError_t cudaGetDevice(int* device) {
    return call_anyway("cudaGetDevice", [&] {
        *device = current_device();
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return call_anyway("cudaGetDeviceProperties", [&] {
        if (!valid(device)) return cudaErrorInvalidDevice;
        fill(properties, device);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
    return call_anyway("cudaDeviceGetAttribute", [&] {
        if (!valid(device)) return cudaErrorInvalidDevice;
        *value = attribute(which, device);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
    return call_anyway("cudaDeviceGetPCIBusId", [&] {
        if (!valid(device)) return cudaErrorInvalidDevice;
        std::snprintf(text, static_cast<std::size_t>(size), "0000:%02X:00.0", static_cast<unsigned>(device + 1));
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
    return call_anyway("cudaDeviceGetByPCIBusId", [&] {
        unsigned domain = 0, bus = 0;
        if (std::sscanf(text, "%x:%x", &domain, &bus) != 2 || !valid(static_cast<int>(bus) - 1))
            return cudaErrorInvalidValue;
        *device = static_cast<int>(bus) - 1;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceSynchronize() {
    return call("cudaDeviceSynchronize", [] {
        context(current_device()).synchronize();
        return context(current_device()).failure();
    });
}
PTXEMU_API cudaError_t cudaDeviceReset() {
    return call_anyway("cudaDeviceReset", [] {
        context(current_device()).reset();
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaSetDeviceFlags(unsigned) {
    return call("cudaSetDeviceFlags", [] { return cudaSuccess; });
}
PTXEMU_API cudaError_t cudaGetDeviceFlags(unsigned* flags) {
    return call("cudaGetDeviceFlags", [&] {
        *flags = cudaDeviceMapHost;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) {
    return call("cudaDeviceSetLimit", [] { return cudaSuccess; });
}
PTXEMU_API cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit) {
    return call("cudaDeviceGetLimit", [&] {
        *value = 0;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaCtxResetPersistingL2Cache() {
    return call("cudaCtxResetPersistingL2Cache", [] { return cudaSuccess; });
}
PTXEMU_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return call("cudaDeviceGetStreamPriorityRange", [&] {
        if (least != nullptr) *least = 0;
        if (greatest != nullptr) *greatest = -5;
        return cudaSuccess;
    });
}

PTXEMU_API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    return call_anyway("cudaDeviceCanAccessPeer", [&] {
        if (!valid(device) || !valid(peer)) return cudaErrorInvalidDevice;
        *can = device != peer ? 1 : 0;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    return call("cudaDeviceEnablePeerAccess", [&] {
        if (flags != 0) return cudaErrorInvalidValue;
        if (!valid(peer) || peer == current_device()) return cudaErrorInvalidDevice;
        if (Memory::instance().peer_allowed(current_device(), peer)) return cudaErrorPeerAccessAlreadyEnabled;
        Memory::instance().allow_peer(current_device(), peer, true);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    return call("cudaDeviceDisablePeerAccess", [&] {
        if (!valid(peer)) return cudaErrorInvalidDevice;
        if (!Memory::instance().peer_allowed(current_device(), peer)) return cudaErrorPeerAccessNotEnabled;
        Memory::instance().allow_peer(current_device(), peer, false);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr which, int device, int peer) {
    return call_anyway("cudaDeviceGetP2PAttribute", [&] {
        if (!valid(device) || !valid(peer) || device == peer) return cudaErrorInvalidDevice;
        *value = which == cudaDevP2PAttrAccessSupported || which == cudaDevP2PAttrNativeAtomicSupported ? 1 : 0;
        return cudaSuccess;
    });
}

PTXEMU_API cudaError_t cudaDriverGetVersion(int* version) {
    return call_anyway("cudaDriverGetVersion", [&] {
        *version = CUDART_VERSION;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaRuntimeGetVersion(int* version) {
    return call_anyway("cudaRuntimeGetVersion", [&] {
        *version = CUDART_VERSION;
        return cudaSuccess;
    });
}

// There is no driver behind this runtime.
PTXEMU_API cudaError_t cudaProfilerStart() {
    return call("cudaProfilerStart", [] { return cudaSuccess; });
}
PTXEMU_API cudaError_t cudaProfilerStop() {
    return call("cudaProfilerStop", [] { return cudaSuccess; });
}
