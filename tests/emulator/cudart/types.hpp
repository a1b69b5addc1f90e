// Integer names, PTX types and state spaces that the whole test double shares.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace ptxemu {
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

constexpr int kLanes = 32;       // threads of a warp
constexpr u32 kEveryLane = ~0u;  // a lane mask with all of them

// The fundamental types of PTX (PTX ISA, "Fundamental Types" and "Packed Data Types") that kernels use.
enum class Type : std::uint8_t {
    none,
    pred,
    b8,
    b16,
    b32,
    b64,
    b128,
    u8,
    u16,
    u32,
    u64,
    s8,
    s16,
    s32,
    s64,
    f16,
    f16x2,
    bf16,
    bf16x2,
    f32,
    f64,
    tf32,
    e4m3,
    e5m2,
    e4m3x2,
    e5m2x2
};

enum class Space : std::uint8_t { generic, global, shared, local, param, constant };
constexpr int kSpaces = 6;

// The type that PTX spells `name` ("f32"), Type::none where it is no type.
Type type_named(const std::string& name);
const char* name_of(Type type);
const char* name_of(Space space);

unsigned size_bytes(Type type);
bool is_signed(Type type);
bool is_float(Type type);

template <class To, class From>
inline To bit_cast(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

inline u64 round_up(u64 value, u64 step) { return (value + step - 1) / step * step; }
}  // namespace ptxemu
