#include "formats.hpp"

namespace ptxemu {
namespace {
// An 8-bit float with `mantissa` bits and the exponent bias `bias`; `largest` is its largest finite value's code.
struct Small {
    int mantissa;
    int bias;
    u8 largest;
    u8 nan;
};
constexpr Small kE4m3{3, 7, 0x7e, 0x7f};
constexpr Small kE5m2{2, 15, 0x7b, 0x7f};

float decode_finite(u8 body, const Small& format) {
    const int exponent = body >> format.mantissa, fraction = body & ((1 << format.mantissa) - 1);
    if (exponent == 0) return std::ldexp(static_cast<float>(fraction), 1 - format.bias - format.mantissa);
    return std::ldexp(static_cast<float>(fraction + (1 << format.mantissa)), exponent - format.bias - format.mantissa);
}

u8 encode(float value, const Small& format) {
    const u8 sign = std::signbit(value) ? 0x80 : 0;
    if (std::isnan(value)) return sign | format.nan;
    const float size = std::fabs(value);
    if (size >= decode_finite(format.largest, format)) return sign | format.largest;
    if (size == 0) return sign;
    int exponent = 0;
    std::frexp(size, &exponent);  // size = f * 2^exponent, f in [0.5, 1)
    const int lowest = 1 - format.bias - format.mantissa;
    const int unit = std::max(exponent - 1 - format.mantissa, lowest);
    const int steps = static_cast<int>(std::nearbyint(std::ldexp(size, -unit)));  // ties to even
    // Steps beyond the mantissa carry into the exponent, which is what the next larger number is called.
    return static_cast<u8>(sign | (((unit - lowest) << format.mantissa) + steps));
}
}  // namespace

float e4m3_to_float(u8 value) {
    const u8 body = value & 0x7f;
    if (body == 0x7f) return std::nanf("");
    const float size = decode_finite(body, kE4m3);
    return value & 0x80 ? -size : size;
}

float e5m2_to_float(u8 value) { return half_to_float(static_cast<u16>(value << 8)); }
u8 float_to_e4m3(float value) { return encode(value, kE4m3); }
u8 float_to_e5m2(float value) { return encode(value, kE5m2); }

float element_to_float(u32 bits, Type type) {
    switch (type) {
        case Type::f16:
            return half_to_float(static_cast<u16>(bits));
        case Type::bf16:
            return bf16_to_float(static_cast<u16>(bits));
        case Type::tf32:
            return tf32_to_float(bits);
        case Type::e4m3:
            return e4m3_to_float(static_cast<u8>(bits));
        case Type::e5m2:
            return e5m2_to_float(static_cast<u8>(bits));
        case Type::s8:
            return static_cast<float>(static_cast<s8>(bits));
        case Type::u8:
            return static_cast<float>(static_cast<u8>(bits));
        default:
            return bit_cast<float>(bits);
    }
}
}  // namespace ptxemu
