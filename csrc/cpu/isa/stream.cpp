// STREAM's kernels for one ISA: maps (copy, scale, ...) and folds (read, dot).
#include "cpu/isa/simd.hpp"
#include "cpu/isa/tables.hpp"

namespace gm::cpu {
namespace {

struct Write {
    template <class V>
    static GM_INLINE V of(V, V, V s) {
        return s;
    }
    static constexpr int inputs = 0;
};
struct Copy {
    template <class V>
    static GM_INLINE V of(V b, V, V) {
        return b;
    }
    static constexpr int inputs = 1;
};
struct Scale {
    template <class V>
    static GM_INLINE V of(V b, V, V s) {
        return s * b;
    }
    static constexpr int inputs = 1;
};
struct Add {
    template <class V>
    static GM_INLINE V of(V b, V c, V) {
        return b + c;
    }
    static constexpr int inputs = 2;
};
struct Triad {
    template <class V>
    static GM_INLINE V of(V b, V c, V s) {
        return b + s * c;
    }
    static constexpr int inputs = 2;
};

constexpr int kUnroll = 4;  // vectors: hides the loop's own instructions, and fills whole lines from AVX2 upwards

template <class T, class Op, bool Nontemporal>
void map(T* a, const T* b, const T* c, T s, std::int64_t n, std::int64_t passes) {
    constexpr int lanes = kLanes<T>;
    const Vec<T> sv = splat(s);
    for (; passes > 0; --passes) {
        std::int64_t i = 0;
        for (; i + kUnroll * lanes <= n; i += kUnroll * lanes) {
            // All loads, then the arithmetic, then all stores: 1.1 times as fast in L1 as taking turns (Zen 3).
            Vec<T> v[kUnroll];
            GM_UNROLL for (int u = 0; u < kUnroll; ++u) {
                v[u] = Op::inputs > 0 ? load(b + i + u * lanes) : Vec<T>{};
                if constexpr (Op::inputs > 1) opaque(v[u]);
            }
            GM_UNROLL for (int u = 0; u < kUnroll; ++u) {
                v[u] = Op::of(v[u], Op::inputs > 1 ? load(c + i + u * lanes) : Vec<T>{}, sv);
                if constexpr (Op::inputs > 0) opaque(v[u]);
            }
            GM_UNROLL for (int u = 0; u < kUnroll; ++u) {
#if GM_NONTEMPORAL
                if constexpr (Nontemporal) {
                    store_past_cache(a + i + u * lanes, v[u]);
                    continue;
                }
#endif
                store(a + i + u * lanes, v[u]);
            }
        }
        for (; i < n; ++i) a[i] = Op::of(Op::inputs > 0 ? b[i] : T{}, Op::inputs > 1 ? c[i] : T{}, s);
#if GM_NONTEMPORAL
        if constexpr (Nontemporal) fence();
#endif
        clobber();
    }
}

constexpr int kSums = 8;  // two adds a cycle of three to four cycles each need eight sums in flight

template <class T, bool Product>
void fold(const T* b, const T* c, std::int64_t n, std::int64_t passes, T* out) {
    constexpr int lanes = kLanes<T>;
    for (; passes > 0; --passes) {
        Vec<T> sum[kSums] = {};
        std::int64_t i = 0;
        for (; i + kSums * lanes <= n; i += kSums * lanes) {
            GM_UNROLL for (int u = 0; u < kSums; ++u) {
                const Vec<T> bv = load(b + i + u * lanes);
                if constexpr (Product) {
                    sum[u] += bv * load(c + i + u * lanes);
                } else {
                    sum[u] += bv;
                }
            }
        }
        T total = 0;
        for (; i < n; ++i) total += Product ? b[i] * c[i] : b[i];
        GM_UNROLL for (int step = kSums / 2; step > 0; step /= 2) {
            GM_UNROLL for (int u = 0; u < step; ++u) sum[u] += sum[u + step];
        }
        for (int lane = 0; lane < lanes; ++lane) total += sum[0][lane];
        *out = total;
        clobber();
    }
}

template <class T>
void fill(StreamTable<T>& t) {
    t.temporal[0] = map<T, Write, false>;
    t.temporal[1] = map<T, Copy, false>;
    t.temporal[2] = map<T, Scale, false>;
    t.temporal[3] = map<T, Add, false>;
    t.temporal[4] = map<T, Triad, false>;
#if GM_NONTEMPORAL
    t.nontemporal[0] = map<T, Write, true>;
    t.nontemporal[1] = map<T, Copy, true>;
    t.nontemporal[2] = map<T, Scale, true>;
    t.nontemporal[3] = map<T, Add, true>;
    t.nontemporal[4] = map<T, Triad, true>;
#endif
    t.read = fold<T, false>;
    t.dot = fold<T, true>;
    t.accumulators = kSums * kLanes<T>;
}

}  // namespace

namespace GM_ISA {
void fill_stream(Table& table) {
    fill(table.stream64);
    fill(table.stream32);
}
}  // namespace GM_ISA
}  // namespace gm::cpu
