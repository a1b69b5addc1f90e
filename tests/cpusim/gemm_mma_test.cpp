// csrc/kernels/gemm_mma.cuh on the CPU, through the bodies that ptx_async.cuh and ptx_mma.cuh have for it: copies are
// carried out at their waits and fragments travel between lanes as the PTX ISA lays them out.
#include "kernels/gemm_mma.cuh"

#include "gemm_cases.hpp"

using gemm_cases::Size;

namespace {

template <class T, int BM, int BN, int WM, int WN, int Stages, bool aligned>
void run(const Size& s) {
    using Tile = gm::MmaTile<T, BM, BN, WM, WN, Stages>;
    using P = gm::Product<T>;
    char name[64];
    std::snprintf(name, sizeof name, "gemm_mma<%d bytes, %d, %d, aligned %d>", Tile::size, BM, BN, aligned);
    gemm_cases::check_product<T, P>(name, s, [&](P* c, const T* a, const T* b) {
        cusim::launch({gemm_cases::blocks(s, BM, BN), Tile::threads, Tile::stages * Tile::stage_bytes},
                      gm::gemm_mma<T, BM, BN, WM, WN, Stages, aligned>, c, a, b, s.m, s.n, s.k);
    });
}

template <class T>
void run_small(const std::vector<Size>& sizes) {
    constexpr int chunk = 16 / sizeof(T);
    for (const Size& s : sizes) {
        run<T, 64, 64, 32, 32, 3, false>(s);
        if (s.n % chunk == 0 && s.k % chunk == 0) run<T, 64, 64, 32, 32, 3, true>(s);
    }
}

// The wide tiles, which take the simulation long.
template <class T>
void run_wide(const std::vector<Size>& sizes) {
    for (const Size& s : sizes) {
        run<T, 128, 128, 64, 32, 3, false>(s);
        run<T, 128, 128, 64, 64, 3, true>(s);
        run<T, 128, 256, 64, 64, 4, true>(s);
    }
}

}  // namespace

int main() {
    if (cusim::kThreads) {  // the ring of stages, once around
        run_small<gm::bfloat16>({{17, 33, 65}, {20, 40, 136}});
        run_small<gm::tf32>({{20, 36, 68}});
        run<gm::bfloat16, 128, 256, 64, 64, 4, true>({9, 16, 168});
        return cusim::report();
    }
    // 1, odd, edges of a chunk and of a tile; as many steps as wrap the ring of stages
    const std::vector<Size> sizes{{1, 1, 1}, {1, 8, 8}, {17, 33, 65}, {65, 72, 24}, {31, 64, 200}};
    run_small<gm::bfloat16>(sizes);
    run_small<gm::half>({{17, 33, 65}, {65, 72, 24}});
    run_small<gm::tf32>(sizes);
    run_wide<gm::bfloat16>({{70, 72, 200}, {130, 264, 24}});
    run_wide<gm::tf32>({{70, 68, 100}});
    return cusim::report();
}
