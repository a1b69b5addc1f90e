// Tiled GEMM on a team: C (m x n) = A (m x k) B (k x n), all row-major. The team packs a panel of B together; each
// thread then packs its own blocks of A and computes its own part of C.
#include <algorithm>
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
    int rows, columns;        // the team as a grid over C
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
               ", threads " + std::to_string(plan_.rows) + " x " + std::to_string(plan_.columns);
    }
    const Mapping* mapping() const override { return &arrays_->mapping(); }
    const void* code() const override { return reinterpret_cast<const void*>(tile_.block); }

  private:
    // Half of L1 for a panel of B (kc x nr), half of L2 for a block of A, and a share of L3 for B; then parts of equal
    // size, so that no last block is a thin one.
    Plan choose(CacheSizes caches) const {
        const auto item = static_cast<std::int64_t>(sizeof(T));
        Plan plan{};
        plan.kc = even_part(k_, std::max<std::int64_t>(caches.l1 / 2 / (tile_.nr * item), 32), 1);
        plan.nc = even_part(n_, std::max<std::int64_t>(caches.l3 / (plan.kc * item), tile_.nr), tile_.nr);
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        for (int rows = team_.size(); rows >= 1; --rows) {
            if (team_.size() % rows != 0) continue;
            const int columns = team_.size() / rows;
            const std::int64_t height = ceil_div(ceil_div(m_, tile_.mr), rows) * tile_.mr;
            const std::int64_t width = ceil_div(ceil_div(std::min(plan.nc, n_), tile_.nr), columns) * tile_.nr;
            if (height * width >= least) continue;
            least = height * width;
            plan.rows = rows;
            plan.columns = columns;
        }
        plan.mc = even_part(ceil_div(ceil_div(m_, tile_.mr), plan.rows) * tile_.mr, caches.l2 / 2 / (plan.kc * item),
                            tile_.mr);
        return plan;
    }

    // Share `index` of `of` of n elements, cut at multiples of `unit`.
    static Slice share(std::int64_t n, std::int64_t unit, int index, int of) {
        const std::int64_t units = ceil_div(n, unit);
        return {std::min(units * index / of * unit, n), std::min(units * (index + 1) / of * unit, n)};
    }

    void multiply(int thread) {
        const T *a = arrays_->as<T>(1), *b = arrays_->as<T>(2);
        T* c = arrays_->as<T>(0);
        T* panel = reinterpret_cast<T*>(packed_.data());
        T* block = reinterpret_cast<T*>(packed_.data() + panel_bytes_ + block_bytes_ * thread);
        const Slice rows = share(m_, tile_.mr, thread / plan_.columns, plan_.rows);
        for (std::int64_t j = 0; j < n_; j += plan_.nc) {
            const std::int64_t width = std::min(plan_.nc, n_ - j);
            const Slice columns = share(width, tile_.nr, thread % plan_.columns, plan_.columns);
            if (k_ == 0) fill_zero(c + j, rows, columns);
            for (std::int64_t p = 0; p < k_; p += plan_.kc) {
                const std::int64_t depth = std::min(plan_.kc, k_ - p);
                const Slice packing = share(width, tile_.nr, thread, team_.size());
                tile_.pack_b(b + p * n_ + j + packing.begin, n_, depth, packing.size(), panel + packing.begin * depth);
                Team::barrier();
                for (std::int64_t i = rows.begin; i < rows.end; i += plan_.mc) {
                    const std::int64_t height = std::min(plan_.mc, rows.end - i);
                    tile_.pack_a(a + i * k_ + p, k_, height, depth, block);
                    tile_.block(block, panel + columns.begin * depth, height, columns.size(), depth,
                                c + i * n_ + j + columns.begin, n_, p > 0);
                }
                Team::barrier();
            }
        }
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
