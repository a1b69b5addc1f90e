// Calls that may never come back, made by threads that are left to themselves when they do not.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace gm {

// step(0) .. step(count - 1), a thread each. Whether all came back within the limit. `step` is copied and must own, or
// share, all that it uses: it may outlive the caller. It must not throw.
template <class Step>
bool bounded(double limit_s, std::size_t count, Step step) {
    struct State {
        std::mutex guard;
        std::condition_variable changed;
        std::size_t left;
    };
    const auto state = std::make_shared<State>();
    state->left = count;
    for (std::size_t i = 0; i < count; ++i) {
        std::thread([state, step, i]() mutable {
            step(i);
            const std::lock_guard<std::mutex> held(state->guard);
            --state->left;
            state->changed.notify_all();
        }).detach();
    }
    std::unique_lock<std::mutex> held(state->guard);
    return state->changed.wait_for(held, std::chrono::duration<double>(limit_s), [&] { return state->left == 0; });
}

}  // namespace gm
