#include "cuda/module.hpp"

#include <cuda.h>  // types only: libcuda is never linked

#include <array>
#include <stdexcept>
#include <vector>

#include "cuda/handles.hpp"
#include "cuda/hung.hpp"
#include "cuda/loader.hpp"

namespace gm {
namespace {

using Load = CUresult(CUlibrary*, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**, unsigned);
using GetKernel = CUresult(CUkernel*, CUlibrary, const char*);
using Unload = CUresult(CUlibrary);

constexpr std::size_t kLogBytes = 8192;

template <class Function>
Function* need(const char* name) {
    void* const function = driver_function(name, 12000);
    if (function == nullptr)
        throw std::runtime_error(
            std::string("this driver has no ") + name +
            ", which code compiled at run time needs; CUDA 12.0's driver has it: update the driver");
    return reinterpret_cast<Function*>(function);
}

// The driver's codes are the runtime's (since CUDA 11). `log`: what the assembler of PTX said.
void check_driver(CUresult code, const char* call, const std::string& log = "") {
    if (code == CUDA_SUCCESS) return;
    const auto same = static_cast<cudaError_t>(code);
    const std::string text = cudaGetErrorString(same);
    fail(same, call, log.empty() ? text : text + "\n" + log, is_sticky(code));
}

}  // namespace

Module::Module(const std::string& image, int device) : device_(device) {
    if (CUDART_VERSION < 12080)
        throw std::runtime_error(
            "this gpumicro was built with a CUDA older than 12.8, whose runtime launches no code compiled at run time: "
            "build it with a newer nvcc");
    const DeviceScope scope(device);
    GM_CUDA(cudaFree(nullptr));  // the driver's calls want a context
    auto* const load = need<Load>("cuLibraryLoadData");
    std::vector<char> log(kLogBytes);
    std::array<CUjit_option, 2> options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
    const CUresult code = load(reinterpret_cast<CUlibrary*>(&library_), image.c_str(), options.data(), values.data(),
                               static_cast<unsigned>(options.size()), nullptr, nullptr, 0);
    log.back() = '\0';
    check_driver(code, "cuLibraryLoadData", log.data());
}

Module::~Module() {
    if (library_ == nullptr || is_hung(device_)) return;  // its code may still run
    try {
        const DeviceScope scope(device_);
        GM_CUDA_NOEXCEPT(cudaDeviceSynchronize());
        (void)need<Unload>("cuLibraryUnload")(static_cast<CUlibrary>(library_));
    } catch (const std::exception&) {  // the driver is on its way out: so is the code
    }
}

const void* Module::kernel(const std::string& name) const {
    const DeviceScope scope(device_);
    CUkernel found = nullptr;
    check_driver(need<GetKernel>("cuLibraryGetKernel")(&found, static_cast<CUlibrary>(library_), name.c_str()),
                 "cuLibraryGetKernel", "no kernel " + name + " in the image");
    return found;
}

}  // namespace gm
