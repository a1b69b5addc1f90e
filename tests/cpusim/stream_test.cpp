#include "kernels/stream.cuh"

#include "testing.hpp"

using cusim::Array;

namespace {

struct Case {
    long long n;
    unsigned grid;
};

// Odd sizes around a vector, a block and a tile; one block (all tiles in turn) and more blocks than tiles.
std::vector<Case> cases() {
    std::vector<Case> all;
    if (cusim::kThreads) return {{4099, 3}};
    for (long long n : {0, 1, 3, 31, 33, 1023, 4099}) {
        for (unsigned grid : {1U, 3U}) all.push_back({n, grid});
    }
    all.push_back({100003, 50});
    return all;
}

template <class T, int N, int UNROLL>
void maps(const Case& c) {
    const T s = static_cast<T>(0.4);
    Array<T> a(c.n), x(c.n), y(c.n);
    x.fill_random(1);
    y.fill_random(2);
    const T *b = x.data(), *d = y.data();
    const auto holds = [&](auto expected) {
        bool good = true;
        for (long long i = 0; i < c.n; ++i) good = good && a[i] == expected(i);
        a.poison();
        return good;
    };
    const cusim::Shape shape{c.grid, gm::kStreamBlock};
    cusim::launch(shape, gm::write<T, N, UNROLL>, a.data(), s, c.n);
    CHECK(holds([&](long long) { return s; }));
    cusim::launch(shape, gm::copy<T, N, UNROLL>, a.data(), b, c.n);
    CHECK(holds([&](long long i) { return b[i]; }));
    cusim::launch(shape, gm::scale<T, N, UNROLL>, a.data(), b, s, c.n);
    CHECK(holds([&](long long i) { return s * b[i]; }));
    cusim::launch(shape, gm::add<T, N, UNROLL>, a.data(), b, d, c.n);
    CHECK(holds([&](long long i) { return b[i] + d[i]; }));
    cusim::launch(shape, gm::triad<T, N, UNROLL>, a.data(), b, d, s, c.n);
    CHECK(holds([&](long long i) { return b[i] + s * d[i]; }));
}

// Two runs in a row: the ticket must be left as it was found, and the same grid must give the same sum.
template <class T, int N, int UNROLL>
void folds(const Case& c) {
    Array<T> x(c.n), y(c.n), sum(1);
    x.fill_random(3);
    y.fill_random(4);
    double read = 0, dot = 0, sizes = 1;
    for (long long i = 0; i < c.n; ++i) {
        read += x[i];
        dot += static_cast<double>(x[i]) * y[i];
        sizes += 1;
    }
    const double bound = sizes * (sizeof(T) == 8 ? 1e-15 : 1e-6);
    const cusim::Shape shape{c.grid, gm::kStreamBlock};
    const T *b = x.data(), *d = y.data();
    T first[2] = {};
    for (int run = 0; run < 2; ++run) {
        sum.poison();
        cusim::launch(shape, gm::read<T, N, UNROLL>, b, sum.data(), c.n);
        CHECK(std::fabs(sum[0] - read) <= bound);
        CHECK(run == 0 || sum[0] == first[0]);
        first[0] = sum[0];
        cusim::launch(shape, gm::dot<T, N, UNROLL>, b, d, sum.data(), c.n);
        CHECK(std::fabs(sum[0] - dot) <= bound);
        CHECK(run == 0 || sum[0] == first[1]);
        first[1] = sum[0];
    }
}

}  // namespace

// Every kernel in float at all sizes; double, vectors of 32 bytes and a size of many tiles where they differ.
int main() {
    for (const Case& c : cases()) {
        maps<float, 4, 2>(c);
        folds<float, 4, 2>(c);
    }
    if (cusim::kThreads) return cusim::report();
    for (const long long n : {33, 4099}) {
        maps<double, 4, 2>({n, 3});
        folds<double, 2, 4>({n, 3});
    }
    maps<float, 4, 2>({1000003, 5});
    folds<float, 4, 2>({1000003, 5});
    return cusim::report();
}
