#include "kernels/atomics.cuh"
#include "cuda/registry.hpp"
GM_REGISTER(atomics, GM_ATOMICS_TABLE)
