// A team of threads, each pinned to one logical CPU while it works. OpenMP where the compiler has it; without, one
// thread.
#pragma once
#include <cstdint>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __linux__
#include <sched.h>
#endif

namespace gm::cpu {

// Pins the calling thread for its lifetime and restores the affinity that it found.
class Pin {
  public:
    explicit Pin(int cpu) {
#ifdef __linux__
        if (cpu < 0 || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        done_ = sched_setaffinity(0, sizeof one, &one) == 0;
#else
        static_cast<void>(cpu);
#endif
    }
    ~Pin() {
#ifdef __linux__
        if (done_) sched_setaffinity(0, sizeof before_, &before_);
#endif
    }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

    bool done() const { return done_; }

  private:
    bool done_ = false;
#ifdef __linux__
    cpu_set_t before_;
#endif
};

// A half-open range of elements.
struct Slice {
    std::int64_t begin, end;
    std::int64_t size() const { return end - begin; }
};

class Team {
  public:
    // One thread for each CPU number; -1 leaves that thread unpinned. Throws std::runtime_error where so many threads
    // cannot be had.
    explicit Team(std::vector<int> cpus);

    int size() const { return static_cast<int>(cpus_.size()); }
    const std::vector<int>& cpus() const { return cpus_; }
    bool pinned() const { return pinned_; }

    // Calls body(thread) on every thread at once and returns when all are done. One thread needs no parallel region.
    template <class Body>
    void run(const Body& body) const {
        if (size() == 1) {
            const Pin pin(cpus_[0]);
            body(0);
            return;
        }
#ifdef _OPENMP
#pragma omp parallel num_threads(size())
        {
            const int thread = omp_get_thread_num();
            const Pin pin(cpus_[thread]);
            body(thread);
        }
#endif
    }

    // Waits for the other threads; only inside a body.
    static void barrier() {
#ifdef _OPENMP
#pragma omp barrier
#endif
    }

    // The thread's share of n elements, cut at cache lines so that no two threads write one.
    Slice slice(std::int64_t n, std::int64_t itemsize, int thread) const {
        constexpr std::int64_t line = 64;
        const std::int64_t unit = itemsize < line ? line / itemsize : 1;
        const std::int64_t units = (n + unit - 1) / unit;
        const auto at = [&](int t) {
            const std::int64_t cut = units * t / size() * unit;
            return cut < n ? cut : n;
        };
        return {at(thread), at(thread + 1)};
    }

  private:
    std::vector<int> cpus_;
    bool pinned_ = true;
};

}  // namespace gm::cpu
