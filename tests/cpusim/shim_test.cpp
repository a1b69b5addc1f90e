// The simulation itself: what it gives to kernels must be what CUDA gives.
#include "kernels/ptx.cuh"
#include "testing.hpp"

namespace {

__global__ void shuffles(int* out) {
    const int l = static_cast<int>(threadIdx.x % 32);
    int* const mine = out + threadIdx.x * 8;
    mine[0] = __shfl_sync(~0U, l, 5);
    mine[1] = __shfl_down_sync(~0U, l, 3);
    mine[2] = __shfl_up_sync(~0U, l, 3);
    mine[3] = __shfl_xor_sync(~0U, l, 7);
    mine[4] = __shfl_sync(~0U, l, 9, 8);
    mine[5] = static_cast<int>(__ballot_sync(~0U, l % 3 == 0));
    mine[6] = __any_sync(~0U, l == 31);
    mine[7] = -1;
    if (l < 16) mine[7] = __shfl_xor_sync(0xffffU, l, 1);  // half of the warp alone
}

void test_shuffles() {
    cusim::Array<int> out(64 * 8);
    cusim::launch({1, 64}, shuffles, out.data());
    unsigned thirds = 0;
    for (int l = 0; l < 32; l += 3) thirds |= 1U << l;
    for (int t = 0; t < 64; ++t) {
        const int l = t % 32, *o = out.data() + t * 8;
        CHECK(o[0] == 5 && o[1] == (l + 3 < 32 ? l + 3 : l) && o[2] == (l >= 3 ? l - 3 : l) && o[3] == (l ^ 7));
        CHECK(o[4] == l / 8 * 8 + 1 && o[5] == static_cast<int>(thirds) && o[6] == 1);
        CHECK(o[7] == (l < 16 ? (l ^ 1) : -1));
    }
}

// Threads that have ended are no longer waited for; blocks have their own shared memory, poisoned at their start.
__global__ void early_end(unsigned* out, unsigned n) {
    GM_DYNAMIC_SHARED(unsigned, words);
    const unsigned before = words[threadIdx.x];
    __syncthreads();
    words[threadIdx.x] = threadIdx.x;
    if (threadIdx.x >= n) return;
    __syncthreads();
    out[blockIdx.x * n + threadIdx.x] = before + 1 + words[n - 1 - threadIdx.x];
}

void test_early_end() {
    cusim::Array<unsigned> out(2 * 40);
    cusim::launch({2, 96, 96 * 4}, early_end, out.data(), 40U);
    for (unsigned i = 0; i < 80; ++i) CHECK(out[i] == 39 - i % 40);
}

__global__ void indices(unsigned* out) {
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 100 + thread;
}

void test_indices() {
    cusim::Array<unsigned> out(2 * 3 * 4 * 24);
    cusim::launch({dim3(2, 3, 4), dim3(4, 3, 2)}, indices, out.data());
    for (unsigned i = 0; i < out.size(); ++i) CHECK(out[i] == i / 24 * 100 + i % 24);
}

// What was copied is seen after the wait for its group and not before.
__global__ void copies(const float* from, float* out) {
    __shared__ __align__(16) float to[3][4 * 32];
    const unsigned t = threadIdx.x;
    for (int stage = 0; stage < 2; ++stage) {
        cusim::cp_async(&to[stage][4 * t], from + stage * 128 + 4 * t, 16, 16);
        cusim::cp_async_commit();
    }
    cusim::cp_async(&to[2][4 * t], from + 4 * t, 16, 8);  // the second half becomes zero
    cusim::cp_async_commit();
    cusim::cp_async_wait(2);
    __syncthreads();
    out[t] = to[0][127 - 4 * t];
    out[32 + t] = to[1][127 - 4 * t];
    __syncthreads();  // else a quick lane's wait would be seen by a slow one
    cusim::cp_async_wait(0);
    __syncthreads();
    out[64 + t] = to[1][127 - 4 * t];
    out[96 + t] = to[2][4 * t + 1] + to[2][4 * t + 2];
}

void test_copies() {
    cusim::Array<float> from(256), out(128);
    for (int i = 0; i < 256; ++i) from[i] = static_cast<float>(i);
    cusim::launch({1, 32}, copies, static_cast<const float*>(from.data()), out.data());
    for (int t = 0; t < 32; ++t) {
        CHECK(out[t] == 127 - 4 * t && std::isnan(out[32 + t]));
        CHECK(out[64 + t] == 255 - 4 * t && out[96 + t] == 4 * t + 1);
    }
}

struct Fragment {
    unsigned a[4];
    double b;
};

__global__ void views(double* out) {
    const Fragment mine{{threadIdx.x, 1, 2, 3}, 0.5};
    double sum = 0;
    {
        const cusim::WarpView<Fragment> lanes(mine);
        for (unsigned l = 0; l < 32; ++l) sum += lanes[l].a[0] + lanes[l].b;
    }
    out[threadIdx.x] = sum;
}

void test_views() {
    cusim::Array<double> out(64);
    cusim::launch({1, 64}, views, out.data());
    for (int t = 0; t < 64; ++t) CHECK(out[t] == (t < 32 ? 496 + 16 : 1520 + 16));
}

__global__ void additions(int* ints, double* doubles, unsigned long long* clock) {
    atomicAdd(ints, 2);
    atomicMax(ints + 1, static_cast<int>(threadIdx.x));
    atomicAdd(doubles, 0.5);
    clock[threadIdx.x] = gm::cycles();
    clock[threadIdx.x] = gm::cycles() - clock[threadIdx.x];
}

void test_additions() {
    cusim::Array<int> ints(2);
    cusim::Array<double> doubles(1);
    cusim::Array<unsigned long long> clock(64);
    ints[0] = ints[1] = 0;
    doubles[0] = 0;
    cusim::launch({1, 64}, additions, ints.data(), doubles.data(), clock.data());
    CHECK(ints[0] == 128 && ints[1] == 63 && doubles[0] == 32);
    for (int t = 0; t < 64; ++t) CHECK(clock[t] > 0);
    CHECK(__dp4a(0x01ff0280, 0x02030405, 7) == 1 * 2 - 1 * 3 + 2 * 4 - 128 * 5 + 7);
}

}  // namespace

int main() {
    test_shuffles();
    test_early_end();
    test_indices();
    test_copies();
    test_views();
    test_additions();
    return cusim::report();
}
