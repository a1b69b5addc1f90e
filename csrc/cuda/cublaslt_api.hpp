// The part of cuBLASLt that is used, declared here so that no header of it is needed to build. Names and values are
// those of cublasLt.h, cublas_api.h and library_types.h of CUDA 13 ("cuBLAS", section "Using the cuBLASLt API"); they
// are the library's binary interface and the same since CUDA 11, fp8 since 11.8.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/loader.hpp"

namespace gm {
namespace lt {

using Handle = struct Context*;         // cublasLtHandle_t
using Desc = struct DescOpaque*;        // cublasLtMatmulDesc_t
using Layout = struct LayoutOpaque*;    // cublasLtMatrixLayout_t
using Preference = struct PrefOpaque*;  // cublasLtMatmulPreference_t
using Status = int;                     // cublasStatus_t

constexpr Status kSuccess = 0, kNotSupported = 15;
// cudaDataType: library_types.h is CUDA's own and at hand; cublasComputeType_t:
constexpr int kCompute32F = 68, kCompute64F = 70, kCompute32I = 72, kCompute32FFastTf32 = 77;
constexpr int kOpT = 1;                                                           // cublasOperation_t
constexpr int kDescTransA = 3, kDescScalePointerA = 17, kDescScalePointerB = 18;  // cublasLtMatmulDescAttributes_t
constexpr int kPrefMaxWorkspaceBytes = 1;  // cublasLtMatmulPreferenceAttributes_t
// cublasLtMatmulAlgoConfigAttributes_t; the cluster's shape is 16 bits, the others 32
constexpr int kAlgoId = 0, kAlgoTile = 1, kAlgoSplitK = 2, kAlgoStages = 6, kAlgoCluster = 8;

struct Algorithm {  // cublasLtMatmulAlgo_t
    std::uint64_t data[8];
};
struct HeuristicResult {  // cublasLtMatmulHeuristicResult_t
    Algorithm algorithm;
    std::size_t workspace_bytes;
    Status state;
    float waves;
    int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96, "as the library writes it");

}  // namespace lt

// The library's functions. Throws std::runtime_error where the library cannot be opened or lacks one.
class LtApi {
  public:
    explicit LtApi(const std::string& path);

    // Throws CudaFailure with cuBLAS's name for the status; `what` says for which product.
    void check(lt::Status status, const char* call, const std::string& what) const;
    const std::string& path() const { return library_.path(); }

  private:
    Library library_;  // before the functions, which are taken from it

  public:
    std::size_t (*const version)();
    const char* (*const status_name)(lt::Status);
    const char* (*const status_text)(lt::Status);
    lt::Status (*const create)(lt::Handle*);
    lt::Status (*const destroy)(lt::Handle);
    lt::Status (*const desc_create)(lt::Desc*, int compute_type, int scale_type);
    lt::Status (*const desc_destroy)(lt::Desc);
    lt::Status (*const desc_set)(lt::Desc, int attribute, const void*, std::size_t);
    lt::Status (*const layout_create)(lt::Layout*, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t);
    lt::Status (*const layout_destroy)(lt::Layout);
    lt::Status (*const preference_create)(lt::Preference*);
    lt::Status (*const preference_destroy)(lt::Preference);
    lt::Status (*const preference_set)(lt::Preference, int attribute, const void*, std::size_t);
    lt::Status (*const heuristic)(lt::Handle, lt::Desc, lt::Layout, lt::Layout, lt::Layout, lt::Layout, lt::Preference,
                                  int, lt::HeuristicResult*, int*);
    lt::Status (*const matmul)(lt::Handle, lt::Desc, const void* alpha, const void* a, lt::Layout, const void* b,
                               lt::Layout, const void* beta, const void* c, lt::Layout, void* d, lt::Layout,
                               const lt::Algorithm*, void* workspace, std::size_t, cudaStream_t);
    lt::Status (*const algorithm_get)(const lt::Algorithm*, int attribute, void*, std::size_t, std::size_t*);
};

}  // namespace gm
