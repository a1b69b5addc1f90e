// A clock and works whose truth is chosen, so that everything above them can be tested with numbers.
//
// Fake time is a double in seconds. Work advances it by truth x noise x clock; readings fall on the tick's grid.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "timing/rng.hpp"

namespace gm {

enum class Law { normal, lognormal, exponential, two_modes };

// How long one run takes. The noise is drawn once a span, not once a run: what disturbs real spans (clock, interrupts,
// neighbours) lasts longer than a short run, and averaging it away inside a batch would flatter every test.
struct FakeTruth {
    double true_s;  // the median of one run but for two_modes, where it is the faster mode
    Law law;
    double spread;                           // relative scale of the noise
    double rho;                              // AR(1) coefficient of the normal number behind the noise
    double spike_probability, spike_factor;  // of a span
    double second_share, second_factor;      // the slower mode of two_modes
};

struct FakeClock {
    double tick_s;                     // 0: continuous
    double overhead_s, overhead_sd_s;  // of a start-stop pair, normal, never negative
    bool float32_ms;                   // round spans as cudaEventElapsedTime does
    double sag, sag_time_s;            // work gets slower by `sag` with this time constant (negative: a warm-up)
    double walk;                       // sd of a relative random walk of the clock over one second
};

class FakeTimer {
  public:
    FakeTimer(const FakeClock& clock, std::uint64_t seed) : clock_(clock), rng_(seed) {}

    double start() { return read(); }
    double stop() {
        if (clock_.overhead_s > 0.0) now_ += std::max(0.0, clock_.overhead_s + clock_.overhead_sd_s * rng_.normal());
        return read();
    }
    double seconds(double start, double stop) const {
        const double span = clock_.tick_s > 0.0 ? (stop - start) * clock_.tick_s : stop - start;
        return clock_.float32_ms ? 1e-3 * static_cast<double>(static_cast<float>(1e3 * span)) : span;
    }
    // The host's time between two spans: a tick and a part of one, at random.
    void pause(std::uint64_t random) { now_ += clock_.tick_s * (1.0 + static_cast<double>(random >> 11) * 0x1p-53); }
    double now() const { return now_; }

    // Time passes as n runs take it; `z` is the AR state that the work keeps.
    void run(const FakeTruth& truth, double& z, std::int64_t n) {
        const double took = truth.true_s * static_cast<double>(n) * noise(truth, z) * slowness();
        now_ += took;
        if (clock_.walk > 0.0) walked_ += clock_.walk * std::sqrt(took) * rng_.normal();
    }

  private:
    // In ticks where there are any, so that equal spans are equal to the last bit; else in seconds.
    double read() const { return clock_.tick_s > 0.0 ? std::floor(now_ / clock_.tick_s) : now_; }

    double slowness() const {
        const double sagged = clock_.sag == 0.0 ? 0.0 : clock_.sag * (1.0 - std::exp(-now_ / clock_.sag_time_s));
        return std::max(0.01, 1.0 + sagged + walked_);
    }

    double noise(const FakeTruth& truth, double& z) {
        z = truth.rho * z + std::sqrt(1.0 - truth.rho * truth.rho) * rng_.normal();
        double factor = 1.0;
        switch (truth.law) {
            case Law::normal:
                factor = std::max(0.01, 1.0 + truth.spread * z);
                break;
            case Law::lognormal:
                factor = std::exp(truth.spread * z);
                break;
            case Law::exponential:  // the exponential number at the same quantile as z, its median moved to 1
                factor = std::max(0.01, 1.0 + truth.spread * (-std::log(0.5 * std::erfc(z * M_SQRT1_2)) - M_LN2));
                break;
            case Law::two_modes:
                factor = 1.0 + truth.spread * z;
                if (rng_.uniform() < truth.second_share) factor *= truth.second_factor;
                factor = std::max(0.01, factor);
                break;
        }
        if (truth.spike_probability > 0.0 && rng_.uniform() < truth.spike_probability) factor *= truth.spike_factor;
        return factor;
    }

    FakeClock clock_;
    Rng rng_;
    double now_ = 0.0, walked_ = 0.0;
};

// Binds a truth to the clock it advances: the context of a Work.
struct FakeRun {
    FakeTimer* timer;
    const FakeTruth* truth;
    double* z;
    static void run(void* context, std::int64_t n) {
        auto* self = static_cast<FakeRun*>(context);
        if (n > 0) self->timer->run(*self->truth, *self->z, n);
    }
};

}  // namespace gm
