#include "kernels/latency.cuh"

#include "testing.hpp"

using cusim::Array;
using Index = gm::index;

namespace {

// Line number that each line points to.
std::vector<Index> links(const Array<Index>& next, Index lines) {
    std::vector<Index> found;
    for (Index i = 0; i < lines; ++i) {
        found.push_back((next[i * gm::kLineWords] - reinterpret_cast<Index>(next.data())) / (8 * gm::kLineWords));
    }
    return found;
}

void walk(Index lines, Index warm, Index hops) {
    Array<Index> next(lines * gm::kLineWords), state(gm::kStateWords);
    Index steps = 0;
    for (int run = 0; run < 3; ++run) {  // the walk goes on where it ended
        cusim::launch({1, gm::kChaseBlock}, gm::chase<true>, next.data(), state.data(), lines, warm, hops);
        steps += warm + hops;
        CHECK(state[gm::kHops] == steps);
        CHECK(state[gm::kCycles] > 0 && state[gm::kNanoseconds] > 0);
        const std::vector<Index> follow = links(next, lines);
        Index at = gm::chase_order(0, lines, gm::half_bits(lines)), lap = 0, line = at;
        for (Index i = 0; i < steps; ++i) at = follow[static_cast<std::size_t>(at)];
        CHECK(state[gm::kPosition] == reinterpret_cast<Index>(next.data() + at * gm::kLineWords));
        do {
            line = follow[static_cast<std::size_t>(line)];
            ++lap;
        } while (lap < lines && line != gm::chase_order(0, lines, gm::half_bits(lines)));
        CHECK(lap == lines);  // one cycle over all of them
    }
    next.poison();  // other contents, the old state: known by nobody, so only a poisoned state brings a new chain
    state.poison();
    cusim::launch({1, gm::kChaseBlock}, gm::chase<false>, next.data(), state.data(), lines, Index{0}, hops);
    CHECK(state[gm::kHops] == hops);
}

void walk_shared(Index lines, Index hops) {
    Array<Index> state(gm::kStateWords);
    const std::size_t bytes = static_cast<std::size_t>(lines) * 4;
    cusim::launch({1, gm::kChaseBlock, bytes}, gm::chase_shared, state.data(), lines, hops);
    CHECK(state[gm::kHops] == hops);
    CHECK(state[gm::kPosition] == 4 * gm::chase_order(hops % lines, lines, gm::half_bits(lines)));
}

}  // namespace

// With a number of lines: prints the order in which they are visited, for tests/test_cpusim.py.
int main(int argc, char** argv) {
    if (argc > 1) {
        const Index lines = std::atoll(argv[1]);
        for (Index i = 0; i < lines; ++i) std::printf("%lld\n", gm::chase_order(i, lines, gm::half_bits(lines)));
        return 0;
    }
    for (int few : {1, 2, 5, 31, 33, 64, 1003}) {
        const Index lines = few;
        if (cusim::kThreads && lines != 33) continue;
        walk(lines, 0, 7);
        walk(lines, lines, 2 * lines + 1);
        walk_shared(lines, 3);
        walk_shared(lines, 2 * lines + 1);
    }
    return cusim::report();
}
