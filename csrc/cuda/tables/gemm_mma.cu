#include "kernels/gemm_mma.cuh"
#include "cuda/registry.hpp"
GM_REGISTER(gemm_mma, GM_GEMM_MMA_TABLE)
