// A stream of loads with a chosen number of multiply-adds for every 8 elements: it traces the roof.
#include "cpu/isa/simd.hpp"
#include "cpu/isa/tables.hpp"

namespace gm::cpu {
namespace {

constexpr int kChains = kMixedChains;

template <class T>
struct State {
    Vec<T> acc[kChains];
    Vec<std::int32_t> checksum;  // XOR of all bits loaded: proves each load, and costs no floating-point operation
};

// Few FMAs: a group of 8 vectors gets `Fma` of them, spread evenly; FMA number f goes to chain f % 8.
template <class T, int Fma>
GM_INLINE void sparse_group(const T* x, Vec<T> a, State<T>& s) {
    constexpr int every = Fma < 8 ? 8 / Fma : 1;  // each `every`-th vector is used ...
    constexpr int times = Fma < 8 ? 1 : Fma / 8;  // ... so often
    GM_UNROLL for (int u = 0; u < 8; ++u) {
        const Vec<T> v = load(x + u * kLanes<T>);
        s.checksum ^= (Vec<std::int32_t>)v;
        if (u % every != every - 1) continue;
        GM_UNROLL for (int t = 0; t < times; ++t) {
            Vec<T>& acc = s.acc[(u / every * times + t) % kChains];
            acc = a * acc + v;
        }
    }
}

// Many FMAs: 4 vectors at a time, `rounds` rounds of 8 FMAs; chain j uses vector j % 4.
template <class T>
GM_INLINE void dense_group(const T* x, Vec<T> a, State<T>& s, int rounds) {
    for (int half = 0; half < 2; ++half, x += 4 * kLanes<T>) {
        Vec<T> v[4];
        GM_UNROLL for (int u = 0; u < 4; ++u) {
            v[u] = load(x + u * kLanes<T>);
            s.checksum ^= (Vec<std::int32_t>)v[u];
        }
        for (int r = 0; r < rounds; ++r) {
            GM_UNROLL for (int j = 0; j < kChains; ++j) s.acc[j] = a * s.acc[j] + v[j % 4];
        }
    }
}

template <class T, int Fma>
GM_INLINE void group(const T* x, Vec<T> a, State<T>& s, int rounds) {
    if constexpr (Fma == 0) {
        dense_group<T>(x, a, s, rounds);
    } else {
        sparse_group<T, Fma>(x, a, s);
    }
}

template <class T, int Fma>
void stream(const T* x, std::int64_t n, T a, T* acc, T* checksum, int fma, std::int64_t passes) {
    constexpr std::int64_t step = 8 * kLanes<T>;
    const Vec<T> av = splat(a);
    const int rounds = fma / 16;
    for (; passes > 0; --passes) {
        State<T> s{};
        std::int64_t i = 0;
        for (; i + step <= n; i += step) group<T, Fma>(x + i, av, s, rounds);
        if (i < n) {  // the rest, as a group that is filled up with zeros
            T rest[step] = {};
            for (std::int64_t j = 0; j < n - i; ++j) rest[j] = x[i + j];
            group<T, Fma>(rest, av, s, rounds);
        }
        GM_UNROLL for (int j = 0; j < kChains; ++j) store(acc + j * kLanes<T>, s.acc[j]);
        __builtin_memcpy(checksum, &s.checksum, sizeof s.checksum);
        clobber();
    }
}

template <class T>
void dispatch(const T* x, std::int64_t n, T a, T* acc, T* checksum, int fma, std::int64_t passes) {
    switch (fma) {
        case 1:
            return stream<T, 1>(x, n, a, acc, checksum, fma, passes);
        case 2:
            return stream<T, 2>(x, n, a, acc, checksum, fma, passes);
        case 4:
            return stream<T, 4>(x, n, a, acc, checksum, fma, passes);
        case 8:
            return stream<T, 8>(x, n, a, acc, checksum, fma, passes);
        case 16:
            return stream<T, 16>(x, n, a, acc, checksum, fma, passes);
        case 32:
            return stream<T, 32>(x, n, a, acc, checksum, fma, passes);
        default:
            return stream<T, 0>(x, n, a, acc, checksum, fma, passes);
    }
}

}  // namespace

namespace GM_ISA {
void fill_mixed(Table& table) {
    table.mixed64 = {dispatch<double>, kLanes<double>};
    table.mixed32 = {dispatch<float>, kLanes<float>};
}
}  // namespace GM_ISA
}  // namespace gm::cpu
