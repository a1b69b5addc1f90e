// What every entry point of the runtime API shares: injected failures, the sticky error, the last error.
#pragma once
#include <cuda_runtime_api.h>

#include "device.hpp"

#define PTXEMU_API extern "C" __attribute__((visibility("default")))

namespace ptxemu {
// Keeps an error for cudaGetLastError and returns it.
cudaError_t keep(cudaError_t code);

// The error that PTXEMU_FAIL ("cudaMalloc:3:2": the third call of cudaMalloc returns code 2; 0 for every call; several
// with commas) or ptxemu_fail wants of this call of `name`.
cudaError_t injected(const char* name);

// Runs one call: the injected failure, else the context's sticky error, else what `body` returns.
template <class Body>
cudaError_t call(const char* name, const Body& body) {
    cudaError_t code = injected(name);
    if (code == cudaSuccess) code = context(current_device()).failure();
    return keep(code == cudaSuccess ? body() : code);
}

// The same for a call whose injected failure has been seen to.
template <class Body>
cudaError_t call_counted(const Body& body) {
    const cudaError_t code = context(current_device()).failure();
    return keep(code == cudaSuccess ? body() : code);
}

// The same as `call` for calls that need no context.
template <class Body>
cudaError_t call_anyway(const char* name, const Body& body) {
    const cudaError_t code = injected(name);
    return keep(code == cudaSuccess ? body() : code);
}
}  // namespace ptxemu
