// Host-side work that a timer can run: copies, allocations, replays, round trips.
#pragma once
#include <cstdint>

#include "timing/work.hpp"

namespace gm {

class Task {
  public:
    Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    virtual ~Task() = default;

    // Does the work n times, or enqueues it n times on the measuring stream: each kind says which.
    virtual void run(std::int64_t n) = 0;

    // Good for as long as this task lives.
    Work work() {
        return {[](void* task, std::int64_t n) { static_cast<Task*>(task)->run(n); }, this};
    }
};

}  // namespace gm
