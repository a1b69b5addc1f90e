// The measuring stream of each device, and waiting for a stream.
#pragma once
#include <cuda_runtime_api.h>

namespace gm {

// The stream that everything of ours runs on; made when first asked for and never destroyed, since the order in which
// a process ends is not ours.
cudaStream_t measuring_stream(int device);

// Called now and then by `wait`, without any lock held; may throw (Python's Ctrl-C).
extern void (*between_waits)();

// Returns when the stream's work is done, throws CudaFailure when it failed or is not done after `limit_s`: a kernel
// cannot be stopped from outside, so the device is then as good as lost to this process.
void wait(cudaStream_t stream, double limit_s = 120.0);

}  // namespace gm
