#include "cuda/registry.hpp"
#include "kernels/atomics.cuh"
GM_REGISTER(atomics, GM_ATOMICS_TABLE)
