#include "cuda/registry.hpp"
#include "kernels/peak_tcgen05.cuh"

GM_REGISTER(peak_tcgen05, GM_PEAK_TCGEN05_TABLE)
