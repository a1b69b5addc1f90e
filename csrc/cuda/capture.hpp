// A stream in capture; whatever happens, the capture ends and its graph is destroyed.
#pragma once
#include "cuda/check.hpp"

namespace gm {

class Capture {
  public:
    explicit Capture(cudaStream_t stream) : stream_(stream) {
        GM_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    }
    ~Capture() {
        if (open_) GM_CUDA_NOEXCEPT(cudaStreamEndCapture(stream_, &graph_));
        if (graph_ != nullptr) GM_CUDA_NOEXCEPT(cudaGraphDestroy(graph_));
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    cudaGraph_t end() {
        open_ = false;
        GM_CUDA(cudaStreamEndCapture(stream_, &graph_));
        return graph_;
    }

  private:
    cudaStream_t stream_;
    cudaGraph_t graph_ = nullptr;
    bool open_ = true;
};

}  // namespace gm
