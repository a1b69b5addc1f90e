#include "cuda/registry.hpp"
#include "kernels/stream.cuh"
GM_REGISTER(stream, GM_STREAM_TABLE)
