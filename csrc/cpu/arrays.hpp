// Memory for operands: one mapping on huge pages where they can be had, touched first by the thread that uses it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/random.hpp"
#include "cpu/team.hpp"

namespace gm::cpu {

// Anonymous memory, aligned to 2 MiB and advised to huge pages. Nothing is touched. Throws std::bad_alloc.
class Mapping {
  public:
    explicit Mapping(std::size_t bytes);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    char* data() const { return data_; }
    std::size_t size() const { return size_; }

    struct Pages {
        std::int64_t resident_bytes = 0, huge_bytes = 0;  // as /proc/self/smaps says now
        bool known = false, advised = false;
    };
    Pages pages() const;

  private:
    void* base_;
    std::size_t whole_;
    char* data_;
    std::size_t size_;
    bool advised_ = false;
};

enum class Dtype { float32, float64 };
inline std::int64_t itemsize(Dtype dtype) { return dtype == Dtype::float32 ? 4 : 8; }

// The operands of one problem, in order, filled with numbers that depend on the seed alone.
class Arrays {
  public:
    Arrays(Dtype dtype, std::vector<std::int64_t> counts, Team team, Operands operands, std::uint64_t seed);

    Dtype dtype() const { return dtype_; }
    const Team& team() const { return team_; }
    int count() const { return static_cast<int>(counts_.size()); }
    std::int64_t elements(int i) const { return counts_.at(static_cast<std::size_t>(i)); }
    const Mapping& mapping() const { return mapping_; }
    void* data(int i) const { return mapping_.data() + offsets_.at(static_cast<std::size_t>(i)); }
    template <class T>
    T* as(int i) const {
        return static_cast<T*>(data(i));
    }

    // Fills operand i with NaN, so that an element that nobody writes is found.
    void poison(int i) const;

  private:
    template <class T>
    void fill(Operands operands, std::uint64_t seed) const;

    Dtype dtype_;
    std::vector<std::int64_t> counts_;
    std::vector<std::size_t> offsets_;
    Team team_;
    Mapping mapping_;
};

}  // namespace gm::cpu
