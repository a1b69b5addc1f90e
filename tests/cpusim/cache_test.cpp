#include "kernels/cache.cuh"

#include "testing.hpp"

using cusim::Array;

namespace {

constexpr int kWarps = gm::kCacheBlock / 32;

unsigned block_sum(const Array<unsigned>& sums, unsigned block) {
    unsigned sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += sums[block * kWarps + w];
    return sum;
}

unsigned region_sum(const unsigned* words, long long count) {
    unsigned sum = 0;
    for (long long i = 0; i < count; ++i) sum += words[i];
    return sum;
}

void run(long long words, unsigned blocks, long long reps) {
    const long long bytes = words * 4, stride = (bytes + 127) / 128 * 128;
    Array<unsigned> own(stride / 4 * blocks), common(words), sums(blocks * kWarps);
    std::mt19937 random(5);
    for (long long i = 0; i < own.size(); ++i) own[i] = static_cast<unsigned>(random());
    for (long long i = 0; i < words; ++i) common[i] = static_cast<unsigned>(random());
    const unsigned *p = own.data(), *q = common.data();
    const unsigned times = static_cast<unsigned>(reps);

    cusim::launch({blocks, gm::kCacheBlock}, gm::cache_private, p, sums.data(), bytes, stride, reps);
    for (unsigned b = 0; b < blocks; ++b) CHECK(block_sum(sums, b) == times * region_sum(p + b * (stride / 4), words));
    sums.poison();
    cusim::launch({blocks, gm::kCacheBlock}, gm::cache_common, q, sums.data(), bytes, reps);
    for (unsigned b = 0; b < blocks; ++b) CHECK(block_sum(sums, b) == times * region_sum(q, words));
    sums.poison();
    const std::size_t shared = static_cast<std::size_t>(bytes);
    cusim::launch({blocks, gm::kCacheBlock, shared}, gm::cache_shared, q, sums.data(), bytes, reps);
    for (unsigned b = 0; b < blocks; ++b) CHECK(block_sum(sums, b) == times * region_sum(q, words));
}

}  // namespace

int main() {
    run(12299, 3, 2);  // a tile is 4,096 words
    if (cusim::kThreads) return cusim::report();
    for (long long words : {1, 3, 31, 33, 1025, 4096}) {
        run(words, 1, 1);
        run(words, 3, 2);
    }
    run(100003, 5, 3);
    return cusim::report();
}
