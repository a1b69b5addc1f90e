#include "kernels/peak_tcgen05.cuh"

#include "cuda/registry.hpp"

GM_REGISTER(peak_tcgen05, GM_PEAK_TCGEN05_TABLE)
