#include "types.hpp"

#include <array>

namespace ptxemu {
namespace {
struct Row {
    const char* name;
    unsigned bytes;
};
// In the order of Type.
constexpr std::array<Row, 26> kTypes{{{"none", 4},   {"pred", 4},  {"b8", 1},  {"b16", 2},  {"b32", 4},   {"b64", 8},
                                      {"b128", 16},  {"u8", 1},    {"u16", 2}, {"u32", 4},  {"u64", 8},   {"s8", 1},
                                      {"s16", 2},    {"s32", 4},   {"s64", 8}, {"f16", 2},  {"f16x2", 4}, {"bf16", 2},
                                      {"bf16x2", 4}, {"f32", 4},   {"f64", 8}, {"tf32", 4}, {"e4m3", 1},  {"e5m2", 1},
                                      {"e4m3x2", 2}, {"e5m2x2", 2}}};
constexpr std::array<const char*, kSpaces> kSpaceNames{"generic", "global", "shared", "local", "param", "const"};
}  // namespace

Type type_named(const std::string& name) {
    for (std::size_t i = 1; i < kTypes.size(); ++i) {
        if (name == kTypes[i].name) return static_cast<Type>(i);
    }
    return Type::none;
}

const char* name_of(Type type) { return kTypes[static_cast<std::size_t>(type)].name; }
const char* name_of(Space space) { return kSpaceNames[static_cast<std::size_t>(space)]; }
unsigned size_bytes(Type type) { return kTypes[static_cast<std::size_t>(type)].bytes; }
bool is_signed(Type type) { return type >= Type::s8 && type <= Type::s64; }
bool is_float(Type type) { return type >= Type::f16 && type <= Type::tf32; }
}  // namespace ptxemu
