#include "kernels/peak_wgmma.cuh"

#include "cuda/registry.hpp"

GM_REGISTER(peak_wgmma, GM_PEAK_WGMMA_TABLE)
