// Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions").
#include <limits>

#include "bind.hpp"

namespace ptxemu {
namespace {
template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
T add(T a, T b) {
    return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b));
}
template <class T>
T sub(T a, T b) {
    return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b));
}
template <class T>
T mul_lo(T a, T b) {
    return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
}
template <class T>
T mad_lo(T a, T b, T c) {
    return add<T>(mul_lo<T>(a, b), c);
}

template <class T>
T mul_hi(T a, T b) {
    using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> (8 * sizeof(T)));
}
template <class T>
T mad_hi(T a, T b, T c) {
    return add<T>(mul_hi<T>(a, b), c);
}

template <class T, class Wide>
Wide mul_wide(T a, T b) {
    return static_cast<Wide>(a) * static_cast<Wide>(b);
}
template <class T, class Wide>
Wide mad_wide(T a, T b, Wide c) {
    return add<Wide>(mul_wide<T, Wide>(a, b), c);
}

// What a division by zero gives is unspecified in PTX; GPUs give all ones, and the dividend as remainder.
template <class T>
T div(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return sub<T>(0, a);
    return static_cast<T>(a / b);
}
template <class T>
T rem(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
}

template <class T>
T smaller(T a, T b) {
    return a < b ? a : b;
}
template <class T>
T larger(T a, T b) {
    return a > b ? a : b;
}
template <class T>
T absolute(T a) {
    return a < 0 ? sub<T>(0, a) : a;
}
template <class T>
T negative(T a) {
    return sub<T>(0, a);
}
template <class T>
T difference_sum(T a, T b, T c) {
    return add<T>(a < b ? sub<T>(b, a) : sub<T>(a, b), c);
}

s32 saturated(s64 value) {
    const s64 low = std::numeric_limits<s32>::min(), high = std::numeric_limits<s32>::max();
    return static_cast<s32>(value < low ? low : value > high ? high : value);
}
s32 add_sat(s32 a, s32 b) { return saturated(s64{a} + b); }
s32 sub_sat(s32 a, s32 b) { return saturated(s64{a} - b); }

s32 mul24(s32 a, s32 b) {
    return mul_lo<s32>(static_cast<s32>(static_cast<u32>(a) << 8) >> 8,
                       static_cast<s32>(static_cast<u32>(b) << 8) >> 8);
}
u32 mul24u(u32 a, u32 b) { return (a & 0xffffffu) * (b & 0xffffffu); }

template <class A, class B>
u32 dot4(u32 a, u32 b, u32 c) {
    u32 sum = c;
    for (int i = 0; i < 4; ++i) {
        sum += static_cast<u32>(s32{static_cast<A>(a >> (8 * i))} * s32{static_cast<B>(b >> (8 * i))});
    }
    return sum;
}

template <class A, class B, int First>
u32 dot2(u32 a, u32 b, u32 c) {
    u32 sum = c;
    for (int i = 0; i < 2; ++i) {
        sum += static_cast<u32>(s32{static_cast<A>(a >> (16 * i))} * s32{static_cast<B>(b >> (8 * (First + i)))});
    }
    return sum;
}

template <class T>
void add_rows(Table* table, const std::string& type) {
    Table& rows = *table;
    rows["add." + type] = bind<add<T>>;
    rows["sub." + type] = bind<sub<T>>;
    rows["mul.lo." + type] = bind<mul_lo<T>>;
    rows["mul.hi." + type] = bind<mul_hi<T>>;
    rows["mad.lo." + type] = bind<mad_lo<T>>;
    rows["mad.hi." + type] = bind<mad_hi<T>>;
    rows["div." + type] = bind<div<T>>;
    rows["rem." + type] = bind<rem<T>>;
    rows["min." + type] = bind<smaller<T>>;
    rows["max." + type] = bind<larger<T>>;
    rows["sad." + type] = bind<difference_sum<T>>;
    if constexpr (std::is_signed_v<T>) {
        rows["abs." + type] = bind<absolute<T>>;
        rows["neg." + type] = bind<negative<T>>;
    }
}

Table make_table() {
    Table table;
    add_rows<u16>(&table, "u16");
    add_rows<s16>(&table, "s16");
    add_rows<u32>(&table, "u32");
    add_rows<s32>(&table, "s32");
    add_rows<u64>(&table, "u64");
    add_rows<s64>(&table, "s64");
    table["add.b16"] = bind<add<u16>>;
    table["add.b32"] = bind<add<u32>>;
    table["add.b64"] = bind<add<u64>>;
    table["mul.wide.u16"] = bind<mul_wide<u16, u32>>;
    table["mul.wide.s16"] = bind<mul_wide<s16, s32>>;
    table["mul.wide.u32"] = bind<mul_wide<u32, u64>>;
    table["mul.wide.s32"] = bind<mul_wide<s32, s64>>;
    table["mad.wide.u16"] = bind<mad_wide<u16, u32>>;
    table["mad.wide.s16"] = bind<mad_wide<s16, s32>>;
    table["mad.wide.u32"] = bind<mad_wide<u32, u64>>;
    table["mad.wide.s32"] = bind<mad_wide<s32, s64>>;
    table["add.sat.s32"] = bind<add_sat>;
    table["sub.sat.s32"] = bind<sub_sat>;
    table["mul24.lo.s32"] = bind<mul24>;
    table["mul24.lo.u32"] = bind<mul24u>;
    table["dp4a.s32.s32"] = bind<dot4<s8, s8>>;
    table["dp4a.u32.u32"] = bind<dot4<u8, u8>>;
    table["dp4a.s32.u32"] = bind<dot4<s8, u8>>;
    table["dp4a.u32.s32"] = bind<dot4<u8, s8>>;
    table["dp2a.lo.s32.s32"] = bind<dot2<s16, s8, 0>>;
    table["dp2a.hi.s32.s32"] = bind<dot2<s16, s8, 2>>;
    table["dp2a.lo.u32.u32"] = bind<dot2<u16, u8, 0>>;
    table["dp2a.hi.u32.u32"] = bind<dot2<u16, u8, 2>>;
    return table;
}
}  // namespace

bool bind_integer(Decoder& decoder, const std::string& key) {
    static const Table table = make_table();
    return bind_from(table, decoder, key);
}
}  // namespace ptxemu
