#include "kernels/spin.cuh"
#include "cuda/registry.hpp"
GM_REGISTER(spin, GM_SPIN_TABLE)
