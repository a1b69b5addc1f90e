// The kernels around a timed work: the gate lets go for its ticket and by its time-out, nothing is read out of bounds.
#include "kernels/spin.cuh"

#include "testing.hpp"

using cusim::Array;

namespace {

void gates() {
    Array<unsigned> opened(1), expired(1);
    opened[0] = 5, expired[0] = 0;
    const auto run = [&](unsigned ticket, unsigned long long timeout_ns) {
        cusim::launch({1, 32}, gm::gate, opened.data(), ticket, expired.data(), timeout_ns, 10ULL);
    };
    run(5, 0);
    run(4, 0);  // an older ticket than the one that was opened
    CHECK(expired[0] == 0);
    run(6, 50);
    CHECK(expired[0] == 6);
    opened[0] = 3, expired[0] = 0;
    run(0xfffffff0U, 0);  // tickets wrap around
    CHECK(expired[0] == 0);
}

void evicts(gm::index quads, unsigned grid) {
    Array<gm::vec<unsigned, 4>> data(quads);
    Array<unsigned> sink(1);
    for (gm::index i = 0; i < quads; ++i)
        for (int k = 0; k < 4; ++k) data[i][k] = 0;
    sink[0] = 7;
    cusim::launch({grid, 64}, gm::evict, data.data(), quads, 1U, sink.data());
    CHECK(sink[0] == 7);
    cusim::launch({1, 1}, gm::evict, data.data(), quads, 0U, sink.data());  // a sum that does occur is kept
    CHECK(sink[0] == 0);
}

void touches(gm::index pages, gm::index stride) {
    Array<unsigned> words((pages - 1) * stride + 1);
    for (gm::index i = 0; i < words.size(); ++i) words[i] = 0;
    cusim::launch({2, 32}, gm::touch, words.data(), pages, stride);
    bool right = true;
    for (gm::index i = 0; i < words.size(); ++i) right = right && words[i] == (i % stride == 0);
    CHECK(right);
}

}  // namespace

int main() {
    gates();
    for (const gm::index quads : {1, 31, 33, 1001}) {
        evicts(quads, 1);
        evicts(quads, 3);
    }
    touches(1, 1024);
    touches(100, 40);
    Array<float> sink(1);
    sink[0] = 3.0F;
    cusim::launch({2, 32}, gm::filler, 100ULL, 0.5F, sink.data());
    CHECK(sink[0] == 3.0F);
    cusim::launch({1, 32}, gm::spin_ns, 100ULL);
    cusim::launch({1, 32}, gm::spin_cycles, 100ULL);
    cusim::launch({1, 32}, gm::empty);
    return cusim::report();
}
