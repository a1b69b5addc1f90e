// csrc/kernels/gemm.cuh on the CPU: every tile at small, odd and larger sizes, compared element by element.
#include "cuda_cpu.hpp"
// the shim must come first
#include "gemm_cases.hpp"
#include "kernels/gemm.cuh"

using gemm_cases::Size;

namespace {

template <class T, int BM, int BN, int TM, int TN, bool aligned>
int run(const Size& s) {
    using Shape = gm::Tiled<T, BM, BN, 8, TM, TN>;
    const auto same = [](auto x) { return static_cast<T>(x); };
    const long long wrong = gemm_cases::wrong_elements<T, T>(s, same, same, same, [&](T* c, const T* a, const T* b) {
        cusim::launch({gemm_cases::blocks(s, BM, BN), Shape::threads}, gm::gemm_tiled<T, BM, BN, 8, TM, TN, aligned>, c,
                      a, b, s.m, s.n, s.k);
    });
    char name[64];
    std::snprintf(name, sizeof name, "gemm_tiled<%s, %d, %d, aligned %d>", sizeof(T) == 4 ? "float" : "double", BM, BN,
                  aligned);
    return gemm_cases::report(name, s, wrong);
}

template <class T, int BM, int BN, int TM, int TN>
int run_all(const std::vector<Size>& sizes) {
    int failed = 0;
    for (const Size& s : sizes) {
        failed += run<T, BM, BN, TM, TN, false>(s);
        constexpr int chunk = 16 / sizeof(T);
        if (s.n % chunk == 0 && s.k % chunk == 0) failed += run<T, BM, BN, TM, TN, true>(s);
    }
    return failed;
}

}  // namespace

int main() {
    // 1, odd, one tile and its edges, more tiles than a raster group of 8 is high, more steps than two buffers hold
    const std::vector<Size> sizes{{1, 1, 1},    {1, 4, 4},      {17, 33, 65},   {31, 64, 7},
                                  {36, 68, 20}, {129, 130, 67}, {132, 136, 24}, {300, 36, 12}};
    int failed = run_all<float, 32, 32, 4, 4>(sizes) + run_all<float, 64, 64, 8, 8>(sizes) +
                 run_all<float, 128, 128, 8, 8>(sizes) + run_all<double, 32, 32, 4, 4>(sizes) +
                 run_all<double, 64, 64, 8, 4>(sizes) + run_all<double, 128, 64, 8, 8>(sizes);
    std::printf("gemm: %d failed\n", failed);
    return failed != 0;
}
