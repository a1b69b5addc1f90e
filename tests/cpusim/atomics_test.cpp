#include "kernels/atomics.cuh"

#include "testing.hpp"

using cusim::Array;

namespace {

template <class T>
void run(unsigned blocks, gm::index reps) {
    const long long threads = blocks * gm::kAtomicsBlock;
    const T each = static_cast<T>(reps), one{1};
    Array<T> total(1), totals(threads);
    for (int again = 0; again < 2; ++again) {  // the counter must be left at zero
        total.poison();
        cusim::launch({blocks, gm::kAtomicsBlock}, gm::atomics_one<T>, total.data(), reps, one, 0U);
        CHECK(total[0] == static_cast<T>(threads * reps));
    }
    cusim::launch({blocks, gm::kAtomicsBlock}, gm::atomics_spread<T>, totals.data(), reps, one);
    for (long long i = 0; i < threads; ++i) CHECK(totals[i] == each);
    totals.poison();
    cusim::launch({blocks, gm::kAtomicsBlock}, gm::atomics_shared<T>, totals.data(), reps, one, 255U);
    for (long long i = 0; i < threads; ++i) CHECK(totals[i] == each);
    totals.poison();
    cusim::launch({blocks, gm::kAtomicsBlock}, gm::atomics_shared<T>, totals.data(), reps, one, 0U);
    for (long long i = 0; i < threads; ++i) CHECK(totals[i] == (i % gm::kAtomicsBlock == 0 ? each * T{256} : T{0}));
}

}  // namespace

int main() {
    for (unsigned blocks : {1U, 3U}) {
        for (gm::index reps : {0, 1, 9}) {
            if (cusim::kThreads && reps * blocks != 27) continue;
            run<float>(blocks, reps);
            run<int>(blocks, reps);
        }
    }
    return cusim::report();
}
