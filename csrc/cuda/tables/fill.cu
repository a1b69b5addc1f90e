#include "kernels/fill.cuh"
#include "cuda/registry.hpp"
GM_REGISTER(fill, GM_FILL_TABLE)
