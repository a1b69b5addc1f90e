#include "cuda/registry.hpp"
#include "kernels/gemm.cuh"
GM_REGISTER(gemm, GM_GEMM_TABLE)
