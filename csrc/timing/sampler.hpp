// The inner loop: the only one, whatever the clock and whatever the work.
#pragma once
#include <cstddef>
#include <cstdint>

#include "timing/rng.hpp"
#include "timing/work.hpp"

namespace gm {

// spans[i] = seconds that counts[i] runs of the work took, start to stop, with the timer's own overhead in it.
// `between` is called before each span, outside the timed region, and may throw, as the work may.
template <class Timer, class Between>
void sample(Timer& timer, const Work& work, const std::int64_t* counts, std::size_t k, double* spans, Rng& phase,
            Between&& between) {
    for (std::size_t i = 0; i < k; ++i) {
        between();
        timer.pause(phase.next());
        const auto start = timer.start();
        work.run(work.context, counts[i]);
        const auto stop = timer.stop();
        spans[i] = timer.seconds(start, stop);
    }
}

// What an empty region runs: the call through the pointer is part of a timer's overhead.
inline Work empty_work() {
    return {[](void*, std::int64_t) {}, nullptr};
}

}  // namespace gm
