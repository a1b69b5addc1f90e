// Conversions between number formats, rounded as the PTX ISA says. The fast ones are inline so that loops over lanes
// vectorise.
#pragma once
#include <cmath>

#include "types.hpp"

namespace ptxemu {
// A double as a float rounded to odd: rounding that once more to 8 or 11 bits is then the same as rounding once.
inline float round_odd(double value) {
    float near = static_cast<float>(value);
    if (std::isnan(value) || static_cast<double>(near) == value) return near;
    u32 bits = bit_cast<u32>(near);
    if (std::fabs(static_cast<double>(near)) > std::fabs(value)) --bits;
    return bit_cast<float>(bits | 1);
}

inline float half_to_float(u16 half) {
    const u32 sign = static_cast<u32>(half & 0x8000u) << 16, body = half & 0x7fffu;
    const float subnormal = static_cast<float>(body) * 0x1p-24f;
    u32 bits = (body << 13) + 0x38000000u;
    bits = body >= 0x7c00u ? (body << 13) | 0x7f800000u : bits;
    bits = body < 0x400u ? bit_cast<u32>(subnormal) : bits;
    return bit_cast<float>(bits | sign);
}

// Round to nearest even; NaN becomes the canonical 0x7fff.
inline u16 float_to_half(float value) {
    const u32 bits = bit_cast<u32>(value), sign = (bits >> 16) & 0x8000u, body = bits & 0x7fffffffu;
    const u32 normal = (body + 0xfffu + ((body >> 13) & 1u) - 0x38000000u) >> 13;
    const u32 subnormal = bit_cast<u32>(bit_cast<float>(body < 0x38800000u ? body : 0u) + 0.5f) - 0x3f000000u;
    u32 half = body < 0x38800000u ? subnormal : normal;
    half = body >= 0x477ff000u ? 0x7c00u : half;  // 65520 and more
    half |= sign;
    return static_cast<u16>(body > 0x7f800000u ? 0x7fffu : half);
}

inline u16 double_to_half(double value) { return float_to_half(round_odd(value)); }

inline float bf16_to_float(u16 value) { return bit_cast<float>(static_cast<u32>(value) << 16); }

inline u16 float_to_bf16(float value) {
    const u32 bits = bit_cast<u32>(value), rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<u16>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

inline u16 double_to_bf16(double value) { return float_to_bf16(round_odd(value)); }

// What a tensor core reads of a float operand of type tf32: the upper 19 bits.
inline float tf32_to_float(u32 bits) { return bit_cast<float>(bits & 0xffffe000u); }

// Rounds to the 10 bits of tf32, ties away from zero (cvt.rna) or to even (cvt.rn).
inline u32 float_to_tf32(float value, bool ties_away) {
    const u32 bits = bit_cast<u32>(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
    return (bits + (ties_away ? 0x1000u : 0xfffu + ((bits >> 13) & 1u))) & 0xffffe000u;
}

// Eight-bit floating point of the OCP: e4m3 (no infinity) and e5m2.
float e4m3_to_float(u8 value);
float e5m2_to_float(u8 value);
u8 float_to_e4m3(float value);  // saturates to the largest finite value
u8 float_to_e5m2(float value);

// The value of one element of `type` (f16, bf16, tf32, f32, e4m3, e5m2, s8, u8, s32) that stands in the low bits.
float element_to_float(u32 bits, Type type);
}  // namespace ptxemu
