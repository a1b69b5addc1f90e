// STREAM's kernels on a team: each thread passes over its own slice, as often as asked, without meeting the others.
#include <limits>
#include <numeric>
#include <stdexcept>

#include "cpu/kernel.hpp"

namespace gm::cpu {
namespace {

constexpr const char* kMaps[kStreamMaps] = {"write", "copy", "scale", "add", "triad"};

template <class T>
constexpr T kScalar = static_cast<T>(0.4);  // not a power of two: the product must be rounded

template <class T>
const StreamTable<T>& part(const Table& table) {
    if constexpr (sizeof(T) == 8) {
        return table.stream64;
    } else {
        return table.stream32;
    }
}

template <class T>
constexpr const char* kName = sizeof(T) == 8 ? "float64" : "float32";
template <class T>
constexpr long double kRoundoff = std::numeric_limits<T>::epsilon() / 2.0L;

template <class T>
class Map : public Kernel {
  public:
    Map(ArraysPtr arrays, StreamMap kind, bool nontemporal, const Table& table)
        : Kernel(arrays->team()),
          arrays_(std::move(arrays)),
          kind_(kind),
          nontemporal_(nontemporal),
          fused_(table.fused),
          function_(nontemporal ? part<T>(table).nontemporal[static_cast<int>(kind)]
                                : part<T>(table).temporal[static_cast<int>(kind)]) {
        if (function_ == nullptr) throw std::invalid_argument("this build has no non-temporal stores");
    }

    void run(std::int64_t n) override {
        team_.run([&](int thread) {
            const Slice mine = share(thread);
            function_(arrays_->as<T>(0) + mine.begin, arrays_->as<T>(1) + mine.begin, arrays_->as<T>(2) + mine.begin,
                      kScalar<T>, mine.size(), n);
        });
    }

    void poison() override { arrays_->poison(0); }

    Finding check() override {
        std::vector<Finding> found(static_cast<std::size_t>(team_.size()));
        team_.run([&](int thread) {
            const T *a = arrays_->as<T>(0), *b = arrays_->as<T>(1), *c = arrays_->as<T>(2);
            const Slice mine = share(thread);
            for (std::int64_t i = mine.begin; i < mine.end; ++i) {
                const auto [want, bound] = expect(b[i], c[i]);
                found[static_cast<std::size_t>(thread)].look(i, want, a[i], bound);
            }
        });
        Finding all;
        for (const Finding& one : found) all.merge(one);
        return all;
    }

    std::vector<Output> outputs() override { return {{"a", kName<T>, arrays_->data(0), {arrays_->elements(0)}}}; }
    std::string recipe() const override { return nontemporal_ ? "non-temporal stores" : "temporal stores"; }
    const Mapping* mapping() const override { return &arrays_->mapping(); }
    const void* code() const override { return reinterpret_cast<const void*>(function_); }

  private:
    struct Expected {
        long double value, bound;
    };

    Slice share(int thread) const { return team_.slice(arrays_->elements(0), sizeof(T), thread); }

    // One rounding where multiply and add are one instruction, else two.
    Expected expect(long double b, long double c) const {
        const long double s = kScalar<T>, u = kRoundoff<T>, tiny = std::numeric_limits<T>::denorm_min();
        switch (kind_) {
            case StreamMap::write:
                return {s, 0};
            case StreamMap::copy:
                return {b, 0};
            case StreamMap::scale:
                return {s * b, u * std::fabs(s * b) + tiny};
            case StreamMap::add:
                return {b + c, u * std::fabs(b + c) + tiny};
            case StreamMap::triad:
                break;
        }
        const long double value = b + s * c;
        const long double own = 2 * kRoundoff<long double>;  // the reference rounds its product too
        return {value, u * std::fabs(value) + (fused_ ? own : u * (1 + u)) * std::fabs(s * c) + tiny};
    }

    ArraysPtr arrays_;
    StreamMap kind_;
    bool nontemporal_, fused_;
    typename StreamTable<T>::Map function_;
};

template <class T>
class Fold : public Kernel {
  public:
    Fold(ArraysPtr arrays, bool product, const Table& table)
        : Kernel(arrays->team()),
          arrays_(std::move(arrays)),
          product_(product),
          sums_(part<T>(table).accumulators),
          function_(product ? part<T>(table).dot : part<T>(table).read),
          partial_(static_cast<std::size_t>(team_.size()) * kPad) {}

    void run(std::int64_t n) override {
        team_.run([&](int thread) {
            const Slice mine = share(thread);
            function_(arrays_->as<T>(1) + mine.begin, arrays_->as<T>(2) + mine.begin, mine.size(), n, slot(thread));
        });
    }

    void poison() override {
        for (T& one : partial_) one = std::numeric_limits<T>::quiet_NaN();
    }

    // Each thread's sum, against a sum in long double: the error of a sum of m terms of which at most d meet in one
    // chain is at most d u / (1 - d u) times the sum of the magnitudes.
    Finding check() override {
        std::vector<Finding> found(static_cast<std::size_t>(team_.size()));
        team_.run([&](int thread) {
            const T *b = arrays_->as<T>(1), *c = arrays_->as<T>(2);
            const Slice mine = share(thread);
            long double sum = 0, magnitude = 0;
            for (std::int64_t i = mine.begin; i < mine.end; ++i) {
                const long double term = product_ ? static_cast<long double>(b[i]) * c[i] : b[i];
                sum += term;
                magnitude += std::fabs(term);
            }
            const auto depth = static_cast<long double>(mine.size() / sums_ + 2 * sums_ + 8);
            const long double growth = depth * kRoundoff<T> / (1 - depth * kRoundoff<T>);
            const long double reference = static_cast<long double>(mine.size()) * kRoundoff<long double>;
            found[static_cast<std::size_t>(thread)].look(
                thread, sum, *slot(thread),
                (growth + reference) * magnitude + std::numeric_limits<T>::denorm_min() * depth);
        });
        Finding all;
        for (const Finding& one : found) all.merge(one);
        return all;
    }

    // One sum a thread; their sum is the kernel's result.
    std::vector<Output> outputs() override {
        for (int thread = 0; thread < team_.size(); ++thread)
            compact_.resize(thread + 1), compact_[thread] = *slot(thread);
        return {{"sum", kName<T>, compact_.data(), {team_.size()}}};
    }
    std::string recipe() const override { return std::to_string(sums_) + " sums side by side in a thread"; }
    const Mapping* mapping() const override { return &arrays_->mapping(); }
    const void* code() const override { return reinterpret_cast<const void*>(function_); }
    T* slot(int thread) { return &partial_[static_cast<std::size_t>(thread) * kPad]; }

  private:
    static constexpr std::size_t kPad = 128 / sizeof(T);  // two lines: no false sharing, nor through a paired prefetch

    Slice share(int thread) const { return team_.slice(arrays_->elements(1), sizeof(T), thread); }

    ArraysPtr arrays_;
    bool product_;
    int sums_;
    typename StreamTable<T>::Fold function_;
    std::vector<T> partial_, compact_;
};

template <class T>
KernelPtr make(ArraysPtr arrays, const std::string& name, bool nontemporal, const Table& table) {
    if (name == "read" || name == "dot") return std::make_shared<Fold<T>>(std::move(arrays), name == "dot", table);
    for (int kind = 0; kind < kStreamMaps; ++kind) {
        if (name == kMaps[kind]) {
            return std::make_shared<Map<T>>(std::move(arrays), static_cast<StreamMap>(kind), nontemporal, table);
        }
    }
    throw std::invalid_argument("no stream kernel is named '" + name + "'");
}

}  // namespace

KernelPtr make_stream(ArraysPtr arrays, const std::string& name, bool nontemporal, const Table& table) {
    if (arrays->count() != 3) throw std::invalid_argument("a stream kernel has the operands a, b and c");
    return arrays->dtype() == Dtype::float64 ? make<double>(std::move(arrays), name, nontemporal, table)
                                             : make<float>(std::move(arrays), name, nontemporal, table);
}

}  // namespace gm::cpu
