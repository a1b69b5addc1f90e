// Peak arithmetic on a team. One run is a fixed amount of arithmetic, shared out over the threads.
#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "cpu/kernel.hpp"

namespace gm::cpu {
namespace {

// Work of one run, in operations; gpumicro/kernels/peak.py says the same. Divisible by what a step does on every ISA.
constexpr std::int64_t kFmaFlop = 96LL << 20;
constexpr std::int64_t kFmaAddFlop = 72LL << 20;
constexpr std::int64_t kDotOps = 192LL << 20;

// Steps of one thread, of `total` steps that the team does.
std::int64_t steps_of(std::int64_t total, int thread, int threads) {
    return total * (thread + 1) / threads - total * thread / threads;
}

template <class T>
class Chains : public Kernel {
  public:
    Chains(const ChainTable<T>& table, Team team, Operands operands, std::uint64_t seed, std::int64_t flop, bool fused,
           int vector_bytes)
        : Kernel(std::move(team)),
          table_(table),
          fused_(fused),
          bits_(vector_bytes * 8),
          chains_(table.fma_chains + table.add_chains),
          steps_(flop /
                 ((2LL * table.fma_chains * table.fma_per_step + table.add_chains * table.add_per_step) * table.lanes)),
          stride_((2 * chains_ + 2) * table.lanes * static_cast<std::int64_t>(sizeof(T)) + 256),
          mapping_(static_cast<std::size_t>(stride_ * team_.size())) {
        team_.run([&](int thread) { draw(thread, operands, seed); });
    }

    void run(std::int64_t n) override {
        team_.run(
            [&](int thread) { table_.run(seeds(thread), out(thread), steps_of(n * steps_, thread, team_.size())); });
    }

    void poison() override {
        team_.run([&](int thread) { std::memset(out(thread), 0xff, static_cast<std::size_t>(values()) * sizeof(T)); });
    }

    // Every lane of every chain, replayed in long double over the block that a single run ends with.
    Finding check() override {
        std::vector<Finding> found(static_cast<std::size_t>(team_.size()));
        team_.run([&](int thread) {
            const std::int64_t all = steps_of(steps_, thread, team_.size());
            const std::int64_t steps = all == 0 ? 0 : (all - 1) % kChainBlock + 1;
            for (std::int64_t i = 0; i < values() && steps > 0; ++i) {
                const auto [want, bound] = replay(thread, i, steps);
                found[static_cast<std::size_t>(thread)].look(thread * values() + i, want, out(thread)[i], bound);
            }
        });
        Finding merged;
        for (const Finding& one : found) merged.merge(one);
        return merged;
    }

    std::vector<Output> outputs() override {
        compact_.clear();
        for (int thread = 0; thread < team_.size(); ++thread) {
            compact_.insert(compact_.end(), out(thread), out(thread) + values());
        }
        return {{"x", sizeof(T) == 8 ? "float64" : "float32", compact_.data(), {team_.size(), chains_, table_.lanes}}};
    }

    std::string recipe() const override {
        const std::string what = fused_ ? "FMA" : "multiply, then add (no FMA)";
        std::string text = what + " only";
        if (table_.add_chains > 0) {
            text = std::to_string(table_.fma_chains * table_.fma_per_step) + " " + what + " to " +
                   std::to_string(table_.add_chains * table_.add_per_step) + " independent ADD";
        }
        text += ", " + std::to_string(table_.fma_chains);
        if (table_.add_chains > 0) text += " + " + std::to_string(table_.add_chains);
        return text + " chains of " + std::to_string(bits_) + " bit";
    }
    const void* code() const override { return reinterpret_cast<const void*>(table_.run); }

  private:
    struct Expected {
        long double value, bound;
    };

    std::int64_t values() const { return static_cast<std::int64_t>(chains_) * table_.lanes; }
    T* seeds(int thread) const { return reinterpret_cast<T*>(mapping_.data() + thread * stride_); }
    T* out(int thread) const { return seeds(thread) + values() + 2 * table_.lanes; }

    // x in [-1, 1]; a in -(1 - 2^-13 [1, 2)): a block of 8,192 steps shrinks the swing by e^-1 to e^-2, so that no
    // chain rests; a is negative, so that neighbouring steps differ much; b in [0.5, 1).
    void draw(int thread, Operands operands, std::uint64_t seed) const {
        const Stream stream(seed, static_cast<std::uint64_t>(thread));
        T* to = seeds(thread);
        const auto unit = [&](std::int64_t i) { return (stream.uniform<double>(i) + 1) / 2; };
        for (std::int64_t i = 0; i < values(); ++i) to[i] = stream.draw<T>(operands, i);
        for (std::int64_t lane = 0; lane < table_.lanes; ++lane) {
            T &a = to[values() + lane], &b = to[values() + table_.lanes + lane];
            a = static_cast<T>(-(1 - (1 + 0.999 * unit(values() + lane)) / 8192));
            b = static_cast<T>(0.5 + unit(values() + table_.lanes + lane) / 2);
            if (operands == Operands::normal) b = stream.draw<T>(operands, values() + table_.lanes + lane);
            if (operands == Operands::zeros) a = b = 0;
        }
    }

    Expected replay(int thread, std::int64_t i, std::int64_t steps) const {
        const T* from = seeds(thread);
        const std::int64_t lane = i % table_.lanes, chain = i / table_.lanes;
        const long double a = from[values() + lane], b = from[values() + table_.lanes + lane];
        const long double u = std::numeric_limits<T>::epsilon() / 2.0L;
        const bool fma = chain < table_.fma_chains;
        const std::int64_t count = steps * (fma ? table_.fma_per_step : table_.add_per_step);
        long double x = from[i], error = 0;
        for (std::int64_t s = 0; s < count; ++s) {
            const long double product = fma ? a * x : -x;
            x = product + b;
            error = error * (fma ? std::fabs(a) : 1) + u * (std::fabs(x) + (fma && !fused_ ? std::fabs(product) : 0));
        }
        return {x, error * 1.01L + std::numeric_limits<T>::min()};
    }

    ChainTable<T> table_;
    bool fused_;
    int bits_, chains_;
    std::int64_t steps_, stride_;
    Mapping mapping_;
    std::vector<T> compact_;
};

class Dot : public Kernel {
  public:
    Dot(const DotTable& table, bool bfloat16, Team team, std::uint64_t seed)
        : Kernel(std::move(team)),
          table_(table),
          bfloat16_(bfloat16),
          steps_(kDotOps / (2LL * table.chains * table.vector_bytes)),
          accumulators_(table.chains * table.vector_bytes / 4),
          stride_(4 * table.vector_bytes + 8LL * accumulators_ + 256),
          mapping_(static_cast<std::size_t>(stride_ * team_.size())) {
        team_.run([&](int thread) { draw(thread, seed); });
    }

    void run(std::int64_t n) override {
        team_.run([&](int thread) {
            std::memcpy(sums(thread), starts(thread), static_cast<std::size_t>(accumulators_) * 4);
            table_.run(x(thread), y(thread), sums(thread), steps_of(n * steps_, thread, team_.size()));
        });
    }

    void poison() override {
        team_.run([&](int thread) { std::memset(sums(thread), 0xff, static_cast<std::size_t>(accumulators_) * 4); });
    }

    Finding check() override {
        Finding found;
        for (int thread = 0; thread < team_.size(); ++thread) {
            const std::int64_t steps = steps_of(steps_, thread, team_.size());
            for (std::int64_t i = 0; i < accumulators_ && steps > 0; ++i) look(thread, i, steps, found);
        }
        return found;
    }

    std::vector<Output> outputs() override {
        compact_.clear();
        for (int thread = 0; thread < team_.size(); ++thread) {
            const auto* from = static_cast<const std::int32_t*>(sums(thread));
            compact_.insert(compact_.end(), from, from + accumulators_);
        }
        return {{"sum", bfloat16_ ? "float32" : "int32", compact_.data(), {team_.size(), accumulators_}}};
    }
    std::string recipe() const override {
        return std::string(table_.recipe) + ", " + std::to_string(table_.chains) + " chains; 2 operations a product";
    }
    const void* code() const override { return reinterpret_cast<const void*>(table_.run); }

  private:
    char* x(int thread) const { return mapping_.data() + thread * stride_; }
    char* y(int thread) const { return x(thread) + 2 * table_.vector_bytes; }
    void* starts(int thread) const { return y(thread) + 2 * table_.vector_bytes; }
    void* sums(int thread) const { return static_cast<char*>(starts(thread)) + accumulators_ * 4; }

    // int8: x in [0, 127], which is both a signed and an unsigned byte, and keeps sums of two products within 16 bits.
    // bfloat16: the upper half of a float in [-1, 1); y[1] = -y[0] makes the sums swing instead of growing.
    void draw(int thread, std::uint64_t seed) const {
        const Stream stream(seed, static_cast<std::uint64_t>(thread));
        const int bytes = table_.vector_bytes;
        for (int i = 0; i < 2 * bytes && !bfloat16_; ++i) {
            x(thread)[i] = static_cast<char>(stream.bits(i) >> 57);
            y(thread)[i] = static_cast<char>(static_cast<int>(stream.bits(2 * bytes + i) >> 56) - 128);
        }
        for (int i = 0; i < bytes / 2 && bfloat16_; ++i) {
            const std::uint16_t xi = upper(stream.uniform<float>(i)), yi = upper(stream.uniform<float>(bytes + i));
            const auto negative = static_cast<std::uint16_t>(yi ^ 0x8000);
            std::memcpy(x(thread) + 2 * i, &xi, 2);
            std::memcpy(x(thread) + bytes + 2 * i, &xi, 2);
            std::memcpy(y(thread) + 2 * i, &yi, 2);
            std::memcpy(y(thread) + bytes + 2 * i, &negative, 2);
        }
        for (int i = 0; i < accumulators_; ++i) {
            const float one = stream.uniform<float>(4 * bytes + i);
            const auto whole = static_cast<std::int32_t>(stream.bits(4 * bytes + i));
            std::memcpy(static_cast<char*>(starts(thread)) + 4 * i, bfloat16_ ? static_cast<const void*>(&one) : &whole,
                        4);
        }
    }

    static std::uint16_t upper(float value) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, 4);
        return static_cast<std::uint16_t>(bits >> 16);
    }

    void look(int thread, std::int64_t i, std::int64_t steps, Finding& found) const {
        const std::int64_t lane = i % (table_.vector_bytes / 4), chain = i / (table_.vector_bytes / 4);
        const std::int64_t at = thread * accumulators_ + i;
        if (bfloat16_) {  // each step adds x.y and takes it away again, with two roundings each
            float start = 0, sum = 0;
            std::memcpy(&start, static_cast<char*>(starts(thread)) + 4 * i, 4);
            std::memcpy(&sum, static_cast<char*>(sums(thread)) + 4 * i, 4);
            found.look(at, start, sum, static_cast<long double>(steps) * 4 * 0x1p-24L * 4);
            return;
        }
        const char *xs = x(thread) + (chain % 2) * table_.vector_bytes + 4 * lane,
                   *ys = y(thread) + (chain % 2) * table_.vector_bytes + 4 * lane;
        std::int64_t dot = 0;
        for (int b = 0; b < 4; ++b) dot += static_cast<signed char>(xs[b]) * static_cast<signed char>(ys[b]);
        std::int32_t start = 0, sum = 0;
        std::memcpy(&start, static_cast<char*>(starts(thread)) + 4 * i, 4);
        std::memcpy(&sum, static_cast<char*>(sums(thread)) + 4 * i, 4);
        const auto want = static_cast<std::int32_t>(static_cast<std::uint64_t>(start + dot * steps));  // modulo 2^32
        found.look(at, want, sum, 0);
    }

    DotTable table_;
    bool bfloat16_;
    std::int64_t steps_, accumulators_, stride_;
    Mapping mapping_;
    std::vector<std::int32_t> compact_;
};

}  // namespace

KernelPtr make_chains(Dtype dtype, bool with_adds, Team team, Operands operands, std::uint64_t seed,
                      const Table& table) {
    const std::int64_t flop = with_adds ? kFmaAddFlop : kFmaFlop;
    if (dtype == Dtype::float64) {
        return std::make_shared<Chains<double>>(with_adds ? table.fma_add64 : table.fma64, std::move(team), operands,
                                                seed, flop, table.fused, table.vector_bytes);
    }
    return std::make_shared<Chains<float>>(with_adds ? table.fma_add32 : table.fma32, std::move(team), operands, seed,
                                           flop, table.fused, table.vector_bytes);
}

KernelPtr make_dot(bool bfloat16, Team team, std::uint64_t seed, const Table& table) {
    const DotTable& dot = bfloat16 ? table.bfloat16 : table.int8;
    if (dot.recipe == nullptr) throw std::invalid_argument("this instruction set has no such dot product");
    return std::make_shared<Dot>(dot, bfloat16, std::move(team), seed);
}

}  // namespace gm::cpu
