#include "cuda/nccl/rank_timer.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "cuda/stream.hpp"

namespace gm {

RankTimer::RankTimer(std::shared_ptr<Communicators> communicators)
    : communicators_(std::move(communicators)), barrier_(communicators_, {"barrier", "", 1, {}, {}, "sum", 0}) {
    for (const auto& rank : communicators_->ranks()) {
        const DeviceScope scope(rank.device);
        int khz = 0;
        GM_CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, rank.device));
        lanes_.push_back({rank.device, rank.stream, std::make_unique<Gate>(rank.device, rank.stream), Event(), Event(),
                          Event(), std::max(1e6, 1e3 * khz)});
        Gate& gate = *lanes_.back().gate;  // once open: loading a kernel, or connecting ranks, may wait for the device
        const std::uint32_t ticket = gate.next();
        gate.open(ticket);
        gate.close(ticket, 0.0, 0);
    }
    barrier_.run(1);
    communicators_->wait();
}

RankTimer::Started RankTimer::start() {
    Started started;
    for (Lane& lane : lanes_) {
        lane.ticket = lane.gate->next();
        started.openings.emplace_back(*lane.gate, lane.ticket);
    }
    closed_ = gated;
    const double part = static_cast<double>(random_ >> 11) * 0x1p-53;
    for (Lane& lane : lanes_) {
        const DeviceScope scope(lane.device);
        const auto delay = static_cast<std::uint64_t>(part * phase_s * lane.clock_hz);
        if (gated) lane.gate->close(lane.ticket, gate_timeout_s, delay);
        GM_CUDA(cudaEventRecord(lane.arrival.get(), lane.stream));
    }
    barrier_.run(1);
    for (Lane& lane : lanes_) {
        const DeviceScope scope(lane.device);
        GM_CUDA(cudaEventRecord(lane.start.get(), lane.stream));
    }
    opened_ns_ = monotonic_raw_ns();
    return started;
}

int RankTimer::stop() {
    for (Lane& lane : lanes_) {
        const DeviceScope scope(lane.device);
        GM_CUDA(cudaEventRecord(lane.stop.get(), lane.stream));
    }
    open();
    wait();
    walls_s.push_back(1e-9 * static_cast<double>(monotonic_raw_ns() - opened_ns_));
    return 0;
}

double RankTimer::seconds(const Started&, int) {
    double slowest = 0.0;
    for (const Lane& lane : lanes_) {
        const bool lost = gated && lane.gate->expired(lane.ticket);
        const double span = lost ? std::numeric_limits<double>::quiet_NaN() : between(lane.start, lane.stop);
        spans_s.push_back(span);
        waits_s.push_back(between(lane.arrival, lane.start));
        slowest = span > slowest ? span : slowest;
    }
    return slowest;
}

double RankTimer::between(const Event& from, const Event& to) const {
    float ms = 0.0F;
    GM_CUDA(cudaEventElapsedTime(&ms, from.get(), to.get()));
    return 1e-3 * static_cast<double>(ms);
}

void RankTimer::Fed::run(void* fed, std::int64_t n) {
    auto& self = *static_cast<Fed*>(fed);
    const std::int64_t limit = std::max<std::int64_t>(1, self.timer->queue_limit);
    for (std::int64_t done = 0; done < n; done += limit) {
        if (done > 0) self.timer->open();
        self.work.run(self.work.context, std::min(limit, n - done));
    }
}

void RankTimer::open() noexcept {
    if (!closed_) return;
    closed_ = false;
    opened_ns_ = monotonic_raw_ns();
    for (Lane& lane : lanes_) lane.gate->open(lane.ticket);
}

// Until every stop event has come; without communicators' errors nobody would know that one never will.
void RankTimer::wait() {
    try {
        const std::int64_t since = monotonic_raw_ns();
        std::int64_t ask_at = since + 20000000;
        for (std::size_t done = 0; done < lanes_.size();) {
            const cudaError_t code = cudaEventQuery(lanes_[done].stop.get());
            if (code == cudaSuccess) {
                ++done;
                continue;
            }
            if (code != cudaErrorNotReady) fail(code, "cudaEventQuery");
            forget(code);  // not ready is no error
            const std::int64_t now = monotonic_raw_ns();
            const double waited_s = 1e-9 * static_cast<double>(now - since);
            if (waited_s < 1e-3) continue;  // most work is done by then: no sleep, no delay
            if (waited_s > communicators_->timeout_s) communicators_->time_out("cudaEventQuery");
            if (now >= ask_at) {
                communicators_->poll();
                if (between_waits != nullptr) between_waits();
                ask_at = now + 20000000;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        communicators_->must_live("cudaEventQuery");  // a kernel that was aborted ends, too
    } catch (...) {
        communicators_->abort();
        throw;
    }
}

}  // namespace gm
