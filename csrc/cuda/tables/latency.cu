#include "kernels/latency.cuh"
#include "cuda/registry.hpp"
GM_REGISTER(latency, GM_LATENCY_TABLE)
