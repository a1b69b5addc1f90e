#include "cpu/team.hpp"

#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>

namespace gm::cpu {

Team::Team(std::vector<int> cpus) : cpus_(std::move(cpus)) {
    if (cpus_.empty()) throw std::invalid_argument("a team needs at least one CPU");
#ifndef _OPENMP
    if (size() > 1) throw std::runtime_error("this build has no OpenMP: it can run one thread only");
#endif
    std::atomic<int> threads{0}, pinned{0};
#ifdef _OPENMP
    // Counted before any body runs: a team that is smaller than asked for would leave slices undone.
#pragma omp parallel num_threads(size())
    {
        const int thread = omp_get_thread_num();
        const Pin pin(cpus_[thread]);
        ++threads;
        if (pin.done()) ++pinned;
    }
#else
    const Pin pin(cpus_[0]);
    threads = 1;
    pinned = pin.done() ? 1 : 0;
#endif
    if (threads != size()) {
        throw std::runtime_error("OpenMP gave " + std::to_string(threads) + " threads instead of " +
                                 std::to_string(size()) +
                                 " (OMP_THREAD_LIMIT, OMP_DYNAMIC or a parallel region around)");
    }
    pinned_ = pinned == size();
}

}  // namespace gm::cpu
