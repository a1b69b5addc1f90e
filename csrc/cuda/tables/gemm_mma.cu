#include "cuda/registry.hpp"
#include "kernels/gemm_mma.cuh"
GM_REGISTER(gemm_mma, GM_GEMM_MMA_TABLE)
