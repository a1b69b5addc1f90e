#include "counts.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

#include "text.hpp"

namespace ptxemu {
namespace {
struct Counts {
    u64 launches = 0;
    u64 blocks = 0;
    u64 threads = 0;
    u64 flops = 0;
    u64 integer_ops = 0;
    u64 atomics = 0;
    u64 all = 0;
    std::map<std::string, u64> instructions;
    std::array<u64, kSpaces> loaded{};
    std::array<u64, kSpaces> stored{};
};

std::mutex counts_mutex;
std::map<std::string, Counts>& table() {
    static auto* counts = new std::map<std::string, Counts>;
    return *counts;
}

std::string demangled(const std::string& name) {
    int status = 0;
    char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
    const std::string out = status == 0 ? text : name;
    std::free(text);
    return out;
}

void write_bytes(std::ostream& out, const Counts& counts) {
    const char* separator = "";
    out << "{";
    for (std::size_t i = 1; i < kSpaces; ++i) {
        out << separator << quoted(name_of(static_cast<Space>(i))) << ": {\"loaded\": " << counts.loaded[i]
            << ", \"stored\": " << counts.stored[i] << "}";
        separator = ", ";
    }
    out << "}";
}

void write(std::ostream& out, const std::string& kernel, const Counts& counts) {
    out << quoted(kernel) << ": {\"demangled\": " << quoted(demangled(kernel)) << ", \"launches\": " << counts.launches
        << ", \"blocks\": " << counts.blocks << ", \"threads\": " << counts.threads << ", \"flops\": " << counts.flops
        << ", \"integer_ops\": " << counts.integer_ops << ", \"atomics\": " << counts.atomics
        << ", \"thread_instructions\": " << counts.all << ", \"bytes\": ";
    write_bytes(out, counts);
    out << ", \"instructions\": {";
    const char* separator = "";
    for (const auto& [name, count] : counts.instructions) {
        out << separator << quoted(name) << ": " << count;
        separator = ", ";
    }
    out << "}}";
}
}  // namespace

void add_counts(const Launch& launch, const Tally& tally) {
    const std::lock_guard<std::mutex> lock(counts_mutex);
    Counts& counts = table()[launch.program->kernel];
    ++counts.launches;
    counts.blocks += launch.blocks();
    counts.threads += launch.blocks() * launch.threads_of_block();
    for (std::size_t i = 0; i < tally.executed.size(); ++i) {
        const u64 times = tally.executed[i];
        if (times == 0) continue;
        const Cost& cost = launch.program->costs[i];
        const auto space = static_cast<std::size_t>(cost.space);
        counts.all += times;
        counts.instructions[cost.name] += times;
        counts.flops += times * cost.flops;
        counts.integer_ops += times * cost.integer_ops;
        if (cost.load) counts.loaded[space] += times * cost.bytes;
        if (cost.store) counts.stored[space] += times * cost.bytes;
        if (cost.atomic) counts.atomics += times;
    }
    for (std::size_t i = 0; i < kSpaces; ++i) {
        counts.loaded[i] += tally.loaded[i];
        counts.stored[i] += tally.stored[i];
    }
}

void reset_counts() {
    const std::lock_guard<std::mutex> lock(counts_mutex);
    table().clear();
}

std::string counts_json() {
    const std::lock_guard<std::mutex> lock(counts_mutex);
    std::ostringstream out;
    out << "{";
    const char* separator = "";
    for (const auto& [kernel, counts] : table()) {
        out << separator;
        write(out, kernel, counts);
        separator = ", ";
    }
    out << "}";
    return out.str();
}
}  // namespace ptxemu
