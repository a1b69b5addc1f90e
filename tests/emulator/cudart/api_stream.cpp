// Streams and events.
#include <cstdlib>
#include <map>

#include "api.hpp"
#include "stream.hpp"

namespace ptxemu {
namespace {
template <class T>
struct Handles {
    std::mutex mutex;
    std::map<const void*, std::shared_ptr<T>> all;
    void add(const std::shared_ptr<T>& one) {
        const std::lock_guard<std::mutex> lock(mutex);
        all[one.get()] = one;
    }
    std::shared_ptr<T> find(const void* handle) {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto at = all.find(handle);
        return at == all.end() ? nullptr : at->second;
    }
    std::shared_ptr<T> take(const void* handle) {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto at = all.find(handle);
        if (at == all.end()) return nullptr;
        const std::shared_ptr<T> one = at->second;
        all.erase(at);
        return one;
    }
};

Handles<Stream>& streams() {
    static auto* handles = new Handles<Stream>;
    return *handles;
}
Handles<Event>& events() {
    static auto* handles = new Handles<Event>;
    return *handles;
}

std::shared_ptr<Stream> make_stream(unsigned flags, int priority) {
    const auto stream = std::make_shared<Stream>(current_device(), flags, priority, false);
    Context& owner = context(current_device());
    const std::lock_guard<std::mutex> lock(owner.order);
    owner.streams.push_back(stream);
    return stream;
}

cudaError_t create(cudaStream_t* out, unsigned flags, int priority) {
    if (out == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    const auto stream = make_stream(flags, priority);
    streams().add(stream);
    *out = reinterpret_cast<cudaStream_t>(stream.get());
    return cudaSuccess;
}

cudaError_t record(cudaEvent_t handle, cudaStream_t stream_handle, unsigned flags) {
    const auto event = event_of(handle);
    const auto stream = stream_of(stream_handle);
    if (event == nullptr || stream == nullptr || event->device != stream->device())
        return cudaErrorInvalidResourceHandle;
    const auto recording = std::make_shared<Recording>();
    if (stream->capture != nullptr && (flags & cudaEventRecordExternal) == 0) {
        event->captured_in = stream->capture;  // an edge of the graph, not a point in time
        event->recording = nullptr;
        return cudaSuccess;
    }
    event->captured_in = nullptr;
    if (stream->capture != nullptr) {  // recorded anew by each launch of the graph
        const std::weak_ptr<Event> weak = event;
        stream->enqueue(cudaGraphNodeTypeEventRecord, [weak, recording] { recording->complete(); });
        event->recording = recording;
        return cudaSuccess;
    }
    event->recording = recording;
    stream->submit([recording] { recording->complete(); });
    return cudaSuccess;
}

bool is_done(const Event& event) {
    if (event.recording == nullptr) return true;
    const std::lock_guard<std::mutex> lock(event.recording->mutex);
    return event.recording->done;
}

double tick_s() {  // PTXEMU_TICK_NS: the step of the event clock
    static const char* text = std::getenv("PTXEMU_TICK_NS");
    return text == nullptr ? 0 : std::atof(text) * 1e-9;
}

double ticked(double time_s) {
    const double step = tick_s();
    return step > 0 ? static_cast<double>(static_cast<s64>(time_s / step)) * step : time_s;
}
}  // namespace

std::shared_ptr<Stream> stream_of(cudaStream_t handle) {
    if (handle == nullptr || handle == cudaStreamLegacy) return context(current_device()).legacy;
    if (handle == cudaStreamPerThread) {
        thread_local std::map<int, std::shared_ptr<Stream>> own;
        std::shared_ptr<Stream>& found = own[current_device()];
        if (found == nullptr) found = make_stream(cudaStreamDefault, 0);
        return found;
    }
    return streams().find(handle);
}

std::shared_ptr<Event> event_of(cudaEvent_t handle) { return events().find(handle); }
}  // namespace ptxemu

using namespace ptxemu;

PTXEMU_API cudaError_t cudaStreamCreate(cudaStream_t* out) {
    return call("cudaStreamCreate", [&] { return create(out, cudaStreamDefault, 0); });
}
PTXEMU_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
    return call("cudaStreamCreateWithFlags", [&] { return create(out, flags, 0); });
}
PTXEMU_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
    return call("cudaStreamCreateWithPriority", [&] { return create(out, flags, priority); });
}
PTXEMU_API cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    return call("cudaStreamDestroy", [&] {
        const auto stream = streams().take(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        stream->close();  // its work goes on to the end
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    return call("cudaStreamSynchronize", [&] {
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
        stream->finish();
        return context(stream->device()).failure();
    });
}
PTXEMU_API cudaError_t cudaStreamQuery(cudaStream_t handle) {
    return call("cudaStreamQuery", [&] {
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
        return stream->idle() ? context(stream->device()).failure() : cudaErrorNotReady;
    });
}
PTXEMU_API cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
    return call("cudaStreamGetFlags", [&] {
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        *flags = stream->flags();
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
    return call("cudaStreamGetPriority", [&] {
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        *priority = stream->priority();
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
    return call("cudaStreamGetDevice", [&] {
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        *device = stream->device();
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
    return call("cudaStreamWaitEvent", [&] {
        const auto stream = stream_of(handle);
        const auto event = event_of(event_handle);
        if (stream == nullptr || event == nullptr) return cudaErrorInvalidResourceHandle;
        if (event->captured_in != nullptr) {  // the stream joins the capture
            if (stream->capture == nullptr) count_capture(1);
            stream->capture = event->captured_in;
            return cudaSuccess;
        }
        const auto recording = event->recording;
        if (recording != nullptr) stream->enqueue(cudaGraphNodeTypeWaitEvent, [recording] { recording->wait(); });
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
    return call("cudaLaunchHostFunc", [&] {
        const auto stream = stream_of(handle);
        if (stream == nullptr) return cudaErrorInvalidResourceHandle;
        const int device = stream->device();
        stream->enqueue(cudaGraphNodeTypeHost, [=] {
            if (context(device).failure() == cudaSuccess) function(argument);
        });
        return cudaSuccess;
    });
}

PTXEMU_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
    return call("cudaEventCreateWithFlags", [&] {
        const auto event = std::make_shared<Event>();
        event->flags = flags;
        event->device = current_device();
        events().add(event);
        *out = reinterpret_cast<cudaEvent_t>(event.get());
        return cudaSuccess;
    });
}
PTXEMU_API cudaError_t cudaEventCreate(cudaEvent_t* out) {
    return call("cudaEventCreate", [&] { return cudaEventCreateWithFlags(out, cudaEventDefault); });
}
PTXEMU_API cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    return call("cudaEventDestroy",
                [&] { return events().take(handle) == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess; });
}
PTXEMU_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return call("cudaEventRecord", [&] { return record(event, stream, 0); });
}
PTXEMU_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    return call("cudaEventRecordWithFlags", [&] { return record(event, stream, flags); });
}
PTXEMU_API cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    return call("cudaEventSynchronize", [&] {
        const auto event = event_of(handle);
        if (event == nullptr) return cudaErrorInvalidResourceHandle;
        if (event->captured_in != nullptr) return cudaErrorStreamCaptureUnsupported;
        if (event->recording != nullptr) event->recording->wait();
        return context(event->device).failure();
    });
}
PTXEMU_API cudaError_t cudaEventQuery(cudaEvent_t handle) {
    return call("cudaEventQuery", [&] {
        const auto event = event_of(handle);
        if (event == nullptr) return cudaErrorInvalidResourceHandle;
        if (event->captured_in != nullptr) return cudaErrorStreamCaptureUnsupported;
        return is_done(*event) ? context(event->device).failure() : cudaErrorNotReady;
    });
}
PTXEMU_API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    return call("cudaEventElapsedTime", [&] {
        const auto first = event_of(from), second = event_of(to);
        if (first == nullptr || second == nullptr || ms == nullptr) return cudaErrorInvalidResourceHandle;
        const bool timed = ((first->flags | second->flags) & cudaEventDisableTiming) == 0;
        if (!timed || first->recording == nullptr || second->recording == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (!is_done(*first) || !is_done(*second)) return cudaErrorNotReady;
        *ms = static_cast<float>((ticked(second->recording->time_s) - ticked(first->recording->time_s)) * 1e3);
        return cudaSuccess;
    });
}
