// Drives every kernel of every usable ISA at odd sizes on one and two threads, and checks that faults are found. For
// the sanitizers; what the results must be is said once, in each kernel's check.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/isa.hpp"
#include "cpu/kernel.hpp"

using namespace gm::cpu;

namespace {

int failures = 0;
int checks = 0;

void expect(bool good, const std::string& what) {
    ++checks;
    if (good) return;
    ++failures;
    std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

void drive(Kernel& kernel, const std::string& what) {
    kernel.poison();
    kernel.run(1);
    const Finding found = kernel.check();
    expect(found.passed, what + " at " + std::to_string(found.index) + ": expected " + std::to_string(found.expected) +
                             ", got " + std::to_string(found.got));
    kernel.run(3);
    kernel.outputs();
}

std::vector<int> cpus(int threads) { return std::vector<int>(static_cast<std::size_t>(threads), -1); }

ArraysPtr arrays(Dtype dtype, std::vector<std::int64_t> counts, int threads) {
    return std::make_shared<Arrays>(dtype, std::move(counts), Team(cpus(threads)), Operands::uniform, 7);
}

void test_stream(const Table& table, Dtype dtype, int threads) {
    for (const std::int64_t n : {0, 1, 7, 8, 63, 64, 65, 1000, 4099}) {
        const ArraysPtr operands = arrays(dtype, {n, n, n}, threads);
        for (const char* name : {"read", "write", "copy", "scale", "add", "triad", "dot"}) {
            for (const bool nontemporal : {false, true}) {
                if (nontemporal && table.stream64.nontemporal[0] == nullptr) continue;
                drive(*make_stream(operands, name, nontemporal, table),
                      std::string(table.isa) + " " + name + " n=" + std::to_string(n));
            }
        }
    }
}

void test_gemm(const Table& table, Dtype dtype, int threads) {
    const std::int64_t shapes[][3] = {{1, 1, 1}, {7, 5, 3}, {13, 17, 1},  {1, 31, 29},   {37, 1, 41},   {0, 3, 2},
                                      {3, 0, 2}, {3, 2, 0}, {61, 67, 71}, {24, 64, 128}, {97, 101, 103}};
    for (const auto& [m, n, k] : shapes) {
        // small caches: several blocks each way
        for (const CacheSizes caches : {CacheSizes{1 << 15, 1 << 19, 1 << 22}, CacheSizes{1 << 10, 1 << 12, 1 << 13}}) {
            drive(*make_gemm(arrays(dtype, {m * n, m * k, k * n}, threads), m, n, k, caches, table),
                  std::string(table.isa) + " gemm " + std::to_string(m) + " " + std::to_string(n) + " " +
                      std::to_string(k));
        }
    }
}

void test_mixed(const Table& table, Dtype dtype, int threads) {
    for (const std::int64_t n : {0, 1, 63, 64, 65, 1000}) {
        for (int fma = 1; fma <= kMixedMaxFma; fma *= 2) {
            drive(*make_mixed(arrays(dtype, {n}, threads), fma, table),
                  std::string(table.isa) + " mixed " + std::to_string(fma) + " n=" + std::to_string(n));
        }
    }
}

void test_peak(const Table& table, Dtype dtype, int threads) {
    for (const Operands operands : {Operands::uniform, Operands::normal, Operands::zeros}) {
        for (const bool adds : {false, true}) {
            drive(*make_chains(dtype, adds, Team(cpus(threads)), operands, 7, table), std::string(table.isa) + " peak");
        }
    }
    for (const bool bfloat16 : {false, true}) {
        if ((bfloat16 ? table.bfloat16 : table.int8).recipe == nullptr) continue;
        drive(*make_dot(bfloat16, Team(cpus(threads)), 7, table), std::string(table.isa) + " dot");
    }
}

// The checks themselves: a flipped bit, a NaN and a tail that nobody wrote must be found, at their place.
void test_faults(const Table& table) {
    const ArraysPtr operands = arrays(Dtype::float64, {1000, 1000, 1000}, 1);
    const KernelPtr triad = make_stream(operands, "triad", false, table);
    double* a = operands->as<double>(0);
    const auto found_at = [&](std::int64_t place, const auto& tamper, const char* what) {
        triad->run(1);
        tamper(a[place]);
        const Finding found = triad->check();
        expect(!found.passed && found.index == place, std::string("the check misses ") + what);
    };
    found_at(3, [](double& x) { x = -x; }, "a flipped sign");
    found_at(999, [](double& x) { std::memset(&x, 0xff, sizeof x); }, "an unwritten tail");
    found_at(
        500,
        [](double& x) {
            std::uint64_t bits = 0;
            std::memcpy(&bits, &x, 8);
            bits ^= 4;  // three units in the last place or more
            std::memcpy(&x, &bits, 8);
        },
        "a flipped low bit");
}

}  // namespace

int main() {
    for (const std::string& isa : usable_isas()) {
        const Table& table = table_for(isa);
        for (const Dtype dtype : {Dtype::float64, Dtype::float32}) {
            for (const int threads : {1, 2}) {
                test_stream(table, dtype, threads);
                test_gemm(table, dtype, threads);
                test_mixed(table, dtype, threads);
                test_peak(table, dtype, threads);
            }
        }
        test_faults(table);
    }
    drive(*make_chase(1, 64, -1, 7), "chase of one line");
    drive(*make_chase(1001, 64, -1, 7), "chase");
    drive(*make_launch(Team(cpus(2))), "launch");
    expect(clock_hz(1e-4, 2) >= 0, "clock");
    std::printf("%d checks, %d failed\n", checks, failures);
    return failures == 0 ? 0 : 1;
}
