#include "cuda/registry.hpp"
#include "kernels/latency.cuh"
GM_REGISTER(latency, GM_LATENCY_TABLE)
