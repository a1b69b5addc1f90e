// Floating point in single and double precision (PTX ISA, "Floating Point Instructions"). The .approx forms give the
// correctly rounded value, which is within their stated error.
#include <cfenv>
#include <cmath>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "bind.hpp"

namespace ptxemu {
namespace {
template <class T>
T add(T a, T b) {
    return a + b;
}
template <class T>
T sub(T a, T b) {
    return a - b;
}
template <class T>
T mul(T a, T b) {
    return a * b;
}
template <class T>
T div(T a, T b) {
    return a / b;
}
template <class T>
T fused(T a, T b, T c) {
    if constexpr (sizeof(T) == 4) return __builtin_fmaf(a, b, c);
    return static_cast<T>(__builtin_fma(a, b, c));
}
template <class T>
T saturate(T a) {
    return a > T{0} ? (a < T{1} ? a : T{1}) : T{0};
}  // NaN becomes 0
float add_sat(float a, float b) { return saturate(a + b); }
float sub_sat(float a, float b) { return saturate(a - b); }
float mul_sat(float a, float b) { return saturate(a * b); }
float fma_sat(float a, float b, float c) { return saturate(__builtin_fmaf(a, b, c)); }

// min and max: of a number and a NaN the number; -0 is less than +0.
template <class T>
T smaller(T a, T b) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <class T>
T larger(T a, T b) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
}
template <class T>
T smaller_nan(T a, T b) {
    return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : smaller(a, b);
}
template <class T>
T larger_nan(T a, T b) {
    return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : larger(a, b);
}

template <class T>
T absolute(T a) {
    return std::fabs(a);
}
template <class T>
T negative(T a) {
    return -a;
}
template <class T>
T reciprocal(T a) {
    return T{1} / a;
}
template <class T>
T root(T a) {
    return std::sqrt(a);
}
template <class T>
T reciprocal_root(T a) {
    return static_cast<T>(1.0 / std::sqrt(static_cast<double>(a)));
}
template <class T>
T with_sign(T a, T b) {
    return std::copysign(b, a);
}  // the sign of a, the size of b

float sine(float a) { return static_cast<float>(std::sin(static_cast<double>(a))); }
float cosine(float a) { return static_cast<float>(std::cos(static_cast<double>(a))); }
float power_of_two(float a) { return static_cast<float>(std::exp2(static_cast<double>(a))); }
float logarithm(float a) { return static_cast<float>(std::log2(static_cast<double>(a))); }
float hyperbolic(float a) { return static_cast<float>(std::tanh(static_cast<double>(a))); }

template <class T>
void add_rows(Table* table, const std::string& type) {
    Table& rows = *table;
    rows["add." + type] = bind<add<T>>;
    rows["sub." + type] = bind<sub<T>>;
    rows["mul." + type] = bind<mul<T>>;
    rows["div." + type] = bind<div<T>>;
    rows["fma." + type] = bind<fused<T>>;
    rows["mad." + type] = bind<fused<T>>;
    rows["min." + type] = bind<smaller<T>>;
    rows["max." + type] = bind<larger<T>>;
    rows["abs." + type] = bind<absolute<T>>;
    rows["neg." + type] = bind<negative<T>>;
    rows["rcp." + type] = bind<reciprocal<T>>;
    rows["sqrt." + type] = bind<root<T>>;
    rows["rsqrt." + type] = bind<reciprocal_root<T>>;
    rows["copysign." + type] = bind<with_sign<T>>;
}

Table make_table() {
    Table table;
    add_rows<float>(&table, "f32");
    add_rows<double>(&table, "f64");
    table["add.sat.f32"] = bind<add_sat>;
    table["sub.sat.f32"] = bind<sub_sat>;
    table["mul.sat.f32"] = bind<mul_sat>;
    table["fma.sat.f32"] = bind<fma_sat>;
    table["min.NaN.f32"] = bind<smaller_nan<float>>;
    table["max.NaN.f32"] = bind<larger_nan<float>>;
    table["sin.f32"] = bind<sine>;
    table["cos.f32"] = bind<cosine>;
    table["ex2.f32"] = bind<power_of_two>;
    table["lg2.f32"] = bind<logarithm>;
    table["tanh.f32"] = bind<hyperbolic>;
    return table;
}

// Runs the inner handler with another rounding, or with subnormals taken as zero.
void run_rounded(Warp& warp, const Instruction& instruction) {
    std::fesetround(static_cast<int>(instruction.immediate));
#if defined(__SSE2__)
    const unsigned before = _mm_getcsr();
    if (instruction.mode != 0) _mm_setcsr(before | 0x8040u);  // flush results, take operands as zero
#endif
    instruction.inner(warp, instruction);
#if defined(__SSE2__)
    _mm_setcsr(before);
#endif
    std::fesetround(FE_TONEAREST);
}
}  // namespace

bool bind_float(Decoder& decoder, const std::string& key) {
    static const Table table = make_table();
    return bind_from(table, decoder, key);
}

void wrap_rounding(Decoder& decoder) {
    const Type type = decoder.type();
    const std::string& op = decoder.statement().op;
    if ((type != Type::f32 && type != Type::f64) || op == "cvt" || op == "setp" || op == "set") return;
    const int rounding = decoder.has("rz")   ? FE_TOWARDZERO
                         : decoder.has("rm") ? FE_DOWNWARD
                         : decoder.has("rp") ? FE_UPWARD
                                             : FE_TONEAREST;
    if (rounding == FE_TONEAREST && !decoder.has("ftz")) return;
    Instruction& instruction = decoder.instruction();
    instruction.inner = instruction.run;
    instruction.run = run_rounded;
    instruction.immediate = static_cast<u64>(rounding);
    instruction.mode = decoder.has("ftz") ? 1 : 0;
}
}  // namespace ptxemu
