#include "cuda/registry.hpp"
#include "kernels/cache.cuh"
GM_REGISTER(cache, GM_CACHE_TABLE)
