// Every CUDA call goes through GM_CUDA, which throws, or GM_CUDA_NOEXCEPT, for destructors.
#pragma once
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace gm {

// What a CUDA call said. Python sees it as gpumicro.errors.CudaError (OutOfMemory for want of memory).
class CudaFailure : public std::runtime_error {
  public:
    CudaFailure(std::string call, int code, std::string name, std::string text, std::string kernel, std::string launch,
                bool lost);
    const std::string call;    // "cudaMalloc"
    const int code;            // cudaError_t
    const std::string name;    // "cudaErrorMemoryAllocation"
    const std::string text;    // "out of memory"
    const std::string kernel;  // the kernel launched, "" where none had a part in it
    const std::string launch;  // "grid 132x1x1, block 256x1x1, 0 bytes of shared memory"
    const bool lost;           // the process can use CUDA no more
};

// Whether CUDA's documentation says of an error that every later call of this process will fail too.
bool is_sticky(int code) noexcept;

// Says which kernel this thread launched last: the errors of a kernel come to light in a later call, and name it.
void note_launch(const std::string& kernel, const std::string& shape);

[[noreturn]] void fail(cudaError_t code, const char* call);
[[noreturn]] void fail(cudaError_t code, const char* call, const std::string& text, bool lost);

inline void check(cudaError_t code, const char* call) {
    if (code != cudaSuccess) fail(code, call);
}

// Takes an error that cannot be thrown off the runtime's slate, so that no later call is blamed for it.
void forget(cudaError_t code) noexcept;

}  // namespace gm

#define GM_CUDA(CALL) ::gm::check((CALL), #CALL)
#define GM_CUDA_NOEXCEPT(CALL) ::gm::forget((CALL))
