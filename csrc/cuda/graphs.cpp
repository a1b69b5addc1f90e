#include "cuda/graphs.hpp"

#include <stdexcept>
#include <string>

#include "cuda/capture.hpp"
#include "cuda/hung.hpp"
#include "cuda/stream.hpp"

namespace gm {

Graphs::Graphs(int device, Work work, std::optional<cudaStream_t> stream)
    : device_(device), stream_(stream ? *stream : measuring_stream(device)), captured_work_(work) {}

Graphs::~Graphs() {
    if (is_hung(device_)) return;  // a graph in use is not to be waited for
    for (const auto& [runs, captured] : captured_) GM_CUDA_NOEXCEPT(cudaGraphExecDestroy(captured.graph));
}

void Graphs::capture(std::int64_t runs) {
    if (runs < 1) throw std::invalid_argument("a graph has at least one run, not " + std::to_string(runs));
    if (captured_.count(runs) != 0) return;
    const DeviceScope scope(device_);
    Capture capture(stream_);
    captured_work_.run(captured_work_.context, runs);
    const cudaGraph_t graph = capture.end();
    std::size_t nodes = 0;
    GM_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    if (nodes == 0)
        throw std::invalid_argument("the work enqueues nothing on the measuring stream: nothing to capture");
    cudaGraphExec_t made = nullptr;
    GM_CUDA(cudaGraphInstantiateWithFlags(&made, graph, 0));
    captured_[runs] = {made, nodes};
    GM_CUDA(cudaGraphUpload(made, stream_));
}

const Graphs::Captured& Graphs::find(std::int64_t runs) const {
    const auto found = captured_.find(runs);
    if (found == captured_.end())
        throw std::invalid_argument("no graph of " + std::to_string(runs) + " runs was captured");
    return found->second;
}

std::size_t Graphs::nodes(std::int64_t runs) const { return find(runs).nodes; }

void Graphs::run(std::int64_t n) {
    if (n == 0) return;
    const DeviceScope scope(device_);
    GM_CUDA(cudaGraphLaunch(find(n).graph, stream_));
}

}  // namespace gm
