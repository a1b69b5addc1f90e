#include "kernels/stream.cuh"
#include "cuda/registry.hpp"
GM_REGISTER(stream, GM_STREAM_TABLE)
