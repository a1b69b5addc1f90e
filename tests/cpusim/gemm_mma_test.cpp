// csrc/kernels/gemm_mma.cuh on the CPU, through the bodies that ptx_async.cuh and ptx_mma.cuh have for it: copies are
// carried out at their waits and fragments travel between lanes as the PTX ISA lays them out.
#include "cuda_cpu.hpp"
// the shim must come first
#include "gemm_cases.hpp"
#include "kernels/gemm_mma.cuh"

using gemm_cases::Size;

namespace {

template <class T, int BM, int BN, int WM, int WN, int Stages, bool aligned>
int run(const char* type, const Size& s) {
    using Tile = gm::MmaTile<T, BM, BN, WM, WN, Stages>;
    using P = gm::Product<T>;
    const auto encode = [](auto x) { return gm::Convert<T>::from(static_cast<float>(x)); };
    const auto result = [](auto x) { return gm::Convert<P>::from(static_cast<float>(x)); };
    const auto number = [](P x) { return static_cast<double>(gm::Convert<P>::to(x)); };
    const long long wrong =
        gemm_cases::wrong_elements<T, P>(s, encode, result, number, [&](P* c, const T* a, const T* b) {
            cusim::launch({gemm_cases::blocks(s, BM, BN), Tile::threads, Tile::stages * Tile::stage_bytes},
                          gm::gemm_mma<T, BM, BN, WM, WN, Stages, aligned>, c, a, b, s.m, s.n, s.k);
        });
    char name[64];
    std::snprintf(name, sizeof name, "gemm_mma<%s, %d, %d, aligned %d>", type, BM, BN, aligned);
    return gemm_cases::report(name, s, wrong);
}

// Tiles of 64 x 64 at every size, the wide ones, which take the simulation long, at those given to `wide`.
template <class T>
int run_all(const char* type, const std::vector<Size>& small, const std::vector<Size>& wide) {
    int failed = 0;
    constexpr int chunk = 16 / sizeof(T);
    for (const Size& s : small) {
        failed += run<T, 64, 64, 32, 32, 3, false>(type, s);
        if (s.n % chunk == 0 && s.k % chunk == 0) failed += run<T, 64, 64, 32, 32, 3, true>(type, s);
    }
    for (const Size& s : wide) {
        failed += run<T, 128, 128, 64, 32, 3, false>(type, s) + run<T, 128, 128, 64, 64, 3, true>(type, s) +
                  run<T, 128, 256, 64, 64, 4, true>(type, s);
    }
    return failed;
}

}  // namespace

int main() {
    // 1, odd, edges of a chunk and of a tile; as many steps as wrap the ring of stages
    const std::vector<Size> small{{1, 1, 1}, {1, 8, 8}, {17, 33, 65}, {65, 72, 24}, {31, 64, 200}};
    const int failed = run_all<gm::bfloat16>("bfloat16", small, {{70, 72, 200}, {130, 264, 24}}) +
                       run_all<gm::half>("half", {{17, 33, 65}, {65, 72, 24}}, {}) +
                       run_all<gm::tf32>("tf32", small, {{70, 68, 100}, {130, 260, 20}});
    std::printf("gemm_mma: %d failed\n", failed);
    return failed != 0;
}
