#include "cuda/stream.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "cuda/handles.hpp"
#include "cuda/hung.hpp"

namespace gm {

void (*between_waits)() = nullptr;

namespace {

[[noreturn]] void give_up(double limit_s) {
    int device = 0;
    if (cudaGetDevice(&device) == cudaSuccess) set_hung(device, true);
    fail(cudaErrorLaunchTimeout, "cudaStreamQuery",
         "the work is not done after " + std::to_string(static_cast<int>(limit_s)) + " s", true);
}

}  // namespace

cudaStream_t measuring_stream(int device) {
    static std::mutex guard;
    static auto& streams = *new std::map<int, std::unique_ptr<Stream>>;
    const std::lock_guard<std::mutex> held(guard);
    std::unique_ptr<Stream>& stream = streams[device];
    if (!stream) {
        const DeviceScope scope(device);
        stream = std::make_unique<Stream>();
    }
    return stream->get();
}

void wait(cudaStream_t stream, double limit_s) {
    using clock = std::chrono::steady_clock;
    int device = 0;
    if (cudaGetDevice(&device) == cudaSuccess && is_hung(device)) limit_s = 0;  // asked once more, not waited for
    const auto start = clock::now();
    const auto nap_from = start + std::chrono::milliseconds(1);  // most work is done by then: no sleep, no delay
    auto ask_at = start + std::chrono::milliseconds(20);
    for (;;) {
        const cudaError_t code = cudaStreamQuery(stream);
        if (code == cudaSuccess) return;
        if (code != cudaErrorNotReady) fail(code, "cudaStreamQuery");
        (void)cudaGetLastError();  // not ready is no error
        const auto now = clock::now();
        if (now < nap_from) continue;
        if (std::chrono::duration<double>(now - start).count() > limit_s) give_up(limit_s);
        if (now >= ask_at && between_waits != nullptr) {
            between_waits();
            ask_at = now + std::chrono::milliseconds(20);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

}  // namespace gm
