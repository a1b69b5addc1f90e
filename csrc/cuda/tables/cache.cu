#include "kernels/cache.cuh"
#include "cuda/registry.hpp"
GM_REGISTER(cache, GM_CACHE_TABLE)
