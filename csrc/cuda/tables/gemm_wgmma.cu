#include "kernels/gemm_wgmma.cuh"
#include "cuda/registry.hpp"
GM_REGISTER(gemm_wgmma, GM_GEMM_WGMMA_TABLE)
