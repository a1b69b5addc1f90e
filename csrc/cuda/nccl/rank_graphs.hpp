// A work of several devices captured: a graph on each, as each rank has a stream of its own.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cuda/nccl/communicators.hpp"
#include "cuda/task.hpp"

namespace gm {

class RankGraphs : public Task {
  public:
    // `work` must enqueue on the communicators' streams and wait for nothing there.
    RankGraphs(std::shared_ptr<Communicators> communicators, Work work)
        : communicators_(std::move(communicators)), captured_work_(work) {}
    ~RankGraphs() override;

    // Captures so many runs, unless that was done before. Throws CudaFailure or NcclFailure where the work cannot be
    // captured, std::invalid_argument where it enqueues nothing.
    void capture(std::int64_t runs);
    std::size_t nodes(std::int64_t runs) const { return find(runs).nodes; }

    // Launches the graphs of n runs. Throws std::invalid_argument where there are none.
    void run(std::int64_t n) override;

  private:
    struct Captured {
        std::vector<cudaGraphExec_t> graphs;  // as the communicators' ranks
        std::size_t nodes = 0;                // of the first
    };
    const Captured& find(std::int64_t runs) const;

    std::shared_ptr<Communicators> communicators_;
    Work captured_work_;
    std::map<std::int64_t, Captured> captured_;
};

// n launches of graphs of fixed length.
class RankReplay : public Task {
  public:
    RankReplay(RankGraphs& graphs, std::int64_t runs) : graphs_(graphs), runs_(runs) {}
    void run(std::int64_t n) override {
        for (std::int64_t i = 0; i < n; ++i) graphs_.run(runs_);
    }

  private:
    RankGraphs& graphs_;
    std::int64_t runs_;
};

}  // namespace gm
