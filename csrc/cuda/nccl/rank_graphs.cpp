#include "cuda/nccl/rank_graphs.hpp"

#include <stdexcept>
#include <string>

#include "cuda/capture.hpp"
#include "cuda/handles.hpp"

namespace gm {

RankGraphs::~RankGraphs() {
    for (const auto& [runs, captured] : captured_) {
        for (const cudaGraphExec_t graph : captured.graphs) communicators_->drop(graph);
    }
}

void RankGraphs::capture(std::int64_t runs) {
    if (runs < 1) throw std::invalid_argument("a graph has at least one run, not " + std::to_string(runs));
    if (captured_.count(runs) != 0) return;
    const auto& ranks = communicators_->ranks();
    std::vector<std::unique_ptr<Capture>> captures;
    for (const auto& rank : ranks) {
        const DeviceScope scope(rank.device);
        captures.push_back(std::make_unique<Capture>(rank.stream));
    }
    captured_work_.run(captured_work_.context, runs);
    Captured& made = captured_[runs];
    try {
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            const DeviceScope scope(ranks[i].device);
            const cudaGraph_t graph = captures[i]->end();
            std::size_t nodes = 0;
            GM_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
            if (nodes == 0) throw std::invalid_argument("the work enqueues nothing: nothing to capture");
            if (i == 0) made.nodes = nodes;
            cudaGraphExec_t ready = nullptr;
            GM_CUDA(cudaGraphInstantiateWithFlags(&ready, graph, 0));
            communicators_->keep(ready);
            made.graphs.push_back(ready);
            GM_CUDA(cudaGraphUpload(ready, ranks[i].stream));
        }
    } catch (...) {
        for (const cudaGraphExec_t graph : made.graphs) communicators_->drop(graph);
        captured_.erase(runs);
        throw;
    }
}

const RankGraphs::Captured& RankGraphs::find(std::int64_t runs) const {
    const auto found = captured_.find(runs);
    if (found == captured_.end())
        throw std::invalid_argument("no graph of " + std::to_string(runs) + " runs was captured");
    return found->second;
}

void RankGraphs::run(std::int64_t n) {
    if (n == 0) return;
    const Captured& captured = find(n);
    communicators_->must_live("cudaGraphLaunch");
    const auto& ranks = communicators_->ranks();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const DeviceScope scope(ranks[i].device);
        GM_CUDA(cudaGraphLaunch(captured.graphs[i], ranks[i].stream));
    }
}

}  // namespace gm
