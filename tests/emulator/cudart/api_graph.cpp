// Graphs, made by stream capture; a launch runs the nodes in the order they were captured in.
#include <map>

#include "api.hpp"
#include "stream.hpp"

using namespace ptxemu;

namespace {
// Handles are addresses of these; a graph that is being captured is shared with its streams.
struct GraphHandle {
    std::shared_ptr<Graph> graph;
};

std::mutex handles_mutex;
std::map<const void*, std::shared_ptr<GraphHandle>>& handles() {
    static auto* all = new std::map<const void*, std::shared_ptr<GraphHandle>>;
    return *all;
}

std::shared_ptr<Graph> graph_of(const void* handle) {
    const std::lock_guard<std::mutex> lock(handles_mutex);
    const auto at = handles().find(handle);
    return at == handles().end() ? nullptr : at->second->graph;
}

void* handle_of(const std::shared_ptr<Graph>& graph) {
    const std::lock_guard<std::mutex> lock(handles_mutex);
    const auto made = std::make_shared<GraphHandle>(GraphHandle{graph});
    handles()[made.get()] = made;
    return made.get();
}

cudaError_t destroy(const void* handle) {
    const std::lock_guard<std::mutex> lock(handles_mutex);
    return handles().erase(handle) != 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t instantiate(cudaGraphExec_t* out, cudaGraph_t handle) {
    const auto graph = graph_of(handle);
    if (graph == nullptr || out == nullptr) return cudaErrorInvalidValue;
    *out = static_cast<cudaGraphExec_t>(handle_of(std::make_shared<Graph>(*graph)));
    return cudaSuccess;
}

void end_capture(const std::shared_ptr<Graph>& graph) {  // for the streams that joined it, too
    Context& owner = context(current_device());
    const std::lock_guard<std::mutex> lock(owner.order);
    for (const auto& weak : owner.streams) {
        const auto stream = weak.lock();
        if (stream == nullptr || stream->capture != graph) continue;
        stream->capture = nullptr;
        stream->capture_origin = false;
        count_capture(-1);
    }
}
}  // namespace

PTXEMU_API cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    return call("cudaStreamBeginCapture", [&] {
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (stream->is_legacy()) return cudaErrorStreamCaptureUnsupported;
        if (stream->capture != nullptr) return cudaErrorIllegalState;
        stream->capture = std::make_shared<Graph>();
        stream->capture_origin = true;
        stream->capture_mode = mode;
        count_capture(1);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
    const auto capturing = stream_of(handle);
    const cudaError_t wanted = injected("cudaStreamEndCapture");
    if (wanted != cudaSuccess) {  // a capture that cannot be ended is over, too
        if (capturing != nullptr && capturing->capture != nullptr) end_capture(capturing->capture);
        return keep(wanted);
    }
    return call_counted([&] {
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (stream->capture == nullptr) return cudaErrorIllegalState;
        if (!stream->capture_origin) return cudaErrorStreamCaptureUnmatched;
        const std::shared_ptr<Graph> graph = stream->capture;
        end_capture(graph);
        *out = static_cast<cudaGraph_t>(handle_of(graph));
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    return call("cudaStreamIsCapturing", [&] {
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        *status = stream->capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    return call("cudaThreadExchangeStreamCaptureMode", [&] {
        thread_local cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;
        std::swap(own, *mode);
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaGraphCreate(cudaGraph_t* out, unsigned) {
    return call("cudaGraphCreate", [&] {
        *out = static_cast<cudaGraph_t>(handle_of(std::make_shared<Graph>()));
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
    return call("cudaGraphInstantiate", [&] { return instantiate(out, graph); });
}
PTXEMU_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
    return call("cudaGraphInstantiateWithFlags", [&] { return instantiate(out, graph); });
}
PTXEMU_API cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t) {
    return call("cudaGraphUpload", [&] { return graph_of(handle) == nullptr ? cudaErrorInvalidValue : cudaSuccess; });
}
PTXEMU_API cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
    return call("cudaGraphLaunch", [&] {
        const auto graph = graph_of(handle);
        const auto stream = stream_of(stream_handle);
        if (graph == nullptr) return cudaErrorInvalidValue;
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        stream->enqueue(cudaGraphNodeTypeGraph, [graph] {
            for (const Node& node : graph->nodes) node.work();
        });
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
    return call("cudaGraphDestroy", [&] { return destroy(handle); });
}
PTXEMU_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
    return call("cudaGraphExecDestroy", [&] { return destroy(handle); });
}
// A node's handle is its address in the graph.
PTXEMU_API cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, std::size_t* count) {
    return call("cudaGraphGetNodes", [&] {
        const auto graph = graph_of(handle);
        if (graph == nullptr) return cudaErrorInvalidValue;
        for (std::size_t i = 0; nodes != nullptr && i < *count && i < graph->nodes.size(); ++i) {
            nodes[i] = reinterpret_cast<cudaGraphNode_t>(&graph->nodes[i]);
        }
        *count = graph->nodes.size();
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
    return call("cudaGraphNodeGetType", [&] {
        *type = reinterpret_cast<const Node*>(node)->type;
        return cudaSuccess;
    });
}
