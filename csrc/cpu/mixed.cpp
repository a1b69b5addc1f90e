// The stream with a chosen intensity, on a team.
#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "cpu/kernel.hpp"

namespace gm::cpu {
namespace {

// The chains remember about 512 steps (|a|^512 = e^-1): none comes to rest while one vector is used again and again,
// and a replay of the last 64 times as many steps gives the whole answer.
constexpr double kFactor = -(1 - 1.0 / 512);
constexpr std::int64_t kReplay = 64 * 512;

template <class T>
const MixedTable<T>& part(const Table& table) {
    if constexpr (sizeof(T) == 8) {
        return table.mixed64;
    } else {
        return table.mixed32;
    }
}

template <class T>
class Mixed : public Kernel {
  public:
    Mixed(ArraysPtr arrays, int fma, const Table& table)
        : Kernel(arrays->team()),
          arrays_(std::move(arrays)),
          fma_(fma),
          fused_(table.fused),
          table_(part<T>(table)),
          words_(table_.lanes * static_cast<int>(sizeof(T)) / 4),
          stride_((kMixedChains + 1) * table_.lanes * static_cast<std::int64_t>(sizeof(T)) + 256),
          sums_(static_cast<std::size_t>(stride_ * team_.size())) {}

    void run(std::int64_t n) override {
        team_.run([&](int thread) {
            const Slice mine = share(thread);
            table_.run(arrays_->as<T>(0) + mine.begin, mine.size(), static_cast<T>(kFactor), acc(thread),
                       acc(thread) + values(), fma_, n);
        });
    }

    void poison() override {
        team_.run([&](int thread) { std::memset(acc(thread), 0xff, static_cast<std::size_t>(stride_ - 256)); });
    }

    // The checksum proves that every element was loaded, the chains that the arithmetic was done.
    Finding check() override {
        std::vector<Finding> found(static_cast<std::size_t>(team_.size()));
        team_.run([&](int thread) {
            Finding& mine = found[static_cast<std::size_t>(thread)];
            look_at_checksum(thread, mine);
            for (int chain = 0; chain < kMixedChains; ++chain) {
                for (int lane = 0; lane < table_.lanes; ++lane) look_at_chain(thread, chain, lane, mine);
            }
        });
        Finding all;
        for (const Finding& one : found) all.merge(one);
        return all;
    }

    std::vector<Output> outputs() override {
        compact_.clear();
        checksums_.clear();
        for (int thread = 0; thread < team_.size(); ++thread) {
            compact_.insert(compact_.end(), acc(thread), acc(thread) + values());
            const auto* bits = reinterpret_cast<const std::int32_t*>(acc(thread) + values());
            checksums_.insert(checksums_.end(), bits, bits + words_);
        }
        return {{"acc",
                 sizeof(T) == 8 ? "float64" : "float32",
                 compact_.data(),
                 {team_.size(), kMixedChains, table_.lanes}},
                {"checksum", "int32", checksums_.data(), {team_.size(), words_}}};
    }
    std::string recipe() const override {
        return std::to_string(fma_) + " FMA for every 8 elements loaded, in 8 chains; XOR of all loads";
    }
    const Mapping* mapping() const override { return &arrays_->mapping(); }
    const void* code() const override { return reinterpret_cast<const void*>(table_.run); }

  private:
    Slice share(int thread) const { return team_.slice(arrays_->elements(0), sizeof(T), thread); }
    std::int64_t values() const { return static_cast<std::int64_t>(kMixedChains) * table_.lanes; }
    T* acc(int thread) const { return reinterpret_cast<T*>(sums_.data() + thread * stride_); }

    void look_at_checksum(int thread, Finding& found) const {
        const Slice mine = share(thread);
        const auto* bits = reinterpret_cast<const char*>(arrays_->as<T>(0) + mine.begin);
        const std::int64_t words = mine.size() * static_cast<std::int64_t>(sizeof(T)) / 4;
        std::vector<std::int32_t> want(static_cast<std::size_t>(words_), 0);
        for (std::int64_t w = 0; w < words; ++w) {
            std::int32_t word = 0;
            std::memcpy(&word, bits + 4 * w, 4);
            want[static_cast<std::size_t>(w % words_)] ^= word;
        }
        const char* have = reinterpret_cast<const char*>(acc(thread) + values());
        for (int w = 0; w < words_; ++w) {
            std::int32_t word = 0;
            std::memcpy(&word, have + 4 * w, 4);
            found.look(thread * (values() + words_) + values() + w, want[static_cast<std::size_t>(w)], word, 0);
        }
    }

    // What the kernel does for one lane of one chain, in its order, from far enough back.
    void look_at_chain(int thread, int chain, int lane, Finding& found) const {
        const Slice mine = share(thread);
        const T* x = arrays_->as<T>(0) + mine.begin;
        const std::int64_t group = 8LL * table_.lanes, groups = (mine.size() + group - 1) / group;
        const std::int64_t per_group = std::max<std::int64_t>(fma_ / kMixedChains, 1);
        const std::int64_t first = std::max<std::int64_t>(groups - (kReplay + per_group - 1) / per_group, 0);
        const long double u = std::numeric_limits<T>::epsilon() / 2.0L, a = static_cast<T>(kFactor);
        long double acc_value = 0, error = first > 0 ? 512 * 64 : 0;
        const auto step = [&](std::int64_t g, int vector) {
            const std::int64_t i = g * group + vector * table_.lanes + lane;
            const long double product = a * acc_value;
            acc_value = product + (i < mine.size() ? x[i] : T{});
            error = std::fabs(a) * error + u * (std::fabs(acc_value) + (fused_ ? 0 : std::fabs(product)));
        };
        for (std::int64_t g = first; g < groups; ++g) {
            if (fma_ > 32) {
                for (int half = 0; half < 2; ++half) {
                    for (int round = 0; round < fma_ / 16; ++round) step(g, 4 * half + chain % 4);
                }
            } else {
                for (int f = chain; f < fma_; f += kMixedChains) step(g, vector_of(f));
            }
        }
        found.look(thread * (values() + words_) + chain * table_.lanes + lane, acc_value,
                   acc(thread)[chain * table_.lanes + lane], 1.01L * error + std::numeric_limits<T>::min());
    }

    // Which of the 8 vectors of a group FMA number f uses: u with u * fma / 8 <= f < (u + 1) * fma / 8.
    int vector_of(int f) const {
        int u = 0;
        while ((u + 1) * fma_ / 8 <= f) ++u;
        return u;
    }

    ArraysPtr arrays_;
    int fma_;
    bool fused_;
    MixedTable<T> table_;
    int words_;
    std::int64_t stride_;
    Mapping sums_;
    std::vector<T> compact_;
    std::vector<std::int32_t> checksums_;
};

}  // namespace

KernelPtr make_mixed(ArraysPtr arrays, int fma, const Table& table) {
    if (arrays->count() != 1) throw std::invalid_argument("the mixed kernel has one operand, x");
    if (fma < 1 || fma > kMixedMaxFma || (fma & (fma - 1)) != 0) {
        throw std::invalid_argument("k must be a power of two from 1 to " + std::to_string(kMixedMaxFma));
    }
    if (arrays->dtype() == Dtype::float64) return std::make_shared<Mixed<double>>(std::move(arrays), fma, table);
    return std::make_shared<Mixed<float>>(std::move(arrays), fma, table);
}

}  // namespace gm::cpu
