// Half precision and bfloat16, single and packed (PTX ISA, "Half Precision Floating Point Instructions").
#include <cmath>

#include "bind.hpp"
#include "formats.hpp"

namespace ptxemu {
namespace {
// Sums and products of two 11-bit numbers are exact in a double except where one addend is lost entirely; what is then
// left of it decides between two ties, so the sum is rounded to odd first.
double exact_sum(double a, double b) {
    const double sum = a + b, back = sum - a, error = (a - (sum - back)) + (b - back);
    const u64 bits = bit_cast<u64>(sum);
    if (error == 0 || (bits & 1) != 0 || std::isnan(error)) return sum;
    return bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

struct Half {
    static float open(u16 bits) { return half_to_float(bits); }
    static u16 close(double value) { return double_to_half(value); }
};
struct Bfloat {
    static float open(u16 bits) { return bf16_to_float(bits); }
    static u16 close(double value) { return double_to_bf16(value); }
};

struct Add {
    static double of(double a, double b) { return a + b; }
};
struct Sub {
    static double of(double a, double b) { return a - b; }
};
struct Mul {
    static double of(double a, double b) { return a * b; }
};
struct Min {
    static double of(double a, double b) {
        return std::isnan(a) ? b : std::isnan(b) ? a : a < b || (a == b && std::signbit(a)) ? a : b;
    }
};
struct Max {
    static double of(double a, double b) {
        return std::isnan(a) ? b : std::isnan(b) ? a : a > b || (a == b && !std::signbit(a)) ? a : b;
    }
};
struct Fma {
    static double of(double a, double b, double c) { return exact_sum(a * b, c); }
};
struct FmaRelu {
    static double of(double a, double b, double c) {
        const double value = Fma::of(a, b, c);
        return value < 0 ? 0 : value;
    }
};
struct FmaSat {
    static double of(double a, double b, double c) {
        const double value = Fma::of(a, b, c);
        return value > 0 ? (value < 1 ? value : 1) : 0;
    }
};
struct Exp2 {
    static double of(double a) { return std::exp2(a); }
};
struct Tanh {
    static double of(double a) { return std::tanh(a); }
};

template <class Format, class Op, class... A>
u16 single(A... bits) {
    return Format::close(Op::of(static_cast<double>(Format::open(bits))...));
}

template <class Format, class Op, class... A>
u32 pair(A... bits) {
    const u32 low = single<Format, Op>(static_cast<u16>(bits)...);
    const u32 high = single<Format, Op>(static_cast<u16>(bits >> 16)...);
    return low | high << 16;
}

u16 absolute(u16 a) { return a & 0x7fff; }
u32 absolute2(u32 a) { return a & 0x7fff7fffu; }
u16 negative(u16 a) { return a ^ 0x8000; }
u32 negative2(u32 a) { return a ^ 0x80008000u; }

template <class Format>
void add_rows(Table* table, const std::string& type) {
    Table& rows = *table;
    const std::string packed = type + "x2";
    rows["add." + type] = bind<single<Format, Add, u16, u16>>;
    rows["sub." + type] = bind<single<Format, Sub, u16, u16>>;
    rows["mul." + type] = bind<single<Format, Mul, u16, u16>>;
    rows["min." + type] = bind<single<Format, Min, u16, u16>>;
    rows["max." + type] = bind<single<Format, Max, u16, u16>>;
    rows["fma." + type] = bind<single<Format, Fma, u16, u16, u16>>;
    rows["fma.relu." + type] = bind<single<Format, FmaRelu, u16, u16, u16>>;
    rows["fma.sat." + type] = bind<single<Format, FmaSat, u16, u16, u16>>;
    rows["ex2." + type] = bind<single<Format, Exp2, u16>>;
    rows["tanh." + type] = bind<single<Format, Tanh, u16>>;
    rows["abs." + type] = bind<absolute>;
    rows["neg." + type] = bind<negative>;
    rows["add." + packed] = bind<pair<Format, Add, u32, u32>>;
    rows["sub." + packed] = bind<pair<Format, Sub, u32, u32>>;
    rows["mul." + packed] = bind<pair<Format, Mul, u32, u32>>;
    rows["min." + packed] = bind<pair<Format, Min, u32, u32>>;
    rows["max." + packed] = bind<pair<Format, Max, u32, u32>>;
    rows["fma." + packed] = bind<pair<Format, Fma, u32, u32, u32>>;
    rows["fma.relu." + packed] = bind<pair<Format, FmaRelu, u32, u32, u32>>;
    rows["fma.sat." + packed] = bind<pair<Format, FmaSat, u32, u32, u32>>;
    rows["ex2." + packed] = bind<pair<Format, Exp2, u32>>;
    rows["tanh." + packed] = bind<pair<Format, Tanh, u32>>;
    rows["abs." + packed] = bind<absolute2>;
    rows["neg." + packed] = bind<negative2>;
}

Table make_table() {
    Table table;
    add_rows<Half>(&table, "f16");
    add_rows<Bfloat>(&table, "bf16");
    return table;
}
}  // namespace

bool bind_half(Decoder& decoder, const std::string& key) {
    static const Table table = make_table();
    const bool directed = decoder.has("rz") || decoder.has("rm") || decoder.has("rp");
    return !directed && bind_from(table, decoder, key);
}
}  // namespace ptxemu
