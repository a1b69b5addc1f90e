#include "reduce.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "../cudart/formats.hpp"

namespace ncclemu {
namespace {
template <class T>
T combined(int op, T a, T b) {
    if (op == kMax) return std::max(a, b);
    if (op == kMin) return std::min(a, b);
    if constexpr (std::is_integral_v<T>) {  // wraps round, as NCCL's does
        using Wide = std::make_unsigned_t<std::common_type_t<T, int>>;
        const auto x = static_cast<Wide>(a), y = static_cast<Wide>(b);
        return static_cast<T>(op == kProd ? x * y : x + y);
    } else {
        return op == kProd ? a * b : a + b;
    }
}

// Value: what is calculated with; `load` and `store` convert an element.
template <class Stored, class Value, class Load, class Store>
void run(int op, const u8* parts, int ranks, std::size_t count, u8* result, Load load, Store store) {
    const auto element = [&](int rank, std::size_t i) {
        Stored stored;
        std::memcpy(&stored, parts + (static_cast<std::size_t>(rank) * count + i) * sizeof stored, sizeof stored);
        return static_cast<Value>(load(stored));
    };
    for (std::size_t i = 0; i < count; ++i) {
        Value value = element(0, i);
        for (int rank = 1; rank < ranks; ++rank) value = combined(op, value, element(rank, i));
        if (op == kAvg) value = static_cast<Value>(value / static_cast<Value>(ranks));
        const Stored stored = store(value);
        std::memcpy(result + i * sizeof stored, &stored, sizeof stored);
    }
}

template <class T>
void plain(int op, const u8* parts, int ranks, std::size_t count, u8* result) {
    const auto same = [](T value) { return value; };
    run<T, T>(op, parts, ranks, count, result, same, same);
}
}  // namespace

void reduce(int type, int op, const u8* parts, int ranks, std::size_t count, u8* result) {
    using namespace ptxemu;
    switch (type) {
        case kI8:
            return plain<std::int8_t>(op, parts, ranks, count, result);
        case kU8:
            return plain<std::uint8_t>(op, parts, ranks, count, result);
        case kI32:
            return plain<std::int32_t>(op, parts, ranks, count, result);
        case kU32:
            return plain<std::uint32_t>(op, parts, ranks, count, result);
        case kI64:
            return plain<std::int64_t>(op, parts, ranks, count, result);
        case kU64:
            return plain<std::uint64_t>(op, parts, ranks, count, result);
        case kF32:
            return plain<float>(op, parts, ranks, count, result);
        case kF64:
            return plain<double>(op, parts, ranks, count, result);
        case kF16:
            return run<std::uint16_t, float>(op, parts, ranks, count, result, half_to_float, float_to_half);
        case kBF16:
            return run<std::uint16_t, float>(op, parts, ranks, count, result, bf16_to_float, float_to_bf16);
        case kE4M3:
            return run<std::uint8_t, float>(op, parts, ranks, count, result, e4m3_to_float, float_to_e4m3);
        default:
            return run<std::uint8_t, float>(op, parts, ranks, count, result, e5m2_to_float, float_to_e5m2);
    }
}
}  // namespace ncclemu
