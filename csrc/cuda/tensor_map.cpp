#include "cuda/tensor_map.hpp"

#include <cuda.h>  // types only: libcuda is never linked

#include <cstring>
#include <stdexcept>

#include "cuda/check.hpp"
#include "cuda/loader.hpp"

namespace gm {
namespace {

using Encode = CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                        const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                        CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

Encode* encoder() {
    void* const function = driver_function("cuTensorMapEncodeTiled", 12000);
    if (function == nullptr)
        throw std::runtime_error(
            "this driver has no cuTensorMapEncodeTiled, which TMA needs; CUDA 12.0's driver has it");
    return reinterpret_cast<Encode*>(function);
}

CUtensorMapDataType type_of(const std::string& dtype) {
    if (dtype == "float32" || dtype == "tf32") return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    if (dtype == "float16") return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    if (dtype == "bfloat16") return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (dtype == "float64") return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    if (dtype == "int32") return CU_TENSOR_MAP_DATA_TYPE_INT32;
    if (dtype == "int64") return CU_TENSOR_MAP_DATA_TYPE_INT64;
    if (dtype == "int8" || dtype == "float8_e4m3fn" || dtype == "float8_e5m2") return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    throw std::invalid_argument("no TMA descriptor holds " + dtype);
}

CUtensorMapSwizzle swizzle_of(int bytes) {
    if (bytes == 0) return CU_TENSOR_MAP_SWIZZLE_NONE;
    if (bytes == 32) return CU_TENSOR_MAP_SWIZZLE_32B;
    if (bytes == 64) return CU_TENSOR_MAP_SWIZZLE_64B;
    if (bytes == 128) return CU_TENSOR_MAP_SWIZZLE_128B;
    throw std::invalid_argument("a TMA swizzle has 0, 32, 64 or 128 bytes, not " + std::to_string(bytes));
}

}  // namespace

TensorMapData tensor_map(std::uintptr_t address, const std::string& dtype, const std::vector<std::uint64_t>& sizes,
                         const std::vector<std::uint64_t>& strides_bytes, const std::vector<std::uint32_t>& box,
                         int swizzle_bytes) {
    const std::size_t rank = sizes.size();
    if (rank < 1 || rank > 5 || box.size() != rank || strides_bytes.size() != rank - 1)
        throw std::invalid_argument("a TMA descriptor has 1 to 5 dimensions, as many in the box, one stride fewer");
    const CUtensorMapDataType type = type_of(dtype);
    const CUtensorMapSwizzle swizzle = swizzle_of(swizzle_bytes);
    const std::vector<cuuint64_t> extents(sizes.begin(), sizes.end());
    const std::vector<cuuint64_t> strides(strides_bytes.begin(), strides_bytes.end());
    const std::vector<cuuint32_t> boxes(box.begin(), box.end());
    const std::vector<cuuint32_t> steps(rank, 1);
    alignas(64) CUtensorMap map{};
    const CUresult code =
        encoder()(&map, type, static_cast<cuuint32_t>(rank), reinterpret_cast<void*>(address), extents.data(),
                  strides.data(), boxes.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code != CUDA_SUCCESS)  // the codes of both APIs agree where both have one
        fail(static_cast<cudaError_t>(code), "cuTensorMapEncodeTiled",
             "the driver refuses this descriptor (alignment of 16 bytes, box of at most 256, row of the box no longer "
             "than the swizzle)",
             false);
    static_assert(sizeof(map) == sizeof(TensorMapData));
    TensorMapData bytes{};
    std::memcpy(bytes.data(), &map, sizeof(map));
    return bytes;
}

}  // namespace gm
