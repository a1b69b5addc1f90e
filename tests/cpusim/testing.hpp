// What the tests of kernels on the CPU share: arrays as a device allocator gives them, and checks that are counted.
#pragma once
#include <cstdio>
#include <new>
#include <random>
#include <type_traits>

#include "cuda_cpu.hpp"

namespace cusim {

// n elements at a 256-byte aligned address, exactly as long as that, so that ASan sees the byte behind; poisoned, since
// a kernel must not count on what its output holds.
template <class T>
class Array {
  public:
    explicit Array(long long n) : size_(n), data_(static_cast<T*>(::operator new(bytes(), kAlignment))) { poison(); }
    ~Array() { ::operator delete(data_, kAlignment); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    void poison() { std::memset(static_cast<void*>(data_), 0xff, bytes()); }
    void fill_random(unsigned seed) {
        std::mt19937 random(seed);
        for (long long i = 0; i < size_; ++i)
            data_[i] = static_cast<T>(static_cast<int>(random() % 2001) - 1000) / T(1000);
    }
    T* data() const { return data_; }
    long long size() const { return size_; }
    T& operator[](long long i) const { return data_[i]; }

  private:
    static constexpr std::align_val_t kAlignment{256};
    std::size_t bytes() const { return static_cast<std::size_t>(size_) * sizeof(T); }
    long long size_;
    T* data_;
};

inline int failures = 0;
inline int checks = 0;

inline void check(bool good, const char* what, const char* file, int line) {
    ++checks;
    if (good) return;
    ++failures;
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what);
}

// The exit code of a test program. One without checks has tested nothing.
inline int report() {
    std::printf("%d checks, %d failed\n", checks, failures);
    return failures != 0 || checks == 0;
}

#ifdef GPUMICRO_SIM_THREADS
constexpr bool kThreads = true;  // a thread each is slow: fewer and smaller cases
#else
constexpr bool kThreads = false;
#endif

}  // namespace cusim

#define CHECK(condition) ::cusim::check(condition, #condition, __FILE__, __LINE__)
