#include "timing/clocks.hpp"

#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gm {
namespace {

// Why the counter is no clock here, "" if it is one.
std::string objection() {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & (1u << 8)))
        return "the processor reports no invariant TSC (cpuid 0x80000007, EDX bit 8)";
    // The kernel watches the TSC against other clocks and across cores; its verdict is better than one of ours.
    std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    std::string source;
    if (!(file >> source)) return "the kernel's clock source cannot be read from sysfs";
    if (source != "tsc") return "the kernel's clock source is " + source + ", not tsc";
    return "";
#elif defined(__aarch64__)
    return "";  // the architecture guarantees a constant counter that never stops
#else
    return "no time-stamp counter is known for this architecture";
#endif
}

struct Pair {
    std::int64_t count, ns;
};

// Both clocks at one moment: of several tries the one in which least time passed between the readings.
Pair both_clocks() {
    Pair best{};
    std::int64_t least = INT64_MAX;
    for (int i = 0; i < 32; ++i) {
        const std::int64_t before = TscTimer::start_count(), ns = monotonic_raw_ns(), after = TscTimer::start_count();
        if (after - before < least) {
            least = after - before;
            best = {before + least / 2, ns};
        }
    }
    return best;
}

TscFacts find_facts() {
    const std::string reason = objection();
    if (!reason.empty()) return {0.0, reason};
    const Pair first = both_clocks();
    const timespec wait{0, 50000000};
    nanosleep(&wait, nullptr);
    const Pair last = both_clocks();
    const double hz = 1e9 * static_cast<double>(last.count - first.count) / static_cast<double>(last.ns - first.ns);
    if (!(hz > 1e6)) return {0.0, "the time-stamp counter does not advance"};
    return {hz, ""};
}

}  // namespace

const TscFacts& tsc_facts() {
    static const TscFacts facts = find_facts();
    return facts;
}

}  // namespace gm
