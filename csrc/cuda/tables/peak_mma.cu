#include "cuda/registry.hpp"
#include "kernels/peak_mma.cuh"

GM_REGISTER(peak_mma, GM_PEAK_MMA_TABLE)
