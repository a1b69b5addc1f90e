// cvt: conversions between all types (PTX ISA, "cvt"). Integers become floats and back as the modifiers round and
// saturate.
#include <algorithm>
#include <cfenv>
#include <cmath>

#include "bind.hpp"
#include "formats.hpp"

namespace ptxemu {
namespace {
enum class Round : u8 { even, zero, down, up, away };

struct Conversion {
    Type to;
    Type from;
    Round round;
    bool whole;  // .rni, .rzi, ...: to a whole number
    bool saturate;
    bool relu;
};

double round_whole(double value, Round round) {
    switch (round) {
        case Round::zero:
            return std::trunc(value);
        case Round::down:
            return std::floor(value);
        case Round::up:
            return std::ceil(value);
        default:
            return std::nearbyint(value);
    }
}

u64 sign_extended(u64 bits, Type type) {
    const unsigned shift = 64 - 8 * size_bytes(type);
    return is_signed(type) ? static_cast<u64>(static_cast<s64>(bits << shift) >> shift) : bits << shift >> shift;
}

double open_float(u64 bits, Type type) {
    if (type == Type::f64) return bit_cast<double>(bits);
    return static_cast<double>(element_to_float(static_cast<u32>(bits), type));
}

float directed(double value, Round round) {
    const float near = static_cast<float>(value);
    if (std::isnan(value) || round == Round::even || static_cast<double>(near) == value) return near;
    const bool above = static_cast<double>(near) > value;
    const bool want_down = round == Round::down || (round == Round::zero && value > 0);
    if (above == want_down) return std::nextafter(near, want_down ? -INFINITY : INFINITY);
    return near;
}

// Truncated for .rz, else to nearest even: the formats narrower than float know these two.
u64 close_float(double value, const Conversion& how) {
    switch (how.to) {
        case Type::f64:
            return bit_cast<u64>(value);
        case Type::f16: {
            const u16 near = double_to_half(value);
            const bool beyond = std::fabs(static_cast<double>(half_to_float(near))) > std::fabs(value);
            return how.round == Round::zero && beyond ? near - 1u : near;
        }
        case Type::bf16: {
            const u16 near = double_to_bf16(value);
            const bool beyond = std::fabs(static_cast<double>(bf16_to_float(near))) > std::fabs(value);
            return how.round == Round::zero && beyond ? near - 1u : near;
        }
        case Type::tf32:
            return float_to_tf32(static_cast<float>(value), how.round == Round::away);
        case Type::e4m3:
            return float_to_e4m3(static_cast<float>(value));
        case Type::e5m2:
            return float_to_e5m2(static_cast<float>(value));
        default:
            return bit_cast<u32>(directed(value, how.round));
    }
}

u64 float_to_integer(double value, const Conversion& how) {
    const unsigned bits = 8 * size_bytes(how.to);
    const bool is_minus = is_signed(how.to);
    if (std::isnan(value)) return bits == 64 || how.from == Type::f64 ? u64{1} << (bits - 1) : 0;
    value = round_whole(value, how.round);
    const double low = is_minus ? -std::ldexp(1.0, static_cast<int>(bits) - 1) : 0;
    const double high = std::ldexp(1.0, static_cast<int>(bits) - (is_minus ? 1 : 0));
    const u64 all = bits == 64 ? ~u64{0} : (u64{1} << bits) - 1;
    if (value <= low) return is_minus ? u64{1} << (bits - 1) : 0;
    if (value >= high) return is_minus ? all >> 1 : all;
    return (is_minus ? static_cast<u64>(static_cast<s64>(value)) : static_cast<u64>(value)) & all;
}

u64 integer_to_integer(u64 bits, const Conversion& how) {
    const unsigned width = 8 * size_bytes(how.to);
    const u64 all = width == 64 ? ~u64{0} : (u64{1} << width) - 1;
    if (!how.saturate) return bits & all;
    const __int128 value =
        is_signed(how.from) ? static_cast<__int128>(static_cast<s64>(bits)) : static_cast<__int128>(bits);
    const __int128 low = is_signed(how.to) ? -(static_cast<__int128>(1) << (width - 1)) : 0;
    const __int128 high = (static_cast<__int128>(1) << (width - (is_signed(how.to) ? 1 : 0))) - 1;
    return static_cast<u64>(std::min(std::max(value, low), high)) & all;
}

u64 integer_to_float(u64 bits, const Conversion& how) {
    const bool minus = is_signed(how.from);
    if (how.to == Type::f32 && size_bytes(how.from) == 8) {  // once only: 64 bits do not fit into a double
        const float near = minus ? static_cast<float>(static_cast<s64>(bits)) : static_cast<float>(bits);
        const long double exact =
            minus ? static_cast<long double>(static_cast<s64>(bits)) : static_cast<long double>(bits);
        const bool above = static_cast<long double>(near) > exact, below = static_cast<long double>(near) < exact;
        const bool want_down = how.round == Round::down || (how.round == Round::zero && exact > 0);
        const bool want_up = how.round == Round::up || (how.round == Round::zero && exact < 0);
        if (above && want_down) return bit_cast<u32>(std::nextafter(near, -INFINITY));
        if (below && want_up) return bit_cast<u32>(std::nextafter(near, INFINITY));
        return bit_cast<u32>(near);
    }
    return close_float(minus ? static_cast<double>(static_cast<s64>(bits)) : static_cast<double>(bits), how);
}

u64 convert(u64 bits, const Conversion& how) {
    if (!is_float(how.from) && how.from != Type::e4m3 && how.from != Type::e5m2) {
        bits = sign_extended(bits, how.from);
        return is_float(how.to) ? integer_to_float(bits, how) : integer_to_integer(bits, how);
    }
    double value = open_float(bits, how.from);
    const bool narrow = how.to == Type::e4m3 || how.to == Type::e5m2;
    if (!is_float(how.to) && !narrow) return float_to_integer(value, how);
    if (how.whole) value = round_whole(value, how.round);
    if (how.saturate && !narrow) value = value > 0 ? std::min(value, 1.0) : 0.0;
    if (how.relu) value = value > 0 ? value : std::isnan(value) ? value : 0.0;
    return close_float(value, how);
}

Conversion conversion_of(const Instruction& instruction) {
    return bit_cast<Conversion>(std::array<u8, sizeof(Conversion)>{
        static_cast<u8>(instruction.immediate), static_cast<u8>(instruction.immediate >> 8),
        static_cast<u8>(instruction.immediate >> 16), static_cast<u8>(instruction.immediate >> 24),
        static_cast<u8>(instruction.immediate >> 32), static_cast<u8>(instruction.immediate >> 40)});
}

void run_convert(Warp& warp, const Instruction& instruction) {
    const Conversion how = conversion_of(instruction);
    const bool minus = is_signed(how.to);
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.on(lane)) continue;
        const u64 bits = convert(warp.value(instruction.in[0], lane), how);
        warp.set(instruction.out, lane, minus ? sign_extended(bits, how.to) : bits);
    }
}

// Two values in one register: d = {upper from a, lower from b}, or unpacked from one packed source.
void run_pack(Warp& warp, const Instruction& instruction) {
    const Conversion how = conversion_of(instruction);
    const unsigned width = 8 * size_bytes(how.to);
    const bool from_packed = instruction.elements == 1;
    const unsigned source_width = 8 * size_bytes(how.from);
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.on(lane)) continue;
        const u64 a = warp.value(instruction.in[0], lane);
        const u64 low =
            convert(from_packed ? a & ((u64{1} << source_width) - 1) : warp.value(instruction.in[1], lane), how);
        const u64 high = convert(from_packed ? a >> source_width & ((u64{1} << source_width) - 1) : a, how);
        warp.set(instruction.out, lane, low | high << width);
    }
}

Type element_of(Type packed) {
    switch (packed) {
        case Type::f16x2:
            return Type::f16;
        case Type::bf16x2:
            return Type::bf16;
        case Type::e4m3x2:
            return Type::e4m3;
        case Type::e5m2x2:
            return Type::e5m2;
        default:
            return packed;
    }
}

// The commonest ones, as vector code.
u64 s32_to_s64(s32 a) { return static_cast<u64>(s64{a}); }
u64 u32_to_u64(u32 a) { return a; }
u32 low_half(u64 a) { return static_cast<u32>(a); }
float s32_to_float(s32 a) { return static_cast<float>(a); }
double s32_to_double(s32 a) { return a; }
double widen(float a) { return a; }
float narrow(double a) { return static_cast<float>(a); }
float open_half(u16 a) { return half_to_float(a); }
u32 u16_to_u32(u16 a) { return a; }
}  // namespace

bool bind_convert(Decoder& decoder, const std::string& key) {
    if (decoder.statement().op != "cvt") return false;
    static const Table quick{
        {"cvt.s64.s32", bind<s32_to_s64>},   {"cvt.u64.u32", bind<u32_to_u64>},    {"cvt.u32.u64", bind<low_half>},
        {"cvt.f32.s32", bind<s32_to_float>}, {"cvt.f64.s32", bind<s32_to_double>}, {"cvt.f64.f32", bind<widen>},
        {"cvt.f32.f64", bind<narrow>},       {"cvt.f32.f16", bind<open_half>},     {"cvt.u32.u16", bind<u16_to_u32>}};
    const auto mod = [&](const char* name) { return decoder.has(name); };
    const auto row = quick.find(key);
    const bool nearest = !mod("rz") && !mod("rm") && !mod("rp");
    if (row != quick.end() && nearest && decoder.operand(1).kind == Operand::Kind::name) {
        const Source source = decoder.any_source(decoder.operand(1), decoder.type(1));
        const Target target = decoder.any_target(decoder.operand(0));
        const bool natural =
            source.wide == (size_bytes(decoder.type(1)) == 8) && target.wide == (size_bytes(decoder.type(0)) == 8);
        if (natural) {
            row->second(decoder);  // "cvt.f32.f16" has its source type in type(1); binding asks only for the widths
            return true;
        }
    }
    if (decoder.types().size() < 2) decoder.unknown("conversion");
    const Type to = decoder.type(0), from = decoder.type(1);
    const bool whole = mod("rni") || mod("rzi") || mod("rmi") || mod("rpi");
    Round round = mod("rz") || mod("rzi")   ? Round::zero
                  : mod("rm") || mod("rmi") ? Round::down
                  : mod("rp") || mod("rpi") ? Round::up
                                            : Round::even;
    if (mod("rna")) round = Round::away;
    Instruction& instruction = decoder.instruction();
    const u64 fields[] = {static_cast<u64>(element_of(to)), static_cast<u64>(element_of(from)),
                          static_cast<u64>(round),          whole,
                          mod("sat") || mod("satfinite"),   mod("relu")};
    for (int i = 0; i < 6; ++i) instruction.immediate |= fields[i] << (8 * i);
    instruction.out = decoder.any_target(decoder.operand(0));
    instruction.in[0] = decoder.any_source(decoder.operand(1), from);
    instruction.run = run_convert;
    if (to == element_of(to)) return true;
    instruction.elements = static_cast<u8>(decoder.operands() - 1);
    if (instruction.elements == 2) instruction.in[1] = decoder.any_source(decoder.operand(2), from);
    instruction.run = run_pack;
    return true;
}
}  // namespace ptxemu
