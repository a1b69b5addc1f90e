// What both tests of the GEMM kernels need: operands, a product in double, and the comparison of every element.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace gemm_cases {

// Whole-number operands of a few units: every sum is exact in float, so that any order of summing gives the same.
inline int value(long long i, int salt) { return static_cast<int>((i * 37 + salt * 53) % 7) - 3; }

// Aligned as cudaMalloc does and exactly as long as asked for, so that ASan sees an access past the end.
template <class T>
class Array {
  public:
    explicit Array(long long count)
        : data_(static_cast<T*>(::operator new(sizeof(T) * static_cast<std::size_t>(count), std::align_val_t{256}))) {}
    ~Array() { ::operator delete(data_, std::align_val_t{256}); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    T* get() { return data_; }
    T& operator[](long long i) { return data_[i]; }

  private:
    T* data_;
};

struct Size {
    long long m, n, k;
};

// Runs `multiply(c, a, b)` on operands of type T and result of type P; returns the number of elements that are not the
// product rounded to P. `encode` and `result` make a T and a P of a number, `number` makes one of a P.
template <class T, class P, class Encode, class Result, class Number, class Multiply>
long long wrong_elements(const Size& s, Encode encode, Result result, Number number, Multiply multiply) {
    Array<T> a(s.m * s.k), b(s.k * s.n);
    Array<P> c(s.m * s.n);
    for (long long i = 0; i < s.m * s.k; ++i) a[i] = encode(value(i, 1));
    for (long long i = 0; i < s.k * s.n; ++i) b[i] = encode(value(i, 2));
    for (long long i = 0; i < s.m * s.n; ++i) c[i] = result(NAN);
    multiply(c.get(), a.get(), b.get());
    long long wrong = 0;
    for (long long i = 0; i < s.m; ++i) {
        for (long long j = 0; j < s.n; ++j) {
            double sum = 0;
            for (long long p = 0; p < s.k; ++p) sum += value(i * s.k + p, 1) * value(p * s.n + j, 2);
            if (!(number(c[i * s.n + j]) == number(result(sum)))) ++wrong;
        }
    }
    return wrong;
}

inline int report(const char* kernel, const Size& s, long long wrong) {
    if (wrong != 0) std::printf("%s %lldx%lldx%lld: %lld wrong elements\n", kernel, s.m, s.n, s.k, wrong);
    return wrong != 0;
}

inline unsigned blocks(const Size& s, int tile_m, int tile_n) {
    return static_cast<unsigned>(((s.m + tile_m - 1) / tile_m) * ((s.n + tile_n - 1) / tile_n));
}

}  // namespace gemm_cases
