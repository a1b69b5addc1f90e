#include "cuda/registry.hpp"
#include "kernels/peak_wgmma.cuh"

GM_REGISTER(peak_wgmma, GM_PEAK_WGMMA_TABLE)
