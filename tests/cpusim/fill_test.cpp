// Without arguments: device fills equal the CPU's. With a folder: writes what fills and conversions give there, for
// tests/test_cpusim.py to compare with NumPy's.
#include "kernels/fill.cuh"

#include <string>

#include "cpu/random.hpp"
#include "testing.hpp"

using cusim::Array;

namespace {

constexpr unsigned long long kSeed = 0x67756D69, kOperand = 2;

template <class T>
void same_as_the_cpu(long long n, unsigned grid) {
    Array<T> a(n);
    cusim::launch({grid, gm::kFillBlock}, gm::fill_uniform<T>, a.data(), kSeed, kOperand, n);
    const gm::cpu::Stream stream(kSeed, kOperand);
    bool same = true;
    for (long long i = 0; i < n; ++i) same = same && a[i] == stream.uniform<T>(i);
    CHECK(same);
}

template <class T>
void save(const std::string& path, const std::vector<T>& values) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) std::abort();
    if (!values.empty()) std::fwrite(values.data(), sizeof(T), values.size(), file);
    std::fclose(file);
}

// All float patterns in steps of a prime, and each conversion of them; all patterns of the type, widened.
template <class T>
void dump(const std::string& folder, const std::string& name, unsigned patterns) {
    Array<T> a(10007);
    cusim::launch({3, gm::kFillBlock}, gm::fill_uniform<T>, a.data(), kSeed, kOperand, a.size());
    save(folder + "/" + name + ".fill", std::vector<T>(a.data(), a.data() + a.size()));
    std::vector<float> inputs, wide;
    std::vector<T> narrow;
    for (unsigned long long bits = 0; bits < 1ULL << 32; bits += 32771) {
        inputs.push_back(__uint_as_float(static_cast<unsigned>(bits)));
        narrow.push_back(gm::Convert<T>::from(inputs.back()));
    }
    for (unsigned bits = 0; bits < patterns; ++bits) {
        inputs.push_back(gm::Convert<T>::to(T{static_cast<decltype(T::bits)>(bits)}));  // exact
        wide.push_back(inputs.back());
        narrow.push_back(gm::Convert<T>::from(inputs.back()));
    }
    for (unsigned bits = 0; bits + 1 < patterns; ++bits) {  // ties between neighbours
        const float tie = 0.5F * (wide[bits] + wide[bits + 1]);
        inputs.push_back(tie);
        narrow.push_back(gm::Convert<T>::from(tie));
    }
    save(folder + "/" + name + ".inputs", inputs);
    save(folder + "/" + name + ".narrow", narrow);
    save(folder + "/" + name + ".wide", wide);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1) {
        dump<gm::half>(argv[1], "float16", 65536);
        dump<gm::bfloat16>(argv[1], "bfloat16", 65536);
        dump<gm::e4m3>(argv[1], "float8_e4m3fn", 256);
        dump<gm::e5m2>(argv[1], "float8_e5m2", 256);
        dump<gm::tf32>(argv[1], "tf32", 0);
        return 0;
    }
    for (long long n : {0, 1, 31, 33, 5003}) {
        for (unsigned grid : {1U, 3U}) {
            if (cusim::kThreads && n * grid != 99) continue;
            same_as_the_cpu<float>(n, grid);
            same_as_the_cpu<double>(n, grid);
        }
    }
    if (!cusim::kThreads) same_as_the_cpu<float>(1000003, 5);
    return cusim::report();
}
