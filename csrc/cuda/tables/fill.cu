#include "cuda/registry.hpp"
#include "kernels/fill.cuh"
GM_REGISTER(fill, GM_FILL_TABLE)
