#include "stream.hpp"

#include <time.h>

#include <atomic>
#include <cstdlib>
#include <thread>

namespace ptxemu {
struct Stream::State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Work> queue;
    u64 submitted = 0;
    u64 completed = 0;
    bool running = false;
    bool closed = false;
    void wait(u64 ticket) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return completed >= ticket; });
    }
};

double now_s() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Recording::complete() {
    const std::lock_guard<std::mutex> lock(mutex);
    time_s = now_s();
    done = true;
    changed.notify_all();
}

void Recording::wait() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return done; });
}

Stream::Stream(int device, unsigned flags, int priority, bool is_legacy)
    : device_(device), flags_(flags), priority_(priority), is_legacy_(is_legacy), state_(std::make_shared<State>()) {}

void Stream::serve(const std::shared_ptr<State>& state, int device) {
    set_current_device(device);
    std::unique_lock<std::mutex> lock(state->mutex);
    while (true) {
        state->changed.wait(lock, [&] { return !state->queue.empty() || state->closed; });
        if (state->queue.empty()) return;
        const Work work = std::move(state->queue.front());
        state->queue.pop_front();
        lock.unlock();
        work();
        lock.lock();
        ++state->completed;
        state->changed.notify_all();
    }
}

u64 Stream::push(Work work) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (!state_->running) {
        state_->running = true;
        std::thread(serve, state_, device_).detach();
    }
    state_->queue.push_back(std::move(work));
    state_->changed.notify_all();
    return ++state_->submitted;
}

u64 Stream::last_ticket() const {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->submitted;
}

u64 Stream::submit(Work work) {
    Context& owner = context(device_);
    const std::lock_guard<std::mutex> lock(owner.order);
    std::vector<std::pair<std::shared_ptr<State>, u64>> before;
    if (is_legacy_) {
        for (const auto& weak : owner.streams) {
            const auto other = weak.lock();
            if (other != nullptr && (other->flags_ & cudaStreamNonBlocking) == 0)
                before.emplace_back(other->state_, other->last_ticket());
        }
    } else if ((flags_ & cudaStreamNonBlocking) == 0) {
        before.emplace_back(owner.legacy->state_, owner.legacy->last_ticket());
    }
    return push([before = std::move(before), work = std::move(work)] {
        for (const auto& [state, ticket] : before) state->wait(ticket);
        work();
    });
}

void Stream::enqueue(cudaGraphNodeType type, Work work) {
    if (capture != nullptr) {
        capture->nodes.push_back(Node{type, std::move(work)});
    } else {
        submit(std::move(work));
    }
}

void Stream::wait(u64 ticket) { state_->wait(ticket); }
void Stream::finish() { state_->wait(last_ticket()); }

bool Stream::idle() const {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->completed == state_->submitted;
}

void Stream::close() {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_all();
}

namespace {
std::atomic<int> captures{0};
}
bool anything_captures() { return captures.load() > 0; }
void count_capture(int change) { captures += change; }
}  // namespace ptxemu
