// CudaFailure becomes gpumicro.errors.CudaError, or OutOfMemory where memory was wanted;
// NcclFailure becomes NcclError.
#pragma once

namespace gm {

// Makes the translation known to pybind11, for every module: a launch fails inside _core's timers too.
void register_errors();

}  // namespace gm
