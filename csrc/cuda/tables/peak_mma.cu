#include "kernels/peak_mma.cuh"

#include "cuda/registry.hpp"

GM_REGISTER(peak_mma, GM_PEAK_MMA_TABLE)
