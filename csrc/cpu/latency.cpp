// Latencies: a pointer chase over a random cycle, an empty parallel region, and the clock from a chain of adds.
#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "cpu/kernel.hpp"

namespace gm::cpu {
namespace {

// One pointer a line, in one random cycle over all lines (Sattolo): no prefetcher can know the next, and no walk gets
// caught in a short cycle. One run is one hop; the walk goes on where the last run ended.
class Chase : public Kernel {
  public:
    Chase(std::int64_t lines, std::int64_t line_bytes, Team team, std::uint64_t seed)
        : Kernel(std::move(team)),
          lines_(lines),
          line_bytes_(line_bytes),
          mapping_(static_cast<std::size_t>(lines * line_bytes)) {
        team_.run([&](int) {
            for (std::int64_t i = 0; i < lines_; ++i) next(i) = &next(i);
            const Stream stream(seed, 0);
            for (std::int64_t i = lines_ - 1; i > 0; --i) {
                std::swap(next(i), next(static_cast<std::int64_t>(stream.bits(i) % static_cast<std::uint64_t>(i))));
            }
        });
        at_ = &next(0);
    }

    void run(std::int64_t n) override {
        const Pin pin(team_.cpus()[0]);
        void* p = at_;
        for (; n >= 8; n -= 8) {
            for (int i = 0; i < 8; ++i) p = *static_cast<void**>(p);
        }
        for (; n > 0; --n) p = *static_cast<void**>(p);
        at_ = p;
    }

    void poison() override { at_ = &next(0); }

    // A lap must take all lines: the walk from line 0 comes back to it after exactly `lines` hops.
    Finding check() override {
        const char* first = mapping_.data();
        const void* p = first;
        std::int64_t hops = 0;
        do {
            p = *static_cast<void* const*>(p);
            ++hops;
        } while (hops < lines_ && p != first);
        Finding found;
        found.look(hops, static_cast<long double>(lines_), static_cast<long double>(p == first ? hops : -1), 0);
        found.elements = hops;
        return found;
    }

    std::vector<Output> outputs() override { return {{"next", "uint64", mapping_.data(), {lines_, line_bytes_ / 8}}}; }
    std::string recipe() const override { return "one pointer a line, one random cycle"; }
    const Mapping* mapping() const override { return &mapping_; }

  private:
    void*& next(std::int64_t line) const { return *reinterpret_cast<void**>(mapping_.data() + line * line_bytes_); }

    std::int64_t lines_, line_bytes_;
    Mapping mapping_;
    void* at_;
};

// An empty parallel region: each thread counts it in a line of its own, and nothing else is done. Its threads are not
// pinned: pinning and restoring cost ten times as much as the region.
class Launch : public Kernel {
  public:
    explicit Launch(Team team) : Kernel(std::move(team)), counts_(static_cast<std::size_t>(team_.size()) * kPad) {}

    void run(std::int64_t n) override {
        asked_ = n;
        std::fill(counts_.begin(), counts_.end(), 0);
        for (; n > 0; --n) {
#ifdef _OPENMP
#pragma omp parallel num_threads(team_.size())
            ++counts_[static_cast<std::size_t>(omp_get_thread_num()) * kPad];
#else
            ++counts_[0];
#endif
        }
    }

    void poison() override { std::fill(counts_.begin(), counts_.end(), -1); }

    Finding check() override {
        Finding found;
        for (int thread = 0; thread < team_.size(); ++thread) {
            found.look(thread, static_cast<long double>(asked_), static_cast<long double>(count(thread)), 0);
        }
        return found;
    }

    std::vector<Output> outputs() override {
        compact_.clear();
        for (int thread = 0; thread < team_.size(); ++thread) compact_.push_back(count(thread));
        return {{"regions", "int64", compact_.data(), {team_.size()}}};
    }
    std::string recipe() const override {
#ifdef _OPENMP
        return "an empty OpenMP parallel region";
#else
        return "an empty loop (built without OpenMP)";
#endif
    }

  private:
    static constexpr std::size_t kPad = 16;
    std::int64_t count(int thread) const { return counts_[static_cast<std::size_t>(thread) * kPad]; }

    std::int64_t asked_ = 0;
    std::vector<std::int64_t> counts_, compact_;
};

// `adds` dependent additions of two registers: one cycle each on every core of the last twenty years. (An addition of a
// constant would not do: some cores fold those away while renaming.)
[[maybe_unused]] bool add_chain(std::int64_t adds) {
#if defined(__x86_64__)
    std::uint64_t sum = 0, one = 1;
    for (std::int64_t i = 0; i < adds; i += 16) {
        asm volatile(
            "add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n"
            "add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n add %1, %0\n"
            : "+r"(sum)
            : "r"(one));
    }
    return sum != 0;
#elif defined(__aarch64__)
    std::uint64_t sum = 0, one = 1;
    for (std::int64_t i = 0; i < adds; i += 8) {
        asm volatile(
            "add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n"
            "add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n add %0, %0, %1\n"
            : "+r"(sum)
            : "r"(one));
    }
    return sum != 0;
#else
    static_cast<void>(adds);
    return false;
#endif
}

}  // namespace

KernelPtr make_chase(std::int64_t lines, std::int64_t line_bytes, int cpu, std::uint64_t seed) {
    if (lines < 1 || line_bytes < 8 || line_bytes % 8 != 0) {
        throw std::invalid_argument("a chase needs at least one line, of a multiple of 8 bytes");
    }
    return std::make_shared<Chase>(lines, line_bytes, Team({cpu}), seed);
}

KernelPtr make_launch(Team team) { return std::make_shared<Launch>(std::move(team)); }

double clock_hz(double span_s, int spans) {
    using Clock = std::chrono::steady_clock;
    std::int64_t adds = 1 << 12;
    double best = 0;
    for (int i = 0; i < spans;) {
        const auto start = Clock::now();
        if (!add_chain(adds)) return 0;
        const double took = std::chrono::duration<double>(Clock::now() - start).count();
        if (took < span_s / 2) {  // lengthen until a span is long enough for the clock's step
            adds *= 2;
            continue;
        }
        best = std::max(best, static_cast<double>(adds) / took);  // the best: an interrupted span only looks slower
        ++i;
    }
    return best;
}

}  // namespace gm::cpu
