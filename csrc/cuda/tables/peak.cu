#include "kernels/peak.cuh"

#include "cuda/registry.hpp"

GM_REGISTER(peak, GM_PEAK_TABLE)
