// The CPU model of every mma.sync against a triple loop over matrices whose fragments are laid out here by the text of
// the PTX ISA, and the kernels built on them. With arguments: as peak_test.cpp.
#include "kernels/peak_mma.cuh"

#include "peak_files.hpp"
#include "testing.hpp"

using cusim::Array;

namespace {

// Matrices of small whole numbers, and what a warp made of them.
struct Matrices {
    int m, n, k;
    std::vector<int> a, b;  // a: m x k, b: k x n
    Matrices(int rows, int columns, int depth)
        : m(rows), n(columns), k(depth), a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n)) {
        std::mt19937 random(static_cast<unsigned>(m * n * k));
        for (int& x : a) x = static_cast<int>(random() % 15) - 7;
        for (int& x : b) x = static_cast<int>(random() % 15) - 7;
    }
    int left(int row, int column) const { return a[static_cast<std::size_t>(row * k + column)]; }
    int right(int row, int column) const { return b[static_cast<std::size_t>(row * n + column)]; }
    int product(int row, int column) const {
        int sum = 100 * row + column;  // the accumulators start at this
        for (int i = 0; i < k; ++i) sum += left(row, i) * right(i, column);
        return sum;
    }
};

template <class T>
unsigned bits(int value) {
    if constexpr (std::is_same<T, signed char>::value) {
        return static_cast<unsigned char>(value);
    } else {
        return gm::Convert<T>::from(static_cast<float>(value)).bits;
    }
}

// 9.7.14.5.8 (16-bit), .6 (tf32) and .10 (8-bit): element i of a lane's a is in row g or g + 8 and, from half the
// elements on, k / 2 further right; elements of a register are neighbours along k.
template <class T>
void fragments(const Matrices& x, int lane, unsigned (&a)[4], unsigned (&b)[2]) {
    constexpr int kBits = std::is_same<T, gm::tf32>::value ? 32 : static_cast<int>(8 * sizeof(T));
    constexpr int kEach = 32 / kBits;
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
        a[i] = 0;
        for (int e = 0; e < kEach; ++e) {
            const int row = i == 0 || i == 2 ? g : g + 8, column = t * kEach + e + (i < 2 ? 0 : x.k / 2);
            a[i] |= bits<T>(x.left(row, column)) << (e * kBits);
        }
    }
    for (int i = 0; i < 2; ++i) {
        b[i] = 0;
        for (int e = 0; e < kEach; ++e) b[i] |= bits<T>(x.right(t * kEach + e + i * x.k / 2, g)) << (e * kBits);
    }
}

const Matrices* shared = nullptr;
double* result = nullptr;  // m x n

template <class T, class Sum, void (*Product)(Sum (&)[4], const unsigned (&)[4], const unsigned (&)[2])>
void warp_of_words() {
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    unsigned a[4], b[2];
    fragments<T>(*shared, lane, a, b);
    Sum d[4];
    for (int i = 0; i < 4; ++i) d[i] = static_cast<Sum>(100 * (i < 2 ? g : g + 8) + 2 * t + i % 2);
    Product(d, a, b);
    for (int i = 0; i < 4; ++i) result[(i < 2 ? g : g + 8) * 8 + 2 * t + i % 2] = static_cast<double>(d[i]);
}

void warp_of_half_sums() {
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    unsigned a[4], b[2], d[2];
    fragments<gm::half>(*shared, lane, a, b);
    for (int i = 0; i < 2; ++i) {
        d[i] = bits<gm::half>(100 * (g + 8 * i) + 2 * t) | bits<gm::half>(100 * (g + 8 * i) + 2 * t + 1) << 16;
    }
    gm::mma_m16n8k16_f16_f16(d, a, b);
    for (int i = 0; i < 4; ++i) {
        const gm::half x{static_cast<unsigned short>(d[i / 2] >> 16 * (i % 2))};
        result[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = static_cast<double>(gm::Convert<gm::half>::to(x));
    }
}

void warp_of_small_doubles() {  // 9.7.14.5.2: a and b are one element, in row and column g
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    const double a[1] = {static_cast<double>(shared->left(g, t))}, b[1] = {static_cast<double>(shared->right(t, g))};
    double d[2] = {100.0 * g + 2 * t, 100.0 * g + 2 * t + 1};
    gm::mma_m8n8k4_f64(d, a, b);
    for (int i = 0; i < 2; ++i) result[g * 8 + 2 * t + i] = d[i];
}

void warp_of_doubles() {  // 9.7.14.5.8 for f64: element i of a is in row g or g + 8, column t + 4 (i / 2)
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    double a[8], b[4], d[4];
    for (int i = 0; i < 8; ++i) a[i] = shared->left(i % 2 == 0 ? g : g + 8, i % 2 == 0 ? i * 2 + t : i * 2 - 2 + t);
    for (int i = 0; i < 4; ++i) b[i] = shared->right(t + i * 4, g);
    for (int i = 0; i < 4; ++i) d[i] = 100.0 * (i < 2 ? g : g + 8) + 2 * t + i % 2;
    gm::mma_m16n8k16_f64(d, a, b);
    for (int i = 0; i < 4; ++i) result[(i < 2 ? g : g + 8) * 8 + 2 * t + i % 2] = d[i];
}

void expect(int m, int k, void (*warp)(), int largest = 1 << 30) {
    const Matrices x(m, 8, k);
    std::vector<double> made(static_cast<std::size_t>(m * 8), -1);
    shared = &x;
    result = made.data();
    cusim::launch({1, 32}, warp);
    bool same = true;
    for (int i = 0; i < m * 8; ++i) {
        const double exact = x.product(i / 8, i % 8), got = made[static_cast<std::size_t>(i)];
        same = same && (std::fabs(exact) < largest ? got == exact : std::fabs(got - exact) <= std::fabs(exact) / 2048);
    }
    CHECK(same);
}

template <class T, class Sum>
int one(const cusim::PeakFiles& files) {
    using M = gm::Mma<T, Sum>;
    return files.run<typename M::Word, typename M::Out>(gm::mma_peak<T, Sum>, gm::kPeakThreads);
}

int run(const std::string& kernel, const cusim::PeakFiles& files) {
    if (kernel == "gm::mma_peak<gm::half, float>") return one<gm::half, float>(files);
    if (kernel == "gm::mma_peak<gm::half, gm::half>") return one<gm::half, gm::half>(files);
    if (kernel == "gm::mma_peak<gm::bfloat16, float>") return one<gm::bfloat16, float>(files);
    if (kernel == "gm::mma_peak<gm::tf32, float>") return one<gm::tf32, float>(files);
    if (kernel == "gm::mma_peak<gm::e4m3, float>") return one<gm::e4m3, float>(files);
    if (kernel == "gm::mma_peak<signed char, int>") return one<signed char, int>(files);
    if (kernel == "gm::mma_peak<double, double>") return one<double, double>(files);
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 6) return run(argv[1], {std::stoul(argv[2]), std::stoll(argv[3]), argv[4], argv[5]});
    expect(16, 16, warp_of_words<gm::half, float, gm::mma_m16n8k16_f16>);
    expect(16, 16, warp_of_words<gm::bfloat16, float, gm::mma_m16n8k16_bf16>);
    expect(16, 8, warp_of_words<gm::tf32, float, gm::mma_m16n8k8_tf32>);
    expect(16, 32, warp_of_words<gm::e4m3, float, gm::mma_m16n8k32_e4m3>);
    expect(16, 32, warp_of_words<signed char, int, gm::mma_m16n8k32_s8>);
    expect(16, 16, warp_of_half_sums, 2048);
    expect(8, 4, warp_of_small_doubles);
    expect(16, 16, warp_of_doubles);
    return cusim::report();
}
