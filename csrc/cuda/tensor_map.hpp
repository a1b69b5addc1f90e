// Descriptors of the tensor memory accelerator (TMA), made by the driver: CUDA driver API, cuTensorMapEncodeTiled.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gm {

using TensorMapData = std::array<unsigned char, 128>;

// `sizes` and `box` in elements, fastest dimension first; `strides_bytes` of dimensions 1, 2 ... (one fewer).
// Throws std::invalid_argument for what a descriptor cannot say, std::runtime_error where the driver has no TMA,
// CudaFailure where it refuses.
TensorMapData tensor_map(std::uintptr_t address, const std::string& dtype, const std::vector<std::uint64_t>& sizes,
                         const std::vector<std::uint64_t>& strides_bytes, const std::vector<std::uint32_t>& box,
                         int swizzle_bytes);

}  // namespace gm
