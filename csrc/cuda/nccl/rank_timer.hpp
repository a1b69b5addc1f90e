// The device's clock at every local rank: events around work behind a gate and a barrier of all ranks. A Timer as
// timing/sampler.hpp wants it; its spans are the slowest local rank's, each rank's own stand beside them.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/gate.hpp"
#include "cuda/nccl/collective.hpp"
#include "timing/clocks.hpp"

namespace gm {

class RankTimer {
  public:
    // What start() gives: the gates open even where the work throws.
    struct Started {
        std::vector<Opening> openings;
    };

    // Takes a first barrier: all ranks of the clique make theirs at the same time.
    explicit RankTimer(std::shared_ptr<Communicators> communicators);

    Started start();
    int stop();  // its value means nothing
    double seconds(const Started&, int);
    void pause(std::uint64_t random) { random_ = random; }
    double now() const { return 1e-9 * static_cast<double>(monotonic_raw_ns()); }

    // The same work, the gates opened after `queue_limit` runs, as EventTimer::Fed.
    struct Fed {
        RankTimer* timer;
        Work work;
        static void run(void* fed, std::int64_t n);
    };

    std::size_t count() const { return lanes_.size(); }
    Communicators& communicators() { return *communicators_; }

    double gate_timeout_s = 1.0;
    double phase_s = 1.1e-6;
    bool gated = true;
    std::int64_t queue_limit = 500;                 // runs
    std::vector<double> spans_s, waits_s, walls_s;  // of each span: by rank, by rank in the barrier, the host's

  private:
    struct Lane {
        int device;
        cudaStream_t stream;
        std::unique_ptr<Gate> gate;
        Event arrival, start, stop;
        double clock_hz;
        std::uint32_t ticket = 0;
    };
    void open() noexcept;
    void wait();
    double between(const Event& from, const Event& to) const;

    std::shared_ptr<Communicators> communicators_;
    std::vector<Lane> lanes_;
    Collective barrier_;
    std::uint64_t random_ = 0;
    bool closed_ = false;
    std::int64_t opened_ns_ = 0;
};

}  // namespace gm
