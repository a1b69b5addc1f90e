#include "cuda/registry.hpp"
#include "kernels/spin.cuh"
GM_REGISTER(spin, GM_SPIN_TABLE)
