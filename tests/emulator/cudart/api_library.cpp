// The driver's functions that the runtime hands out by name: loading code and the extent of memory.
#include <cuda.h>

#include <cstring>
#include <string>

#include "api.hpp"
#include "fault.hpp"
#include "memory.hpp"
#include "modules.hpp"

using namespace ptxemu;

namespace {
CUresult as_driver(cudaError_t code) { return static_cast<CUresult>(code); }  // the numbers are the same

void write_log(const std::string& text, const CUjit_option* options, void** values, unsigned count) {
    char* log = nullptr;
    std::size_t room = 0;
    for (unsigned i = 0; i < count; ++i) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = static_cast<char*>(values[i]);
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) room = reinterpret_cast<std::size_t>(values[i]);
    }
    if (log != nullptr && room != 0) log[text.copy(log, room - 1)] = '\0';
}

CUresult load_library(CUlibrary* library, const void* code, CUjit_option* options, void** values, unsigned count,
                      CUlibraryOption*, void**, unsigned) {
    return as_driver(call("cuLibraryLoadData", [&] {
        std::string why;
        const char* const image = static_cast<const char*>(code);
        FatBinary* const binary = Modules::instance().add_ptx(image, &why);
        *library = reinterpret_cast<CUlibrary>(binary);
        if (binary != nullptr) return cudaSuccess;
        log_line(why);
        write_log(why, options, values, count);
        const bool machine_code = std::strncmp(image, "\177ELF", 4) == 0 || why.find(" is for ") != std::string::npos;
        return machine_code ? cudaErrorNoKernelImageForDevice : cudaErrorInvalidPtx;
    }));
}

CUresult get_kernel(CUkernel* kernel, CUlibrary library, const char* name) {
    return as_driver(call("cuLibraryGetKernel", [&] {
        const void* found = Modules::instance().library_kernel(reinterpret_cast<FatBinary*>(library), name);
        *kernel = static_cast<CUkernel>(const_cast<void*>(found));
        return found == nullptr ? cudaErrorSymbolNotFound : cudaSuccess;
    }));
}

CUresult unload_library(CUlibrary library) {
    Modules::instance().remove(reinterpret_cast<FatBinary*>(library));
    return CUDA_SUCCESS;
}

CUresult get_address_range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
    Allocation found;
    if (!Memory::instance().find(address, &found)) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = found.begin;
    if (bytes != nullptr) *bytes = found.end - found.begin;
    return CUDA_SUCCESS;
}

cudaError_t find_driver_function(const char* name, void** function, cudaDriverEntryPointQueryResult* status) {
    const std::string wanted = name;
    *function = wanted == "cuLibraryLoadData"      ? reinterpret_cast<void*>(&load_library)
                : wanted == "cuLibraryGetKernel"   ? reinterpret_cast<void*>(&get_kernel)
                : wanted == "cuLibraryUnload"      ? reinterpret_cast<void*>(&unload_library)
                : wanted == "cuMemGetAddressRange" ? reinterpret_cast<void*>(&get_address_range)
                                                   : nullptr;
    if (status == nullptr) return *function == nullptr ? cudaErrorSymbolNotFound : cudaSuccess;
    *status = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
}  // namespace

PTXEMU_API cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                               cudaDriverEntryPointQueryResult* status) {
    return call_anyway("cudaGetDriverEntryPoint", [&] { return find_driver_function(name, function, status); });
}
PTXEMU_API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* status) {
    return call_anyway("cudaGetDriverEntryPointByVersion",
                       [&] { return find_driver_function(name, function, status); });
}
