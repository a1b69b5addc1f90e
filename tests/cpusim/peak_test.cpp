// The peak kernels of the vector units against a loop over each chain. With arguments (kernel, blocks, steps, a file of
// seeds, a file for the sums): runs one, for tests/test_peak_gpu.py to hold against the closed forms of the catalogue.
#include "kernels/peak.cuh"

#include "peak_files.hpp"
#include "testing.hpp"

using cusim::Array;

namespace {

constexpr unsigned kBlocks = 3;

template <class T>
T element(unsigned word, int part) {
    return T{static_cast<decltype(T::bits)>(word >> (16 * part))};
}

// Thread `thread`'s i-th seed.
template <class W>
W taken(const Array<W>& seeds, unsigned thread, int i) {
    return seeds[(thread + 32U * static_cast<unsigned>(i)) % gm::kSeedWords];
}

// Its i-th pair: x(0) and b of a chain, or the multiplier and a word not used.
template <class W>
W paired(const Array<W>& seeds, unsigned thread, int i, int part) {
    return seeds[(thread + 32U * static_cast<unsigned>(i)) % (gm::kSeedWords / 2) * 2 + static_cast<unsigned>(part)];
}

template <class T>
T bounded(T x) {
    return std::fmin(T(0.875), std::fmax(T(-0.875), x / 4));
}

// float and double: the same roundings one by one, and the sums in the same order, so the results are equal.
template <class T>
void floats(int steps) {
    constexpr int kCount = gm::Chains<T>::kCount;
    Array<T> seeds(gm::kSeedWords), out(kBlocks * gm::kPeakThreads);
    seeds.fill_random(1);
    cusim::launch({kBlocks, gm::kPeakThreads}, gm::fma_peak<T>, seeds.data(), out.data(), gm::index{steps});
    bool same = true;
    for (unsigned thread = 0; thread < out.size(); ++thread) {
        const T a = bounded(paired(seeds, thread, 0, 0));
        T sum = 0;
        for (int c = 0; c < kCount; ++c) {
            T x = paired(seeds, thread, 1 + c, 0);
            const T b = paired(seeds, thread, 1 + c, 1);
            for (int i = 0; i < steps * gm::kUnroll; ++i) x = std::fma(i % 2 == 0 ? a : -a, x, b);
            sum = c == 0 ? x : sum + x;
        }
        same = same && out[thread] == sum;
    }
    CHECK(same);
}

// Halves: each step rounded to the format by another way than the kernel's, from the exact value in long double.
template <class T>
void halves(int steps) {
    constexpr int kCount = gm::Chains<gm::pair<T>>::kCount;
    Array<gm::pair<T>> seeds(gm::kSeedWords);
    Array<float> out(kBlocks * gm::kPeakThreads), numbers(2 * gm::kSeedWords);
    numbers.fill_random(2);
    for (unsigned i = 0; i < gm::kSeedWords; ++i) {
        seeds[i].bits =
            gm::Convert<T>::from(numbers[2 * i]).bits | unsigned{gm::Convert<T>::from(numbers[2 * i + 1]).bits} << 16;
    }
    cusim::launch({kBlocks, gm::kPeakThreads}, gm::fma_peak<gm::pair<T>>, seeds.data(), out.data(), gm::index{steps});
    const auto value = [](gm::pair<T> word, int part) { return gm::Convert<T>::to(element<T>(word.bits, part)); };
    float worst = 0;
    for (unsigned thread = 0; thread < out.size(); ++thread) {
        double sum = 0;
        for (int part = 0; part < 2; ++part) {
            const float a = gm::Convert<T>::to(gm::Convert<T>::from(bounded(value(paired(seeds, thread, 0, 0), part))));
            for (int c = 0; c < kCount; ++c) {
                float x = value(paired(seeds, thread, 1 + c, 0), part);
                const float b = value(paired(seeds, thread, 1 + c, 1), part);
                for (int i = 0; i < steps * gm::kUnroll; ++i) {
                    x = gm::Convert<T>::to(gm::Convert<T>::from((i % 2 == 0 ? a : -a) * x + b));
                }
                sum += static_cast<double>(x);
            }
        }
        worst = std::fmax(worst, std::fabs(out[thread] - static_cast<float>(sum)));
    }
    CHECK(worst < 0.02F);  // a double rounding here and there: a few units in the last place of one chain
}

void integers(int steps) {
    constexpr int kCount = gm::Chains<int>::kCount;
    Array<int> seeds(gm::kSeedWords), out(kBlocks * gm::kPeakThreads);
    std::mt19937 random(3);
    for (unsigned i = 0; i < gm::kSeedWords; ++i) seeds[i] = static_cast<int>(random());
    seeds[5] = 0;
    cusim::launch({kBlocks, gm::kPeakThreads}, gm::fma_peak<int>, seeds.data(), out.data(), gm::index{steps});
    bool same = true;
    for (unsigned thread = 0; thread < out.size(); ++thread) {
        const auto word = [&](int i, int part) { return static_cast<unsigned>(paired(seeds, thread, i, part)); };
        const unsigned a = word(0, 0) | (word(0, 0) != 0 ? 1U : 0U);
        unsigned sum = 0;
        for (int c = 0; c < kCount; ++c) {
            unsigned x = word(1 + c, 0);
            for (int i = 0; i < steps * gm::kUnroll; ++i) x = (i % 2 == 0 ? a : 0U - a) * x + word(1 + c, 1);
            sum += x;
        }
        same = same && static_cast<unsigned>(out[thread]) == sum;
    }
    CHECK(same);

    cusim::launch({kBlocks, gm::kPeakThreads}, gm::dot_peak<signed char>, seeds.data(), out.data(), gm::index{steps});
    for (unsigned thread = 0; thread < out.size(); ++thread) {
        long long sum = 0;
        for (int c = 0; c < 16; ++c) {
            for (int i = 0; i < steps * gm::kUnroll; ++i) {
                for (int byte = 0; byte < 4; ++byte) {
                    const auto part = [&](int seed) {
                        return static_cast<signed char>(static_cast<unsigned>(taken(seeds, thread, seed)) >> 8 * byte);
                    };
                    sum += part(2 + c) * part(i % 2);
                }
            }
        }
        same = same && out[thread] == static_cast<int>(sum);
    }
    CHECK(same);
}

// 16-bit multiply-adds by themselves: ties, cancellation, subnormals, overflow.
void packed() {
    const auto half_fma = [](unsigned a, unsigned x, unsigned b) {
        return gm::multiply_add(gm::pair<gm::half>{a}, gm::pair<gm::half>{x}, gm::pair<gm::half>{b}).bits;
    };
    CHECK(half_fma(0x3c003c00U, 0x40003c00U, 0x3c00bc00U) == 0x42000000U);  // 1 1 - 1 = 0 | 1 2 + 1 = 3
    CHECK(half_fma(0x3c01U, 0x3c01U, 0U) == 0x3c02U);                       // (1 + u)^2 = 1 + 2 u + u^2, no tie
    CHECK(half_fma(0x3c01U, 0x3c01U, 0xbc02U) == 0x0010U);                  // ... and u^2 = 2^-20 is not lost
    CHECK(half_fma(0x7bffU, 0x4000U, 0U) == 0x7c00U);                       // beyond the largest: infinity
    const auto bf_fma = [](unsigned a, unsigned x, unsigned b) {
        return gm::multiply_add(gm::pair<gm::bfloat16>{a}, gm::pair<gm::bfloat16>{x}, gm::pair<gm::bfloat16>{b}).bits;
    };
    CHECK(bf_fma(0x3f80U, 0x3f80U, 0x3b80U) == 0x3f80U);  // 1 + 2^-8: a tie, to even
    CHECK(bf_fma(0x3f81U, 0x3f80U, 0x3b80U) == 0x3f82U);  // 1 + 2^-7 + 2^-8: likewise, upwards
    CHECK(bf_fma(0x3f80U, 0x3f80U, 0x3b81U) == 0x3f81U);  // just above the tie
    CHECK(gm::dot_add(0x7f80ff01, 0x7f80ff01, 5) == 5 + 127 * 127 + 128 * 128 + 1 + 1);
}

int run(const std::string& kernel, const cusim::PeakFiles& files) {
    if (kernel == "gm::fma_peak<float>") return files.run<float, float>(gm::fma_peak<float>, gm::kPeakThreads);
    if (kernel == "gm::fma_peak<double>") return files.run<double, double>(gm::fma_peak<double>, gm::kPeakThreads);
    if (kernel == "gm::fma_peak<int>") return files.run<int, int>(gm::fma_peak<int>, gm::kPeakThreads);
    if (kernel == "gm::dot_peak<signed char>") return files.run<int, int>(gm::dot_peak<signed char>, gm::kPeakThreads);
    using Half = gm::pair<gm::half>;
    if (kernel == "gm::fma_peak<gm::pair<gm::half>>")
        return files.run<Half, float>(gm::fma_peak<Half>, gm::kPeakThreads);
    using Bf = gm::pair<gm::bfloat16>;
    if (kernel == "gm::fma_peak<gm::pair<gm::bfloat16>>")
        return files.run<Bf, float>(gm::fma_peak<Bf>, gm::kPeakThreads);
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 6) return run(argv[1], {std::stoul(argv[2]), std::stoll(argv[3]), argv[4], argv[5]});
    for (int steps : {0, 1, 3}) {
        floats<float>(steps);
        floats<double>(steps);
        halves<gm::half>(steps);
        halves<gm::bfloat16>(steps);
        integers(steps);
    }
    packed();
    return cusim::report();
}
