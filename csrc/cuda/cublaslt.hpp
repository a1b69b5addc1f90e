// Matrix products by cuBLASLt, opened at run time: the vendor's GEMM, with the algorithms that its heuristic offers.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cublaslt_api.hpp"
#include "cuda/handles.hpp"
#include "timing/work.hpp"

namespace gm {

// One algorithm as the heuristic describes it; -1 where the library does not tell.
struct LtAlgorithm {
    int id, tile, stages, split_k, cluster;
    std::size_t workspace_bytes;
    float waves;
};

// What cuBLASLt makes and wants back.
template <class T>
class LtOwned {
  public:
    explicit LtOwned(lt::Status (*destroy)(T)) : destroy_(destroy) {}
    ~LtOwned() {
        if (value_ != nullptr) destroy_(value_);
    }
    LtOwned(const LtOwned&) = delete;
    LtOwned& operator=(const LtOwned&) = delete;
    T get() const { return value_; }
    T* out() { return &value_; }  // for the function that makes it, once

  private:
    lt::Status (*destroy_)(T);
    T value_ = nullptr;
};

// C = A B, A m x k, B k x n, C m x n, all row-major and dense. cuBLAS is column-major: it is asked for C^T = B^T A^T,
// whose operands are B and A as they lie. int8 and fp8 products it has only where both operands' k is contiguous; there
// `b` holds B^T, n x k (`transposed_b`). Results have the operands' type; float for tf32, int32 for int8, bfloat16 for
// fp8.
class LtMatmul {
  public:
    struct Shape {
        std::int64_t m, n, k;
        std::string dtype;
    };
    static constexpr int kMostAlgorithms = 16;

    // Addresses are the device's. Throws std::invalid_argument for a type it does not know, CudaFailure where CUDA or
    // cuBLAS refuses (CUBLAS_STATUS_NOT_SUPPORTED where it has no algorithm).
    LtMatmul(std::shared_ptr<const LtApi> api, const Shape& shape, std::uintptr_t a, std::uintptr_t b, std::uintptr_t c,
             int device, std::size_t workspace_bytes);

    const std::vector<LtAlgorithm>& algorithms() const { return algorithms_; }  // best guess first
    int chosen() const { return chosen_; }
    void choose(int algorithm);  // throws std::out_of_range
    bool transposed_b() const { return transposed_b_; }
    // Enqueues on the device's measuring stream and returns; this object must outlive it.
    Work work() { return {&LtMatmul::run, this}; }

  private:
    struct Type;
    static const Type& type_of(const std::string& dtype);
    static void run(void* self, std::int64_t n);
    void describe(const Type& type, const Shape& shape);
    void set_scales();
    void ask(std::size_t workspace_bytes);
    LtAlgorithm read(const lt::HeuristicResult& found) const;
    void check(lt::Status status, const char* call) const { api_->check(status, call, what_); }

    std::shared_ptr<const LtApi> api_;
    std::string what_;
    void *a_, *b_, *c_;
    int device_;
    bool transposed_b_ = false;
    cudaStream_t stream_ = nullptr;
    LtOwned<lt::Handle> handle_;
    LtOwned<lt::Desc> desc_;
    LtOwned<lt::Layout> layout_a_, layout_b_, layout_c_;     // in our names, which are not cuBLAS's
    alignas(8) unsigned char alpha_[8] = {}, beta_[8] = {};  // of the scale type
    std::unique_ptr<Buffer> scale_, workspace_;
    std::vector<lt::HeuristicResult> results_;
    std::vector<LtAlgorithm> algorithms_;
    int chosen_ = 0;
};

}  // namespace gm
