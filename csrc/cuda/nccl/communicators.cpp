#include "cuda/nccl/communicators.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cuda/handles.hpp"
#include "cuda/hung.hpp"
#include "cuda/nccl/bounded.hpp"
#include "cuda/nccl/watchdog.hpp"
#include "cuda/stream.hpp"

namespace gm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kAbortS = 10.0;  // at most, for NCCL to come back from an abort, which waits for its kernels

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string seconds_text(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%g s", seconds);
    return text;
}

std::mutex live_guard;
std::vector<Communicators*>& live() {
    static auto& all = *new std::vector<Communicators*>;
    return all;
}

}  // namespace

void poll_communicators() {
    const std::lock_guard<std::mutex> held(live_guard);
    for (Communicators* one : live()) one->poll();
}

void Communicators::enlist() {
    const std::lock_guard<std::mutex> held(live_guard);
    live().push_back(this);
}

Communicators::~Communicators() {
    {
        const std::lock_guard<std::mutex> held(live_guard);
        auto& all = live();
        all.erase(std::remove(all.begin(), all.end(), this), all.end());
    }
    watchdog_.reset();
    if (!closed_) abort();
}

void Communicators::start_group(const char* call) {
    must_live(call);
    calls_.lock();
    if (watchdog_) watchdog_->arm(timeout_s);
    const nccl::Result result = api_->group_start();
    if (result == nccl::kSuccess) return;
    leave();
    api_->check(result, "ncclGroupStart", ranks_[0].rank);
}

void Communicators::must_live(const char* call) const {
    if (!aborted_ && !closed_) return;
    const std::string how = closed_ ? "closed" : "aborted";
    throw NcclFailure(call, nccl::kInvalidUsage, "these communicators have been " + how + ": make new ones", "",
                      ranks_[0].rank, false);
}

void Communicators::leave() {
    if (watchdog_) watchdog_->disarm();
    calls_.unlock();
}

void Communicators::end_group(const char* call) {
    const nccl::Result result = api_->group_end();
    leave();
    if (expired_.exchange(false)) time_out(call);
    if (result != nccl::kSuccess && result != nccl::kInProgress) {
        poll();  // the communicator knows more than the group: which rank, and why
        api_->check(result, call, ranks_[0].rank, ranks_[0].comm);
    }
    if (!blocking_) settle(call);
}

bool Communicators::in_progress(const char* call) {
    const std::lock_guard<std::timed_mutex> held(calls_);
    must_live(call);
    bool going_on = false;
    for (const Rank& rank : ranks_) {
        nccl::Result state = nccl::kSuccess;
        check(api_->async_error(rank.comm, &state), "ncclCommGetAsyncError", rank);
        check(state, call, rank);
        going_on = going_on || state == nccl::kInProgress;
    }
    return going_on;
}

// Until what NCCL does behind a non-blocking call is done.
void Communicators::settle(const char* call) {
    const auto start = Clock::now();
    auto ask_at = start + std::chrono::milliseconds(20);
    while (in_progress(call)) {
        const double waited_s = since(start);
        if (waited_s < 1e-3) continue;  // a launch takes some 10 us
        if (waited_s > timeout_s) time_out(call);
        if (Clock::now() >= ask_at && between_waits != nullptr) {
            between_waits();
            ask_at = Clock::now() + std::chrono::milliseconds(20);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void Communicators::poll() {
    try {
        if (!aborted_ && !closed_) (void)in_progress("ncclCommGetAsyncError");
    } catch (const NcclFailure&) {
        abort();
        throw;
    }
}

void Communicators::wait() {
    try {
        must_live("cudaStreamQuery");
        const auto start = Clock::now();
        auto ask_at = start + std::chrono::milliseconds(20);
        for (std::size_t done = 0; done < ranks_.size();) {
            const cudaError_t code = cudaStreamQuery(ranks_[done].stream);
            if (code == cudaSuccess) {
                ++done;
                continue;
            }
            if (code != cudaErrorNotReady) fail(code, "cudaStreamQuery");
            forget(code);
            const double waited_s = since(start);
            if (waited_s < 1e-3) continue;
            if (waited_s > timeout_s) time_out("cudaStreamQuery");
            if (Clock::now() >= ask_at) {
                poll();
                if (between_waits != nullptr) between_waits();
                ask_at = Clock::now() + std::chrono::milliseconds(20);
            }
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        must_live("cudaStreamQuery");  // a kernel that was aborted ends, too
        poll();
    } catch (...) {
        abort();
        throw;
    }
}

void Communicators::time_out(const char* call) {
    std::string detail = aborted_ ? "" : api_->last_error(ranks_[0].comm);
    abort();
    throw NcclFailure(call, nccl::kInProgress,
                      "not done within " + seconds_text(timeout_s) + " with " + std::to_string(size_) +
                          " ranks: another rank has not come, has died or does something else; aborted",
                      std::move(detail), ranks_[0].rank, true);
}

template <class Step>
bool Communicators::each_by_itself(double limit_s, Step step) const noexcept {
    try {
        return bounded(limit_s, ranks_.size(), [api = api_, ranks = ranks_, step](std::size_t i) {
            if (ranks[i].comm == nullptr) return;
            forget(cudaSetDevice(ranks[i].device));
            step(*api, ranks[i].comm);
        });
    } catch (const std::exception&) {  // no thread to be had
        return false;
    }
}

bool Communicators::abort() noexcept {
    const std::lock_guard<std::mutex> ending(ending_);
    if (closed_ || aborted_.exchange(true)) return ended_;
    // A call that blocks inside NCCL is what an abort is for: then it is not waited for.
    const std::unique_lock<std::timed_mutex> held(calls_, std::chrono::milliseconds(200));
    drop_graphs();
    const double limit_s = std::clamp(timeout_s.load(), 1.0, kAbortS);
    ended_ = each_by_itself(limit_s, [](const NcclApi& api, nccl::Comm comm) { (void)api.abort(comm); });
    look_after_streams();
    return ended_;
}

// Whether the devices are free again decides who may wait for them and free memory there.
void Communicators::look_after_streams() noexcept {
    const auto start = Clock::now();
    for (const Rank& rank : ranks_) {
        cudaError_t code = cudaErrorNotReady;
        for (;;) {
            code = ended_ ? cudaStreamQuery(rank.stream) : cudaErrorNotReady;
            forget(code);
            if (code != cudaErrorNotReady || !ended_ || since(start) > 2.0) break;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        set_hung(rank.device, code == cudaErrorNotReady);
    }
}

void Communicators::close() {
    if (closed_ || aborted_) return;
    const auto start = Clock::now();
    drop_graphs();
    if (!blocking_ && api_->finalize != nullptr) {
        const char* const call = "ncclCommFinalize";
        enqueue(call, [&] {
            for (const Rank& rank : ranks_) check(api_->finalize(rank.comm), call, rank);
        });
    }
    watchdog_.reset();
    closed_ = true;
    const double left_s = std::max(1.0, timeout_s - since(start));
    if (each_by_itself(left_s, [](const NcclApi& api, nccl::Comm comm) { (void)api.destroy(comm); })) return;
    closed_ = false;
    time_out("ncclCommDestroy");
}

void Communicators::keep(cudaGraphExec_t graph) {
    const std::lock_guard<std::mutex> held(graphs_guard_);
    graphs_.insert(graph);
}

void Communicators::drop(cudaGraphExec_t graph) noexcept {
    const std::lock_guard<std::mutex> held(graphs_guard_);
    if (graphs_.erase(graph) != 0 && !is_hung(ranks_[0].device)) GM_CUDA_NOEXCEPT(cudaGraphExecDestroy(graph));
}

void Communicators::drop_graphs() noexcept {
    const std::lock_guard<std::mutex> held(graphs_guard_);
    const std::vector<cudaGraphExec_t> all(graphs_.begin(), graphs_.end());
    graphs_.clear();
    (void)bounded(1.0, 1, [all](std::size_t) {
        for (const cudaGraphExec_t graph : all) forget(cudaGraphExecDestroy(graph));
    });
}

}  // namespace gm
