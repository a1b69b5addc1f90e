// Kernels: registration, attributes, occupancy, launches.
#include <algorithm>
#include <cstring>

#include "api.hpp"
#include "counts.hpp"
#include "fault.hpp"
#include "memory.hpp"
#include "modules.hpp"
#include "stream.hpp"

using namespace ptxemu;

namespace {
Modules& modules() { return Modules::instance(); }

// The kernel behind a host function and its PTX; an error code where there is none.
cudaError_t find(const void* host, Kernel** kernel, const Function** function) {
    *kernel = modules().kernel(host);
    if (*kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    std::string why;
    *function = modules().function(*kernel, &why);
    if (*function != nullptr) return cudaSuccess;
    log_line(why + ", kernel " + (*kernel)->name);
    return cudaErrorNoKernelImageForDevice;
}

struct Shape {
    dim3 grid;
    dim3 block;
    std::size_t shared;
    cudaStream_t stream;
    bool cooperative;
};

int blocks_per_multiprocessor(int threads, u64 shared) {
    const int warps = (threads + 31) / 32;
    const u64 by_shared = static_cast<u64>(device_facts().shared_bytes) / (shared + kSharedReserved);
    return static_cast<int>(std::min<u64>({32, static_cast<u64>(64 / std::max(warps, 1)), by_shared}));
}

cudaError_t check(const Shape& shape, const Kernel& kernel, const Function& function, u64 static_shared) {
    const dim3 grid = shape.grid, block = shape.block;
    const u64 threads = u64{block.x} * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0) return cudaErrorInvalidConfiguration;
    if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
    if (block.x > 1024 || block.y > 1024 || block.z > 64 || threads > 1024) return cudaErrorInvalidConfiguration;
    if (threads > function.max_threads) return cudaErrorLaunchOutOfResources;
    if (function.required_threads && threads != function.max_threads) return cudaErrorInvalidConfiguration;
    const auto limit =
        static_cast<u64>(std::max(kernel.dynamic_shared_limit, kSharedDefault - static_cast<int>(static_shared)));
    if (shape.shared > limit) return cudaErrorInvalidValue;
    const u64 resident =
        static_cast<u64>(blocks_per_multiprocessor(static_cast<int>(threads), static_shared + shape.shared)) *
        static_cast<u64>(device_facts().multiprocessors);
    if (shape.cooperative && u64{grid.x} * grid.y * grid.z > resident) return cudaErrorCooperativeLaunchTooLarge;
    return cudaSuccess;
}

void execute(const Launch& launch) {
    Context& owner = context(launch.device);
    if (owner.failure() != cudaSuccess) return;
    try {
        add_counts(launch, run_launch(launch));
    } catch (const Fault& fault) {
        log_line(fault.what());
        owner.fail(static_cast<cudaError_t>(fault.code()));
    }
}

u64 grid_workspace(int device) {  // what cooperative groups keep their grid barrier in: its size, then the barrier
    const u32 fields[4] = {16, 0, 0, 0};
    void* memory = Memory::instance().allocate(sizeof fields, device, MemoryKind::module, ~u64{0});
    std::memcpy(memory, fields, sizeof fields);
    return reinterpret_cast<u64>(memory);
}

std::vector<u8> pack(const Function& function, void** arguments) {
    u64 total = 0;
    const std::vector<u64> offsets = parameter_offsets(function.parameters, &total);
    std::vector<u8> bytes(total);
    for (std::size_t i = 0; i < offsets.size(); ++i)
        std::memcpy(bytes.data() + offsets[i], arguments[i], function.parameters[i].bytes);
    return bytes;
}

cudaError_t launch(const void* host, const Shape& shape, void** arguments) {
    const auto stream = stream_of(shape.stream);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->device() != current_device()) return cudaErrorInvalidResourceHandle;
    Kernel* kernel = nullptr;
    const Function* function = nullptr;
    cudaError_t code = find(host, &kernel, &function);
    if (code != cudaSuccess) return code;
    try {
        code = check(shape, *kernel, *function, modules().shared_bytes(kernel));
        if (code != cudaSuccess) return code;
        const auto work = std::make_shared<Launch>();
        static std::atomic<u64> number{0};
        work->program = modules().program(kernel, current_device());
        work->grid = {shape.grid.x, shape.grid.y, shape.grid.z};
        work->block = {shape.block.x, shape.block.y, shape.block.z};
        work->dynamic_shared = shape.shared;
        work->parameters = pack(*function, arguments);
        work->cooperative = shape.cooperative;
        work->device = current_device();
        work->multiprocessors = static_cast<u32>(device_facts().multiprocessors);
        work->number = ++number;
        work->timeout_s = launch_timeout_s();
        if (shape.cooperative) work->grid_workspace = grid_workspace(current_device());
        stream->enqueue(cudaGraphNodeTypeKernel, [work] { execute(*work); });
    } catch (const Fault& fault) {
        log_line(fault.what());
        return static_cast<cudaError_t>(fault.code());
    }
    return cudaSuccess;
}

struct Configuration {
    dim3 grid;
    dim3 block;
    std::size_t shared;
    cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;  // of <<<...>>>, until the stub takes them
}  // namespace

PTXEMU_API void** __cudaRegisterFatBinary(void* wrapper) { return reinterpret_cast<void**>(modules().add(wrapper)); }
PTXEMU_API void __cudaRegisterFatBinaryEnd(void**) {}
PTXEMU_API void __cudaUnregisterFatBinary(void**) {}
PTXEMU_API char __cudaInitModule(void**) { return 1; }
PTXEMU_API void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, uint3*, uint3*,
                                       dim3*, dim3*, int*) {
    modules().add_kernel(reinterpret_cast<FatBinary*>(binary), host, name);
}
PTXEMU_API void __cudaRegisterVar(void** binary, char* host, char*, const char* name, int, std::size_t bytes, int,
                                  int) {
    modules().add_symbol(reinterpret_cast<FatBinary*>(binary), host, name, bytes);
}
PTXEMU_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}
PTXEMU_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
    if (configurations.empty()) return cudaErrorInvalidConfiguration;
    const Configuration top = configurations.back();
    configurations.pop_back();
    *grid = top.grid;
    *block = top.block;
    *shared = top.shared;
    *static_cast<cudaStream_t*>(stream) = top.stream;
    return cudaSuccess;
}
PTXEMU_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}
PTXEMU_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                          std::size_t shared, cudaStream_t stream) {
    return call("cudaLaunchKernel", [&] { return launch(kernel, {grid, block, shared, stream, false}, arguments); });
}
PTXEMU_API cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                                        cudaStream_t stream) {
    return call("cudaLaunchKernel", [&] { return launch(host, {grid, block, shared, stream, false}, arguments); });
}
PTXEMU_API cudaError_t cudaLaunchCooperativeKernel(const void* host, dim3 grid, dim3 block, void** arguments,
                                                   std::size_t shared, cudaStream_t stream) {
    return call("cudaLaunchCooperativeKernel",
                [&] { return launch(host, {grid, block, shared, stream, true}, arguments); });
}
PTXEMU_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** arguments) {
    return call("cudaLaunchKernelExC", [&] {
        Shape shape{config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream, false};
        for (unsigned i = 0; i < config->numAttrs; ++i) {
            const cudaLaunchAttribute& attribute = config->attrs[i];
            if (attribute.id == cudaLaunchAttributeCooperative) shape.cooperative = attribute.val.cooperative != 0;
            const bool cluster = attribute.id == cudaLaunchAttributeClusterDimension;
            if (cluster && attribute.val.clusterDim.x * attribute.val.clusterDim.y * attribute.val.clusterDim.z > 1)
                return cudaErrorNotSupported;
        }
        return launch(host, shape, arguments);
    });
}

PTXEMU_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
    return call("cudaFuncGetAttributes", [&] {
        Kernel* kernel = nullptr;
        const Function* function = nullptr;
        const cudaError_t code = find(host, &kernel, &function);
        if (code != cudaSuccess) return code;
        std::memset(attributes, 0, sizeof *attributes);
        attributes->sharedSizeBytes = modules().shared_bytes(kernel);
        attributes->maxThreadsPerBlock = static_cast<int>(function->max_threads);
        attributes->numRegs = 32;  // PTX has virtual registers: nobody knows
        attributes->ptxVersion = attributes->binaryVersion = device_facts().major * 10 + device_facts().minor;
        attributes->maxDynamicSharedSizeBytes =
            std::max(kernel->dynamic_shared_limit, kSharedDefault) - static_cast<int>(attributes->sharedSizeBytes);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute which, int value) {
    return call("cudaFuncSetAttribute", [&] {
        Kernel* kernel = nullptr;
        const Function* function = nullptr;
        const cudaError_t code = find(host, &kernel, &function);
        if (code != cudaSuccess) return code;
        if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
        const int most =
            device_facts().shared_bytes - kSharedReserved - static_cast<int>(modules().shared_bytes(kernel));
        if (value < 0 || value > most) return cudaErrorInvalidValue;
        kernel->dynamic_shared_limit = value;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaFuncSetCacheConfig(const void* host, cudaFuncCache) {
    return call("cudaFuncSetCacheConfig",
                [&] { return modules().kernel(host) == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess; });
}
PTXEMU_API cudaError_t cudaFuncGetName(const char** name, const void* host) {
    return call("cudaFuncGetName", [&] {
        const Kernel* kernel = modules().kernel(host);
        if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
        *name = kernel->name.c_str();
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaFuncGetParamInfo(const void* host, std::size_t index, std::size_t* offset,
                                            std::size_t* bytes) {
    return call("cudaFuncGetParamInfo", [&] {
        Kernel* kernel = nullptr;
        const Function* function = nullptr;
        const cudaError_t code = find(host, &kernel, &function);
        if (code != cudaSuccess) return code;
        if (index >= function->parameters.size()) return cudaErrorInvalidValue;
        u64 total = 0;
        *offset = parameter_offsets(function->parameters, &total)[index];
        if (bytes != nullptr) *bytes = function->parameters[index].bytes;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host,
                                                                              int threads, std::size_t shared,
                                                                              unsigned) {
    return call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", [&] {
        Kernel* kernel = nullptr;
        const Function* function = nullptr;
        const cudaError_t code = find(host, &kernel, &function);
        if (code != cudaSuccess) return code;
        if (threads <= 0) return cudaErrorInvalidValue;
        *blocks = threads > static_cast<int>(function->max_threads)
                      ? 0
                      : blocks_per_multiprocessor(threads, modules().shared_bytes(kernel) + shared);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int threads,
                                                                     std::size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}
