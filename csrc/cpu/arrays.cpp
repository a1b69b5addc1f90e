#include "cpu/arrays.hpp"

#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

namespace gm::cpu {
namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;
// Operands start at different places of a 4 KiB page: a load that agrees with an earlier store in its low 12 bits waits
// for it. 5 lines apart, the loads that run ahead of a store stay clear of it.
constexpr std::size_t kStagger = 5 * 64;

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

std::size_t lay_out(const std::vector<std::int64_t>& counts, std::int64_t item, std::vector<std::size_t>& offsets) {
    std::size_t end = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] < 0) throw std::invalid_argument("an operand cannot have fewer than 0 elements");
        offsets.push_back(round_up(end, kPage) + (i * kStagger) % kPage);
        end = offsets.back() + static_cast<std::size_t>(counts[i] * item);
    }
    return end;
}

}  // namespace

Mapping::Mapping(std::size_t bytes) : whole_(round_up(bytes + 1, kHuge) + kHuge), size_(whole_ - kHuge) {
    base_ = mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(base_);
    data_ = static_cast<char*>(base_) + (round_up(address, kHuge) - address);
#ifdef MADV_HUGEPAGE
    advised_ = madvise(data_, size_, MADV_HUGEPAGE) == 0;
#endif
}

Mapping::~Mapping() { munmap(base_, whole_); }

Mapping::Pages Mapping::pages() const {
    Pages pages;
    pages.advised = advised_;
    std::FILE* smaps = std::fopen("/proc/self/smaps", "re");
    if (smaps == nullptr) return pages;
    const auto first = reinterpret_cast<std::uintptr_t>(data_), last = first + size_;
    char line[512];
    bool ours = false;
    while (std::fgets(line, sizeof line, smaps) != nullptr) {
        std::uintptr_t low = 0, high = 0;
        std::int64_t kib = 0;
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &low, &high) == 2) {
            ours = low < last && high > first;
        } else if (ours && std::sscanf(line, "Rss: %" SCNd64, &kib) == 1) {
            pages.resident_bytes += kib * 1024;
            pages.known = true;
        } else if (ours && std::sscanf(line, "AnonHugePages: %" SCNd64, &kib) == 1) {
            pages.huge_bytes += kib * 1024;
        }
    }
    std::fclose(smaps);
    return pages;
}

Arrays::Arrays(Dtype dtype, std::vector<std::int64_t> counts, Team team, Operands operands, std::uint64_t seed)
    : dtype_(dtype),
      counts_(std::move(counts)),
      team_(std::move(team)),
      mapping_(lay_out(counts_, itemsize(dtype), offsets_)) {
    dtype == Dtype::float32 ? fill<float>(operands, seed) : fill<double>(operands, seed);
}

template <class T>
void Arrays::fill(Operands operands, std::uint64_t seed) const {
    team_.run([&](int thread) {
        for (int i = 0; i < count(); ++i) {
            const Stream stream(seed, static_cast<std::uint64_t>(i));
            const Slice mine = team_.slice(elements(i), sizeof(T), thread);
            T* to = as<T>(i);
            for (std::int64_t j = mine.begin; j < mine.end; ++j) to[j] = stream.draw<T>(operands, j);
        }
    });
}

void Arrays::poison(int i) const {
    team_.run([&](int thread) {
        const std::int64_t item = itemsize(dtype_);
        const Slice mine = team_.slice(elements(i), item, thread);
        std::memset(static_cast<char*>(data(i)) + mine.begin * item, 0xff,
                    static_cast<std::size_t>(mine.size() * item));
    });
}

}  // namespace gm::cpu
