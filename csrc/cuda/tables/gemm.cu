#include "kernels/gemm.cuh"
#include "cuda/registry.hpp"
GM_REGISTER(gemm, GM_GEMM_TABLE)
