#include "cuda/registry.hpp"
#include "kernels/peak.cuh"

GM_REGISTER(peak, GM_PEAK_TABLE)
