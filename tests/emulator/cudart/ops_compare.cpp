// Comparisons and selections (PTX ISA, "Comparison and Selection Instructions").
#include <array>
#include <cmath>

#include "bind.hpp"
#include "fault.hpp"
#include "formats.hpp"

namespace ptxemu {
namespace {
enum class Relation : u8 { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan, none };

Relation relation_named(const std::string& name) {
    static const std::array<const char*, 14> names{"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                                   "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (name == names[i]) return static_cast<Relation>(i);
    }
    if (name == "lo") return Relation::lt;
    if (name == "ls") return Relation::le;
    if (name == "hi") return Relation::gt;
    if (name == "hs") return Relation::ge;
    return Relation::none;
}

template <Relation R, class T>
bool holds(T a, T b) {
    const bool unordered = std::is_floating_point_v<T> && (a != a || b != b);
    switch (R) {
        case Relation::eq:
            return a == b;
        case Relation::ne:
            return a != b && !unordered;
        case Relation::lt:
            return a < b;
        case Relation::le:
            return a <= b;
        case Relation::gt:
            return a > b;
        case Relation::ge:
            return a >= b;
        case Relation::equ:
            return a == b || unordered;
        case Relation::neu:
            return a != b;
        case Relation::ltu:
            return a < b || unordered;
        case Relation::leu:
            return a <= b || unordered;
        case Relation::gtu:
            return a > b || unordered;
        case Relation::geu:
            return a >= b || unordered;
        case Relation::num:
            return !unordered;
        default:
            return unordered;
    }
}

using Comparison = u32 (*)(Warp&, const Source&, const Source&);

// How a type's values are compared: as T, read from the register by the function Open.
template <class T>
T plain(Slot<T> bits) {
    return from_slot<T>(bits);
}
float half(u32 bits) { return half_to_float(static_cast<u16>(bits)); }
float half_above(u32 bits) { return half_to_float(static_cast<u16>(bits >> 16)); }
float bfloat(u32 bits) { return bf16_to_float(static_cast<u16>(bits)); }
float bfloat_above(u32 bits) { return bf16_to_float(static_cast<u16>(bits >> 16)); }

template <class T, class S, T (*Open)(S), Relation R>
u32 compare(Warp& warp, const Source& first, const Source& second) {
    const S* a = warp.source<S>(first);
    const S* b = warp.source<S>(second);
    alignas(64) u32 lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = holds<R, T>(Open(a[lane]), Open(b[lane])) ? 1 : 0;
    return to_mask(lanes);
}

template <class T, class S, T (*Open)(S), std::size_t... R>
Comparison of_relation(Relation relation, std::index_sequence<R...>) {
    static constexpr std::array<Comparison, sizeof...(R)> table{compare<T, S, Open, static_cast<Relation>(R)>...};
    return table[static_cast<std::size_t>(relation)];
}

template <class T, class S, T (*Open)(S)>
Comparison of(Relation relation) {
    return of_relation<T, S, Open>(relation, std::make_index_sequence<14>{});
}

Comparison comparison(Type type, Relation relation, bool above) {
    switch (type) {
        case Type::b16:
        case Type::u16:
            return of<u16, u32, plain<u16>>(relation);
        case Type::s16:
            return of<s16, u32, plain<s16>>(relation);
        case Type::b32:
        case Type::u32:
            return of<u32, u32, plain<u32>>(relation);
        case Type::s32:
            return of<s32, u32, plain<s32>>(relation);
        case Type::b64:
        case Type::u64:
            return of<u64, u64, plain<u64>>(relation);
        case Type::s64:
            return of<s64, u64, plain<s64>>(relation);
        case Type::f32:
            return of<float, u32, plain<float>>(relation);
        case Type::f64:
            return of<double, u64, plain<double>>(relation);
        case Type::f16:
        case Type::f16x2:
            return above ? of<float, u32, half_above>(relation) : of<float, u32, half>(relation);
        case Type::bf16:
        case Type::bf16x2:
            return above ? of<float, u32, bfloat_above>(relation) : of<float, u32, bfloat>(relation);
        default:
            return nullptr;
    }
}

// Kept beside the instruction: handlers are plain function pointers, and there are two comparisons in packed types.
struct Pair {
    Comparison low;
    Comparison high;
};
static_assert(sizeof(Comparison) == sizeof(u64), "a comparison is kept in a 64-bit field");

enum Mode : u8 { kAnd = 1, kOr = 2, kXor = 3, kPacked = 4 };

u32 combined(u32 value, u32 with, u8 mode) {
    if (mode == kAnd) return value & with;
    if (mode == kOr) return value | with;
    return mode == kXor ? value ^ with : value;
}

void run_setp(Warp& warp, const Instruction& instruction) {
    const u32 first = reinterpret_cast<Comparison>(instruction.immediate)(warp, instruction.in[0], instruction.in[1]);
    const u8 mode = instruction.mode & 3;
    const u32 with = mode != 0 ? warp.predicate(instruction.in[2]) : 0;
    u32 second = ~first;
    if ((instruction.mode & kPacked) != 0)
        second = reinterpret_cast<Comparison>(instruction.offset)(warp, instruction.in[0], instruction.in[1]);
    warp.set_predicate(instruction.out.at, combined(first, with, mode));
    if (instruction.out2.wide) warp.set_predicate(instruction.out2.at, combined(second, with, mode));
}

void run_set(Warp& warp, const Instruction& instruction) {
    const u32 result = reinterpret_cast<Comparison>(instruction.immediate)(warp, instruction.in[0], instruction.in[1]);
    const u8 mode = instruction.mode & 3;
    const u32 mask = combined(result, mode != 0 ? warp.predicate(instruction.in[2]) : 0, mode);
    const u32 yes = static_cast<u32>(instruction.offset);
    alignas(64) u32 values[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) values[lane] = (mask >> lane & 1) != 0 ? yes : 0;
    keep_lanes(warp, values, warp.target<u32>(instruction.out));
}

void bind_compared(Decoder& decoder) {
    const bool set = decoder.statement().op == "set";
    const Type type = decoder.type(set ? 1 : 0);
    Relation relation = Relation::none;
    for (const std::string& mod : decoder.statement().mods) {
        if (relation == Relation::none) relation = relation_named(mod);
    }
    const Comparison low = relation == Relation::none ? nullptr : comparison(type, relation, false);
    if (low == nullptr) decoder.unknown("comparison");
    Instruction& instruction = decoder.instruction();
    const unsigned bits = size_bytes(type) * 8 == 64 ? 64 : 32;
    for (std::size_t i = 0; i < 2; ++i) instruction.in[i] = decoder.source(i + 1, bits, type);
    instruction.immediate = reinterpret_cast<u64>(low);
    instruction.mode = decoder.has("and") ? kAnd : decoder.has("or") ? kOr : decoder.has("xor") ? kXor : 0;
    if (instruction.mode != 0) instruction.in[2] = decoder.predicate(decoder.operand(3));
    const Operand& out = decoder.operand(0);
    if (set) {
        const Type result = decoder.type(0);
        instruction.offset = result == Type::f32     ? 0x3f800000u
                             : result == Type::f16   ? 0x3c00u
                             : result == Type::f16x2 ? 0u
                                                     : ~0u;
        if (result == Type::f16x2 || result == Type::bf16x2) decoder.unknown("packed set");
        instruction.out = decoder.target(out, 32);
        instruction.run = run_set;
        return;
    }
    const bool two = out.kind == Operand::Kind::pair;
    instruction.out.at = decoder.predicate_target(two ? out.parts[0] : out);
    if (two) instruction.out2 = Target{decoder.predicate_target(out.parts[1]), true};
    if (type == Type::f16x2 || type == Type::bf16x2) {
        instruction.mode |= kPacked;
        instruction.offset = reinterpret_cast<u64>(comparison(type, relation, true));
    }
    instruction.run = run_setp;
}

template <class S>
void run_selp(Warp& warp, const Instruction& instruction) {
    const S* a = warp.source<S>(instruction.in[0]);
    const S* b = warp.source<S>(instruction.in[1]);
    const u32 choice = warp.predicate(instruction.in[2]);
    alignas(64) S values[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) values[lane] = (choice >> lane & 1) != 0 ? a[lane] : b[lane];
    keep_lanes(warp, values, warp.target<S>(instruction.out));
}

void bind_selp(Decoder& decoder) {
    Instruction& instruction = decoder.instruction();
    const unsigned bits = size_bytes(decoder.type()) == 8 ? 64 : 32;
    for (std::size_t i = 0; i < 2; ++i) instruction.in[i] = decoder.source(i + 1, bits, decoder.type());
    instruction.in[2] = decoder.predicate(decoder.operand(3));
    instruction.out = decoder.target(decoder.operand(0), bits);
    instruction.run = bits == 64 ? run_selp<u64> : run_selp<u32>;
}

template <class T, class C>
T select_sign(T a, T b, C c) {
    return c >= 0 ? a : b;
}
}  // namespace

bool bind_compare(Decoder& decoder, const std::string& key) {
    const std::string& op = decoder.statement().op;
    static const Table slct{
        {"slct.u32.s32", bind<select_sign<u32, s32>>},   {"slct.b32.s32", bind<select_sign<u32, s32>>},
        {"slct.s32.s32", bind<select_sign<u32, s32>>},   {"slct.f32.s32", bind<select_sign<u32, s32>>},
        {"slct.u32.f32", bind<select_sign<u32, float>>}, {"slct.f32.f32", bind<select_sign<u32, float>>},
        {"slct.u64.s32", bind<select_sign<u64, s32>>},   {"slct.b64.s32", bind<select_sign<u64, s32>>}};
    if (op == "setp" || op == "set") {
        bind_compared(decoder);
    } else if (op == "selp") {
        bind_selp(decoder);
    } else {
        return bind_from(slct, decoder, key);
    }
    return true;
}
}  // namespace ptxemu
