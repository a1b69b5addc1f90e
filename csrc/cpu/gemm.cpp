// Tiled GEMM on a team: C (m x n) = A (m x k) B (k x n), all row-major. The team packs a panel of B together; then each
// thread takes one part of C after the other, packs its block of A and computes it. Parts are handed out as threads
// come for them: a thread that lost time (to another process, or on a slower core) gets fewer.
#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>

#include "cpu/kernel.hpp"

namespace gm::cpu {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t unit) { return ceil_div(a, unit) * unit; }

// Cuts n into equal parts of at most `most`, each a multiple of `unit`.
std::int64_t even_part(std::int64_t n, std::int64_t most, std::int64_t unit) {
    if (n <= 0) return unit;
    const std::int64_t parts = ceil_div(n, std::max(most / unit * unit, unit));
    return round_up(ceil_div(n, parts), unit);
}

template <class T>
const GemmTable<T>& part(const Table& table) {
    if constexpr (sizeof(T) == 8) {
        return table.gemm64;
    } else {
        return table.gemm32;
    }
}

struct Plan {
    std::int64_t mc, kc, nc;  // a block of A is mc x kc, a panel of B kc x nc
    int blocks, columns;      // parts of C beside one panel: blocks of rows times strips of columns
};

template <class T>
class Gemm : public Kernel {
  public:
    Gemm(ArraysPtr arrays, std::int64_t m, std::int64_t n, std::int64_t k, CacheSizes caches, const Table& table)
        : Kernel(arrays->team()),
          arrays_(std::move(arrays)),
          m_(m),
          n_(n),
          k_(k),
          tile_(part<T>(table)),
          plan_(choose(caches)),
          block_bytes_(round_up(plan_.mc * plan_.kc * static_cast<std::int64_t>(sizeof(T)), 4096) + 1024),
          panel_bytes_(round_up(plan_.kc * round_up(plan_.nc, tile_.nr) * static_cast<std::int64_t>(sizeof(T)), 4096)),
          packed_(static_cast<std::size_t>(panel_bytes_ + block_bytes_ * team_.size())) {}

    void run(std::int64_t repeats) override {
        team_.run([&](int thread) {
            for (std::int64_t i = 0; i < repeats; ++i) multiply(thread);
        });
    }

    void poison() override { arrays_->poison(0); }
    Finding check() override { return check_gemm(*arrays_, m_, n_, k_, 4096); }
    std::vector<Output> outputs() override {
        return {{"c", sizeof(T) == 8 ? "float64" : "float32", arrays_->data(0), {m_, n_}}};
    }
    std::string recipe() const override {
        return "register tile " + std::to_string(tile_.mr) + " x " + std::to_string(tile_.nr) + ", blocks m " +
               std::to_string(plan_.mc) + ", k " + std::to_string(plan_.kc) + ", n " + std::to_string(plan_.nc) +
               ", parts " + std::to_string(plan_.blocks) + " x " + std::to_string(plan_.columns);
    }
    const Mapping* mapping() const override { return &arrays_->mapping(); }
    const void* code() const override { return reinterpret_cast<const void*>(tile_.block); }

  private:
    // Depth: a strip of B (kc x nr) as large as L1; deeper than the textbook's half, as C is then read and written less
    // often (0.83 to 0.87 of the FMA peak at 2,048 on Zen 3, 0.75 to 0.82 with half of L1). A block of A takes 3/8 of
    // L2. Then parts of equal size, so that no last block is a thin one.
    Plan choose(CacheSizes caches) const {
        const auto item = static_cast<std::int64_t>(sizeof(T));
        Plan plan{};
        plan.kc = even_part(k_, std::max<std::int64_t>(caches.l1 / (tile_.nr * item), 32), 1);
        plan.nc = even_part(n_, std::max<std::int64_t>(caches.l3 / (plan.kc * item), tile_.nr), tile_.nr);
        // Several parts for each thread; strips only where there are too few rows, as each packs its block of A again.
        const std::int64_t threads = team_.size(), least = threads == 1 ? 1 : 6 * threads;
        const std::int64_t fits = caches.l2 * 3 / 8 / (plan.kc * item);
        const std::int64_t most = std::min(fits, std::max<std::int64_t>(m_ / least, 4 * tile_.mr));
        const std::int64_t whole = std::max(most / tile_.mr * tile_.mr, static_cast<std::int64_t>(tile_.mr));
        const std::int64_t blocks = round_up(std::max<std::int64_t>(ceil_div(m_, whole), 1), threads);
        plan.mc = std::max<std::int64_t>(round_up(ceil_div(m_, blocks), tile_.mr), tile_.mr);
        plan.blocks = static_cast<int>(std::max<std::int64_t>(ceil_div(m_, plan.mc), 1));
        const std::int64_t tiles = std::max<std::int64_t>(ceil_div(std::min(plan.nc, n_), tile_.nr), 1);
        plan.columns = static_cast<int>(std::clamp<std::int64_t>(least / plan.blocks, 1, tiles));
        return plan;
    }

    // Share `index` of `of` of n elements, cut at multiples of `unit`.
    static Slice share(std::int64_t n, std::int64_t unit, int index, int of) {
        const std::int64_t units = ceil_div(n, unit);
        return {std::min(units * index / of * unit, n), std::min(units * (index + 1) / of * unit, n)};
    }

    void multiply(int thread) {
        const T* b = arrays_->as<T>(2);
        T* panel = reinterpret_cast<T*>(packed_.data());
        for (std::int64_t j = 0; j < n_; j += plan_.nc) {
            const std::int64_t width = std::min(plan_.nc, n_ - j);
            if (k_ == 0 && thread == 0) fill_zero(arrays_->as<T>(0) + j, {0, m_}, {0, width});
            for (std::int64_t p = 0; p < k_; p += plan_.kc) {
                const std::int64_t depth = std::min(plan_.kc, k_ - p);
                const Slice packing = share(width, tile_.nr, thread, team_.size());
                tile_.pack_b(b + p * n_ + j + packing.begin, n_, depth, packing.size(), panel + packing.begin * depth);
                if (thread == 0) next_ = 0;  // everybody is between the barriers around the parts
                Team::barrier();
                for (int part = next_++; part < plan_.blocks * plan_.columns; part = next_++) {
                    compute(thread, part, panel, j, width, p, depth);
                }
                Team::barrier();
            }
        }
    }

    // One part of C beside the panel that holds rows p to p + depth and columns j to j + width of B.
    void compute(int thread, int part, const T* panel, std::int64_t j, std::int64_t width, std::int64_t p,
                 std::int64_t depth) {
        T* block = reinterpret_cast<T*>(packed_.data() + panel_bytes_ + block_bytes_ * thread);
        const std::int64_t i = part / plan_.columns * plan_.mc, height = std::min(plan_.mc, m_ - i);
        const Slice strip = share(width, tile_.nr, part % plan_.columns, plan_.columns);
        if (height <= 0 || strip.size() <= 0) return;
        tile_.pack_a(arrays_->as<T>(1) + i * k_ + p, k_, height, depth, block);
        tile_.block(block, panel + strip.begin * depth, height, strip.size(), depth,
                    arrays_->as<T>(0) + i * n_ + j + strip.begin, n_, p > 0);
    }

    void fill_zero(T* c, Slice rows, Slice columns) const {
        for (std::int64_t i = rows.begin; i < rows.end; ++i) {
            std::fill(c + i * n_ + columns.begin, c + i * n_ + columns.end, T{});
        }
    }

    ArraysPtr arrays_;
    std::int64_t m_, n_, k_;
    GemmTable<T> tile_;
    Plan plan_;
    std::int64_t block_bytes_, panel_bytes_;
    Mapping packed_;
    std::atomic<int> next_{0};  // the next part to hand out
};

// One element against long double: the error of a sum of k products is at most gamma_k times that of the magnitudes.
template <class T>
void look(const Arrays& arrays, std::int64_t n, std::int64_t k, std::int64_t at, Finding& found) {
    const T *c = arrays.as<T>(0), *a = arrays.as<T>(1) + at / n * k, *b = arrays.as<T>(2) + at % n;
    long double sum = 0, magnitude = 0;
    for (std::int64_t p = 0; p < k; ++p) {
        const long double term = static_cast<long double>(a[p]) * b[p * n];
        sum += term;
        magnitude += std::fabs(term);
    }
    const long double growth = static_cast<long double>(k + 1) * std::numeric_limits<T>::epsilon() / 2;
    found.look(at, sum, c[at], growth / (1 - growth) * magnitude + std::numeric_limits<T>::min());
}

}  // namespace

Finding check_gemm(const Arrays& arrays, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t samples) {
    const std::int64_t elements = m * n;
    std::vector<std::int64_t> places;
    if (elements <= samples) {
        for (std::int64_t i = 0; i < elements; ++i) places.push_back(i);
    } else {  // the corners, where edges go wrong, and then at random
        places = {0, n - 1, elements - n, elements - 1};
        const Stream stream(1, 0);
        for (std::int64_t i = 0; i < samples; ++i) {
            places.push_back(static_cast<std::int64_t>(stream.bits(i) % static_cast<std::uint64_t>(elements)));
        }
    }
    const Team& team = arrays.team();
    std::vector<Finding> found(static_cast<std::size_t>(team.size()));
    team.run([&](int thread) {
        for (std::size_t i = static_cast<std::size_t>(thread); i < places.size();
             i += static_cast<std::size_t>(team.size())) {
            Finding& mine = found[static_cast<std::size_t>(thread)];
            arrays.dtype() == Dtype::float64 ? look<double>(arrays, n, k, places[i], mine)
                                             : look<float>(arrays, n, k, places[i], mine);
        }
    });
    Finding all;
    for (const Finding& one : found) all.merge(one);
    return all;
}

KernelPtr make_gemm(ArraysPtr arrays, std::int64_t m, std::int64_t n, std::int64_t k, CacheSizes caches,
                    const Table& table) {
    if (arrays->count() != 3 || arrays->elements(0) != m * n || arrays->elements(1) != m * k ||
        arrays->elements(2) != k * n) {
        throw std::invalid_argument("a GEMM has the operands c (m x n), a (m x k) and b (k x n)");
    }
    if (arrays->dtype() == Dtype::float64)
        return std::make_shared<Gemm<double>>(std::move(arrays), m, n, k, caches, table);
    return std::make_shared<Gemm<float>>(std::move(arrays), m, n, k, caches, table);
}

}  // namespace gm::cpu
