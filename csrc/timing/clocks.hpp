// The two clocks of the host: CLOCK_MONOTONIC_RAW and the processor's time-stamp counter.
//
// A Timer, as sampler.hpp wants it: start() and stop() give raw readings, seconds(start, stop) turns a pair into a
// span, pause(random) puts a stretch of that random length before a span, so that its phase against the tick is
// uniform.
#pragma once
#include <time.h>

#include <cstdint>
#include <string>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gm {

// n steps of a dependent chain (about a nanosecond each) that the compiler cannot shorten.
inline void spin(std::int64_t n) {
    std::uint64_t x = 1;
    for (std::int64_t i = 0; i < n; ++i) {
        x = x * 0x9E3779B97F4A7C15u + 1;
        asm volatile("" : "+r"(x));
    }
}

inline std::int64_t monotonic_raw_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return std::int64_t{1000000000} * t.tv_sec + t.tv_nsec;
}

struct WallTimer {
    std::int64_t start() const { return monotonic_raw_ns(); }
    std::int64_t stop() const { return monotonic_raw_ns(); }
    double seconds(std::int64_t start, std::int64_t stop) const { return 1e-9 * static_cast<double>(stop - start); }
    void pause(std::uint64_t random) const { spin(static_cast<std::int64_t>(random % 64)); }
    double now() const { return seconds(0, start()); }
};

// x86-64: rdtsc between fences, so that neither the work nor what surrounds it moves across a reading. Arm: cntvct.
struct TscTimer {
    double seconds_per_count;

    static std::int64_t start_count() {
#if defined(__x86_64__)
        _mm_lfence();
        const auto count = static_cast<std::int64_t>(__rdtsc());
        _mm_lfence();
        return count;
#elif defined(__aarch64__)
        std::int64_t count;
        asm volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(count)::"memory");
        return count;
#else
        return 0;
#endif
    }
    static std::int64_t stop_count() {
#if defined(__x86_64__)
        unsigned cpu;
        const auto count = static_cast<std::int64_t>(__rdtscp(&cpu));  // waits for all loads and earlier work
        _mm_lfence();
        return count;
#else
        return start_count();
#endif
    }
    std::int64_t start() const { return start_count(); }
    std::int64_t stop() const { return stop_count(); }
    double seconds(std::int64_t start, std::int64_t stop) const {
        return seconds_per_count * static_cast<double>(stop - start);
    }
    void pause(std::uint64_t random) const { spin(static_cast<std::int64_t>(random % 64)); }
    double now() const { return seconds(0, start()); }
};

// Whether the counter may be used as a clock and, if so, its rate; found once a process (a calibration lasts 50 ms).
struct TscFacts {
    double hz;           // 0 where it is unusable
    std::string reason;  // why it is unusable, "" where it is usable
};
const TscFacts& tsc_facts();

}  // namespace gm
