// Errors: names, texts, the last one, and failures on demand.
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "api.hpp"
#include "counts.hpp"
#include "fault.hpp"
#include "text.hpp"

namespace ptxemu {
namespace {
thread_local cudaError_t last_error = cudaSuccess;

struct Injection {
    std::string call;
    u64 number;  // 0: every call
    int code;
};

struct Injections {
    std::mutex mutex;
    std::vector<Injection> wanted;
    std::map<std::string, u64> calls;

    Injections() {
        const char* text = std::getenv("PTXEMU_FAIL");
        if (text != nullptr) set(text);
    }
    void set(const std::string& text) {
        wanted.clear();
        calls.clear();
        for (const std::string& part : split(text, ',')) {
            const std::vector<std::string> fields = split(part, ':');
            if (fields.size() == 3) wanted.push_back({fields[0], std::stoull(fields[1]), std::stoi(fields[2])});
        }
    }
};

Injections& injections() {
    static auto* all = new Injections;
    return *all;
}

struct ErrorRow {
    cudaError_t code;
    const char* name;
    const char* text;
};
#define ROW(name, text) {name, #name, text}
constexpr ErrorRow kErrors[] = {
    ROW(cudaSuccess, "no error"),
    ROW(cudaErrorInvalidValue, "invalid argument"),
    ROW(cudaErrorMemoryAllocation, "out of memory"),
    ROW(cudaErrorInitializationError, "initialization error"),
    ROW(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ROW(cudaErrorInvalidSymbol, "invalid device symbol"),
    ROW(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ROW(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ROW(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ROW(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ROW(cudaErrorInvalidDevice, "invalid device ordinal"),
    ROW(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    ROW(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ROW(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    ROW(cudaErrorInvalidPtx, "a PTX JIT compilation failed"),
    ROW(cudaErrorUnsupportedPtxVersion, "the provided PTX was compiled with an unsupported toolchain."),
    ROW(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ROW(cudaErrorSymbolNotFound, "named symbol not found"),
    ROW(cudaErrorNotReady, "device not ready"),
    ROW(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ROW(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ROW(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ROW(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ROW(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    ROW(cudaErrorAssert, "device-side assert triggered"),
    ROW(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ROW(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ROW(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    ROW(cudaErrorMisalignedAddress, "misaligned address"),
    ROW(cudaErrorLaunchFailure, "unspecified launch failure"),
    ROW(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    ROW(cudaErrorNotSupported, "operation not supported"),
    ROW(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ROW(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ROW(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ROW(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ROW(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream"),
    ROW(cudaErrorUnknown, "unknown error"),
};
#undef ROW

const ErrorRow& row_of(cudaError_t code) {
    for (const ErrorRow& row : kErrors) {
        if (row.code == code) return row;
    }
    static constexpr ErrorRow unrecognized{cudaErrorUnknown, "cudaErrorUnrecognized", "unrecognized error code"};
    return unrecognized;
}
}  // namespace

cudaError_t keep(cudaError_t code) {
    if (code != cudaSuccess) last_error = code;
    return code;
}

cudaError_t injected(const char* name) {
    Injections& all = injections();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const u64 number = ++all.calls[name];
    for (const Injection& one : all.wanted) {
        if (one.call != name || (one.number != 0 && one.number != number)) continue;
        const auto code = static_cast<cudaError_t>(one.code);
        if (is_sticky(code)) context(current_device()).fail(code);
        return code;
    }
    return cudaSuccess;
}
}  // namespace ptxemu

using namespace ptxemu;

PTXEMU_API cudaError_t cudaGetLastError() {
    const cudaError_t failure = context(current_device()).failure();
    const cudaError_t code = failure != cudaSuccess ? failure : last_error;
    last_error = cudaSuccess;
    return code;
}
PTXEMU_API cudaError_t cudaPeekAtLastError() {
    const cudaError_t failure = context(current_device()).failure();
    return failure != cudaSuccess ? failure : last_error;
}
PTXEMU_API const char* cudaGetErrorName(cudaError_t code) { return row_of(code).name; }
PTXEMU_API const char* cudaGetErrorString(cudaError_t code) { return row_of(code).text; }

// For tests, through ctypes.
PTXEMU_API void ptxemu_fail(const char* text) {
    const std::lock_guard<std::mutex> lock(injections().mutex);
    injections().set(text);
}
PTXEMU_API const char* ptxemu_calls_json() {  // how often each function of the runtime was called
    thread_local std::string text;
    const std::lock_guard<std::mutex> lock(injections().mutex);
    text = "{";
    for (const auto& [name, number] : injections().calls) {
        text += (text.size() > 1 ? ", " : "") + quoted(name) + ": " + std::to_string(number);
    }
    text += "}";
    return text.c_str();
}
PTXEMU_API void ptxemu_counts_reset() { reset_counts(); }
PTXEMU_API const char* ptxemu_counts_json() {
    thread_local std::string text;
    text = counts_json();
    return text.c_str();
}
PTXEMU_API const char* ptxemu_last_message() {
    thread_local std::string text;
    text = last_log_line();
    return text.c_str();
}
