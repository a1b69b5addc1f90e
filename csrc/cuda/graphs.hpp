// A work captured several times over: graphs of n runs, so that n runs cost the host one call.
#pragma once
#include <cstdint>
#include <map>
#include <optional>

#include "cuda/handles.hpp"
#include "cuda/task.hpp"

namespace gm {

class Graphs : public Task {
  public:
    // `work` must enqueue on `stream` (none: the device's measuring stream) and wait for nothing.
    Graphs(int device, Work work, std::optional<cudaStream_t> stream = std::nullopt);
    ~Graphs() override;

    // Captures so many runs, unless that was done before. Throws CudaFailure where the work cannot be captured,
    // std::invalid_argument where it enqueues nothing on the measuring stream.
    void capture(std::int64_t runs);
    std::size_t nodes(std::int64_t runs) const;

    // Enqueues the graph of n runs. Throws std::invalid_argument where there is none.
    void run(std::int64_t n) override;

  private:
    struct Captured {
        cudaGraphExec_t graph;
        std::size_t nodes;
    };
    const Captured& find(std::int64_t runs) const;

    int device_;
    cudaStream_t stream_;
    Work captured_work_;
    std::map<std::int64_t, Captured> captured_;
};

// n replays of a graph of fixed length.
class Replay : public Task {
  public:
    Replay(Graphs& graphs, std::int64_t runs) : graphs_(graphs), runs_(runs) {}
    void run(std::int64_t n) override {
        for (std::int64_t i = 0; i < n; ++i) graphs_.run(runs_);
    }

  private:
    Graphs& graphs_;
    std::int64_t runs_;
};

}  // namespace gm
