#include "cuda/registry.hpp"
#include "kernels/gemm_wgmma.cuh"
GM_REGISTER(gemm_wgmma, GM_GEMM_WGMMA_TABLE)
