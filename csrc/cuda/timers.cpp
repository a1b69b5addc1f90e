#include "cuda/timers.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <string>
#include <thread>

#include "cuda/hung.hpp"
#include "cuda/registry.hpp"
#include "cuda/stream.hpp"
#include "timing/rng.hpp"

namespace gm {
namespace {

int attribute(cudaDeviceAttr which, int device) {
    int value = 0;
    GM_CUDA(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

Event event_on(int device) {
    const DeviceScope scope(device);
    return Event();
}

// Random, lest a cache or a bus compress it; the same MiB again and again serves, no compression looks that far.
void fill_randomly(Buffer& buffer) {
    std::vector<std::uint64_t> piece((1 << 20) / sizeof(std::uint64_t));
    Rng rng(1);
    for (auto& word : piece) word = rng.next();
    for (std::size_t done = 0; done < buffer.size_bytes(); done += 1 << 20)
        buffer.upload(piece.data(), std::min<std::size_t>(1 << 20, buffer.size_bytes() - done), done);
}

}  // namespace

EventTimer::EventTimer(int device, const EventOptions& options_, std::optional<cudaStream_t> stream)
    : options(options_),
      device_(device),
      stream_(stream ? *stream : measuring_stream(device)),
      start_(event_on(device)),
      stop_(event_on(device)),
      gate_(device, stream_),
      sink_(device, 64, Memory::device) {
    const DeviceScope scope(device);
    sm_count_ = std::max(1, attribute(cudaDevAttrMultiProcessorCount, device));
    clock_hz_ = std::max(1e6, 1e3 * attribute(cudaDevAttrClockRate, device));
    if (!options.cold) return;
    evicted_ = std::make_unique<Buffer>(device, options.evict_bytes / 16 * 16, Memory::device);
    fill_randomly(*evicted_);
}

EventTimer::Started EventTimer::start() {
    check_alive();
    const DeviceScope scope(device_);
    prepare_device();
    ticket_ = gate_.next();
    Started started{Opening(gate_, ticket_)};
    closed_ = gated;
    if (gated) {
        const double part = static_cast<double>(random_ >> 11) * 0x1p-53;
        gate_.close(ticket_, options.gate_timeout_s, static_cast<std::uint64_t>(part * options.phase_s * clock_hz_));
    }
    GM_CUDA(cudaEventRecord(start_.get(), stream_));
    opened_ns_ = monotonic_raw_ns();
    return started;
}

int EventTimer::stop() {
    const DeviceScope scope(device_);
    GM_CUDA(cudaEventRecord(stop_.get(), stream_));
    open();
    wait();
    waited_s_ = 1e-9 * static_cast<double>(monotonic_raw_ns() - opened_ns_);
    return 0;
}

double EventTimer::seconds(const Started&, int) const {
    if (gated && gate_.expired(ticket_)) return std::numeric_limits<double>::quiet_NaN();
    float ms = 0.0F;
    GM_CUDA(cudaEventElapsedTime(&ms, start_.get(), stop_.get()));
    return 1e-3 * static_cast<double>(ms);
}

void EventTimer::Fed::run(void* fed, std::int64_t n) {
    auto& self = *static_cast<Fed*>(fed);
    const std::int64_t limit = std::max<std::int64_t>(1, self.timer->queue_limit);
    for (std::int64_t done = 0; done < n; done += limit) {
        if (done > 0) self.timer->open();
        self.work.run(self.work.context, std::min(limit, n - done));
    }
}

bool EventTimer::gate_holds() {
    check_alive();
    const DeviceScope scope(device_);
    {  // once with the gate open: loading a kernel may wait for the device
        const std::uint32_t ticket = gate_.next();
        gate_.open(ticket);
        gate_.close(ticket, 0.0, 0);
        GM_CUDA(cudaEventRecord(stop_.get(), stream_));
        wait();
    }
    const std::uint32_t ticket = gate_.next();
    const Opening opening(gate_, ticket);
    gate_.close(ticket, 0.02, 0);
    const bool held = !gate_.expired(ticket);
    GM_CUDA(cudaEventRecord(stop_.get(), stream_));
    gate_.open(ticket);
    wait();
    return held;
}

void EventTimer::open() noexcept {
    if (!closed_) return;
    closed_ = false;
    opened_ns_ = monotonic_raw_ns();
    gate_.open(ticket_);
}

// Before the gate, so that the gate stands between this and the span.
void EventTimer::prepare_device() {
    static const void* const evict = find_symbol("gm::evict").function;
    static const void* const filler = find_symbol("gm::filler").function;
    void* sink = sink_.address();
    if (evicted_) {
        const void* data = evicted_->address();
        auto quads = static_cast<long long>(evicted_->size_bytes() / 16);
        unsigned never = 0x5EED1E55U;
        void* arguments[] = {&data, &quads, &never, &sink};
        const auto most = static_cast<unsigned>((quads + 511) / 512);
        const unsigned grid = std::max(1U, std::min(4U * static_cast<unsigned>(sm_count_), most));
        GM_CUDA(cudaLaunchKernel(evict, dim3(grid), dim3(512), arguments, 0, stream_));
    } else if (options.filler_s > 0.0) {
        auto cycles = static_cast<unsigned long long>(options.filler_s * clock_hz_);
        float a = 0.5F;
        void* arguments[] = {&cycles, &a, &sink};
        GM_CUDA(cudaLaunchKernel(filler, dim3(static_cast<unsigned>(sm_count_)), dim3(128), arguments, 0, stream_));
    }
}

// Until the stop event has come. Asked again and again, since the calls that wait know no limit.
void EventTimer::wait() {
    const std::int64_t since = monotonic_raw_ns();
    std::int64_t ask_at = since + 20000000;
    for (;;) {
        const cudaError_t code = cudaEventQuery(stop_.get());
        if (code == cudaSuccess) return;
        if (code != cudaErrorNotReady) fail(code, "cudaEventQuery");
        forget(code);  // not ready is no error
        const std::int64_t now = monotonic_raw_ns();
        const double waited_s = 1e-9 * static_cast<double>(now - since);
        if (waited_s < 1e-3) continue;  // most work is done by then: no sleep, no delay
        if (waited_s > options.watchdog_s) hang();
        if (now >= ask_at && between_waits != nullptr) {
            set_hung(device_, true);  // whoever leaves here leaves it at work, and nobody is to wait for it unasked
            between_waits();
            set_hung(device_, false);
            ask_at = now + 20000000;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void EventTimer::hang() {
    set_hung(device_, true);
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g", options.watchdog_s);
    fail(cudaErrorLaunchTimeout, "cudaEventQuery",
         std::string("the kernel hangs: it did not end within ") + limit + " s", true);
}

void EventTimer::check_alive() {
    if (!is_hung(device_)) return;
    const DeviceScope scope(device_);
    for (const cudaStream_t stream : {stream_, measuring_stream(device_)}) {  // it may hang on the other
        const cudaError_t code = cudaStreamQuery(stream);
        forget(code);
        if (code != cudaSuccess)
            fail(cudaErrorLaunchTimeout, "cudaStreamQuery", "an earlier kernel still hangs on this device", true);
    }
    set_hung(device_, false);
}

}  // namespace gm
