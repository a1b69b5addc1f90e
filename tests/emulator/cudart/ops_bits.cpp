// Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions", "Integer Arithmetic": popc, clz, bfe, ...).
#include <algorithm>

#include "bind.hpp"

namespace ptxemu {
namespace {
template <class T>
constexpr u32 kBits = 8 * sizeof(T);

template <class T>
T bit_and(T a, T b) {
    return a & b;
}
template <class T>
T bit_or(T a, T b) {
    return a | b;
}
template <class T>
T bit_xor(T a, T b) {
    return a ^ b;
}
template <class T>
T bit_not(T a) {
    return static_cast<T>(~a);
}
template <class T>
T logic_not(T a) {
    return a == 0;
}

// Shifts clamp at the width.
template <class T>
T shift_left(T a, u32 n) {
    return n >= kBits<T> ? 0 : static_cast<T>(a << (n & (kBits<T> - 1)));
}
template <class T>
T shift_right(T a, u32 n) {
    const u32 most = kBits<T> - 1;
    if (std::is_signed_v<T>) return static_cast<T>(a >> (n > most ? most : n));
    return n > most ? 0 : static_cast<T>(a >> (n & most));
}

u32 funnel_left(u32 a, u32 b, u32 n) { return static_cast<u32>((((u64{b} << 32) | a) << n) >> 32); }
u32 funnel_right(u32 a, u32 b, u32 n) { return static_cast<u32>(((u64{b} << 32) | a) >> n); }
u32 shf_left_wrap(u32 a, u32 b, u32 n) { return funnel_left(a, b, n & 31); }
u32 shf_left_clamp(u32 a, u32 b, u32 n) { return funnel_left(a, b, n > 32 ? 32 : n); }
u32 shf_right_wrap(u32 a, u32 b, u32 n) { return funnel_right(a, b, n & 31); }
u32 shf_right_clamp(u32 a, u32 b, u32 n) { return funnel_right(a, b, n > 32 ? 32 : n); }

template <class T>
u32 count_ones(T a) {
    return static_cast<u32>(__builtin_popcountll(a));
}
template <class T>
u32 leading_zeros(T a) {
    return a == 0 ? kBits<T> : static_cast<u32>(__builtin_clzll(a)) - (64 - kBits<T>);
}
template <class T>
T reversed(T a) {
    T out = 0;
    for (u32 i = 0; i < kBits<T>; ++i) out |= static_cast<T>((a >> i & 1) << (kBits<T> - 1 - i));
    return out;
}
template <class T>
u32 top_bit(T a) {  // of the highest bit that is no sign bit
    using U = std::make_unsigned_t<T>;
    const U value = static_cast<U>(a < 0 ? ~a : a);
    return value == 0 ? ~0u : 63 - static_cast<u32>(__builtin_clzll(value));
}
template <class T>
u32 top_bit_shift(T a) {  // how far to shift left to bring it to the top
    const u32 top = top_bit(a);
    return top == ~0u ? top : kBits<T> - 1 - top;
}

// The field of `length` bits at `start`; a signed one is extended by its highest bit, or that of `a` if it ends
// outside.
template <class T>
T extract(T a, u32 start, u32 length) {
    using U = std::make_unsigned_t<T>;
    const u32 position = start & 255, size = length & 255, most = kBits<T> - 1;
    if (size == 0) return 0;
    const U value = static_cast<U>(a);
    U field = position > most ? 0 : static_cast<U>(value >> position);
    const U kept = size > most ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << size) - 1);
    const bool sign = std::is_signed_v<T> && (value >> std::min(position + size - 1, most) & 1) != 0;
    field &= kept;
    if (!sign) return static_cast<T>(field);
    const u32 inside = position > most ? 0 : std::min(size, kBits<T> - position);
    const U above = inside > most ? 0 : static_cast<U>(~U{0} << inside);
    return static_cast<T>(field | above);
}

template <class T>
T insert(T a, T b, u32 start, u32 length) {
    const u32 position = start & 255, size = length & 255, most = kBits<T> - 1;
    if (position > most) return b;
    const T kept = static_cast<T>((size > most ? ~T{0} : static_cast<T>((T{1} << size) - 1)) << position);
    return static_cast<T>((b & ~kept) | (static_cast<T>(a << position) & kept));
}

u32 permute(u32 a, u32 b, u32 selector) {
    const u64 bytes = (u64{b} << 32) | a;
    u32 out = 0;
    for (u32 i = 0; i < 4; ++i) {
        const u32 choice = selector >> (4 * i) & 15;
        u32 byte = static_cast<u32>(bytes >> (8 * (choice & 7))) & 255;
        if ((choice & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
        out |= byte << (8 * i);
    }
    return out;
}

u32 bit_mask(u32 start, u32 length) { return insert<u32>(~0u, 0, start, length); }

void run_lop3(Warp& warp, const Instruction& instruction) {
    const u32* a = warp.source<u32>(instruction.in[0]);
    const u32* b = warp.source<u32>(instruction.in[1]);
    const u32* c = warp.source<u32>(instruction.in[2]);
    alignas(64) u32 values[kLanes] = {};
    for (u32 term = 0; term < 8; ++term) {
        if ((instruction.immediate >> term & 1) == 0) continue;
        const u32 not_a = (term & 4) != 0 ? 0 : ~0u, not_b = (term & 2) != 0 ? 0 : ~0u,
                  not_c = (term & 1) != 0 ? 0 : ~0u;
        for (int lane = 0; lane < kLanes; ++lane)
            values[lane] |= (a[lane] ^ not_a) & (b[lane] ^ not_b) & (c[lane] ^ not_c);
    }
    keep_lanes(warp, values, warp.target<u32>(instruction.out));
}

void bind_lop3(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    for (std::size_t i = 0; i < 3; ++i) instruction.in[i] = decoder.source(i + 1, 32, Type::b32);
    instruction.immediate = decoder.operand(4).bits;
    instruction.out = decoder.target(decoder.operand(0), 32);
    instruction.run = run_lop3;
}

// Predicates: one mask word for all lanes.
template <char Op>
void run_predicate(Warp& warp, const Instruction& instruction) {
    const u32 a = warp.predicate(instruction.in[0]);
    const u32 b = Op == '~' ? 0 : warp.predicate(instruction.in[1]);
    warp.set_predicate(instruction.out.at, Op == '&' ? a & b : Op == '|' ? a | b : Op == '^' ? a ^ b : ~a);
}

template <char Op>
void bind_predicate(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    instruction.in[0] = decoder.predicate(decoder.operand(1));
    if (Op != '~') instruction.in[1] = decoder.predicate(decoder.operand(2));
    instruction.out.at = decoder.predicate_target(decoder.operand(0));
    instruction.run = run_predicate<Op>;
}

template <class T>
void add_logic(Table* table, const std::string& type) {
    Table& rows = *table;
    rows["and." + type] = bind<bit_and<T>>;
    rows["or." + type] = bind<bit_or<T>>;
    rows["xor." + type] = bind<bit_xor<T>>;
    rows["not." + type] = bind<bit_not<T>>;
    rows["cnot." + type] = bind<logic_not<T>>;
    rows["shl." + type] = bind<shift_left<T>>;
    rows["shr." + type] = bind<shift_right<T>>;
}

template <class T>
void add_fields(Table* table, const std::string& unsigned_type, const std::string& signed_type,
                const std::string& bits) {
    using S = std::make_signed_t<T>;
    Table& rows = *table;
    rows["popc." + bits] = bind<count_ones<T>>;
    rows["clz." + bits] = bind<leading_zeros<T>>;
    rows["brev." + bits] = bind<reversed<T>>;
    rows["bfind." + unsigned_type] = bind<top_bit<T>>;
    rows["bfind." + signed_type] = bind<top_bit<S>>;
    rows["bfind.shiftamt." + unsigned_type] = bind<top_bit_shift<T>>;
    rows["bfind.shiftamt." + signed_type] = bind<top_bit_shift<S>>;
    rows["bfe." + unsigned_type] = bind<extract<T>>;
    rows["bfe." + signed_type] = bind<extract<S>>;
    rows["bfi." + bits] = bind<insert<T>>;
}

Table make_table() {
    Table table;
    add_logic<u16>(&table, "b16");
    add_logic<u32>(&table, "b32");
    add_logic<u64>(&table, "b64");
    add_fields<u32>(&table, "u32", "s32", "b32");
    add_fields<u64>(&table, "u64", "s64", "b64");
    table["shr.u16"] = bind<shift_right<u16>>;
    table["shr.s16"] = bind<shift_right<s16>>;
    table["shr.u32"] = bind<shift_right<u32>>;
    table["shr.s32"] = bind<shift_right<s32>>;
    table["shr.u64"] = bind<shift_right<u64>>;
    table["shr.s64"] = bind<shift_right<s64>>;
    table["shf.l.wrap.b32"] = bind<shf_left_wrap>;
    table["shf.l.clamp.b32"] = bind<shf_left_clamp>;
    table["shf.r.wrap.b32"] = bind<shf_right_wrap>;
    table["shf.r.clamp.b32"] = bind<shf_right_clamp>;
    table["prmt.b32"] = bind<permute>;
    table["bmsk.clamp.b32"] = bind<bit_mask>;
    table["lop3.b32"] = bind_lop3;
    table["and.pred"] = bind_predicate<'&'>;
    table["or.pred"] = bind_predicate<'|'>;
    table["xor.pred"] = bind_predicate<'^'>;
    table["not.pred"] = bind_predicate<'~'>;
    return table;
}
}  // namespace

bool bind_bits(Decoder& decoder, const std::string& key) {
    static const Table table = make_table();
    return bind_from(table, decoder, key);
}
}  // namespace ptxemu
