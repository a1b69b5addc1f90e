// What both tests of the GEMM kernels need: operands, a product in double, and the comparison of every element.
#pragma once
#include "testing.hpp"

namespace gemm_cases {

struct Size {
    long long m, n, k;
};

// Whole-number operands of a few units: every sum is exact in float, so that any order of summing gives the same.
inline int value(long long i, int salt) { return static_cast<int>((i * 37 + salt * 53) % 7) - 3; }

inline unsigned blocks(const Size& s, int tile_m, int tile_n) {
    return static_cast<unsigned>(((s.m + tile_m - 1) / tile_m) * ((s.n + tile_n - 1) / tile_n));
}

// Runs `multiply(c, a, b)` on operands of type T and checks that each element of the result, of type P, is the product
// rounded to P.
template <class T, class P, class Multiply>
void check_product(const char* kernel, const Size& s, Multiply multiply) {
    cusim::Array<T> a(s.m * s.k), b(s.k * s.n);
    cusim::Array<P> c(s.m * s.n);
    for (long long i = 0; i < a.size(); ++i) a[i] = gm::Convert<T>::from(static_cast<float>(value(i, 1)));
    for (long long i = 0; i < b.size(); ++i) b[i] = gm::Convert<T>::from(static_cast<float>(value(i, 2)));
    multiply(c.data(), a.data(), b.data());
    long long wrong = 0;
    for (long long i = 0; i < s.m; ++i) {
        for (long long j = 0; j < s.n; ++j) {
            float sum = 0;
            for (long long p = 0; p < s.k; ++p)
                sum += static_cast<float>(value(i * s.k + p, 1) * value(p * s.n + j, 2));
            const auto want = gm::Convert<P>::to(gm::Convert<P>::from(sum));
            if (!(gm::Convert<P>::to(c[i * s.n + j]) == want)) ++wrong;
        }
    }
    if (wrong != 0) std::fprintf(stderr, "%s %lldx%lldx%lld: %lld wrong\n", kernel, s.m, s.n, s.k, wrong);
    CHECK(wrong == 0);
}

}  // namespace gemm_cases
