// The device's clock: two events around work that waits behind a gate. A Timer as timing/sampler.hpp wants it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/gate.hpp"
#include "cuda/handles.hpp"
#include "timing/clocks.hpp"
#include "timing/work.hpp"

namespace gm {

struct EventOptions {
    bool cold = false;            // read the eviction buffer before each span
    std::size_t evict_bytes = 0;  // of that buffer: at least twice the L2
    double filler_s = 20e-6;      // of busy SMs before each span of a hot timer; 0: none
    double gate_timeout_s = 1.0;
    double watchdog_s = 30.0;  // work that takes longer hangs
    double phase_s = 1.1e-6;   // length of the random delay: at least the event clock's step
};

class EventTimer {
  public:
    // What start() gives: it keeps the gate's opening, so that the gate opens even where the work throws.
    struct Started {
        Opening opening;
    };

    // Times what is enqueued on `stream`, which has to outlive the timer; none: on the device's measuring stream.
    EventTimer(int device, const EventOptions& options, std::optional<cudaStream_t> stream = std::nullopt);

    Started start();
    int stop();  // its value means nothing
    // NaN where the gate let go by itself: then launches of the host stand between the events.
    double seconds(const Started&, int) const;
    void pause(std::uint64_t random) { random_ = random; }
    double now() const { return 1e-9 * static_cast<double>(monotonic_raw_ns()); }

    // The same work, its gate opened after `queue_limit` runs: some thousand launches fill a stream's queue, and the
    // host would wait for a gate that it alone can open. The result holds a pointer to this timer and to `work`.
    struct Fed {
        EventTimer* timer;
        Work work;
        static void run(void* fed, std::int64_t n);
    };

    // Whether a closed gate lets the host go on: not where each launch waits for its kernel (CUDA_LAUNCH_BLOCKING=1,
    // debuggers, some profilers). Tried for a moment.
    bool gate_holds();

    int device() const { return device_; }
    cudaStream_t stream() const { return stream_; }
    double waited_s() const { return waited_s_; }  // host's time from the gate's opening to the end of the last span

    EventOptions options;
    bool gated = true;
    std::int64_t queue_limit = 500;  // runs

  private:
    void open() noexcept;
    void prepare_device();
    void wait();
    [[noreturn]] void hang();
    void check_alive();

    int device_, sm_count_ = 1;
    double clock_hz_ = 1e9;
    cudaStream_t stream_;
    Event start_, stop_;
    Gate gate_;
    std::unique_ptr<Buffer> evicted_;
    Buffer sink_;
    std::uint64_t random_ = 0;
    std::uint32_t ticket_ = 0;
    bool closed_ = false;
    std::int64_t opened_ns_ = 0;
    double waited_s_ = 0.0;
};

}  // namespace gm
