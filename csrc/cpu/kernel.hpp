// A kernel of the CPU: work that can be timed, and outputs that can be checked.
#pragma once
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cpu/arrays.hpp"
#include "cpu/isa/tables.hpp"
#include "cpu/team.hpp"
#include "timing/work.hpp"

namespace gm::cpu {

// What a check found: the element that comes nearest to its bound or exceeds it first, and how many were looked at.
struct Finding {
    bool passed = true;
    double worst = 0, bound = 0;  // absolute
    std::int64_t elements = 0;
    std::int64_t index = -1;  // of the first wrong element, -1 where none is
    double expected = 0, got = 0;

    // One element: `error_bound` is the largest error allowed. NaN never passes.
    void look(std::int64_t at, long double want, long double have, long double error_bound);
    void merge(const Finding& other);
};

struct Output {
    std::string name;
    std::string dtype;  // NumPy's name
    void* data;
    std::vector<std::int64_t> shape;
};

class Kernel {
  public:
    explicit Kernel(Team team) : team_(std::move(team)) {}
    virtual ~Kernel() = default;

    virtual void run(std::int64_t n) = 0;
    virtual void poison() = 0;    // makes every output wrong
    virtual Finding check() = 0;  // after a run
    virtual std::vector<Output> outputs() = 0;
    virtual std::string recipe() const = 0;
    virtual const Mapping* mapping() const { return nullptr; }  // the memory it works on
    // The native function that does the work, for looking at its instructions.
    virtual const void* code() const { return nullptr; }

    const Team& team() const { return team_; }
    Work work() {
        return {[](void* self, std::int64_t n) { static_cast<Kernel*>(self)->run(n); }, this};
    }

  protected:
    Team team_;
};

using KernelPtr = std::shared_ptr<Kernel>;
using ArraysPtr = std::shared_ptr<Arrays>;

// Operands a, b, c in this order. `map` kernels write a.
KernelPtr make_stream(ArraysPtr arrays, const std::string& name, bool nontemporal, const Table& table);
KernelPtr make_chains(Dtype dtype, bool with_adds, Team team, Operands operands, std::uint64_t seed,
                      const Table& table);
KernelPtr make_dot(bool bfloat16, Team team, std::uint64_t seed, const Table& table);
// Operands c (m x n), a (m x k), b (k x n), row-major.
struct CacheSizes {
    std::int64_t l1, l2, l3;  // bytes that one thread may count on
};
KernelPtr make_gemm(ArraysPtr arrays, std::int64_t m, std::int64_t n, std::int64_t k, CacheSizes caches,
                    const Table& table);
Finding check_gemm(const Arrays& arrays, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t samples);
KernelPtr make_mixed(ArraysPtr arrays, int fma, const Table& table);
KernelPtr make_chase(std::int64_t lines, std::int64_t line_bytes, int cpu, std::uint64_t seed);
KernelPtr make_launch(Team team);

// Cycles a second of the core that runs this: a chain of dependent integer adds, one a cycle. 0 where unknown.
double clock_hz(double span_s, int spans);

}  // namespace gm::cpu
