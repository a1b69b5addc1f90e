#include "cuda/check.hpp"

#include <utility>

namespace gm {
namespace {

struct LastLaunch {
    std::string kernel, shape;
};
thread_local LastLaunch last_launch;

std::string message(const std::string& call, int code, const std::string& name, const std::string& text) {
    return call + ": " + name + " (" + std::to_string(code) + "): " + text;
}

std::string name_of(const char* call) {
    const std::string whole = call;
    return whole.substr(0, whole.find('('));
}

}  // namespace

CudaFailure::CudaFailure(std::string call_, int code_, std::string name_, std::string text_, std::string kernel_,
                         std::string launch_, bool lost_)
    : std::runtime_error(message(call_, code_, name_, text_)),
      call(std::move(call_)),
      code(code_),
      name(std::move(name_)),
      text(std::move(text_)),
      kernel(std::move(kernel_)),
      launch(std::move(launch_)),
      lost(lost_) {}

bool is_sticky(int code) noexcept {
    switch (code) {
        case 214:  // cudaErrorECCUncorrectable
        case 220:  // cudaErrorNvlinkUncorrectable
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
        case 226:  // cudaErrorContained, CUDA 12.8
        case 721:  // cudaErrorTensorMemoryLeak, CUDA 12.8
        case cudaErrorMpsClientTerminated:
        case cudaErrorExternalDevice:
            return true;
        default:
            return false;
    }
}

void note_launch(const std::string& kernel, const std::string& shape) {
    last_launch.kernel = kernel;
    last_launch.shape = shape;
}

void fail(cudaError_t code, const char* call, const std::string& text, bool lost) {
    forget(code);
    const std::string name = name_of(call);
    const bool by_kernel = lost || name.find("Launch") != std::string::npos;
    throw CudaFailure(name, code, cudaGetErrorName(code), text, by_kernel ? last_launch.kernel : "",
                      by_kernel ? last_launch.shape : "", lost);
}

void fail(cudaError_t code, const char* call) { fail(code, call, cudaGetErrorString(code), is_sticky(code)); }

void forget(cudaError_t code) noexcept {
    if (code != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace gm
