// Ends blocking calls of NCCL that take too long: nothing but an abort from another thread does.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace gm {

class Watchdog {
  public:
    using Clock = std::chrono::steady_clock;

    // `late` is called once, from the watchdog's thread, when a deadline passes.
    explicit Watchdog(std::function<void()> late) : late_(std::move(late)), thread_([this] { run(); }) {}
    ~Watchdog() {
        {
            const std::lock_guard<std::mutex> held(guard_);
            stop_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    // One store: this stands around every launch.
    void arm(double seconds) { deadline_.store(now() + static_cast<std::int64_t>(1e9 * seconds)); }
    void disarm() { deadline_.store(kNever); }

  private:
    static constexpr std::int64_t kNever = INT64_MAX;
    static std::int64_t now() {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
    }
    void run() {
        std::unique_lock<std::mutex> held(guard_);
        while (!changed_.wait_for(held, std::chrono::milliseconds(20), [this] { return stop_; })) {
            if (now() < deadline_.load()) continue;
            held.unlock();
            late_();
            return;
        }
    }

    std::function<void()> late_;
    std::atomic<std::int64_t> deadline_{kNever};
    std::mutex guard_;
    std::condition_variable changed_;
    bool stop_ = false;
    std::thread thread_;  // last: it uses the others
};

}  // namespace gm
