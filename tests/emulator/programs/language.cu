// What CUDA C++ brings with it beyond single instructions, as nvcc compiles it: each check prints a line "name ok" or
// "name WRONG". Built against the double of the runtime and run on it.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                 \
    do {                                                            \
        const cudaError_t code = (call);                            \
        if (code != cudaSuccess) {                                  \
            std::printf("%s: %s\n", #call, cudaGetErrorName(code)); \
            std::exit(1);                                           \
        }                                                           \
    } while (false)

namespace {
void report(const char* name, bool ok) { std::printf("%s %s\n", name, ok ? "ok" : "WRONG"); }

// Device memory that the host reads and writes.
template <class T>
struct Shared {
    explicit Shared(std::size_t n) : size(n) { CHECK(cudaMallocManaged(&data, n * sizeof(T))); }
    ~Shared() { cudaFree(data); }
    T& operator[](std::size_t i) { return data[i]; }
    T* data = nullptr;
    std::size_t size;
};

__constant__ float weights[4] = {1, 2, 3, 4};
__device__ int counter = 40;

__global__ void symbols(float* out) {
    out[threadIdx.x] = weights[threadIdx.x & 3];
    if (threadIdx.x == 0) atomicAdd(&counter, 2);
}

void check_symbols() {
    Shared<float> out(8);
    symbols<<<1, 8>>>(out.data);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    int found = 0;
    CHECK(cudaMemcpyFromSymbol(&found, counter, sizeof found));
    const float other[4] = {10, 20, 30, 40};
    bool ok = found == 42 && out[6] == 3;
    CHECK(cudaMemcpyToSymbol(weights, other, sizeof other));
    symbols<<<1, 8>>>(out.data);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    report("symbols", ok && out[6] == 30);
}

__device__ __noinline__ double polynomial(const double* coefficients, int n, double x) {
    double sum = 0;
    for (int i = n - 1; i >= 0; --i) sum = sum * x + coefficients[i];
    return sum;
}

__global__ void functions(double* out, int n) {
    double local[8];
    for (int i = 0; i < 8; ++i) local[i] = i + threadIdx.x % 3;
    local[(n + threadIdx.x) & 7] += 100;  // a place that only the run knows: local memory
    out[threadIdx.x] = threadIdx.x % 2 ? polynomial(local, n, 0.5) : polynomial(local + 1, n - 1, 2.0);
}

double expected_polynomial(int thread, int n) {
    double local[8], sum = 0;
    for (int i = 0; i < 8; ++i) local[i] = i + thread % 3;
    local[(n + thread) & 7] += 100;
    const double* from = thread % 2 ? local : local + 1;
    for (int i = (thread % 2 ? n : n - 1) - 1; i >= 0; --i) sum = sum * (thread % 2 ? 0.5 : 2.0) + from[i];
    return sum;
}

void check_functions() {
    Shared<double> out(70);
    functions<<<1, 70>>>(out.data, 7);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    bool ok = true;
    for (int i = 0; i < 70; ++i) ok = ok && std::fabs(out[i] - expected_polynomial(i, 7)) < 1e-9 * std::fabs(out[i]);
    report("functions", ok);
}

__global__ void choices(int* out) {
    int value = out[threadIdx.x];
    switch (value % 9) {
        case 0:
            value = 5;
            break;
        case 1:
            value *= 3;
            [[fallthrough]];
        case 2:
            value += 7;
            break;
        case 3:
            value = -value;
            break;
        case 4:
            value <<= 2;
            break;
        case 5:
            value ^= 0x55;
            break;
        case 6:
            value /= 3;
            break;
        default:
            value = value * value % 1001;
    }
    out[threadIdx.x] = value;
}

int chosen(int value) {
    switch (value % 9) {
        case 0:
            return 5;
        case 1:
            return value * 3 + 7;
        case 2:
            return value + 7;
        case 3:
            return -value;
        case 4:
            return value << 2;
        case 5:
            return value ^ 0x55;
        case 6:
            return value / 3;
        default:
            return value * value % 1001;
    }
}

void check_choices() {
    Shared<int> out(128);
    for (int i = 0; i < 128; ++i) out[i] = i * 7;
    choices<<<1, 128>>>(out.data);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    bool ok = true;
    for (int i = 0; i < 128; ++i) ok = ok && out[i] == chosen(i * 7);
    report("choices", ok);
}

__global__ void grid_barrier(int* values, int* out) {
    const auto grid = cooperative_groups::this_grid();
    const int i = static_cast<int>(grid.thread_rank()), n = static_cast<int>(grid.size());
    for (int turn = 0; turn < 3; ++turn) {
        values[i] = i * (turn + 1);
        grid.sync();
        out[i] = values[n - 1 - i];
        grid.sync();
    }
}

void check_grid_barrier() {
    Shared<int> values(1024), out(1024);
    void* arguments[] = {&values.data, &out.data};
    CHECK(
        cudaLaunchCooperativeKernel(reinterpret_cast<void*>(grid_barrier), dim3(4), dim3(256), arguments, 0, nullptr));
    CHECK(cudaDeviceSynchronize());
    bool ok = true;
    for (int i = 0; i < 1024; ++i) ok = ok && out[i] == 3 * (1023 - i);
    const cudaError_t code = cudaLaunchCooperativeKernel(reinterpret_cast<void*>(grid_barrier), dim3(4096), dim3(256),
                                                         arguments, 0, nullptr);
    report("grid barrier", ok && code == cudaErrorCooperativeLaunchTooLarge);
    (void)cudaGetLastError();
}

__global__ void fragments(const half* a, const half* b, float* c, int n) {
    namespace wmma = nvcuda::wmma;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 1.0f);
    for (int k = 0; k < n; k += 16) {
        wmma::load_matrix_sync(fa, a + blockIdx.y * 16 * n + k, n);
        wmma::load_matrix_sync(fb, b + blockIdx.x * 16 * n + k, n);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    wmma::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, fc, n, wmma::mem_row_major);
}

void check_fragments() {
    constexpr int n = 32;
    Shared<half> a(n * n), b(n * n);
    Shared<float> c(n * n);
    for (int i = 0; i < n * n; ++i) {
        a[i] = __float2half(static_cast<float>(i * 7 % 13 - 6) / 4);
        b[i] = __float2half(static_cast<float>(i * 5 % 11 - 5) / 2);
    }
    fragments<<<dim3(n / 16, n / 16), 32>>>(a.data, b.data, c.data, n);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    bool ok = true;
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) {
            float sum = 1;
            for (int k = 0; k < n; ++k) sum += __half2float(a[i * n + k]) * __half2float(b[j * n + k]);
            ok = ok && c[i * n + j] == sum;
        }
    }
    report("fragments", ok);
}

template <int Threads>
__global__ void block_sum(const float4* in, double* out) {
    extern __shared__ double sums[];
    __shared__ float4 staged[Threads];
    __pipeline_memcpy_async(&staged[threadIdx.x], &in[blockIdx.x * Threads + threadIdx.x], sizeof(float4));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    const float4 mine = staged[Threads - 1 - threadIdx.x];
    sums[threadIdx.x] = static_cast<double>(mine.x) + mine.y + mine.z + mine.w;
    __syncthreads();
    for (int step = Threads / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

void check_block_sum() {
    Shared<float> in(3 * 128 * 4);
    Shared<double> out(3);
    for (std::size_t i = 0; i < in.size; ++i) in[i] = static_cast<float>(i % 1000) * 0.25f;
    block_sum<128><<<3, 128, 128 * sizeof(double)>>>(reinterpret_cast<float4*>(in.data), out.data);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    bool ok = true;
    for (int block = 0; block < 3; ++block) {
        double sum = 0;
        for (int i = 0; i < 512; ++i) sum += in[static_cast<std::size_t>(block * 512 + i)];
        ok = ok && out[static_cast<std::size_t>(block)] == sum;
    }
    report("block sum", ok);
}

__global__ void mathematics(float* out) {
    const float x = out[threadIdx.x];
    const half2 h = __hfma2(__float2half2_rn(x), __float2half2_rn(2.0f), __float2half2_rn(1.0f));
    out[threadIdx.x] = sinf(x) + expf(x) * logf(x + 1) + sqrtf(x) / (x + 2) + powf(x, 1.5f) + __low2float(h) +
                       static_cast<float>(erf(static_cast<double>(x)));
}

void check_mathematics() {
    Shared<float> out(64);
    for (int i = 0; i < 64; ++i) out[i] = static_cast<float>(i) / 16;
    mathematics<<<1, 64>>>(out.data);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    bool ok = true;
    for (int i = 0; i < 64; ++i) {
        const double x = i / 16.0;
        const double wanted = std::sin(x) + std::exp(x) * std::log(x + 1) + std::sqrt(x) / (x + 2) + std::pow(x, 1.5) +
                              2 * x + 1 + std::erf(x);
        ok = ok && std::fabs(out[i] - wanted) < 1e-5 * (1 + std::fabs(wanted));
    }
    report("mathematics", ok);
}
}  // namespace

int main() {
    check_symbols();
    check_functions();
    check_choices();
    check_grid_barrier();
    check_fragments();
    check_block_sum();
    check_mathematics();
    return 0;
}
