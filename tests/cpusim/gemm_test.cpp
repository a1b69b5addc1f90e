// csrc/kernels/gemm.cuh on the CPU: every tile at small, odd and larger sizes, compared element by element.
#include "kernels/gemm.cuh"

#include "gemm_cases.hpp"

using gemm_cases::Size;

namespace {

template <class T, int BM, int BN, int TM, int TN, bool aligned>
void run(const Size& s) {
    using Shape = gm::Tiled<T, BM, BN, 8, TM, TN>;
    char name[64];
    std::snprintf(name, sizeof name, "gemm_tiled<%s, %d, %d, aligned %d>", sizeof(T) == 4 ? "float" : "double", BM, BN,
                  aligned);
    gemm_cases::check_product<T, T>(name, s, [&](T* c, const T* a, const T* b) {
        cusim::launch({gemm_cases::blocks(s, BM, BN), Shape::threads}, gm::gemm_tiled<T, BM, BN, 8, TM, TN, aligned>, c,
                      a, b, s.m, s.n, s.k);
    });
}

template <class T, int BM, int BN, int TM, int TN>
void run_all(const std::vector<Size>& sizes) {
    for (const Size& s : sizes) {
        run<T, BM, BN, TM, TN, false>(s);
        constexpr int chunk = 16 / sizeof(T);
        if (s.n % chunk == 0 && s.k % chunk == 0) run<T, BM, BN, TM, TN, true>(s);
    }
}

}  // namespace

int main() {
    if (cusim::kThreads) {  // every way through the kernel, once
        run_all<float, 32, 32, 4, 4>({{1, 1, 1}, {36, 68, 20}});
        run_all<float, 128, 128, 8, 8>({{17, 33, 25}, {20, 36, 20}});
        run_all<double, 64, 64, 8, 4>({{17, 33, 25}, {20, 36, 20}});
        return cusim::report();
    }
    // 1, odd, one tile and its edges, more tiles than a raster group of 8 is high, more steps than two buffers hold
    const std::vector<Size> sizes{{1, 1, 1},    {1, 4, 4},      {17, 33, 65},   {31, 64, 7},
                                  {36, 68, 20}, {129, 130, 67}, {132, 136, 24}, {300, 36, 12}};
    run_all<float, 32, 32, 4, 4>(sizes);
    run_all<float, 64, 64, 8, 8>(sizes);
    run_all<float, 128, 128, 8, 8>(sizes);
    run_all<double, 32, 32, 4, 4>(sizes);
    run_all<double, 64, 64, 8, 4>(sizes);
    run_all<double, 128, 64, 8, 8>(sizes);
    return cusim::report();
}
