#include "cuda/cublaslt.hpp"

#include <library_types.h>

#include <cstring>
#include <stdexcept>

#include "cuda/check.hpp"
#include "cuda/stream.hpp"

namespace gm {

// `get` needs the function's type: that of the member it goes to.
#define GM_LT(MEMBER, SYMBOL) MEMBER(library_.get<std::remove_pointer_t<std::remove_cv_t<decltype(MEMBER)>>>(SYMBOL))
LtApi::LtApi(const std::string& path)
    : library_(path),
      GM_LT(version, "cublasLtGetVersion"),
      GM_LT(status_name, "cublasLtGetStatusName"),
      GM_LT(status_text, "cublasLtGetStatusString"),
      GM_LT(create, "cublasLtCreate"),
      GM_LT(destroy, "cublasLtDestroy"),
      GM_LT(desc_create, "cublasLtMatmulDescCreate"),
      GM_LT(desc_destroy, "cublasLtMatmulDescDestroy"),
      GM_LT(desc_set, "cublasLtMatmulDescSetAttribute"),
      GM_LT(layout_create, "cublasLtMatrixLayoutCreate"),
      GM_LT(layout_destroy, "cublasLtMatrixLayoutDestroy"),
      GM_LT(preference_create, "cublasLtMatmulPreferenceCreate"),
      GM_LT(preference_destroy, "cublasLtMatmulPreferenceDestroy"),
      GM_LT(preference_set, "cublasLtMatmulPreferenceSetAttribute"),
      GM_LT(heuristic, "cublasLtMatmulAlgoGetHeuristic"),
      GM_LT(matmul, "cublasLtMatmul"),
      GM_LT(algorithm_get, "cublasLtMatmulAlgoConfigGetAttribute") {}
#undef GM_LT

void LtApi::check(lt::Status status, const char* call, const std::string& what) const {
    if (status == lt::kSuccess) return;
    const char *const name = status_name(status), *const text = status_text(status);
    throw CudaFailure(call, status, name != nullptr ? name : "unknown status",
                      std::string(text != nullptr ? text : "") + " (" + what + ")", "", "", false);
}

struct LtMatmul::Type {
    const char* dtype;
    int operand, result, compute, scale;  // cudaDataType, but for compute
    bool k_contiguous;                    // cuBLAS has it in the "TN format" only ("cuBLAS", cublasLtMatmul)
    bool scaled;                          // has scale factors for its operands
};

const LtMatmul::Type& LtMatmul::type_of(const std::string& dtype) {
    static const Type types[] = {
        {"float64", CUDA_R_64F, CUDA_R_64F, lt::kCompute64F, CUDA_R_64F, false, false},
        {"float32", CUDA_R_32F, CUDA_R_32F, lt::kCompute32F, CUDA_R_32F, false, false},
        {"tf32", CUDA_R_32F, CUDA_R_32F, lt::kCompute32FFastTf32, CUDA_R_32F, false, false},
        {"float16", CUDA_R_16F, CUDA_R_16F, lt::kCompute32F, CUDA_R_32F, false, false},
        {"bfloat16", CUDA_R_16BF, CUDA_R_16BF, lt::kCompute32F, CUDA_R_32F, false, false},
        {"int8", CUDA_R_8I, CUDA_R_32I, lt::kCompute32I, CUDA_R_32I, true, false},
        {"float8_e4m3fn", CUDA_R_8F_E4M3, CUDA_R_16BF, lt::kCompute32F, CUDA_R_32F, true, true},
    };
    for (const Type& type : types) {
        if (dtype == type.dtype) return type;
    }
    throw std::invalid_argument("cuBLASLt is not asked for products of " + dtype);
}

LtMatmul::LtMatmul(std::shared_ptr<const LtApi> api, const Shape& shape, std::uintptr_t a, std::uintptr_t b,
                   std::uintptr_t c, int device, std::size_t workspace_bytes)
    : api_(std::move(api)),
      what_("m=" + std::to_string(shape.m) + ", n=" + std::to_string(shape.n) + ", k=" + std::to_string(shape.k) +
            ", " + shape.dtype),
      a_(reinterpret_cast<void*>(a)),
      b_(reinterpret_cast<void*>(b)),
      c_(reinterpret_cast<void*>(c)),
      device_(device),
      handle_(api_->destroy),
      desc_(api_->desc_destroy),
      layout_a_(api_->layout_destroy),
      layout_b_(api_->layout_destroy),
      layout_c_(api_->layout_destroy) {
    const Type& type = type_of(shape.dtype);
    if (shape.m < 1 || shape.n < 1 || shape.k < 1) throw std::invalid_argument("m, n and k must be positive");
    const DeviceScope scope(device);  // a handle belongs to the device that is current when it is made
    stream_ = measuring_stream(device);
    check(api_->create(handle_.out()), "cublasLtCreate");
    describe(type, shape);
    workspace_ = std::make_unique<Buffer>(device, workspace_bytes, Memory::device);
    ask(workspace_bytes);
}

// The product in cuBLAS's terms: its A is our B and its B our A, each read column by column.
void LtMatmul::describe(const Type& type, const Shape& shape) {
    const auto m = static_cast<std::uint64_t>(shape.m), n = static_cast<std::uint64_t>(shape.n),
               k = static_cast<std::uint64_t>(shape.k);
    transposed_b_ = type.k_contiguous;
    check(api_->desc_create(desc_.out(), type.compute, type.scale), "cublasLtMatmulDescCreate");
    if (transposed_b_) {
        const std::int32_t operation = lt::kOpT;
        check(api_->desc_set(desc_.get(), lt::kDescTransA, &operation, sizeof operation),
              "cublasLtMatmulDescSetAttribute");
    }
    const char* const call = "cublasLtMatrixLayoutCreate";
    const std::uint64_t rows = transposed_b_ ? k : n, columns = transposed_b_ ? n : k;
    check(api_->layout_create(layout_b_.out(), type.operand, rows, columns, static_cast<std::int64_t>(rows)), call);
    check(api_->layout_create(layout_a_.out(), type.operand, k, m, shape.k), call);
    check(api_->layout_create(layout_c_.out(), type.result, n, m, shape.n), call);
    const std::int32_t one = 1;
    const float one_float = 1;
    const double one_double = 1;
    if (type.scale == CUDA_R_32I) std::memcpy(alpha_, &one, sizeof one);
    if (type.scale == CUDA_R_32F) std::memcpy(alpha_, &one_float, sizeof one_float);
    if (type.scale == CUDA_R_64F) std::memcpy(alpha_, &one_double, sizeof one_double);
    if (type.scaled) set_scales();
}

// Both operands by 1.
void LtMatmul::set_scales() {
    const float one = 1;
    scale_ = std::make_unique<Buffer>(device_, sizeof one, Memory::device);
    scale_->upload(&one, sizeof one);
    const void* const address = scale_->address();
    for (const int attribute : {lt::kDescScalePointerA, lt::kDescScalePointerB})
        check(api_->desc_set(desc_.get(), attribute, &address, sizeof address), "cublasLtMatmulDescSetAttribute");
}

void LtMatmul::ask(std::size_t workspace_bytes) {
    LtOwned<lt::Preference> preference(api_->preference_destroy);
    check(api_->preference_create(preference.out()), "cublasLtMatmulPreferenceCreate");
    const auto most = static_cast<std::uint64_t>(workspace_bytes);
    check(api_->preference_set(preference.get(), lt::kPrefMaxWorkspaceBytes, &most, sizeof most),
          "cublasLtMatmulPreferenceSetAttribute");
    const char* const call = "cublasLtMatmulAlgoGetHeuristic";
    std::vector<lt::HeuristicResult> found(kMostAlgorithms);
    int count = 0;
    check(api_->heuristic(handle_.get(), desc_.get(), layout_b_.get(), layout_a_.get(), layout_c_.get(),
                          layout_c_.get(), preference.get(), kMostAlgorithms, found.data(), &count),
          call);
    for (int i = 0; i < count; ++i) {
        const lt::HeuristicResult& one = found[static_cast<std::size_t>(i)];
        if (one.state != lt::kSuccess || one.workspace_bytes > workspace_bytes) continue;
        results_.push_back(one);
        algorithms_.push_back(read(one));
    }
    if (results_.empty()) check(lt::kNotSupported, call);
}

LtAlgorithm LtMatmul::read(const lt::HeuristicResult& found) const {
    const auto get = [&](int attribute, auto value) {
        std::size_t written = 0;
        const auto status = api_->algorithm_get(&found.algorithm, attribute, &value, sizeof value, &written);
        return status == lt::kSuccess && written == sizeof value ? static_cast<int>(value) : -1;
    };
    return {get(lt::kAlgoId, std::int32_t{}),
            get(lt::kAlgoTile, std::uint32_t{}),
            get(lt::kAlgoStages, std::uint32_t{}),
            get(lt::kAlgoSplitK, std::int32_t{}),
            get(lt::kAlgoCluster, std::uint16_t{}),
            found.workspace_bytes,
            found.waves};
}

void LtMatmul::choose(int algorithm) {
    if (algorithm < 0 || algorithm >= static_cast<int>(results_.size()))
        throw std::out_of_range("there are " + std::to_string(results_.size()) + " algorithms, not one numbered " +
                                std::to_string(algorithm));
    chosen_ = algorithm;
}

void LtMatmul::run(void* self, std::int64_t n) {
    auto& me = *static_cast<LtMatmul*>(self);
    const DeviceScope scope(me.device_);
    const lt::HeuristicResult& use = me.results_[static_cast<std::size_t>(me.chosen_)];
    note_launch("cublasLtMatmul", me.what_);
    for (std::int64_t i = 0; i < n; ++i)
        me.check(me.api_->matmul(me.handle_.get(), me.desc_.get(), me.alpha_, me.b_, me.layout_b_.get(), me.a_,
                                 me.layout_a_.get(), me.beta_, me.c_, me.layout_c_.get(), me.c_, me.layout_c_.get(),
                                 &use.algorithm, me.workspace_->address(), me.workspace_->size_bytes(), me.stream_),
                 "cublasLtMatmul");
}

}  // namespace gm
